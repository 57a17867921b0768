"""The job from end to end: archived, judged, published once, acknowledged and muted."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tarry.app import App
from tarry.core.analytics.anomalies import Severity
from tarry.core.errors import UnknownQueue
from tarry.core.limits import PURGE_CONFIRMATION
from tarry.core.messages.model import Message
from tarry.edges.spark.jobs import anomalies, archive
from tarry.edges.spark.jobs.anomalies import AnomaliesArgs, AnomaliesSummary
from tarry.edges.spark.jobs.archive import ArchiveArgs
from tarry.edges.spark.lake.lake import Lake
from tarry.edges.spark.lake.tables import LakeTable
from tarry.edges.spark.sizing import sized_for
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


def test_an_anomaly_is_published_once_and_its_acknowledgement_is_respected(
    spark: SparkSession, pipeline_app: App, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One story of three runs, since each of them takes seconds: muted, acknowledged, nothing new, and then something new."""
    trouble(pipeline_app)
    alerts, analytics, do = pipeline_app.pipeline.anomalies, pipeline_app.store.analytics, pipeline_app.store.run
    mute = do(analytics.mute(detector="bulk_enqueue", queue="orders", until=None, reason="the nightly import"))
    pipeline_app.queues.create("other")
    do(analytics.mute(detector="dlq_movement", queue="other", until=None, reason="another queue"))
    first = run(spark, pipeline_app, lake)
    assert first.by_detector == {"bulk_enqueue": 1, "dlq_movement": 1, "large_payload": 1}
    assert (first.raised, first.muted, first.withdrawn) == (2, 1, 0)
    assert {(item.detector, item.severity) for item in alerts.list()} == {
        ("dlq_movement", Severity.WARNING),
        ("large_payload", Severity.INFO),
    }
    assert {item.reason for item in do(analytics.mutes())} == {"the nightly import", "another queue"}

    (buried,) = alerts.list(detector="dlq_movement")
    assert alerts.acknowledge([buried.id], by="tester", note="known") == 1
    assert alerts.acknowledge([buried.id], by="another") == 0
    assert do(analytics.unmute(mute.id))
    assert not do(analytics.unmute(mute.id))
    before = {item.fingerprint: item for item in alerts.list()}
    sizes: list[int | None] = []
    monkeypatch.setattr(anomalies, "sized_for", lambda spark, rows: sizes.append(rows) or sized_for(spark, rows))
    second = run(spark, pipeline_app, lake)
    assert (second.anomalies, second.raised, second.withdrawn) == (0, 0, 0), "events are judged once"
    assert sizes[0] == sum(file.rows for file in LakeTable(Lake.at(lake), "open").files()), "read by themselves"
    after = {item.fingerprint: item for item in alerts.list()}
    assert after == before
    (acknowledged,) = alerts.list(acknowledged=True)
    assert (acknowledged.id, acknowledged.acknowledged_by, acknowledged.note) == (buried.id, "tester", "known")
    assert {item.detector for item in alerts.list(acknowledged=False)} == {"large_payload"}
    assert shown_by_evidence(pipeline_app) == {"dlq_movement": 3, "large_payload": 3}
    stored = LakeTable(Lake.at(lake), "anomalies").read(spark)
    assert stored is not None
    rows = {row.fingerprint: row.detector for row in stored.collect()}
    assert after.keys() < rows.keys()
    assert sorted(rows.values()) == ["bulk_enqueue", "dlq_movement", "large_payload"], (
        "the lake has the muted one as well"
    )

    pipeline_app.queue("orders").purge(PURGE_CONFIRMATION)
    third = run(spark, pipeline_app, lake)
    assert (third.raised, third.by_detector["queue_cleared"], third.withdrawn) == (1, 1, 0)
    assert "1 of them new" in third.line()


def shown_by_evidence(app: App) -> dict[str, int]:
    """How many rows the query of each anomaly finds."""
    assert app.dsn is not None
    with psycopg.connect(app.dsn) as conn:
        return {
            anomaly.detector: len(conn.execute(anomaly.evidence.encode()).fetchall())
            for anomaly in app.pipeline.anomalies.list()
        }


def test_without_an_archive_there_is_nothing_to_judge(spark: SparkSession, pipeline_app: App, lake: str) -> None:
    summary = anomalies.run(spark, pipeline_app, AnomaliesArgs(lake=lake))
    assert summary.days == ()
    assert "nothing is archived" in summary.line()


INCIDENT = {
    "detector": "d", "detector_version": 1, "severity": "info", "queue_id": 1, "queue": "q", "sentence": "s",
    "evidence": "select 1", "window_from": "2026-11-16T12:00:00Z", "window_to": "2026-11-16T12:05:00Z", "score": 1.5,
}  # fmt: skip
DAY = datetime(2026, 11, 16, tzinfo=UTC)


