# pyright: basic
"""Message facts: one row per version, from its offer to its end.

The events of a version fold into one row by sums, minima and maxima only, so that folding yesterday's result with
today's events equals folding everything: `folded(partials of all) = folded(folded(some) + partials of the rest)`.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tarry.edges.spark.schemas import struct
from tarry.edges.spark.transforms import history as tracing
from tarry.edges.spark.transforms.instants import dated, micros_between, seconds

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

FACTS = struct(
    "queue_id int, queue string, key string, version long, origin long, priority int, size int, offered_at timestamp, "
    "due_at timestamp, first_leased_at timestamp, settled_at timestamp, outcome string, reason string, attempts int, "
    "redeliveries int, releases int, wait_s double, processing_s double, consumer string, last_error string, "
    "last_id long, date date"
)
"""`due_at` is the planned time, not that of a retry. `settled_at` and `date` are null while the version is live; a dead
version that was redriven keeps the time of its death. `origin` is the dead version that this one was redriven from.
"""

_ENDS = {"acked": "done", "dropped": "dropped", "buried": "dead", "cron_replaced": "dropped"}


def partials(sequence: DataFrame) -> DataFrame:
    """The contributions of each event of `tracing.sequenced`: to its own version, and to the version that it ended."""
    kind, at, event_id = F.col("kind"), F.col("at"), F.col("id")
    ended = kind.isin(*tracing.CREATIONS) & F.col("was_live") & (F.col("before.version") != F.col("version"))
    origin = F.when(kind == "redriven", F.get_json_object("detail", "$.from_version").cast("long"))
    contributions = sequence.where("kind <> 'refused'").select(
        "*",
        origin.alias("origin"),
        F.explode(
            F.array_compact(
                F.array(
                    F.struct(F.col("version").alias("about"), F.lit("self").alias("role")),
                    F.when(ended, F.struct(F.col("before.version").alias("about"), F.lit("ended").alias("role"))),
                    F.when(origin.isNotNull(), F.struct(origin.alias("about"), F.lit("origin").alias("role"))),
                )
            )
        ).alias("contribution"),
    )
    role = F.col("contribution.role")
    own = role == "self"
    created = own & kind.isin(*tracing.CREATIONS)
    # An update ends the version before it. Any other new version of a live key means that its end was not journaled.
    replaced = (role == "ended") & kind.isin("updated", "edited")
    missed = (role == "ended") & ~kind.isin("updated", "edited")

    def when(condition: Column, value: str | Column) -> Column:
        return F.when(condition, F.col(value) if isinstance(value, str) else value)

    def settled(outcome: Column) -> Column:
        return F.struct(
            event_id,
            at,
            outcome.alias("outcome"),
            tracing.reason().alias("reason"),
            F.when(own, F.col("attempt")).alias("attempt"),
        )

    end = reduce(lambda chain, pair: chain.when(kind == pair[0], pair[1]), _ENDS.items(), F.when(F.lit(False), ""))
    return contributions.select(
        "queue_id",
        "queue",
        "key",
        F.col("contribution.about").alias("version"),
        event_id.alias("last_id"),
        when(created, "at").alias("offered_at"),
        when(created, "due_at").alias("due_at"),
        when(own, "origin").alias("origin"),
        when(created, "size").alias("size"),
        when(own, "priority").alias("priority"),
        when(own & (kind == "leased"), "at").alias("first_leased_at"),
        when(own & (kind == "released"), "at").alias("released_at"),
        (own & (kind == "leased")).cast("long").alias("leases"),
        (own & (kind == "released")).cast("long").alias("releases"),
        (own & (kind == "expired")).cast("long").alias("expiries"),
        when(own & (kind == "expired"), "attempt").alias("expired_attempt"),
        when(own, F.coalesce(tracing.worked_us(), F.lit(0))).alias("processing_us"),
        when(own & kind.isin("leased", "touched"), F.struct("id", "lease_until", "consumer")).alias("held"),
        when(own & F.col("error").isNotNull(), F.struct("id", "error")).alias("failed"),
        when(own & end.isNotNull(), settled(end)).when(replaced, settled(F.lit("superseded"))).alias("settled"),
        when(missed, F.struct("id", "at")).alias("lost"),
        when(role == "origin", "at").alias("redriven_at"),
        when(own & (kind == "discarded"), "at").alias("discarded_at"),
    )


def folded(parts: DataFrame) -> DataFrame:
    """One row per version. `fresh`: an event other than the `carried` rows contributed, see `fold`."""
    fresh = F.max("fresh") if "fresh" in parts.columns else F.lit(True)
    return parts.groupBy("queue_id", "key", "version").agg(
        F.max_by("queue", "last_id").alias("queue"),
        *(F.max(name).alias(name) for name in ("last_id", "offered_at", "due_at", "origin", "size", "priority")),
        F.min("first_leased_at").alias("first_leased_at"),
        F.max("released_at").alias("released_at"),
        *(F.sum(F.coalesce(name, F.lit(0))).alias(name) for name in ("leases", "releases", "expiries")),
        F.max("expired_attempt").alias("expired_attempt"),
        F.sum(F.coalesce("processing_us", F.lit(0))).alias("processing_us"),
        # Structs compare by their first field, the event id: the latest wins.
        *(F.max(name).alias(name) for name in ("held", "failed", "settled", "lost", "redriven_at", "discarded_at")),
        fresh.alias("fresh"),
    )


def fold(sequence: DataFrame, carried: DataFrame | None = None) -> DataFrame:
    """The state of every version that is open or had events: `carried` folded with the events after it."""
    parts = partials(sequence).withColumn("fresh", F.lit(True))
    if carried is not None:
        parts = parts.unionByName(carried.withColumn("fresh", F.lit(False)))
    return folded(parts)


def split(carried: DataFrame, news: DataFrame) -> tuple[DataFrame, DataFrame]:
    """`carried` in two frames: keys with new events, and the rest, which is carried on unchanged."""
    key = ["queue_id", "key"]
    with_news = news.select(*key).distinct()
    touched, left = (carried.join(with_news, key, how).select(*FOLDED.names) for how in ("left_semi", "left_anti"))
    return touched, left


def outcome() -> Column:
    """done, dead, dropped, superseded, redriven or live; unknown: it ended while the queue's journal was off."""
    return (
        F.when(F.col("redriven_at").isNotNull(), "redriven")
        .when(F.col("settled").isNotNull(), F.col("settled.outcome"))
        .when(F.col("discarded_at").isNotNull(), "dead")
        .when(F.col("lost").isNotNull(), "unknown")
        .otherwise("live")
    )


