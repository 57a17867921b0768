"""Folds events into the messages that must be live, and finds events that are impossible in their sequence."""

# pyright: basic
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from tarry.core.journal.replay import ENDS, NEUTRAL, NEW_VERSION, PREDECESSORS

STATE = ("queue_id", "key", "version", "attempt", "priority", "due_at")


def in_sequence(events: DataFrame) -> DataFrame:
    """Each event of a message with the kind and version of its predecessor, and whether it is the last visible of its key.
    Writers of one key wait for each other's commits, so the visible events of a key are its first ones.
    """
    life = Window.partitionBy("queue_id", "key").orderBy("id")
    relevant = events.where(F.col("key").isNotNull() & ~F.col("kind").isin(*(kind.value for kind in NEUTRAL)))
    return relevant.withColumns(
        {
            "before": F.lag("kind").over(life),
            "version_before": F.lag("version").over(life),
            "is_last": F.col("visible") & ~F.coalesce(F.lead("visible").over(life), F.lit(False)),
        }
    )


def impossible(sequence: DataFrame, truncated_queues: list[int]) -> DataFrame:
    """Events that cannot follow their predecessor: an event between them is missing, or one is duplicated.

    The history of a truncated queue has no beginning, so its keys may start with any event.
    """
    allowed = [
        f"{before.value if before is not None else '-'}>{kind.value}"
        for kind, befores in PREDECESSORS.items()
        for before in befores
    ]
    step = F.concat(F.coalesce("before", F.lit("-")), F.lit(">"), F.col("kind"))
    same_version = F.col("kind").isin(*(kind.value for kind in NEW_VERSION)) | F.col("version").eqNullSafe(
        F.col("version_before")
    )
    cut_off = F.col("before").isNull() & F.col("queue_id").isin(*truncated_queues)
    fits = step.isin(*allowed) & (F.col("before").isNull() | same_version)
    return sequence.where(~(fits | cut_off))


def folded(sequence: DataFrame) -> DataFrame:
    """The messages that are live after all these events, one row per key."""
    last = sequence.where(F.col("is_last") & ~F.col("kind").isin(*(kind.value for kind in ENDS)))
    return last.select(*STATE)


def folded_dead(events: DataFrame) -> DataFrame:
    """The dead letters that exist after all these events: buried, and neither redriven nor discarded."""
    buried = events.where(F.col("kind") == "buried").select("queue_id", "key", "version")
    gone = (
        events.where(F.col("kind").isin("redriven", "discarded"))
        .select(
            F.when(F.col("kind") == "discarded", F.col("version")).otherwise(F.col("from_version")).alias("version")
        )
        .where(F.col("version").isNotNull())
        .distinct()
    )
    return buried.join(gone, "version", "left_anti").select("queue_id", "key", "version")


def doubled(events: DataFrame) -> DataFrame:
    """Ids that occur more than once."""
    return events.groupBy("id").agg(F.count("*").alias("times")).where(F.col("times") > 1)


def compared(expected: DataFrame, stored: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """Rows that differ between both sides, as `expected` and `found` structs, one of which may be null."""
    names = [name for name in expected.columns if name not in keys]
    left = expected.select(*keys, F.struct(*names).alias("expected"))
    right = stored.groupBy(*keys).agg(F.count("*").alias("times"), F.first(F.struct(*names)).alias("found"))
    both = left.join(right, list(keys), "full_outer")
    return both.where(
        ~F.col("expected").eqNullSafe(F.col("found")) | (F.coalesce(F.col("times"), F.lit(1)) > 1)
    ).select(*keys, "expected", "found", "times")
