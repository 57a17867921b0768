"""Metrics per minute on small journals, with the expected tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tarry.edges.spark.sizing import local_frame
from tarry.edges.spark.transforms import history as tracing
from tarry.edges.spark.transforms import metrics
from tarry.edges.spark.transforms.query import query
from tests.edges.spark.journal_frames import Event, event, frame, second, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def traced(spark: SparkSession, events: list[Event]) -> DataFrame:
    """Computed here, as in a round: a query would plan the history again for each of its uses."""
    return tracing.traced(tracing.sequenced(frame(spark, events))).localCheckpoint()


def leased(at: float, version: int = 1, *, due: float = 0, attempt: int = 1, **more: Any) -> Event:
    return event(
        "leased", at, version, due=due, attempt=attempt, leased=at, until=at + 30, **{"consumer": "w1", **more}
    )


def levels(spark: SparkSession, *rows: tuple[int, int, int]) -> DataFrame:
    return local_frame(spark, list(rows), "queue_id int, depth long, dead long")


LAGS: dict[str, tuple[list[Event], list[float]]] = {
    "first": ([event("offered", 0, due=10), leased(12.25, due=10)], [2.25]),
    "due before it came": ([event("offered", 100, due=10), leased(101, due=10)], [1.0]),
    "lost lease": (
        [
            event("offered", 0, due=0),
            leased(1),
            event("touched", 20, due=0, attempt=1, leased=1, until=50, consumer="w1"),
            event("refused", 55, due=0),
            event("expired", 58, due=0, attempt=1),
            leased(58, attempt=2),
        ],
        [1.0, 8.0],
    ),
    # Not from the end of the lease that it had, which is later.
    "retry": (
        [
            event("offered", 0, due=0),
            leased(1),
            event("nacked", 2, due=7, attempt=1, leased=1),
            leased(9, due=7, attempt=2),
        ],
        [1.0, 2.0],
    ),
    "release": (
        [event("offered", 0, due=0), leased(1), event("released", 5, due=0, attempt=0), leased(6.5)],
        [1.0, 1.5],
    ),
    "new version": (
        [
            event("offered", 0, 1, due=0),
            leased(1, 1),
            event("released", 2, 1, due=0),
            event("updated", 3, 2, due=3),
            leased(4, 2, due=3),
        ],
        [1.0, 1.0],
    ),
}


@pytest.fixture(scope="module")
def lags(spark: SparkSession) -> dict[str, list[float]]:
    """The lags of each story's leases. Their keys are lost in tracing, so each has a queue of its own."""
    events = [
        {**entry, "queue": name, "queue_id": i} for i, (name, (story, _)) in enumerate(LAGS.items()) for entry in story
    ]
    rows = traced(spark, events).where("kind = 'leased'").orderBy("id").select("queue", "lag_us").toArrow().to_pylist()
    return {name: [row["lag_us"] / 1_000_000 for row in rows if row["queue"] == name] for name in LAGS}


@pytest.mark.parametrize("story", LAGS)
def test_the_lag_runs_from_when_a_message_could_have_been_delivered(lags: dict[str, list[float]], story: str) -> None:
    assert lags[story] == LAGS[story][1]


def test_each_kind_is_counted_in_its_minute(spark: SparkSession) -> None:
    events = [
        event("offered", 0, 1, key="a", due=0, size=10),
        event("offered", 1, 2, key="b", due=0, size=5),
        event("updated", 59.999999, 3, key="b", due=0, size=7),
        leased(60, 1, key="a"),
        event("acked", 61, 1, key="a", leased=60),
        event("dropped", 119, 3, key="b"),
        event("queue_paused", 119, None, key=None),  # type: ignore[arg-type]
    ]
    measured = metrics.measured(traced(spark, events))
    counts = ("minute", "offered", "updated", "leased", "acked", "dropped", "nacked", "bytes_offered", "net")
    assert table(measured, *counts) == [(0.0, 2, 1, 0, 0, 0, 0, 22, 2), (60.0, 0, 0, 1, 1, 1, 0, 0, -2)]


