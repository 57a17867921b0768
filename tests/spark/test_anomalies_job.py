"""The job from end to end: archived, judged, published once, acknowledged and muted."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tarry.app import App
from tarry.core.anomalies import Severity
from tarry.core.errors import UnknownQueue
from tarry.core.limits import DROP_ALL_CONFIRMATION
from tarry.core.messages import Message
from tarry.edges.spark.jobs import anomalies, archive
from tarry.edges.spark.jobs.anomalies import AnomaliesArgs, AnomaliesSummary
from tarry.edges.spark.jobs.archive import ArchiveArgs
from tarry.edges.spark.transforms.anomalies.builtin import BUILT_IN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW = BUILT_IN.only("large_payload", "bulk_enqueue", "dlq_movement", "queue_cleared", "unusual_offers")
"""Rules that need no past, and one that does: a run of all of them takes long on a small machine."""


def run(spark: SparkSession, app: App, lake: str, **given: Any) -> AnomaliesSummary:
    archive.run(spark, app, ArchiveArgs(lake=lake))
    return anomalies.run(spark, app, AnomaliesArgs(**{"lake": lake, "registry": FEW, **given}))


def trouble(app: App) -> None:
    orders = app.queue("orders")
    orders.offer("large", "x" * 6_000)
    orders.offer_many([Message(key=f"k{i}", payload=i) for i in range(12)])
    delivery = orders.try_poll()
    assert delivery is not None
    delivery.bury("hopeless")


def test_what_is_found_is_published_once_however_often_it_is_found(
    spark: SparkSession, pipeline_app: App, lake: str
) -> None:
    trouble(pipeline_app)
    first = run(spark, pipeline_app, lake)
    assert first.by_detector == {"bulk_enqueue": 1, "dlq_movement": 1, "large_payload": 1}
    assert (first.raised, first.muted, first.withdrawn) == (3, 0, 0)
    alerts = pipeline_app.pipeline.alerts
    before = alerts.list()
    assert {(one.detector, one.severity) for one in before} == {
        ("bulk_enqueue", Severity.INFO),
        ("dlq_movement", Severity.WARNING),
        ("large_payload", Severity.INFO),
    }

    again = run(spark, pipeline_app, lake)
    assert (again.found, again.raised, again.withdrawn) == (3, 0, 0)
    assert alerts.list() == before
    stored = spark.read.parquet(f"file:{lake}/anomalies")
    assert sorted(row.fingerprint for row in stored.collect()) == sorted(one.fingerprint for one in before)


def test_the_evidence_is_a_query_that_shows_it(spark: SparkSession, pipeline_app: App, lake: str) -> None:
    trouble(pipeline_app)
    run(spark, pipeline_app, lake)
    assert pipeline_app.dsn is not None
    with psycopg.connect(pipeline_app.dsn) as conn:
        rows = {
            one.detector: conn.execute(one.evidence.encode()).fetchall() for one in pipeline_app.pipeline.alerts.list()
        }
    assert {name: len(found) for name, found in rows.items()} == {
        "bulk_enqueue": 12,
        "dlq_movement": 3,
        "large_payload": 3,
    }


def test_an_acknowledged_anomaly_stays_acknowledged(spark: SparkSession, pipeline_app: App, lake: str) -> None:
    trouble(pipeline_app)
    run(spark, pipeline_app, lake)
    alerts = pipeline_app.pipeline.alerts
    (buried,) = alerts.list(detector="dlq_movement")
    assert alerts.acknowledge([buried.id], by="tester", note="known") == 1
    assert alerts.acknowledge([buried.id], by="somebody else") == 0
    run(spark, pipeline_app, lake)
    (after,) = alerts.list(acknowledged=True)
    assert (after.id, after.acknowledged_by, after.note) == (buried.id, "tester", "known")
    assert {one.detector for one in alerts.list(acknowledged=False)} == {"bulk_enqueue", "large_payload"}


def test_what_is_muted_is_not_raised_until_it_is_unmuted(spark: SparkSession, pipeline_app: App, lake: str) -> None:
    trouble(pipeline_app)
    alerts = pipeline_app.pipeline.alerts
    mute = alerts.mute(detector="bulk_enqueue", queue="orders", reason="the nightly import")
    pipeline_app.queues.create("other")
    alerts.mute(detector="dlq_movement", queue="other", reason="another queue")
    summary = run(spark, pipeline_app, lake)
    assert (summary.raised, summary.muted) == (2, 1)
    assert {one.detector for one in alerts.list()} == {"dlq_movement", "large_payload"}
    assert {one.reason for one in alerts.mutes()} == {"the nightly import", "another queue"}

    assert alerts.unmute(mute.id)
    assert not alerts.unmute(mute.id)
    assert run(spark, pipeline_app, lake).raised == 1
    assert "bulk_enqueue" in {one.detector for one in alerts.list()}


def test_new_events_are_judged_by_the_next_run(spark: SparkSession, pipeline_app: App, lake: str) -> None:
    trouble(pipeline_app)
    run(spark, pipeline_app, lake)
    pipeline_app.queue("orders").drop_all(DROP_ALL_CONFIRMATION)
    summary = run(spark, pipeline_app, lake)
    assert (summary.raised, summary.by_detector["queue_cleared"]) == (1, 1)
    assert "1 of them new" in summary.line()


def test_without_an_archive_there_is_nothing_to_judge(spark: SparkSession, pipeline_app: App, lake: str) -> None:
    summary = anomalies.run(spark, pipeline_app, AnomaliesArgs(lake=lake))
    assert summary.days == ()
    assert "nothing is archived" in summary.line()


FOUND = {
    "detector": "d", "detector_version": 1, "severity": "info", "queue_id": 1, "queue": "q", "sentence": "s",
    "evidence": "select 1", "window_from": "2026-11-16T12:00:00Z", "window_to": "2026-11-16T12:05:00Z", "score": 1.5,
}  # fmt: skip
DAY = datetime(2026, 11, 16, tzinfo=UTC)


def publish(app: App, *fingerprints: str, since: datetime = DAY, detectors: tuple[str, ...] = ("d",), **more: Any):
    import json

    rows = [json.dumps({**FOUND, "fingerprint": one, **more}) for one in fingerprints]
    return app.pipeline.alerts.publish(
        rows, detectors=detectors, since=since, until=since + timedelta(days=1), run_id=1
    )


def test_what_is_not_found_any_more_is_withdrawn_unless_it_was_acknowledged(pipeline_app: App) -> None:
    publish(pipeline_app, "a", "b", "c")
    alerts = pipeline_app.pipeline.alerts
    kept = next(one for one in alerts.list() if one.fingerprint == "b")
    alerts.acknowledge([kept.id])
    assert publish(pipeline_app, "a").withdrawn == 1
    assert {one.fingerprint for one in alerts.list()} == {"a", "b"}


def test_only_what_was_judged_is_withdrawn(pipeline_app: App) -> None:
    publish(pipeline_app, "a")
    assert publish(pipeline_app, since=DAY + timedelta(days=1)).withdrawn == 0
    assert publish(pipeline_app, detectors=("other",)).withdrawn == 0
    assert publish(pipeline_app).withdrawn == 1


def test_an_incident_that_grew_is_the_same_one(pipeline_app: App) -> None:
    publish(pipeline_app, "a")
    said = publish(pipeline_app, "a", window_to="2026-11-16T12:09:00Z", sentence="more")
    assert (said.raised, said.changed) == (0, 1)
    (one,) = pipeline_app.pipeline.alerts.list()
    assert (one.sentence, one.window_to) == ("more", DAY.replace(hour=12, minute=9))


def test_what_happened_during_a_mute_stays_muted_after_it(pipeline_app: App) -> None:
    """The next run looks at the same day again; it must not raise then what was muted before."""
    now = datetime.now(UTC)
    pipeline_app.pipeline.alerts.mute(until=now - timedelta(seconds=1), reason="all of it")
    during: dict[str, Any] = {
        "window_from": (now - timedelta(minutes=1)).isoformat(),
        "window_to": (now + timedelta(minutes=1)).isoformat(),
    }
    after: dict[str, Any] = {"window_from": now.isoformat(), "window_to": (now + timedelta(minutes=1)).isoformat()}
    assert publish(pipeline_app, "a", since=now, **during).muted == 1
    assert publish(pipeline_app, "b", since=now, **after).raised == 1
    assert pipeline_app.pipeline.alerts.mutes() == []


def test_anomalies_are_listed_by_what_is_asked_for(pipeline_app: App) -> None:
    pipeline_app.queues.create("q")
    publish(pipeline_app, "a", detectors=())
    publish(pipeline_app, "b", detectors=(), severity="critical", detector="e", window_to="2026-11-16T13:00:00Z")
    alerts = pipeline_app.pipeline.alerts

    def listed(**asked: Any) -> list[str]:
        return [one.fingerprint for one in alerts.list(**asked)]

    assert listed() == ["b", "a"]
    assert listed(limit=1) == listed(severity=Severity.CRITICAL) == listed(detector="e") == ["b"]
    assert listed(since=DAY.replace(hour=12, minute=30)) == ["b"]
    assert listed(until=DAY.replace(hour=12)) == []
    assert listed(queue="q") == ["b", "a"]
    with pytest.raises(UnknownQueue):
        listed(queue="nothing")


def test_arguments_are_values() -> None:
    assert replace(AnomaliesArgs(), lake="x") == AnomaliesArgs(lake="x")
