# pyright: basic
"""Per queue and minute: counts, lag, durations, depth."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from tarry.edges.spark.transforms.instants import MINUTE, dated, truncated
from tarry.edges.spark.transforms.quantiles import EXACT_UP_TO, quantiles, spread, with_exactness

COUNTED = (
    "offered", "updated", "redriven", "leased", "acked", "nacked", "released", "expired", "buried", "dropped",
    "discarded", "refused",
)  # fmt: skip
MEASURES = ("lag", "wait", "processing")


def measured(traced: DataFrame, exact_up_to: int | None = EXACT_UP_TO) -> DataFrame:
    """One row per queue and minute with events. `with_depth` turns `net` and `dead_net` into depths."""
    group = ["queue_id", "minute"]
    events = traced.withColumn("minute", truncated(F.col("at"), MINUTE))
    accepted = F.col("kind").isin("offered", "updated")
    aggregated = (
        with_exactness(events, group, exact_up_to)
        .groupBy(*group)
        .agg(
            F.max_by("queue", "id").alias("queue"),
            *(F.count_if(F.col("kind") == kind).alias(kind) for kind in COUNTED),
            F.coalesce(F.sum(F.when(accepted, F.col("size"))), F.lit(0)).alias("bytes_offered"),
            F.sum("net").alias("net"),
            F.sum("dead_net").alias("dead_net"),
            *(quantiles(f"{measure}_us").alias(measure) for measure in MEASURES),
            F.first("exact").alias("exact"),
        )
    )
    return aggregated.select(
        "queue_id",
        "queue",
        "minute",
        *COUNTED,
        "bytes_offered",
        "net",
        "dead_net",
        *(column for measure in MEASURES for column in spread(measure)),
        "exact",
        dated(F.col("minute")).alias("date"),
    )


def with_depth(metrics: DataFrame, baseline: DataFrame) -> DataFrame:
    """Live and dead messages at the end of each minute: the running sum of the changes.

    `baseline` (queue_id, depth, dead) is the depth of each queue before the first of these minutes.
    """
    so_far = Window.partitionBy("queue_id").orderBy("minute").rowsBetween(Window.unboundedPreceding, 0)
    before = baseline.select("queue_id", F.col("depth").alias("_depth"), F.col("dead").alias("_dead"))
    return (
        metrics.join(F.broadcast(before), "queue_id", "left")
        .withColumn("depth", F.coalesce("_depth", F.lit(0)) + F.sum("net").over(so_far))
        .withColumn("dead", F.coalesce("_dead", F.lit(0)) + F.sum("dead_net").over(so_far))
        .drop("_depth", "_dead")
    )


def day_nets(metrics: DataFrame) -> DataFrame:
    """The change of each queue's depth per date: the baseline of later dates."""
    return metrics.groupBy("queue_id", "date").agg(F.sum("net").alias("net"), F.sum("dead_net").alias("dead_net"))
