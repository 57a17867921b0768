"""Instants and wall clocks, with gaps (a clock set forward: readings that never occur) and overlaps (a clock set back:
readings that occur twice).

Instants are in UTC, readings of a wall clock are naive. Datetimes of one zone are never compared: Python would compare
their readings."""

import difflib
import re
from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from zoneinfo import ZoneInfo, available_timezones

from tarry.core.errors import InvalidInput

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+/-]{0,63}")
_NOT_ZONES = ("localtime", "posixrules", "Factory", "posix", "right")
"""Files in the zone database that are not zones, or differ between machines."""
_NO_TWO_CHANGES_WITHIN = timedelta(hours=12)
_SECOND = timedelta(seconds=1)


@cache
def zone_of(name: str) -> ZoneInfo:
    """The zone of an IANA name. The error for an unknown name suggests similar ones."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.partition("/")[0] in _NOT_ZONES:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"a zone is an IANA name such as Europe/Berlin or UTC, not {name!r:.120}")
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise _unknown(name) from error


def _unknown(name: str) -> InvalidInput:
    known = available_timezones()
    if not known:
        return InvalidInput(
            "there is no database of time zones on this machine", hint="install one: pip install tzdata"
        )
    by_lower = {zone.lower(): zone for zone in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)
    close += [zone for zone in by_lower if zone.endswith("/" + name.lower()) and zone not in close]
    hint = (
        f"did you mean {', '.join(by_lower[zone] for zone in close[:3])}?"
        if close
        else "names are like Europe/Berlin or UTC"
    )
    return InvalidInput(f"there is no time zone {name!r}", hint=hint)


def reading(zone: ZoneInfo, at: datetime) -> datetime:
    """The reading of the wall clock at an instant."""
    return at.astimezone(zone).replace(tzinfo=None, fold=0)


def offset(zone: ZoneInfo, at: datetime) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta(0)


def instant(zone: ZoneInfo, wall: datetime) -> datetime:
    """The first instant with this wall-clock reading; for a reading in a gap, the first instant after the gap."""
    first = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if reading(zone, first) == wall:
        return first
    # In a gap, the offset before the change gives an instant after it, and the offset after the change one before it.
    change = first_change(zone, wall.replace(tzinfo=zone, fold=1).astimezone(UTC), first)
    return first if change is None else change


def comes(zone: ZoneInfo, wall: datetime) -> int:
    """How often this wall-clock reading occurs: 0, 1 or 2 times."""
    first = wall.replace(tzinfo=zone, fold=0)
    if reading(zone, first.astimezone(UTC)) != wall:
        return 0
    return 1 if first.utcoffset() == wall.replace(tzinfo=zone, fold=1).utcoffset() else 2


def first_change(zone: ZoneInfo, after: datetime, until: datetime) -> datetime | None:
    """The first instant in (after, until] at which the clock was set, to the second; None if it was not."""
    if zone.utcoffset(None) is not None:
        return None  # a fixed offset, such as UTC
    for year in range(after.year, until.year + 1):
        for change in _changes(zone, year):
            if change > until:
                return None
            if change > after:
                return change
    return None


@lru_cache(maxsize=4_096)
def _changes(zone: ZoneInfo, year: int) -> tuple[datetime, ...]:
    """The instants of a UTC year at which the clock is set; the end of the year is included.

    Cached: the search takes 700 steps, and an expression that fires every 28 years needs all years up to each tick."""
    changes: list[datetime] = []
    low, end = datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)
    before = offset(zone, low)
    while low < end:
        high = min(low + _NO_TWO_CHANGES_WITHIN, end)
        if offset(zone, high) != before:
            changes.append(_narrowed(zone, before, low, high))
            before = offset(zone, high)
        low = high
    return tuple(changes)


def _narrowed(zone: ZoneInfo, before: timedelta, low: datetime, high: datetime) -> datetime:
    """The instant of the change between two instants, by bisection; clocks are set at whole seconds."""
    seconds = range(int((high - low) / _SECOND) + 1)
    return low + bisect_left(seconds, True, key=lambda second: offset(zone, low + second * _SECOND) != before) * _SECOND
