# pyright: basic
"""Expected values per hour of the week, for each metric of each queue."""

from collections.abc import Iterable
from datetime import date, datetime

from pyspark.sql import DataFrame

from tarry.edges.spark.transforms.anomalies.profiles import DAYS, over_past
from tarry.edges.spark.transforms.query import query, sql

METRICS = ("offered", "acked", "failed", "processing", "lag")
"""Three counts and two durations."""


def series(per_minute: DataFrame, queues: DataFrame, since: datetime, until: datetime) -> DataFrame:
    """queue_id, queue, metric, scale, minute, date, hour, value, x: every minute of every queue with a journal."""
    return query(sql("anomalies/series"), {"since": since, "until": until}, per_minute=per_minute, queues=queues)


def unscaled(x: str) -> str:
    """The value of an `x` of `series`."""
    counts = "metric in ('offered', 'acked', 'failed')"
    return f"if({counts}, greatest({x}, 0D) * greatest({x}, 0D), greatest(exp({x}) - 0.001D, 0D))"


def tallied_series(of_minutes: DataFrame) -> DataFrame:
    return query(sql("anomalies/tallied_series"), series=of_minutes)


def bands(
    tallies: DataFrame, dates: Iterable[date], *, days: int = DAYS, weekly: int = 120, daily: int = 180
) -> DataFrame:
    return over_past("anomalies/bands", tallies, dates, days, weekly=weekly, daily=daily)


def published_bands(bands: DataFrame, queues: DataFrame, after: date) -> DataFrame:
    shown = {"low": unscaled("lowest"), "middle": unscaled("median"), "high": unscaled("highest")}
    return query(sql("anomalies/published_bands", **shown), {"after": after}, bands=bands, queues=queues)
