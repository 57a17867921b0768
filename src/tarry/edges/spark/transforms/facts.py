# pyright: basic
"""Message facts: one row per version, from its offer to its end.

The events of a version fold into one row by sums, minima and maxima only, so that folding yesterday's result with
today's events equals folding everything: `folded(partials of all) = folded(folded(some) + partials of the rest)`.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tarry.edges.spark.transforms import tracing
from tarry.edges.spark.transforms.instants import dated, micros_between, seconds

_HELD = StructType(
    [
        StructField("id", LongType()),
        StructField("lease_until", TimestampType()),
        StructField("consumer", StringType()),
    ]
)
_FAILED = StructType([StructField("id", LongType()), StructField("error", StringType())])
_SETTLED = StructType(
    [
        StructField("id", LongType()),
        StructField("at", TimestampType()),
        StructField("outcome", StringType()),
        StructField("reason", StringType()),
        StructField("attempt", IntegerType()),
    ]
)
_LOST = StructType([StructField("id", LongType()), StructField("at", TimestampType())])

FOLDED = StructType(
    [
        StructField("queue_id", IntegerType()),
        StructField("queue", StringType()),
        StructField("key", StringType()),
        StructField("version", LongType()),
        StructField("last_id", LongType()),
        StructField("offered_at", TimestampType()),
        StructField("due_at", TimestampType()),
        StructField("origin", LongType()),
        StructField("size", IntegerType()),
        StructField("priority", IntegerType()),
        StructField("first_leased_at", TimestampType()),
        StructField("released_at", TimestampType()),
        StructField("leases", LongType()),
        StructField("releases", LongType()),
        StructField("expiries", LongType()),
        StructField("expired_attempt", IntegerType()),
        StructField("processing_us", LongType()),
        StructField("held", _HELD),
        StructField("failed", _FAILED),
        StructField("settled", _SETTLED),
        StructField("lost", _LOST),
        StructField("redriven_at", TimestampType()),
        StructField("purged_at", TimestampType()),
    ]
)
"""The current state of a version, in a form that can be folded further. `lost`: its key was offered again without a
recorded end of this version, because the queue's journal was off in between.
"""

FACTS = StructType(
    [
        StructField("queue_id", IntegerType()),
        StructField("queue", StringType()),
        StructField("key", StringType()),
        StructField("version", LongType()),
        StructField("origin", LongType()),
        StructField("priority", IntegerType()),
        StructField("size", IntegerType()),
        StructField("offered_at", TimestampType()),
        StructField("due_at", TimestampType()),
        StructField("first_leased_at", TimestampType()),
        StructField("settled_at", TimestampType()),
        StructField("outcome", StringType()),
        StructField("reason", StringType()),
        StructField("attempts", IntegerType()),
        StructField("redeliveries", IntegerType()),
        StructField("releases", IntegerType()),
        StructField("wait_s", DoubleType()),
        StructField("processing_s", DoubleType()),
        StructField("consumer", StringType()),
        StructField("last_error", StringType()),
        StructField("last_id", LongType()),
        StructField("date", DateType()),
    ]
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
    said = sequence.where("kind <> 'refused'").select(
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
        ).alias("word"),
    )
    role = F.col("word.role")
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
    return said.select(
        "queue_id",
        "queue",
        "key",
        F.col("word.about").alias("version"),
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
        when(own & (kind == "purged"), "at").alias("purged_at"),
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
        *(F.max(name).alias(name) for name in ("held", "failed", "settled", "lost", "redriven_at", "purged_at")),
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
    spoken_of = news.select(*key).distinct()
    touched, left = (carried.join(spoken_of, key, how).select(*FOLDED.names) for how in ("left_semi", "left_anti"))
    return touched, left


def outcome() -> Column:
    """done, dead, dropped, superseded, redriven or live; unknown: it ended while the queue's journal was off."""
    return (
        F.when(F.col("redriven_at").isNotNull(), "redriven")
        .when(F.col("settled").isNotNull(), F.col("settled.outcome"))
        .when(F.col("purged_at").isNotNull(), "dead")
        .when(F.col("lost").isNotNull(), "unknown")
        .otherwise("live")
    )


def still_open(known: DataFrame) -> DataFrame:
    """Versions that later events can still change: live ones, and dead ones that may be redriven. Carried to the next
    run.
    """
    left = (outcome() == "live") | ((outcome() == "dead") & F.col("purged_at").isNull())
    return known.where(left).select(*FOLDED.names)


def told(known: DataFrame) -> DataFrame:
    """The facts, in their published form."""
    died_by_expiry = (F.col("settled.outcome") == "dead") & (F.col("settled.attempt") == F.col("expired_attempt"))
    settled_at = F.coalesce("settled.at", "lost.at", "redriven_at", "purged_at")
    since = F.greatest("due_at", "offered_at")
    return known.select(
        "queue_id",
        "queue",
        "key",
        "version",
        "origin",
        "priority",
        "size",
        "offered_at",
        "due_at",
        "first_leased_at",
        settled_at.alias("settled_at"),
        outcome().alias("outcome"),
        F.col("settled.reason").alias("reason"),
        (F.col("leases") - F.col("releases")).cast("int").alias("attempts"),
        (F.col("expiries") - F.coalesce(died_by_expiry.cast("int"), F.lit(0))).cast("int").alias("redeliveries"),
        F.col("releases").cast("int").alias("releases"),
        seconds(micros_between(since, F.col("first_leased_at"))).alias("wait_s"),
        seconds(F.col("processing_us")).alias("processing_s"),
        F.col("held.consumer").alias("consumer"),
        F.col("failed.error").alias("last_error"),
        "last_id",
        dated(settled_at).alias("date"),
    )


def message_facts(events: DataFrame) -> DataFrame:
    """The facts of every version in these events, in one pass: for notebooks and small inputs."""
    return told(fold(tracing.sequenced(events)))
