# pyright: basic
"""Profile of a queue: lag, size, processing time, batch size.

Stored as tallies: a small histogram per date, queue and measure, overwritten when the date is computed again. The
profile of a date is the sum of the tallies of the four weeks before it; no event of these weeks is read again. Bins
grow by 2^(1/8), so a quantile is accurate to 9 %, far below the factor of four used in the rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tarry.edges.spark.schemas import struct
from tarry.edges.spark.transforms import history as tracing
from tarry.edges.spark.transforms.anomalies.findings import or_null
from tarry.edges.spark.transforms.anomalies.operations import operations
from tarry.edges.spark.transforms.instants import dated, micros_between, truncated

TALLIES = struct("date date, queue_id int, consumer string, measure string, scale int, hour int, value double, n long")
"""Frequencies of values. `hour` and `scale` are null for profiles, and set for the series of `baselines`."""

DAYS = 28
_STEPS = 8
_SPAN_S = 5
"""Length of the spans in which a consumer's leases are counted; equals the default of `burst_dequeue`."""


def binned(value: Column) -> Column:
    """The lower bound of the bin; values below one count as one."""
    return F.pow(2.0, F.floor(F.log2(F.greatest(value.cast("double"), F.lit(1.0))) * _STEPS + 1e-9) / _STEPS)


def tallied_events(events: DataFrame, sequence: DataFrame) -> DataFrame:
    """The tallies of one pass over events. `sequence` is the result of `tracing.sequenced`."""
    kind = F.col("kind")
    all_consumers = F.lit(None).cast("string")

    def measured(frame: DataFrame, measure: str, value: Column, consumer: Column = all_consumers) -> DataFrame:
        values = frame.select(
            dated(F.col("at")).alias("date"), "queue_id", consumer.alias("consumer"), F.lit(measure).alias("measure"),
            binned(value).alias("value"),
        )  # fmt: skip
        return values.where(F.col("value").isNotNull())

    leased = sequence.where(kind == "leased")
    offers = events.where(kind.isin("offered", "updated"))
    taken = events.where(kind == "leased").groupBy("queue_id", "consumer", truncated(F.col("at"), _SPAN_S).alias("at"))
    counts = taken.agg(F.count(F.lit(1)).alias("count"))
    together = operations(offers).withColumn("at", F.col("window_from"))
    parts = [
        measured(leased, "lag_us", micros_between(tracing.eligible_at(), F.col("at"))),
        measured(offers, "size", F.col("size")),
        measured(
            events.where(kind.isin("acked", "nacked")), "processing_us", micros_between(F.col("leased_at"), F.col("at"))
        ),
        measured(counts, "taken", F.col("count")),
        measured(counts.where(F.col("consumer").isNotNull()), "taken", F.col("count"), F.col("consumer")),
        measured(together, "operation", F.col("count")),
    ]
    everything = reduce(DataFrame.unionByName, parts)
    tallies = everything.groupBy("date", "queue_id", "consumer", "measure", "value").agg(F.count(F.lit(1)).alias("n"))
    return tallies.select(*(or_null(tallies, field) for field in TALLIES.fields))


def profiles(tallies: DataFrame, dates: Iterable[date], days: int = DAYS) -> DataFrame:
    """The profile for each of these dates, from the days before it."""
    habits = spread_over(tallies.where(F.col("hour").isNull()), dates, days)
    summed = habits.groupBy("date", "queue_id", "consumer", "measure", "value").agg(F.sum("n").alias("n"))
    points = F.array(F.lit(0.01), F.lit(0.99), F.lit(0.999))
    usual = summed.groupBy("date", "queue_id", "consumer", "measure").agg(
        F.sum("n").alias("total"), F.percentile("value", points, F.col("n")).alias("points")
    )
    # High quantiles use the upper bound of their bin, so that values in the same bin do not exceed them.
    step = 2.0 ** (1 / _STEPS)
    return usual.select(
        "date", "queue_id", "consumer", "measure",
        F.col("total").alias("n"),
        F.get("points", F.lit(0)).alias("p01"),
        (F.get("points", F.lit(1)) * step).alias("p99"),
        (F.get("points", F.lit(2)) * step).alias("p999"),
    )  # fmt: skip


def spread_over(tallies: DataFrame, dates: Iterable[date], days: int) -> DataFrame:
    """Each tally once for every date within `days` after it; `seen_on` is its own date."""
    days_of_profile = F.array(*(F.lit(day) for day in sorted(dates))).cast("array<date>")
    past = tallies.withColumnRenamed("date", "seen_on").withColumn("date", F.explode(days_of_profile))
    age = F.date_diff("date", "seen_on")
    return past.where((age > 0) & (age <= days))
