"""The time range that all panels of a page share: `?range=1h`, `?range=90m`, or two instants with a slash between them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from tarry.core.durations import duration
from tarry.core.errors import InvalidInput
from tarry.core.rollups.model import WIDTHS

DEFAULT = "1h"
RANGES = {
    "15m": (timedelta(minutes=15), timedelta(seconds=10)),
    "1h": (timedelta(hours=1), timedelta(minutes=1)),
    "6h": (timedelta(hours=6), timedelta(minutes=10)),
    "24h": (timedelta(hours=24), timedelta(minutes=10)),
    "7d": (timedelta(days=7), timedelta(hours=1)),
}
"""How far each goes back, and the width of its points: one of the widths of rollups."""
_MOST_POINTS = 200
_LEAST = timedelta(minutes=1)
_TINY = timedelta(microseconds=1)


class TimeRange(NamedTuple):
    name: str
    since: datetime
    until: datetime
    width: timedelta
    is_past: bool = False
    """It ended before now, so that its last point is complete."""

    @property
    def starts(self) -> list[datetime]:
        """The beginnings of all points, the current one, which is not complete, included."""
        count = round((self.until - self.since) / self.width)
        return [self.since + at * self.width for at in range(count)]

    @property
    def words(self) -> str:
        if "/" not in self.name:
            return f"the last {self.name}"
        end = f"{self.until:%H:%M}" if self.since.date() == self.until.date() else f"{self.until:%d %b %H:%M}"
        return f"{self.since:%d %b %H:%M} – {end} UTC"

    @property
    def short(self) -> str:
        """For the head of a column."""
        return self.name if "/" not in self.name else "chosen time"


def time_range(name: str | None, now: datetime) -> TimeRange:
    """The range of this name, or the default for a text that is none."""
    if name in RANGES:
        length, width = RANGES[name]
        until = floor(now, width) + width
        return TimeRange(name, until - length, until, width)
    return (name and _chosen(name, now)) or time_range(DEFAULT, now)


def _chosen(text: str, now: datetime) -> TimeRange | None:
    """A range of one's own, in the narrowest slices that are kept for so long and are not too many."""
    since, slash, until = text.strip().partition("/")
    try:
        if slash:
            first, last = (_instant(part) for part in (since, until))
        else:
            first, last = now - duration(since, "range"), now
    except (InvalidInput, ValueError, OverflowError):
        return None
    last = min(last, now)
    if last - first < _LEAST:
        return None
    for width, kept in WIDTHS.items():
        begin, end = floor(first, width), floor(last - _TINY, width) + width
        if begin > now - kept and (end - begin) / width <= _MOST_POINTS:
            return TimeRange(text.strip(), begin, end, width, is_past=end <= now)
    return None


def _instant(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).astimezone(UTC)


def floor(at: datetime, width: timedelta) -> datetime:
    seconds = width.total_seconds()
    return at - timedelta(seconds=at.timestamp() % seconds)
