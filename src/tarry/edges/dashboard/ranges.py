"""The time range that all panels of a page share: `?range=1h`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

DEFAULT = "1h"
RANGES = {
    "15m": (timedelta(minutes=15), timedelta(seconds=10)),
    "1h": (timedelta(hours=1), timedelta(minutes=1)),
    "6h": (timedelta(hours=6), timedelta(minutes=10)),
    "24h": (timedelta(hours=24), timedelta(minutes=10)),
    "7d": (timedelta(days=7), timedelta(hours=1)),
}
"""How far each goes back, and the width of its points: one of the widths of rollups."""


class TimeRange(NamedTuple):
    name: str
    since: datetime
    until: datetime
    width: timedelta

    @property
    def starts(self) -> list[datetime]:
        """The beginnings of all points, the current one, which is not complete, included."""
        count = round((self.until - self.since) / self.width)
        return [self.since + at * self.width for at in range(count)]


def time_range(name: str | None, now: datetime) -> TimeRange:
    """The range of this name, or the default for a name that is not known."""
    name = name if name in RANGES else DEFAULT
    length, width = RANGES[name]
    until = floor(now, width) + width
    return TimeRange(name, until - length, until, width)


def floor(at: datetime, width: timedelta) -> datetime:
    seconds = width.total_seconds()
    return at - timedelta(seconds=at.timestamp() % seconds)
