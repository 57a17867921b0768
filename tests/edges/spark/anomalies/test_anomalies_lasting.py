"""What lasts longer than the frames of a run reach back: one anomaly, whatever day it is judged on."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

import psycopg

from tarry.app import App
from tarry.core.analytics.anomalies import Anomaly
from tarry.edges.spark.jobs import anomalies, archive
from tarry.edges.spark.jobs.anomalies import AnomaliesArgs
from tarry.edges.spark.jobs.archive import JOB as ARCHIVE
from tarry.edges.spark.jobs.archive import ArchiveArgs
from tarry.edges.spark.lake.lake import Lake
from tarry.edges.spark.lake.tables import LakeTable
from tarry.edges.spark.sizing import local_frame
from tarry.edges.spark.transforms.anomalies import profiles
from tarry.edges.spark.transforms.anomalies.builtin import BUILT_IN
from tarry.edges.spark.transforms.anomalies.context import CONTINUABLE, continued

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LASTING = BUILT_IN.only("zombie_message", "unusual_offers")


def test_a_zombie_and_a_stall_stay_the_same_anomalies_when_the_frames_begin_after_them(
    spark: SparkSession, pipeline_app: App, lake: str
) -> None:
    orders = pipeline_app.queue("orders")
    orders.offer("k", 1)
    assert orders.try_poll(lease_for=timedelta(seconds=1)) is not None
    assert pipeline_app.dsn is not None
    with psycopg.connect(pipeline_app.dsn) as conn:
        conn.execute("update tarry.event set at = at - interval '1 min', lease_until = lease_until - interval '1 min'")
    today = datetime.combine(datetime.now(UTC).date(), time(), UTC)
    ten_a_minute(spark, pipeline_app, lake, today)
    archive.run(spark, pipeline_app, ArchiveArgs(lake=lake))

    def on_day(n: int) -> anomalies.AnomaliesSummary:
        until = today + timedelta(days=n, hours=12)
        return anomalies.run(spark, pipeline_app, AnomaliesArgs(lake=lake, registry=LASTING, until=until))

    alerts = pipeline_app.pipeline.anomalies
    assert on_day(2).raised == 2
    first = by_detector(alerts.list())
    alerts.acknowledge([first["unusual_offers"].id], by="tester")
    summary = on_day(3)
    assert (summary.anomalies, summary.raised, summary.changed, summary.withdrawn) == (1, 0, 1, 0)
    after = by_detector(alerts.list())
    assert {name: (anomaly.id, anomaly.window_from) for name, anomaly in after.items()} == {
        name: (anomaly.id, anomaly.window_from) for name, anomaly in first.items()
    }
    assert after["unusual_offers"].window_to == today + timedelta(days=3, hours=12)
    archived = pipeline_app.pipeline.manifest.last_run(ARCHIVE, Lake.at(lake).root)
    assert archived is not None
    assert after["zombie_message"].window_to == archived.started_at, "later events are not known, whatever `until` is"
    assert after["unusual_offers"].acknowledged_by == "tester"
    lasted = round((after["unusual_offers"].window_to - after["unusual_offers"].window_from) / timedelta(minutes=1))
    assert f"It lasted {lasted} min." in after["unusual_offers"].sentence
    assert "no consumer has leased it since" in after["zombie_message"].sentence


def by_detector(listed: list[Anomaly]) -> dict[str, Anomaly]:
    assert len(listed) == len({item.detector for item in listed})
    return {item.detector: item for item in listed}


def ten_a_minute(spark: SparkSession, app: App, lake: str, today: datetime) -> None:
    """The two weeks before, as a run would have tallied them."""
    (queue,) = app.pipeline.anomalies.queues()
    rows = [
        (day.date(), queue[0], None, "offered", scale, day.weekday() * 24 + hour, (10.0 * scale) ** 0.5, 60)
        for day in (today - timedelta(days=n) for n in range(1, 15))
        for hour in range(24)
        for scale in (5, 30)
    ]
    tallies = local_frame(spark, rows, profiles.TALLIES).selectExpr("1L as round", "*")
    LakeTable(Lake.at(lake), "baselines").commit(tallies.coalesce(1), [], 1)


DAY = datetime(2026, 11, 16, tzinfo=UTC)
INCIDENTS = "queue_id int, key string, window_from timestamp, window_to timestamp"


def incidents_of(spark: SparkSession, *, key: str, hours: tuple[int, int]) -> Any:
    frm, to = (DAY + timedelta(hours=n) for n in hours)
    return local_frame(spark, [("d", 1, "orders", key, None, frm, to, 1.0, None, None)], CONTINUABLE)


def begins(spark: SparkSession, before: Any, *incidents: tuple[str, int, int]) -> list[tuple[str, int]]:
    rows = [(1, key, DAY + timedelta(hours=frm), DAY + timedelta(hours=to)) for key, frm, to in incidents]
    after = continued(local_frame(spark, rows, INCIDENTS), before).collect()
    return sorted((row.key, (row.window_from.astimezone(UTC) - DAY) // timedelta(hours=1)) for row in after)


def test_what_meets_an_older_one_of_its_subject_begins_with_it(spark: SparkSession) -> None:
    before = incidents_of(spark, key="a", hours=(-40, -20))
    assert begins(spark, before, ("a", -24, 5), ("b", -24, 5)) == [("a", -40), ("b", -24)]
    assert begins(spark, before, ("a", -19, 5)) == [("a", -19)]


def test_of_several_that_meet_an_older_one_the_first_goes_on_with_it(spark: SparkSession) -> None:
    before = incidents_of(spark, key="a", hours=(-40, -10))
    assert begins(spark, before, ("a", -24, -22), ("a", -12, 5)) == [("a", -40), ("a", -12)]


def test_a_finding_may_have_any_columns_and_equal_ones_stay(spark: SparkSession) -> None:
    before = incidents_of(spark, key="a", hours=(-40, -20))
    row = (1, "a", DAY - timedelta(hours=24), DAY, {"by": "hand"})
    findings = local_frame(spark, [row, row], f"{INCIDENTS}, notes map<string, string>")
    after = continued(findings, before).collect()
    assert [(item.notes, item.window_from.astimezone(UTC)) for item in after] == [
        ({"by": "hand"}, DAY - timedelta(hours=40))
    ] * 2
