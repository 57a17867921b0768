"""Our statistical detectors, as the job runs them: tallies of the weeks before, bands, incidents."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import SparkSession

from benchmarks.anomalies.faults import START, TRAINING, WEEK, World
from benchmarks.anomalies.scores import Incident
from tarry.edges.spark.schemas import EVENTS
from tarry.edges.spark.transforms.anomalies import baselines
from tarry.edges.spark.transforms.anomalies.builtin import STATISTICAL
from tarry.edges.spark.transforms.anomalies.context import PROFILES, QUEUES, DetectorContext
from tarry.edges.spark.transforms.anomalies.registry import Registry, detected


def detected_incidents(
    spark: SparkSession, world: World, registry: Registry = STATISTICAL
) -> list[tuple[str, Incident]]:
    since = START + timedelta(minutes=TRAINING)
    until = since + timedelta(minutes=WEEK)
    rows = [(i, name, None, START, None, "events") for i, name in world.queues]
    queues = spark.createDataFrame(rows, QUEUES)
    minutes = spark.createDataFrame(world.minutes)
    tallies = baselines.tallied_series(baselines.series(minutes, queues, START, until)).localCheckpoint()
    days = [(since + timedelta(days=n)).date() for n in range(WEEK // 1440)]
    events = spark.createDataFrame([], EVENTS)
    context = DetectorContext(
        events=events,
        idle=events,
        metrics=minutes,
        series=baselines.series(minutes, queues, since, until).localCheckpoint(),
        queues=queues,
        profiles=spark.createDataFrame([], PROFILES),
        bands=baselines.bands(tallies, days).localCheckpoint(),
        since=since,
        until=until,
        minutes_since=since,
    )
    rows = detected(context, registry).select("detector", "queue_id", "window_from", "window_to", "sentence").collect()
    return [
        (row.detector, (row.queue_id, row.window_from.astimezone(since.tzinfo), row.window_to.astimezone(since.tzinfo)))
        for row in rows
    ]
