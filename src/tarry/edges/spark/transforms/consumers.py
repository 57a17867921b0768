# pyright: basic
"""Per consumer, queue and hour: leases, their outcomes, and processing times."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from tarry.edges.spark.transforms.instants import HOUR, dated, truncated
from tarry.edges.spark.transforms.quantiles import EXACT_UP_TO, quantiles, spread, with_exactness

UNNAMED = "unknown"
"""The name of consumers that leased without a name."""
_COUNTED = ("leased", "acked", "failed", "expired", "released")


def consumer_hours(traced: DataFrame, exact_up_to: int | None = EXACT_UP_TO) -> DataFrame:
    """Consumer statistics per hour. Each event counts in its own hour: a message leased in one hour and acked in the
    next counts in both.

    A failure is a nack, or a burial requested by the consumer or caused by its decoder; a burial after the last nack or
    expiry is already counted there. An expiry counts for the consumer that lost the lease. The success rate is acks
    among all endings.
    """
    group = ["queue_id", "consumer", "hour"]
    kind = F.col("kind")
    failed = (kind == "nacked") | ((kind == "buried") & F.col("reason").isin("buried", "undecodable"))
    acts = traced.where(kind.isin("leased", "acked", "expired", "released") | failed).select(
        "*", truncated(F.col("at"), HOUR).alias("hour")
    )
    named = acts.withColumn("consumer", F.coalesce("consumer", F.lit(UNNAMED)))
    counted = (
        with_exactness(named, group, exact_up_to)
        .groupBy(*group)
        .agg(
            F.max_by("queue", "id").alias("queue"),
            *(F.count_if(failed if name == "failed" else kind == name).alias(name) for name in _COUNTED),
            quantiles("processing_us").alias("processing"),
            F.first("exact").alias("exact"),
        )
    )
    ended = F.col("acked") + F.col("failed") + F.col("expired")
    all_leases = F.sum("leased").over(Window.partitionBy("queue_id", "hour"))
    return counted.select(
        *group,
        "queue",
        *_COUNTED,
        F.when(ended > 0, F.col("acked") / ended).alias("success_rate"),
        F.when(all_leases > 0, F.col("leased") / all_leases).alias("share"),
        *spread("processing"),
        "exact",
        dated(F.col("hour")).alias("date"),
    )
