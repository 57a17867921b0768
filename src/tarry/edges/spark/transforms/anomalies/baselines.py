# pyright: basic
"""Expected values per hour of the week, for each metric of each queue.

Counts are judged by their square root: for a Poisson count it has the same spread of one half at every level, so quiet
and busy queues share one threshold. Durations are judged by their logarithm, because they vary by factors. A minute
without events is a count of zero, so that a stall has rows and can be detected.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from tarry.edges.spark.transforms.anomalies.context import BANDS
from tarry.edges.spark.transforms.anomalies.profiles import DAYS, spread_over
from tarry.edges.spark.transforms.instants import MINUTE, dated, truncated

SCALES = (1, 10)
"""Minutes. A stall of a queue with one message per minute does not show in any single minute, but does in ten."""

DRIFT = 0.05
"""Of the square root: a tenth of the count. Four weeks are too few to measure how levels drift."""
_LEAST_S = 0.001
_COUNTS = ("offered", "acked", "failed")
"""The other metrics are durations."""


@dataclass(frozen=True)
class Metric:
    """A judged metric. `floor` is the minimum spread on the metric's scale: that of a Poisson count, or a factor."""

    name: str
    expression: str
    floor: float

    @property
    def is_count(self) -> bool:
        return self.name in _COUNTS


METRICS = (
    Metric("offered", "offered + updated", 0.5),
    Metric("acked", "acked", 0.5),
    Metric("failed", "nacked + expired", 0.5),
    Metric("processing", "processing_p95_s", 0.15),
    Metric("lag", "lag_p95_s", 0.25),
)


def series(per_minute: DataFrame, queues: DataFrame, since: datetime, until: datetime) -> DataFrame:
    """queue_id, queue, metric, scale, minute, date, hour, value, x: every minute of every queue with a journal.

    A queue starts with its first whole minute and ends when it is deleted. `value` is for display (for counts the sum
    over the last `scale` minutes), `x` is what is judged. Durations have no value in minutes without events.
    """
    first = truncated(F.greatest(F.col("created_at"), F.lit(since)) + F.expr("interval 59999 millisecond"), MINUTE)
    last = F.least(F.coalesce("deleted_at", F.lit(until)), F.lit(until)) - F.expr("interval 1 minute")
    living = (
        queues.where("journaled <> 'off'")
        .withColumns({"first": first, "last": truncated(last, MINUTE)})
        .where(F.col("first") <= F.col("last"))
    )
    grid = living.select(
        "queue_id", "queue", F.explode(F.sequence("first", "last", F.expr("interval 1 minute"))).alias("minute")
    )
    columns = [F.expr(metric.expression).cast("double").alias(metric.name) for metric in METRICS]
    dense = grid.join(per_minute.select("queue_id", "minute", *columns), ["queue_id", "minute"], "left")
    of_queue = Window.partitionBy("queue_id").orderBy("minute")
    values = []
    for metric in METRICS:
        for scale in SCALES if metric.is_count else SCALES[:1]:
            value = F.coalesce(F.col(metric.name), F.lit(0.0)) if metric.is_count else F.col(metric.name)
            if scale > 1:
                span = of_queue.rowsBetween(1 - scale, 0)
                value = F.when(F.count(F.lit(1)).over(span) == scale, F.sum(value).over(span))
            values.append(
                F.struct(F.lit(metric.name).alias("metric"), F.lit(scale).alias("scale"), value.alias("value"))
            )
    long = dense.select("queue_id", "queue", "minute", F.array(*values).alias("values"))
    values = long.select("queue_id", "queue", "minute", F.inline("values")).where(F.col("value").isNotNull())
    return values.withColumns(
        {
            "date": dated(F.col("minute")),
            "hour": F.floor(F.unix_seconds("minute") / 3600 % 24).cast("int"),
            "x": scaled(F.col("metric"), F.col("value")),
        }
    )


def _is_count(metric: Column) -> Column:
    return metric.isin(*_COUNTS)


def scaled(metric: Column, value: Column) -> Column:
    return F.when(_is_count(metric), F.sqrt(value)).otherwise(F.log(F.greatest(value, F.lit(0.0)) + _LEAST_S))


def unscaled(metric: Column, x: Column) -> Column:
    whole = F.greatest(x, F.lit(0.0))
    return F.when(_is_count(metric), whole * whole).otherwise(F.greatest(F.exp(x) - _LEAST_S, F.lit(0.0)))


def tallied_series(of_minutes: DataFrame) -> DataFrame:
    """Histogram of x per hour and date, rounded to a twentieth of the scale: far below any spread."""
    value = F.round(F.col("x") * 20) / 20
    return of_minutes.groupBy(
        "date", "queue_id", F.lit(None).cast("string").alias("consumer"), F.col("metric").alias("measure"), "scale",
        "hour", value.alias("value"),
    ).agg(F.count(F.lit(1)).alias("n"))  # fmt: skip


def bands(
    tallies: DataFrame, dates: Iterable[date], *, days: int = DAYS, weekly: int = 120, daily: int = 180
) -> DataFrame:
    """Median, spread and outer percentiles for each hour of these dates.

    From the same hour of the week, if at least `weekly` minutes of it are known (two weeks); else from the same hour of
    the other working days, or of the other weekend days, if at least `daily` minutes are known (three days); else
    nothing is judged. Median and MAD stay stable as long as fewer than half of the minutes are anomalous.
    """
    past = spread_over(tallies.where(F.col("hour").isNotNull()), dates, days)
    same_day = F.date_diff("date", "seen_on") % 7 == 0
    like = F.weekday("date").isin(5, 6) == F.weekday("seen_on").isin(5, 6)
    cell = ["date", "queue_id", "measure", "scale", "hour"]
    summed = (
        past.where(like)
        .groupBy(*cell, "value")
        .agg(F.sum(F.when(same_day, F.col("n")).otherwise(0)).alias("same"), F.sum("n").alias("like"))
    )
    enough = F.sum("same").over(Window.partitionBy(*cell)) >= weekly
    chosen = summed.withColumn("n", F.when(enough, F.col("same")).otherwise(F.col("like"))).where("n > 0")
    points = F.array(F.lit(0.01), F.lit(0.5), F.lit(0.99))
    middles = chosen.groupBy(*cell).agg(
        F.sum("n").alias("total"),
        F.max(F.col("same") > 0).alias("_same"),
        F.percentile("value", points, F.col("n")).alias("points"),
        F.collect_list(F.struct("value", "n")).alias("_values"),
    )
    middles = middles.where((F.col("total") >= weekly) & ((F.col("total") >= daily) | F.col("_same")))
    middle = F.get("points", F.lit(1))
    spread = (
        middles.withColumn("median", middle)
        .select("*", F.inline("_values"))
        .groupBy(*cell)
        .agg(
            F.first("total").alias("n"),
            F.first("median").alias("median"),
            F.first("points").alias("points"),
            F.percentile(F.abs(F.col("value") - F.col("median")), F.lit(0.5), F.col("n")).alias("mad"),
        )
    )
    floor = F.lit(None).cast("double")
    for metric in METRICS:
        floor = F.when(F.col("measure") == metric.name, F.lit(metric.floor)).otherwise(floor)
    drift = F.when(_is_count(F.col("measure")), F.col("median") * DRIFT)
    columns = {
        "metric": F.col("measure"),
        "sigma": F.greatest(F.col("mad") * 1.4826, floor, drift),
        "p01": F.get("points", F.lit(0)),
        "p99": F.get("points", F.lit(2)),
    }
    return spread.withColumns(columns).select(*BANDS.names)
