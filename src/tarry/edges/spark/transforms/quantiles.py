# pyright: basic
"""Percentiles: exact for small groups, approximate and marked as such for large ones."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

EXACT_UP_TO = 100_000
"""Events per group. `percentile` keeps every distinct value of a group in memory; below this it is a few megabytes."""
ACCURACY = 10_000
"""Above the limit: `percentile_approx`, whose rank error is at most one in this many: p99 lies within p98.99–p99.01."""
POINTS = (0.5, 0.95, 0.99)
NAMES = ("p50", "p95", "p99")


def with_exactness(frame: DataFrame, group: Sequence[str], exact_up_to: int | None = EXACT_UP_TO) -> DataFrame:
    """Add `exact`: whether the group of the row is small enough. None: all groups are known to be.

    Large groups are few, so they are broadcast.
    """
    if exact_up_to is None:
        return frame.withColumn("exact", F.lit(True))
    large = (
        frame.groupBy(*group).count().where(F.col("count") > exact_up_to).select(*group, F.lit(False).alias("exact"))
    )
    joined = frame.join(F.broadcast(large), on=list(group), how="left")
    return joined.withColumn("exact", F.coalesce("exact", F.lit(True)))


def quantiles(micros: str) -> Column:
    """An aggregate: p50, p95 and p99 in seconds, interpolated like `percentile_cont` in SQL."""
    value, exact = F.col(micros), F.col("exact")
    points = F.array(*(F.lit(p) for p in POINTS))
    exactly = F.percentile(F.when(exact, value), points)
    roughly = F.percentile_approx(F.when(~exact, value), points, ACCURACY).cast("array<double>")
    return F.transform(F.coalesce(exactly, roughly), lambda micros: F.round(micros) / 1_000_000.0)


def spread(measure: str) -> list[Column]:
    """The columns made from the `quantiles` named `measure`: lag_p50_s, lag_p95_s, lag_p99_s."""
    return [F.get(measure, F.lit(i)).alias(f"{measure}_{name}_s") for i, name in enumerate(NAMES)]
