# pyright: basic
"""Message facts: one row per version, from its offer to its end.

`fold(all events) = fold(later events, fold(earlier events))`, see fold.sql.
"""

from pyspark.sql import DataFrame

from tarry.edges.spark.schemas import struct
from tarry.edges.spark.transforms.history import FOLDED, after
from tarry.edges.spark.transforms.query import query, sql

OPEN = struct(
    ", ".join(f"{field.name} {field.dataType.typeName()}" for field in FOLDED) + ", is_open boolean, round long",
    **{field.name: field.dataType for field in FOLDED},
)
"""States of versions after rounds: the row with the highest `round` counts, and only if `is_open`."""

IDLE = "settled is null and held is not null and last_kind in ('leased', 'touched', 'expired')"

FACTS = struct(
    "queue_id int, queue string, key string, version long, origin long, priority int, size int, offered_at timestamp, "
    "due_at timestamp, first_leased_at timestamp, settled_at timestamp, outcome string, reason string, attempts int, "
    "redeliveries int, releases int, wait_s double, processing_s double, consumer string, last_error string, "
    "last_id long, date date"
)
"""`outcome` is done, dead, dropped, superseded, redriven or live; unknown: it ended while the queue's journal was off.
`due_at` is the planned time, not that of a retry. `settled_at` and `date` are null for live versions; a redriven version
keeps its time of death. `origin` is the dead version from which this one was redriven.
"""


def fold(sequence: DataFrame, carried: DataFrame | None = None) -> DataFrame:
    """The state of every version that is open or had events: `carried` folded with the events after it."""
    return after("fold", carried, sequence=sequence)


def touched(stored: DataFrame, news: DataFrame) -> DataFrame:
    """The stored versions whose keys have new events."""
    return stored.join(news.select("queue_id", "key").distinct(), ["queue_id", "key"], "left_semi")


def still_open(known: DataFrame) -> DataFrame:
    """Versions that later events can change: live ones, and dead ones that may be redriven."""
    return known.where("is_open").select(*FOLDED.names)


def idle(versions: DataFrame) -> DataFrame:
    """Leases of open versions without any later event except their expiry."""
    return versions.where(IDLE).selectExpr("queue_id", "queue", "key", "inline(array(held))")


def latest(versions: DataFrame) -> DataFrame:
    """The state of each version after the last round that changed it."""
    rank = "row_number() over (partition by queue_id, key, version order by round desc) as rank"
    return versions.selectExpr("*", rank).where("rank = 1").drop("rank")


def published(known: DataFrame) -> DataFrame:
    return query(sql("published"), known=known)
