"""Small journals for tests of transformations: written by hand, in seconds since the start, or read from a database."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg

from tarry.edges.spark.schemas import EVENTS
from tarry.edges.spark.sizing import local_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = datetime(2024, 1, 1, tzinfo=UTC)
Event = dict[str, Any]


def second(n: float) -> datetime:
    return START + timedelta(seconds=n)


def event(
    kind: str,
    at: float,
    version: int = 1,
    *,
    key: str = "a",
    due: float | None = None,
    leased: float | None = None,
    until: float | None = None,
    detail: dict[str, Any] | None = None,
    **columns: Any,
) -> Event:
    instants = {"at": at, "due_at": due, "leased_at": leased, "lease_until": until}
    return {
        "kind": kind,
        "key": key,
        "version": version,
        "queue_id": 1,
        "queue": "orders",
        "detail": None if detail is None else json.dumps(detail),
        **{name: second(n) for name, n in instants.items() if n is not None},
        **columns,
    }


def frame(spark: SparkSession, events: Sequence[Event], first_id: int = 1) -> DataFrame:
    """Ids in the order given; fields without a value are null."""
    rows = [{"id": i, "xid": i, **fields} for i, fields in enumerate(events, first_id)]
    return local_frame(spark, [tuple(row.get(name) for name in EVENTS.names) for row in rows], EVENTS)


JOURNAL = """
    select e.id, e.xid::text::bigint, e.at, e.kind::text, e.queue, q.name, e.key, e.version, e.attempt, e.priority,
        e.due_at, e.leased_at, e.lease_until, e.consumer, e.size, e.payload_hash, e.error, e.detail::text, e.payload
    from tarry.event e join tarry.queue q on q.id = e.queue
    order by e.id
"""


def journal(dsn: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn) as conn:
        return conn.execute(JOURNAL).fetchall()


def table(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Rows as tuples, sorted; instants as seconds since the start."""
    rows = frame.select(*columns).toArrow().to_pylist()
    return sorted((tuple(plain(row[name]) for name in columns) for row in rows), key=repr)


def plain(value: Any) -> Any:
    return (value - START).total_seconds() if isinstance(value, datetime) else value
