# pyright: basic
"""Adds the history of its message to each event: since when it could be delivered, and which consumer held the lease.

State from before the first of these events comes from `carried`, the open versions as left by `facts.fold`. Events of one
key are ordered by id, and an archive batch never has an event of a key that precedes one in an earlier batch, because
writers of one key wait for each other's commits. A chain of batches therefore gives the same result as one pass over
everything.
"""

from pyspark.sql import DataFrame

from tarry.edges.spark.schemas import struct
from tarry.edges.spark.transforms.query import nothing, query, sql

FOLDED = struct(
    "queue_id int, queue string, key string, version long, last_id long, offered_at timestamp, due_at timestamp, "
    "origin long, size int, priority int, first_leased_at timestamp, released_at timestamp, leases long, releases long, "
    "expiries long, expired_attempt int, processing_us long, held struct, failed struct, settled struct, lost struct, "
    "redriven_at timestamp, discarded_at timestamp",
    held=struct("id long, lease_until timestamp, consumer string"),
    failed=struct("id long, error string"),
    settled=struct("id long, at timestamp, outcome string, reason string, attempt int"),
    lost=struct("id long, at timestamp"),
)
"""The current state of a version, in a form that can be folded further. `lost`: its key was offered again without a
recorded end of this version, because the queue's journal was off in between.
"""

TRACED = struct(
    "id long, at timestamp, date date, kind string, queue_id int, queue string, version long, attempt int, "
    "consumer string, reason string, size int, lag_us long, wait_us long, processing_us long, net int, dead_net int"
)
"""`consumer` performed the event, or lost the lease. `net` and `dead_net`: change of the live and the dead count."""


def sequenced(events: DataFrame, carried: DataFrame | None = None) -> DataFrame:
    """Events of messages, each with `before` (the previous event of the key), `was_live`, `holder` (`consumer` of `TRACED`),
    `reason` of a burial, `lag_us`, `wait_us` and `worked_us`. Events of queues are left out.
    """
    return after("sequenced", carried, events=events)


def after(name: str, carried: DataFrame | None, **frames: DataFrame) -> DataFrame:
    """A query over new events and the versions that were open before, if any."""
    if carried is None:
        return query(sql(name, carried=nothing(FOLDED)), None, **frames)
    # By name: a union is by position.
    open_before = f"select {', '.join(FOLDED.names)} from {{carried}}"  # noqa: S608
    return query(sql(name, carried=open_before), None, carried=carried, **frames)


def traced(sequence: DataFrame) -> DataFrame:
    """The input of metrics and consumer statistics."""
    return query(sql("traced"), sequence=sequence)
