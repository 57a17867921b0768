# pyright: basic
"""Adds the history of its message to each event: since when it could be delivered, and which consumer held the lease.

An event records what happened, not what preceded it. The lag of a delivery needs the end of the lease lost before it,
and `expired` does not name the consumer that lost it. `sequenced` adds that to each event. State from before the first
of these events comes from `carried`, the open versions as left by `facts.folded`. Events of one key are ordered by id,
and an archive batch never has an event of a key that precedes one in an earlier batch, because writers of one key wait
for each other's commits. A chain of batches therefore gives the same result as one pass over everything.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F  # noqa: N812

from tarry.edges.spark.schemas import struct
from tarry.edges.spark.transforms.instants import dated, micros_between

CREATIONS = ("offered", "updated", "edited", "redriven")
"""Each creates a version."""
ENDINGS = ("acked", "dropped", "buried", "cron_replaced")
"""Each removes a live message."""
_LIFE = (*CREATIONS, "leased", "touched", "nacked", "released", "expired", *ENDINGS)
_BESIDE = ("refused", "discarded")
"""Events outside the life of a live row: `refused` is not under its lock, `discarded` is of a dead letter."""

TRACED = struct(
    "id long, at timestamp, date date, kind string, queue_id int, queue string, version long, attempt int, "
    "consumer string, reason string, size int, lag_us long, wait_us long, processing_us long, net int, dead_net int"
)
"""`consumer` performed the event, or lost the lease. `net` and `dead_net`: change of the live and the dead count."""


def sequenced(events: DataFrame, carried: DataFrame | None = None) -> DataFrame:
    """Events of messages, each with `created`, `held` and `released` (earlier events of the same version), `before`
    (the previous event of the key) and `was_live`. Events of queues are left out.
    """
    life = _prepared(events.where(F.col("kind").isin(*_LIFE)))
    if carried is not None:
        life = life.unionByName(_recalled(carried), allowMissingColumns=True)
    of_key = Window.partitionBy("queue_id", "key").orderBy("id")
    until_now = of_key.rowsBetween(Window.unboundedPreceding, 0)
    until_before = of_key.rowsBetween(Window.unboundedPreceding, -1)

    def last(name: str, window: WindowSpec) -> Column:
        last_value = F.last(name, ignorenulls=True).over(window)
        return F.when(last_value["version"] == F.col("version"), last_value)

    before = F.lag(F.struct("kind", "version")).over(of_key)
    followed = life.select(
        *(F.col(name) for name in life.columns if not name.startswith("_")),
        last("_created", until_now).alias("created"),
        last("_held", until_before).alias("held"),
        last("_released", until_before).alias("released"),
        before.alias("before"),
        F.coalesce(~before["kind"].isin(*ENDINGS), F.lit(False)).alias("was_live"),
    ).where("kind <> 'carried'")
    beside = events.where(F.col("kind").isin(*_BESIDE))
    return followed.unionByName(beside.select(*_COLUMNS), allowMissingColumns=True)


_COLUMNS = (
    "id", "at", "kind", "queue_id", "queue", "key", "version", "attempt", "priority", "due_at", "leased_at",
    "lease_until", "consumer", "size", "error", "detail",
)  # fmt: skip


def _prepared(events: DataFrame) -> DataFrame:
    kind = F.col("kind")
    return events.select(
        *_COLUMNS,
        F.when(kind.isin(*CREATIONS), F.struct("version", "at")).alias("_created"),
        F.when(kind.isin("leased", "touched"), F.struct("version", "lease_until", "consumer")).alias("_held"),
        F.when(kind == "released", F.struct("version", "at")).alias("_released"),
    )


def _recalled(carried: DataFrame) -> DataFrame:
    """Live versions as one event each that stands for their history. Dead versions are not needed here."""
    released = F.struct("version", F.col("released_at").alias("at"))
    return carried.where("settled is null").select(
        F.col("last_id").alias("id"),
        F.lit("carried").alias("kind"),
        "queue_id",
        "queue",
        "key",
        "version",
        F.struct("version", F.col("offered_at").alias("at")).alias("_created"),
        F.struct("version", "held.lease_until", "held.consumer").alias("_held"),
        F.when(F.col("released_at").isNotNull(), released).alias("_released"),
    )


def eligible_at() -> Column:
    """Since when a leased message was deliverable: it was due, existed, and was not leased.

    After a lost lease that is the end of the lease; after a release, the release. A retry has its own due time.
    """
    lost = F.when(F.col("before.kind") == "expired", F.col("held.lease_until"))
    return F.greatest("due_at", "created.at", lost, "released.at")


def reason() -> Column:
    return F.when(F.col("kind") == "buried", F.get_json_object("detail", "$.reason"))


def worked_us() -> Column:
    """Processing time, if a consumer settled the message. Unknown for an expired or released lease, for the burial
    after the last nack or expiry, and for an undecodable payload.
    """
    settled = F.col("kind").isin("acked", "nacked") | (reason() == "buried")
    return F.when(settled, micros_between(F.col("leased_at"), F.col("at")))


def traced(sequence: DataFrame) -> DataFrame:
    """The input of metrics and consumer statistics; without keys and payloads, a small fraction of the journal."""
    kind = F.col("kind")
    leased = kind == "leased"
    live_after = (~kind.isin(*ENDINGS)).cast("int")
    columns = {
        "date": dated(F.col("at")),
        # The poll that buries an exhausted message is the consumer of `expired`, but did not lose the lease.
        "consumer": F.when(kind.isin("released", "expired"), F.col("held.consumer")).otherwise(F.col("consumer")),
        "reason": reason(),
        "lag_us": F.when(leased, micros_between(eligible_at(), F.col("at"))),
        "wait_us": F.when(leased, micros_between(F.col("created.at"), F.col("at"))),
        "processing_us": worked_us(),
        # Not "+1 for offered": a queue whose journal was off for a while must not have a negative count forever.
        "net": F.when(kind.isin(*_BESIDE), F.lit(0)).otherwise(live_after - F.col("was_live").cast("int")),
        "dead_net": F.when(kind == "buried", 1).when(kind.isin("redriven", "discarded"), -1).otherwise(0),
    }
    return sequence.withColumns(columns).select(*TRACED.names)