def test_only_a_settle_has_a_processing_time(spark: SparkSession) -> None:
    held = {"leased": 10.0, "consumer": "w1"}
    events = [
        event("acked", 12, 1, key="a", **held),
        event("nacked", 13, 2, key="b", **held),
        event("buried", 13, 2, key="b", detail={"reason": "exhausted"}, **held),
        event("buried", 14, 3, key="c", detail={"reason": "buried"}, **held),
        event("buried", 15, 4, key="d", detail={"reason": "undecodable"}, **held),
        event("released", 16, 5, key="e"),
        event("expired", 17, 6, key="f", **held),
    ]
    rows = traced(spark, events).where("processing_us is not null")
    assert table(rows, "kind", "version", "processing_us") == [
        ("acked", 1, 2_000_000),
        ("buried", 3, 4_000_000),
        ("nacked", 2, 3_000_000),
    ]


def test_an_expiry_and_a_release_belong_to_the_consumer_of_the_lease(spark: SparkSession) -> None:
    events = [
        event("offered", 0, due=0),
        leased(1, consumer="slow"),
        event("expired", 40, due=0, attempt=1),
        leased(40, attempt=2, consumer="kind"),
        event("released", 41, due=0, attempt=1),
        leased(42, attempt=2, consumer="dead"),
        event("expired", 99, due=0, attempt=2, leased=99, consumer="undertaker"),
    ]
    rows = traced(spark, events).where("kind in ('expired', 'released')")
    assert table(rows, "at", "consumer") == [(40.0, "slow"), (41.0, "kind"), (99.0, "dead")]


def test_percentiles_interpolate_as_sql_does(spark: SparkSession) -> None:
    events = [event("acked", 100, i, key=str(i), leased=100 - i) for i in range(1, 11)]
    measured = metrics.measured(traced(spark, events))
    assert table(measured, "processing_p50_s", "processing_p95_s", "processing_p99_s", "exact") == [
        (5.5, 9.55, 9.91, True),
    ]


def test_minutes_that_are_measured_in_parts_equal_those_of_one_pass(spark: SparkSession) -> None:
    """Three parts, the second without a change of one minute, the third with a late event of the first."""
    events = [
        *(event("offered", n, n, key=str(n), due=0, size=n) for n in range(1, 7)),
        *(leased(70 + n, n, key=str(n)) for n in range(1, 5)),
        *(event("acked", 130 + n * n, n, key=str(n), leased=70 + n) for n in range(1, 5)),
        event("offered", 30, 9, key="late", due=0, size=100),
    ]
    whole = traced(spark, events)
    at_once = metrics.with_depth(metrics.measured(whole, exact_up_to=100), levels(spark, (1, 3, 0))).localCheckpoint()
    columns = [name for name in metrics.MINUTES.names if name not in ("round", "lag", "wait", "processing")]
    for most in (100, 2):
        stored: DataFrame | None = None
        for number, part in enumerate(("id <= 8", "id between 9 and 14", "id > 14"), 1):
            nets = whole.where(f"id <= {(8, 14, 99)[number - 1]}").selectExpr("queue_id", "net", "dead_net")
            after = nets.groupBy("queue_id").sum("net", "dead_net").toDF("queue_id", "depth", "dead")
            minutes = metrics.measured(whole.where(part), stored, exact_up_to=most)
            stored = metrics.with_depth(minutes, after, number=number).select(*metrics.MINUTES.names).localCheckpoint()
        assert stored is not None
        if most == 100:
            assert table(stored, *columns) == table(at_once, *columns)
            assert table(stored, "minute", "round") == [(0.0, 3), (120.0, 3), (60.0, 3)], "the depth of all has changed"
        else:
            points = ("processing_p50_s", "processing_p95_s", "processing_p99_s")
            ((*exact,),) = table(at_once.where("acked > 0"), *points)
            assert table(stored.where("acked > 0"), *points) == [pytest.approx(tuple(exact), rel=0.01)]
            assert table(stored, "minute", "exact") == [(0.0, True), (120.0, False), (60.0, True)]


