# pyright: basic
"""Profile of a queue: lag, size, processing time, batch size.

Stored as tallies: a small histogram per date, queue and measure, computed from the sketches of its minutes and hours after
the date has passed. The profile of a date is the sum of the tallies of the four weeks before it. Bins grow by 2^(1/8), so a
quantile is accurate to 9 %, far below the factor of four used in the rules.
"""

from collections.abc import Iterable
from datetime import date

from pyspark.sql import DataFrame

from tarry.edges.spark.schemas import struct
from tarry.edges.spark.transforms.query import query, sql

TALLIES = struct("date date, queue_id int, consumer string, measure string, scale int, hour int, value double, n long")
"""Frequencies of values. `hour` and `scale` are null for profiles, and set for the series of `baselines`."""

DAYS = 28


def tallied(minutes: DataFrame, hours: DataFrame) -> DataFrame:
    """The tallies of dates, from all of their `metrics` and `consumers`."""
    return query(sql("anomalies/tallied"), minutes=minutes, hours=hours)


def profiles(tallies: DataFrame, dates: Iterable[date]) -> DataFrame:
    return over_past("anomalies/profiles", tallies, dates)


def over_past(name: str, tallies: DataFrame, dates: Iterable[date], **more: DataFrame) -> DataFrame:
    """A query over the tallies of the days before each of these dates."""
    every = ",".join(day.isoformat() for day in sorted(dates))
    return query(sql(name, past=sql("anomalies/past")), {"dates": every, "days": DAYS}, tallies=tallies, **more)
