# pyright: basic
"""Adds the history of its message to each event: since when it was deliverable, and which consumer held the lease.

Earlier state comes from `carried`, the open versions from `facts.fold`. Events of one key are ordered by id, and an archive
batch never has an event of a key that precedes one in an earlier batch, because writers of one key wait for each other's
commits. So a chain of batches gives the same result as one pass over all events.
"""

from pyspark.sql import DataFrame

from tarry.edges.spark.schemas import struct
from tarry.edges.spark.transforms.query import query, sql, stored_or_nothing

FOLDED = struct(
    "queue_id int, queue string, key string, version long, last_id long, offered_at timestamp, due_at timestamp, "
    "origin long, size int, priority int, first_leased_at timestamp, released_at timestamp, leases long, releases long, "
    "expiries long, expired_attempt int, processing_us long, held struct, failed struct, settled struct, lost struct, "
    "redriven_at timestamp, discarded_at timestamp, last_kind string",
    held=struct("id long, at timestamp, lease_until timestamp, consumer string"),
    failed=struct("id long, error string"),
    settled=struct("id long, at timestamp, outcome string, reason string, attempt int"),
    lost=struct("id long, at timestamp"),
)
"""The current state of a version, in a form that can be folded further. `lost`: its key was offered again without a
recorded end of this version, because the queue's journal was off in between. `last_kind`: kind of its last event.
"""

TRACED = struct(
    "id long, xid long, at timestamp, date date, kind string, queue_id int, queue string, version long, attempt int, "
    "consumer string, reason string, size int, lag_us long, wait_us long, processing_us long, net int, dead_net int"
)
"""`consumer` caused the event, or lost the lease. `net` and `dead_net`: change in the live and dead counts."""


def sequenced(events: DataFrame, carried: DataFrame | None = None) -> DataFrame:
    """Message events, each with `before` (the previous event of the key), `last_held` (the last lease before it), `was_live`,
    `holder` (`consumer` of `TRACED`), `reason` of a burial, `lag_us`, `wait_us` and `worked_us`; without queue events.
    """
    return after("sequenced", carried, events=events)


def after(name: str, carried: DataFrame | None, **frames: DataFrame) -> DataFrame:
    """A query over new events and previously open versions, if any."""
    rows, stored = stored_or_nothing(carried, FOLDED)
    return query(sql(name, carried=rows), None, **frames, **stored)


def with_history(events: DataFrame, sequence: DataFrame) -> DataFrame:
    """The detectors' input: `sequenced` message events, and queue events, which have no history."""
    of_queues = events.where("key is null").select(*(name for name in events.columns if name in sequence.columns))
    return sequence.unionByName(of_queues, allowMissingColumns=True)


def traced(sequence: DataFrame) -> DataFrame:
    """The input of metrics and consumer statistics."""
    return query(sql("traced"), sequence=sequence)