def publish(app: App, *fingerprints: str, since: datetime = DAY, detectors: tuple[str, ...] = ("d",), **more: Any):
    import json

    rows = [json.dumps({**INCIDENT, "fingerprint": fingerprint, **more}) for fingerprint in fingerprints]
    return app.pipeline.anomalies.publish(
        rows, detectors=detectors, since=since, until=since + timedelta(days=1), run_id=1
    )


def test_what_is_not_found_any_more_is_withdrawn_unless_it_was_acknowledged(pipeline_app: App) -> None:
    publish(pipeline_app, "a", "b", "c")
    alerts = pipeline_app.pipeline.anomalies
    kept = next(anomaly for anomaly in alerts.list() if anomaly.fingerprint == "b")
    alerts.acknowledge([kept.id])
    assert publish(pipeline_app, "a").withdrawn == 1
    assert {anomaly.fingerprint for anomaly in alerts.list()} == {"a", "b"}


def test_only_what_was_judged_is_withdrawn(pipeline_app: App) -> None:
    publish(pipeline_app, "a")
    assert publish(pipeline_app, since=DAY + timedelta(days=1)).withdrawn == 0
    assert publish(pipeline_app, detectors=("other",)).withdrawn == 0
    assert publish(pipeline_app).withdrawn == 1


def test_an_incident_that_grew_is_the_same_one(pipeline_app: App) -> None:
    publish(pipeline_app, "a")
    summary = publish(pipeline_app, "a", window_to="2026-11-16T12:09:00Z", sentence="more")
    assert (summary.raised, summary.changed) == (0, 1)
    (anomaly,) = pipeline_app.pipeline.anomalies.list()
    assert (anomaly.sentence, anomaly.window_to) == ("more", DAY.replace(hour=12, minute=9))


def test_what_happened_during_a_mute_stays_muted_after_it(pipeline_app: App) -> None:
    """The next run looks at the same day again; it must not raise then what was muted before."""
    now = datetime.now(UTC)
    store = pipeline_app.store
    store.run(store.analytics.mute(detector=None, queue=None, until=now - timedelta(seconds=1), reason="all of it"))
    during: dict[str, Any] = {
        "window_from": (now - timedelta(minutes=1)).isoformat(),
        "window_to": (now + timedelta(minutes=1)).isoformat(),
    }
    after: dict[str, Any] = {"window_from": now.isoformat(), "window_to": (now + timedelta(minutes=1)).isoformat()}
    assert publish(pipeline_app, "a", since=now, **during).muted == 1
    assert publish(pipeline_app, "b", since=now, **after).raised == 1
    assert store.run(store.analytics.mutes()) == []


def test_a_false_positive_raises_the_threshold_of_its_detector_for_its_queue_and_consumer(pipeline_app: App) -> None:
    pipeline_app.queues.create("q")
    publish(pipeline_app, "a", detectors=(), score=5.0)
    alerts = pipeline_app.pipeline.anomalies
    (anomaly,) = alerts.list()
    assert alerts.acknowledge([anomaly.id], by="one", note="seen") == 1
    assert alerts.acknowledge([anomaly.id], by="two", note="no", is_false_positive=True) == 1
    assert alerts.acknowledge([anomaly.id], is_false_positive=True) == 0
    (marked,) = alerts.list(acknowledged=True)
    assert (marked.is_false_positive, marked.acknowledged_by, marked.note) == (True, "one", "seen")
    assert publish(pipeline_app, "b", detectors=(), score=5.0).muted == 1
    assert publish(pipeline_app, "c", detectors=(), score=5.1).raised == 1
    assert publish(pipeline_app, "d", detectors=(), score=4.0, consumer="other").raised == 1
    assert publish(pipeline_app, "e", detectors=(), score=4.0, detector="other").raised == 1
    later: dict[str, Any] = {"window_from": "2027-03-16T12:00:00Z", "window_to": "2027-03-16T12:05:00Z", "score": 4.0}
    assert publish(pipeline_app, "f", detectors=(), **later).raised == 1


def test_anomalies_are_listed_by_the_given_filters(pipeline_app: App) -> None:
    pipeline_app.queues.create("q")
    publish(pipeline_app, "a", detectors=())
    publish(pipeline_app, "b", detectors=(), severity="critical", detector="e", window_to="2026-11-16T13:00:00Z")
    alerts = pipeline_app.pipeline.anomalies

    def listed(**filters: Any) -> list[str]:
        return [anomaly.fingerprint for anomaly in alerts.list(**filters)]

    assert listed() == ["b", "a"]
    assert listed(limit=1) == listed(severity=Severity.CRITICAL) == listed(detector="e") == ["b"]
    assert listed(since=DAY.replace(hour=12, minute=30)) == ["b"]
    assert listed(until=DAY.replace(hour=12)) == []
    assert listed(queue="q") == ["b", "a"]
    with pytest.raises(UnknownQueue):
        listed(queue="nothing")


def test_arguments_are_values() -> None:
    assert replace(AnomaliesArgs(), lake="x") == AnomaliesArgs(lake="x")
