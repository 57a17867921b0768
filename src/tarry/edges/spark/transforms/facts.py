# pyright: basic
"""Message facts: one row per version, from its offer to its end.

`fold(all events) = fold(later events, fold(earlier events))`, see fold.sql.
"""

from pyspark.sql import DataFrame

from tarry.edges.spark.schemas import struct
from tarry.edges.spark.transforms.history import FOLDED, after
from tarry.edges.spark.transforms.query import query, sql

FACTS = struct(
    "queue_id int, queue string, key string, version long, origin long, priority int, size int, offered_at timestamp, "
    "due_at timestamp, first_leased_at timestamp, settled_at timestamp, outcome string, reason string, attempts int, "
    "redeliveries int, releases int, wait_s double, processing_s double, consumer string, last_error string, "
    "last_id long, date date"
)
"""`outcome` is done, dead, dropped, superseded, redriven or live; unknown: it ended while the queue's journal was off.
`due_at` is the planned time, not that of a retry. `settled_at` and `date` are null while the version is live; a dead
version that was redriven keeps the time of its death. `origin` is the dead version that this one was redriven from.
"""


def fold(sequence: DataFrame, carried: DataFrame | None = None) -> DataFrame:
    """The state of every version that is open or had events: `carried` folded with the events after it."""
    return after("fold", carried, sequence=sequence)


def split(carried: DataFrame, news: DataFrame) -> tuple[DataFrame, DataFrame]:
    """`carried` in two frames: keys with new events, and the rest, which is carried on unchanged."""
    key = ["queue_id", "key"]
    return carried.join(news, key, "left_semi"), carried.join(news, key, "left_anti")


def still_open(known: DataFrame) -> DataFrame:
    """Versions that later events can change: live ones, and dead ones that may be redriven."""
    # `lost` counts only without an end: it ended while the queue's journal was off.
    left = "redriven_at is null and discarded_at is null and coalesce(settled.outcome = 'dead', lost is null)"
    return known.where(left).select(*FOLDED.names)


def published(known: DataFrame) -> DataFrame:
    return query(sql("published"), known=known)
