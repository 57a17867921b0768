# pyright: basic
"""Expected values per hour of the week, for each metric of each queue."""

from collections.abc import Iterable
from datetime import date, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession

from tarry.core.analytics.calendar import UTC_CALENDAR, Calendar
from tarry.edges.spark.schemas import struct
from tarry.edges.spark.sizing import Keep, local_frame
from tarry.edges.spark.transforms.anomalies.profiles import DAYS, over_past
from tarry.edges.spark.transforms.query import query, sql

METRICS = ("offered", "acked", "failed", "processing", "lag", "depth")
"""Three counts, two durations and a gauge."""

BEFORE = timedelta(minutes=30)
"""Longest sum in `series`."""

JUDGED = struct("date date, utc_hour int, hour int")
"""Hours of dates, each with its local hour of the week."""


def series(
    per_minute: DataFrame, queues: DataFrame, since: datetime, until: datetime, calendar: Calendar = UTC_CALENDAR
) -> DataFrame:
    """queue_id, queue, metric, scale, minute, date, hour, phase, value, x: every minute of every queue with a journal."""
    holidays = ",".join(day.isoformat() for day in sorted(calendar.holidays))
    args = {"since": since, "until": until, "zone": calendar.zone, "holidays": holidays}
    return query(sql("anomalies/levels/series"), args, per_minute=per_minute, queues=queues)


def unscaled(x: str) -> str:
    """The original value of an `x` of `series`."""
    counts = "metric in ('offered', 'acked', 'failed')"
    duration = f"greatest(exp({x}) - 0.001D, 0D)"
    return f"case when {counts} then greatest({x}, 0D) * greatest({x}, 0D) when metric = 'depth' then {x} else {duration} end"


def tallied_series(of_minutes: DataFrame) -> DataFrame:
    return query(sql("anomalies/levels/tallied_series"), series=of_minutes)


def hours(spark: SparkSession, dates: Iterable[date], calendar: Calendar) -> DataFrame:
    return local_frame(spark, [(day, *hour) for day in dates for hour in calendar.hours(day)], JUDGED)


def bands(
    tallies: DataFrame,
    dates: Iterable[date],
    calendar: Calendar = UTC_CALENDAR,
    *,
    kept: Keep = lambda frame: frame.localCheckpoint(),
) -> DataFrame:
    dates = sorted(dates)
    judged = hours(tallies.sparkSession, dates, calendar)
    grown = kept(over_past("anomalies/levels/grown", tallies.where("hour is not null"), dates, judged=judged))
    weeks = kept(query(sql("anomalies/levels/weeks"), {"days": DAYS}, grown=grown))
    return query(sql("anomalies/levels/bands"), grown=grown, weeks=weeks, judged=judged)


def published_bands(
    bands: DataFrame, queues: DataFrame, dates: Iterable[date], after: date, calendar: Calendar = UTC_CALENDAR
) -> DataFrame:
    judged = hours(bands.sparkSession, dates, calendar)
    shown = {"low": unscaled("lowest"), "middle": unscaled("median"), "high": unscaled("highest")}
    return query(
        sql("anomalies/levels/published_bands", **shown), {"after": after}, bands=bands, queues=queues, judged=judged
    )