def test_large_groups_are_estimated_within_a_hundredth_and_marked(spark: SparkSession) -> None:
    """Values from 1 µs to a day, and a group that was rounded before more values come."""
    events = spark.range(1, 20_001).selectExpr(
        "id", "id as xid", "timestamp_seconds(if(id % 2 = 0, 0, 60)) as at", "'acked' as kind", "1 as queue_id",
        "'q' as queue", "0 as size", "0L as lag_us", "0L as wait_us", "bigint(pow(1.00126D, id)) as processing_us",
        "0 as net", "0 as dead_net",
    )  # fmt: skip
    half = metrics.with_depth(metrics.measured(events.where("id % 4 < 2")), levels(spark))
    rows = (
        metrics.measured(events.where("id % 4 >= 2"), half.select(*metrics.MINUTES.names)).orderBy("minute").collect()
    )
    points = ("processing_p50_s", "processing_p95_s", "processing_p99_s")
    expected = query(
        "select percentile(processing_us, array(0.5, 0.95, 0.99)) as us from {events} group by at order by at",
        events=events,
    ).collect()
    for row, exact in zip(rows, expected, strict=True):
        assert [row[name] * 1e6 for name in points] == pytest.approx(exact.us, rel=0.01, abs=1)
        assert (row.exact, row.acked, row.lag) == (False, 10_000, {0: 10_000})
        assert sum(row.processing.values()) == 10_000
        assert len(row.processing) < 1_400


def test_the_depth_is_counted_back_from_where_the_queue_stands(spark: SparkSession) -> None:
    events = [
        event("offered", 0, 1, key="a", due=0),
        event("offered", 61, 2, key="b", due=0),
        event("dropped", 130, 1, key="a"),
        event("offered", 130, 3, key="z", due=0, queue_id=2, queue="mails"),
    ]
    measured = metrics.with_depth(
        metrics.measured(traced(spark, events)), levels(spark, (1, 101, 7), (2, 1, 0), (3, 5, 5))
    )
    assert table(measured, "queue_id", "minute", "depth", "dead") == [
        (1, 0.0, 101, 7),
        (1, 120.0, 101, 7),
        (1, 60.0, 102, 7),
        (2, 120.0, 1, 0),
    ]


def test_the_dead_are_counted_beside_the_living(spark: SparkSession) -> None:
    events = [
        event("offered", 0, 1, due=0),
        event("buried", 1, 1, detail={"reason": "buried"}, leased=0),
        event("redriven", 61, 2, due=61, detail={"from_version": 1}),
        event("buried", 121, 2, detail={"reason": "buried"}, leased=120),
        event("discarded", 181, 2),
    ]
    measured = metrics.with_depth(metrics.measured(traced(spark, events)), levels(spark))
    assert table(measured, "minute", "depth", "dead") == [
        (0.0, 0, 1),
        (120.0, 0, 1),
        (180.0, 0, 0),
        (60.0, 1, 0),
    ]


def test_a_journal_that_was_off_for_a_while_does_not_make_the_depth_wrong_for_ever(spark: SparkSession) -> None:
    events = [
        leased(0, 1, key="a"),  # offered while it was off
        event("acked", 1, 1, key="a", leased=0),
        event("updated", 2, 3, key="b", due=0),  # what it replaced was never seen
        event("offered", 3, 4, key="c", due=0),  # and acked while it was off
        event("offered", 9, 5, key="c", due=0),
    ]
    assert table(metrics.measured(traced(spark, events)), "net") == [(2,)]


def test_minutes_are_those_of_utc_whatever_the_zone_of_the_session(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        measured = metrics.measured(traced(spark, [event("offered", 86_399, due=0, size=1)]))
        row = measured.selectExpr("unix_seconds(minute) as minute", "cast(date as string) as date").collect()[0]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")
    assert (row.minute, row.date) == (second(86_340).timestamp(), "2024-01-01")
