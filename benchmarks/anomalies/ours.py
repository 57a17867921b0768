"""Our statistical detectors, as the job runs them: tallies of the weeks before, bands, incidents."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import SparkSession

from benchmarks.anomalies.faults import START, World
from benchmarks.anomalies.scores import Incident
from tarry.edges.spark.jobs.anomalies import MINUTES_BACK
from tarry.edges.spark.schemas import EVENTS
from tarry.edges.spark.sizing import sized_for
from tarry.edges.spark.transforms.anomalies import baselines
from tarry.edges.spark.transforms.anomalies.builtin import STATISTICAL
from tarry.edges.spark.transforms.anomalies.context import PROFILES, QUEUES, DetectorContext
from tarry.edges.spark.transforms.anomalies.registry import Registry, detected


def detected_incidents(
    spark: SparkSession, world: World, registry: Registry = STATISTICAL
) -> list[tuple[str, Incident]]:
    lives = world.lives or ((START, None),) * len(world.queues)
    rows = [(i, name, None, *life, "events") for (i, name), life in zip(world.queues, lives, strict=True)]
    queues = spark.createDataFrame(rows, QUEUES)
    minutes = spark.createDataFrame(world.minutes)
    calendar, since, until = registry.calendar, world.since, world.until
    days = [(since + timedelta(days=n)).date() for n in range(-((since - until) // timedelta(days=1)))]
    size = len(rows) * int((until - since + MINUTES_BACK) / timedelta(minutes=1)) * len(baselines.METRICS)
    with sized_for(spark, size) as layout:
        everything = layout.read(baselines.series(minutes, queues, START, until, calendar)).localCheckpoint()
        tallies = baselines.tallied_series(everything).localCheckpoint()
        events = spark.createDataFrame([], EVENTS)
        context = DetectorContext(
            events=events,
            idle=events,
            metrics=minutes,
            series=everything.where(f"minute >= timestamp '{(since - MINUTES_BACK).isoformat()}'"),
            queues=queues,
            profiles=spark.createDataFrame([], PROFILES),
            bands=baselines.bands(tallies, days, calendar).localCheckpoint(),
            since=since,
            until=until,
            minutes_since=since,
        )
        findings = detected(context, registry, lambda frame: frame.localCheckpoint())
        columns = ("detector", "queue_id", "window_from", "window_to", "sentence")
        incidents = findings.select(*columns).collect()
    return [
        (row.detector, (row.queue_id, row.window_from.astimezone(since.tzinfo), row.window_to.astimezone(since.tzinfo)))
        for row in incidents
    ]
