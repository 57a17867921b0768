# pyright: basic
"""Messages from the archive, offered again."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession

from tarry import Message, Queue, QueueSettings
from tarry.app import App
from tarry.core.errors import InvalidInput, InvalidState
from tarry.core.journal.events import JournalLevel
from tarry.edges.spark.jobs import archive, replay
from tarry.edges.spark.jobs.archive import ArchiveArgs
from tarry.edges.spark.jobs.replay import ReplaySummary, write_id_of
from tarry.edges.spark.schemas import EVENTS
from tarry.edges.spark.sink.options import PayloadFormat
from tarry.edges.spark.sizing import local_frame
from tarry.edges.spark.transforms.query import query, sql
from tarry.edges.spark.transforms.replays import ReplayArgs, ReplayOf, planned, selected, with_payloads
from tests.kit.steps import HOUR, MINUTE, SECOND

DAY = datetime(2026, 3, 1, tzinfo=UTC)


def happened(spark: SparkSession, *events: tuple[Any, ...]) -> DataFrame:
    """Events of (kind, key, version, minute, what else), in the order of their ids."""
    rows = []
    for id, (kind, key, version, minute, *more) in enumerate(events, start=1):
        fields = {"queue_id": 1, "queue": "q", "priority": 0, **(more[0] if more else {})}
        rows.append({"id": id, "kind": kind, "key": key, "version": version, "at": DAY + minute * MINUTE, **fields})
    return local_frame(spark, [tuple(row.get(name) for name in EVENTS.names) for row in rows], EVENTS)


def versions(frame: DataFrame) -> list[int]:
    return sorted(row.version for row in frame.collect())


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    return happened(
        spark,
        ("offered", "a", 1, 0),
        ("offered", "b", 2, 1),
        ("updated", "a", 3, 2),
        ("buried", "a", 3, 3),
        ("acked", "b", 2, 4),
        ("offered", "a%c", 4, 5, {"queue": "other", "queue_id": 2}),
        ("queue_paused", None, None, 6),
        ("offered", "a", 5, 7),
    )


class TestSelecting:
    @pytest.mark.parametrize(
        ("which", "expected"),
        [
            ({}, [2, 4, 5]),
            ({"every_version": True}, [1, 2, 3, 4, 5]),
            ({"outcome": ReplayOf.BURIED}, [3]),
            ({"keys": ("b", "absent")}, [2]),
            ({"key_prefix": "a%"}, [4]),
            ({"until": DAY + 2 * MINUTE}, [1, 2]),
            ({"since": DAY + MINUTE, "until": DAY + 3 * MINUTE}, [2, 3]),
        ],
    )
    def test_by_kind_time_and_key(self, events: DataFrame, which: dict[str, Any], expected: list[int]) -> None:
        assert versions(selected(events, ReplayArgs(**which))) == expected


class TestPayloads:
    def test_a_message_that_was_redriven_has_the_payload_it_was_offered_with(self, spark: SparkSession) -> None:
        events = happened(
            spark,
            ("offered", "a", 1, 0, {"payload": b"1"}),
            ("buried", "a", 1, 1),
            ("offered", "a", 2, 2, {"payload": b"2"}),
            ("acked", "a", 2, 3),
            ("redriven", "a", 3, 4, {"detail": '{"from_version": 1}'}),
            ("buried", "a", 3, 5),
            ("redriven", "a", 4, 6, {"detail": '{"from_version": 3}'}),
            ("buried", "a", 4, 7),
            ("offered", "b", 5, 8, {"payload": b"5"}),
        )
        mapped = [query(sql("roots"), events=frame).collect() for frame in (events, events.where("kind = 'redriven'"))]
        assert sorted((row.version, row.root) for row in mapped[0]) == [(3, 1), (4, 1)]
        assert mapped[0] == mapped[1], "offers, of which a key may have very many, are not gone through"
        chosen = [
            selected(events, ReplayArgs(outcome=outcome, every_version=True))
            for outcome in (ReplayOf.BURIED, ReplayOf.OFFERED)
        ]
        rows = with_payloads(chosen[0].unionByName(chosen[1]), events)
        assert {row.version: bytes(row.payload) for row in rows.collect()} == {
            1: b"1",
            2: b"2",
            3: b"1",
            4: b"1",
            5: b"5",
        }

    def test_a_journaled_payload_is_kept_and_a_missing_one_is_null(self, spark: SparkSession) -> None:
        detail = json.dumps({"type": "t", "content_type": "text/plain", "headers": {"h": "v"}})
        events = happened(
            spark, ("offered", "a", 1, 0, {"payload": b"", "detail": detail}), ("offered", "b", 2, 1, {"size": 3})
        )
        rows = with_payloads(selected(events, ReplayArgs()), events).orderBy("version").collect()
        assert [(row.payload, row.type, row.content_type, row.headers) for row in rows] == [
            (b"", "t", "text/plain", '{"h":"v"}'),
            (None, None, None, None),
        ]


class TestPlanning:
    def messages(self, spark: SparkSession) -> DataFrame:
        events = happened(spark, *(("offered", f"k{n}", n, n, {"payload": b"1"}) for n in range(1, 5)))
        return with_payloads(selected(events, ReplayArgs()), events)

    def test_all_are_due_at_once_under_their_new_keys(self, spark: SparkSession) -> None:
        rows = planned(self.messages(spark), ReplayArgs(prefix="again/"), DAY).collect()
        assert sorted((row.queue, row.key, row.due_at) for row in rows) == [
            ("q", f"again/k{n}", DAY.replace(tzinfo=None)) for n in range(1, 5)
        ]

    def test_or_spread_at_a_rate_in_the_order_in_which_things_happened(self, spark: SparkSession) -> None:
        args = ReplayArgs(prefix="", to_queue="other", rate=0.5, every_version=True)
        rows = planned(self.messages(spark), args, DAY).collect()
        assert {(row.queue, row.key): row.due_at.replace(tzinfo=UTC) - DAY for row in rows} == {
            ("other", f"k{n}@{n}"): (n - 1) * 2 * SECOND for n in range(1, 5)
        }


@pytest.fixture
def queue(pipeline_app: App) -> Queue[Any]:
    pipeline_app.queues.create("orders", QueueSettings(journal=JournalLevel.PAYLOADS, max_attempts=1))
    return pipeline_app.queue("orders")


def replayed(spark: SparkSession, app: App, lake: str, **args: Any) -> ReplaySummary:
    """After everything is archived."""
    archive.run(spark, app, ArchiveArgs(lake=lake))
    return summary_of(spark, app, lake, **args)


def summary_of(spark: SparkSession, app: App, lake: str, **args: Any) -> ReplaySummary:
    return replay.run(spark, app, ReplayArgs(lake=lake, **args))


def lived(queue: Queue[Any]) -> None:
    """Six messages were done, and four died."""
    queue.offer_many([Message(key=f"k{n}", payload={"n": n}) for n in range(10)])
    for delivery in queue.try_poll_many(10):
        delivery.nack("no") if delivery.payload["n"] % 3 == 0 else delivery.ack()


def left(queue: Queue[Any]) -> dict[str, Any]:
    return {delivery.key: delivery.payload for delivery in queue.try_poll_many(100)}


class TestReplaying:
    def test_only_the_dead_come_back_and_only_once(
        self, spark: SparkSession, pipeline_app: App, lake: str, queue: Queue[Any]
    ) -> None:
        lived(queue)
        dead: dict[str, Any] = {"queue": "orders", "outcome": ReplayOf.BURIED}
        counted = replayed(spark, pipeline_app, lake, dry_run=True, **dead)
        assert (counted.matched, counted.without_payload, counted.rows) == (4, 0, 0)
        assert counted.line() == "replay: 4 messages fit; nothing was offered (dry run)"
        assert left(queue) == {}
        done = summary_of(spark, pipeline_app, lake, **dead)
        assert (done.matched, done.created, done.repeated) == (4, 4, False)
        assert left(queue) == {f"replay/k{n}": {"n": n} for n in (0, 3, 6, 9)}
        again = summary_of(spark, pipeline_app, lake, **dead)
        assert (again.repeated, again.created, again.write_id) == (True, 4, done.write_id)
        assert "was done before" in again.line()
        other = summary_of(spark, pipeline_app, lake, write_id="once more", prefix="more/", **dead)
        assert (other.created, other.write_id) == (4, "once more")

    def test_they_are_what_they_were_also_in_a_queue_that_was_renamed(
        self, spark: SparkSession, pipeline_app: App, lake: str, queue: Queue[Any]
    ) -> None:
        queue.offer("text", "17", type="invoice", headers={"tenant": "x"})
        queue.offer("bytes", b"1")
        queue.offer("json", 17, type="invoice")
        for delivery in queue.try_poll_many(3):
            delivery.bury("no")
        archive.run(spark, pipeline_app, ArchiveArgs(lake=lake))
        pipeline_app.queues.rename("orders", "invoices")
        pipeline_app.queue("orders").offer("text", "of another queue")
        invoices = pipeline_app.queue("invoices")
        replayed(spark, pipeline_app, lake, queue="invoices", outcome=ReplayOf.BURIED, prefix="")
        stored = {
            delivery.key: (delivery.payload, delivery.type, dict(delivery.headers or {}))
            for delivery in invoices.try_poll_many(10)
        }
        assert stored == {
            "text": ("17", "invoice", {"tenant": "x"}),
            "bytes": (b"1", None, {}),
            "json": (17, "invoice", {}),
        }

    @pytest.mark.chaos
    def test_into_another_queue_with_a_delay_and_a_rate(
        self, spark: SparkSession, pipeline_app: App, lake: str, queue: Queue[Any]
    ) -> None:
        lived(queue)
        done = replayed(
            spark,
            pipeline_app,
            lake,
            queue="orders",
            keys=("k1", "k2", "k4"),
            to_queue="fixed",
            prefix="",
            after=HOUR,
            rate=2.0,
        )
        assert done.created == 3
        dues = [message.due_at for message in pipeline_app.store.run(pipeline_app.store.messages.list("fixed"))]
        assert [due - min(dues) for due in sorted(dues)] == [timedelta(0), SECOND / 2, SECOND]
        assert min(dues) == done.first_due_at
        assert max(dues) == done.last_due_at
        assert min(dues) > pipeline_app.store.run(pipeline_app.store.queues.now()) + 59 * MINUTE

    def test_a_live_message_is_left_alone(
        self, spark: SparkSession, pipeline_app: App, lake: str, queue: Queue[Any]
    ) -> None:
        queue.offer("a", "old")
        queue.offer("a", "new")
        done = replayed(spark, pipeline_app, lake, prefix="", payload_format=PayloadFormat.TEXT)
        assert (done.matched, done.created, done.ignored) == (1, 0, 1)

    def test_without_payloads_it_fails_with_a_reason(
        self, spark: SparkSession, pipeline_app: App, lake: str, queue: Queue[Any]
    ) -> None:
        queue.offer("kept", 1)
        pipeline_app.queue("silent").offer("lost", 1)
        assert replayed(spark, pipeline_app, lake, dry_run=True).without_payload == 1
        with pytest.raises(
            InvalidState, match=r"1 of 2 messages have no payload in the archive, .* journal level .* PAYLOADS"
        ):
            summary_of(spark, pipeline_app, lake)
        done = summary_of(spark, pipeline_app, lake, skip_missing=True)
        assert (done.matched, done.without_payload, done.created) == (2, 1, 1)
        assert "1 of them without a payload" in done.line()

    def test_text_is_not_offered_as_json(
        self, spark: SparkSession, pipeline_app: App, lake: str, queue: Queue[Any]
    ) -> None:
        queue.offer("a", "plain text")
        with psycopg.connect(pipeline_app.dsn or "") as conn:  # as it was journaled before the content type was
            conn.execute("update tarry.event set detail = null")
        with pytest.raises(InvalidState, match="1 of the payloads are not JSON"):
            replayed(spark, pipeline_app, lake)
        assert summary_of(spark, pipeline_app, lake, payload_format=PayloadFormat.TEXT).created == 1
        assert {delivery.payload for delivery in queue.try_poll_many(5)} == {"plain text"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"queue": "no spaces"},
        {"to_queue": ""},
        {"since": datetime(2026, 1, 1)},  # noqa: DTZ001
        {"since": DAY, "until": DAY},
        {"rate": 0.0},
        {"rate": float("nan")},
        {"after": -SECOND},
    ],
)
def test_what_cannot_be_meant_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        ReplayArgs(**wrong)


def test_the_same_question_has_the_same_name_and_another_has_another() -> None:
    args = ReplayArgs(lake="/lake", queue="q")
    assert write_id_of(args) == write_id_of(ReplayArgs(lake="/lake/", queue="q", dry_run=True))
    assert write_id_of(args) != write_id_of(dataclasses.replace(args, rate=1.0))
    assert write_id_of(dataclasses.replace(args, write_id="mine")) == "mine"
