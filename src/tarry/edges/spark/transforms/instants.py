# pyright: basic
"""Minutes, hours and dates of UTC, whatever the session's time zone says: a session that is not ours may stand in Delhi."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

MINUTE = 60
HOUR = 3600
_DAY = 86_400


def truncated(at: Column, seconds: int) -> Column:
    """The instant at which the minute or hour of `at` begins."""
    return F.timestamp_seconds(F.floor(F.unix_seconds(at) / seconds) * seconds)


def dated(at: Column) -> Column:
    return F.date_from_unix_date(F.floor(F.unix_seconds(at) / _DAY).cast("int"))


def micros_between(earlier: Column, later: Column) -> Column:
    """Whole microseconds, as the database counts them; null where one end is missing."""
    return F.unix_micros(later) - F.unix_micros(earlier)


def seconds(micros: Column) -> Column:
    return micros / F.lit(1_000_000.0)
