# pyright: basic
"""Minutes, hours and dates in UTC, independent of the session's time zone, which may have an offset of half an hour."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the usual name

MINUTE = 60
HOUR = 3600
_DAY = 86_400


def truncated(at: Column, seconds: int) -> Column:
    """The start of the minute or hour of `at`."""
    return F.timestamp_seconds(F.floor(F.unix_seconds(at) / seconds) * seconds)


def dated(at: Column) -> Column:
    return F.date_from_unix_date(F.floor(F.unix_seconds(at) / _DAY).cast("int"))


def micros_between(earlier: Column, later: Column) -> Column:
    """Whole microseconds, the resolution of the database; null if either end is missing."""
    return F.unix_micros(later) - F.unix_micros(earlier)


def seconds(micros: Column) -> Column:
    return micros / F.lit(1_000_000.0)