def still_open(known: DataFrame) -> DataFrame:
    """Versions that later events can change: live ones, and dead ones that may be redriven."""
    left = (outcome() == "live") | ((outcome() == "dead") & F.col("discarded_at").isNull())
    return known.where(left).select(*FOLDED.names)


def published(known: DataFrame) -> DataFrame:
    """The facts, in their published form."""
    died_by_expiry = (F.col("settled.outcome") == "dead") & (F.col("settled.attempt") == F.col("expired_attempt"))
    settled_at = F.coalesce("settled.at", "lost.at", "redriven_at", "discarded_at")
    since = F.greatest("due_at", "offered_at")
    columns = {
        "settled_at": settled_at,
        "outcome": outcome(),
        "reason": F.col("settled.reason"),
        "attempts": (F.col("leases") - F.col("releases")).cast("int"),
        "redeliveries": (F.col("expiries") - F.coalesce(died_by_expiry.cast("int"), F.lit(0))).cast("int"),
        "releases": F.col("releases").cast("int"),
        "wait_s": seconds(micros_between(since, F.col("first_leased_at"))),
        "processing_s": seconds(F.col("processing_us")),
        "consumer": F.col("held.consumer"),
        "last_error": F.col("failed.error"),
        "date": dated(settled_at),
    }
    return known.withColumns(columns).select(*FACTS.names)
