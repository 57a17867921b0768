# pyright: basic
"""Continues a published anomaly that began before the frames, instead of raising a new one each day.

The frames begin one day before the judged range. Of an anomaly that began earlier they show a part or nothing: its
start, and thereby its identity, comes from the published anomalies.
"""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DoubleType, IntegerType, StringType, StructField, StructType, TimestampType

TOLD = StructType(
    [
        StructField("detector", StringType()),
        StructField("queue_id", IntegerType()),
        StructField("queue", StringType()),
        StructField("key", StringType()),
        StructField("consumer", StringType()),
        StructField("window_from", TimestampType()),
        StructField("window_to", TimestampType()),
        StructField("observed", DoubleType()),
        StructField("expected_low", DoubleType()),
        StructField("expected_high", DoubleType()),
    ]
)
"""Published anomalies that began before the judged range and reached the start of the frames."""

_SUBJECT = ("queue_id", "key", "consumer", "side")
"""The subject columns, as far as a detector has them: an anomaly continues only with the same subject."""


def continued(found: DataFrame, told: DataFrame | None) -> DataFrame:
    """The found anomalies, with the start of the published one that they continue: same subject, overlapping in time.

    If a published anomaly overlaps several, for example because late events split it, the first one takes over its
    start.
    """
    if told is None:
        return found
    subject = [name for name in _SUBJECT if name in found.columns and name in told.columns]
    before = F.broadcast(
        told.select(*(F.col(name).alias(f"_{name}") for name in (*subject, "window_from", "window_to")))
    )
    same: list[Column] = [F.col(name).eqNullSafe(F.col(f"_{name}")) for name in subject]
    meets = (F.col("_window_from") <= F.col("window_to")) & (F.col("_window_to") >= F.col("window_from"))
    beside = found.join(before, reduce(and_, [*same, meets]), "left")
    once = beside.groupBy(*found.columns).agg(F.min("_window_from").alias("_began"))
    of_old = Window.partitionBy(*subject, "_began").orderBy("window_from")
    goes_on = F.col("_began").isNotNull() & (F.row_number().over(of_old) == 1)
    began = F.when(goes_on, F.least("_began", "window_from")).otherwise(F.col("window_from"))
    return once.withColumn("window_from", began).drop("_began")
