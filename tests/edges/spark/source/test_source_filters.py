"""Filters that are left to the database mean there what they mean in Spark, and a value in them is never SQL."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource as ds

import tarry
from tarry.core.errors import InvalidInput
from tarry.core.journal.snapshots import ColumnCondition, Scan
from tarry.edges.spark.source.options import condition
from tarry.pipeline import pipeline_on
from tests.kit.servers import Server

AWKWARD = [
    "it's",
    'a "quoted" key',
    "back\\slash",
    "semi;colon--",
    "Grüße",
    "雪",
    "%s %(x)s {}",
    "\x1f|\t\n",
    "~" * 200,
]
COLUMNS = ("id", "at", "kind", "queue", "key", "priority", "error", "consumer")
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def stocked(server: Server) -> Iterator[str]:
    dsn = server.new_database()
    with tarry.connect(dsn, consumer="tester") as app:
        queue = app.queue("Orders")
        queue.offer_many([tarry.Message(payload=i, key=f"k{i}", priority=i % 10) for i in range(40)])
        queue.offer_many([tarry.Message(payload=key, key=key) for key in AWKWARD])
        for delivery in queue.try_poll_many(20):
            delivery.ack()
        for delivery in queue.try_poll_many(10):
            delivery.nack("it's broken", after=timedelta(hours=1))
        app.queue("invoices").offer("k1", 1)
    yield dsn
    server.drop_database(dsn)


def read(dsn: str, *conditions: ColumnCondition) -> list[dict[str, Any]]:
    scan = Scan(table="events", columns=COLUMNS, conditions=conditions)
    (piece,) = pipeline_on(dsn).windows.slices(scan, None, partitions=1) or [None]
    if piece is None:
        return []
    with psycopg.connect(dsn) as conn:
        return [dict(zip(COLUMNS, row, strict=True)) for row in conn.execute(piece.query.encode()).fetchall()]


def known(compare: Callable[[Any, Any], bool], column: str, value: Any) -> Callable[[dict[str, Any]], bool]:
    """A comparison with null is not true, and its negation neither."""
    return lambda row: row[column] is not None and compare(row[column], value)


SAME = [
    (ds.EqualTo(("kind",), "acked"), known(operator.eq, "kind", "acked")),
    (ds.Not(ds.EqualTo(("kind",), "acked")), known(operator.ne, "kind", "acked")),
    (ds.Not(ds.EqualTo(("error",), "it's broken")), known(operator.ne, "error", "it's broken")),
    (ds.EqualTo(("queue",), "Orders"), known(operator.eq, "queue", "Orders")),
    (ds.LessThan(("queue",), "a"), known(operator.lt, "queue", "a")),
    (ds.LessThan(("kind",), "b"), known(operator.lt, "kind", "b")),
    (ds.GreaterThan(("id",), 30), known(operator.gt, "id", 30)),
    (ds.LessThanOrEqual(("priority",), 3), known(operator.le, "priority", 3)),
    (ds.GreaterThanOrEqual(("key",), "k2"), known(operator.ge, "key", "k2")),
    (ds.GreaterThanOrEqual(("at",), LONG_AGO), known(operator.ge, "at", LONG_AGO)),
    (ds.LessThan(("at",), LONG_AGO), known(operator.lt, "at", LONG_AGO)),
    (ds.In(("kind",), ("acked", "nacked", "unknown")), lambda row: row["kind"] in ("acked", "nacked")),
    (ds.Not(ds.In(("key",), ("k1", "k2"))), lambda row: row["key"] not in ("k1", "k2", None)),
    (ds.IsNull(("error",)), lambda row: row["error"] is None),
    (ds.IsNotNull(("error",)), lambda row: row["error"] is not None),
    (ds.Not(ds.IsNull(("consumer",))), lambda row: row["consumer"] is not None),
    (ds.Not(ds.IsNotNull(("consumer",))), lambda row: row["consumer"] is None),
    (ds.EqualNullSafe(("error",), None), lambda row: row["error"] is None),
    (ds.EqualNullSafe(("error",), "it's broken"), lambda row: row["error"] == "it's broken"),
    (ds.Not(ds.EqualNullSafe(("error",), "it's broken")), lambda row: row["error"] != "it's broken"),
    (ds.StringStartsWith(("key",), "k1"), lambda row: (row["key"] or "").startswith("k1")),
]


@pytest.mark.parametrize(("filter", "meaning"), SAME, ids=[str(filter) for filter, _ in SAME])
def test_the_database_means_what_spark_means(stocked: str, filter: ds.Filter, meaning: Any) -> None:
    pushed = condition(filter)
    assert pushed is not None
    assert pipeline_on(stocked).windows.can_apply("events", pushed)
    every = read(stocked)
    assert len(every) > 80
    assert sorted(row["id"] for row in read(stocked, pushed)) == sorted(row["id"] for row in every if meaning(row))


NOT_OURS = [
    ds.EqualTo(("detail",), "{}"),
    ds.EqualTo(("payload",), b"x"),
    ds.EqualTo(("no such column",), 1),
    ds.EqualTo(("detail", "inner"), 1),
    ds.EqualTo(("id",), None),
    ds.EqualTo(("id",), 1.5),
    ds.EqualTo(("id",), True),
    ds.EqualTo(("at",), datetime(2020, 1, 1)),  # noqa: DTZ001 - the point of it
    ds.EqualTo(("key",), "nul\0byte"),
    ds.In(("id",), ()),
    ds.In(("key",), ("a", None)),
    ds.Not(ds.In(("key",), ("a", None))),
    ds.StringEndsWith(("key",), "1"),
    ds.StringContains(("key",), "1"),
]


@pytest.mark.parametrize("filter", NOT_OURS, ids=map(str, NOT_OURS))
def test_what_the_database_cannot_decide_stays_with_spark(stocked: str, filter: ds.Filter) -> None:
    pushed = condition(filter)
    assert pushed is None or not pipeline_on(stocked).windows.can_apply("events", pushed)


def test_an_unchecked_condition_is_refused(stocked: str) -> None:
    with pytest.raises(InvalidInput):
        read(stocked, ColumnCondition("id = 1 or true --", "EqualTo", (1,)))


@given(text=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])) | st.sampled_from(AWKWARD))
def test_a_value_is_a_value_whatever_it_looks_like(stocked: str, text: str) -> None:
    rows = read(stocked, ColumnCondition("key", "EqualTo", (text,)))
    assert {row["key"] for row in rows} == ({text} if text in AWKWARD else set()) or text.startswith("k")
