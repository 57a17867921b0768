"""Descriptions of a schedule's behaviour at clock changes of its zone. The rules are in `schedule_types`."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple
from zoneinfo import ZoneInfo

from tarry.core.cron.schedule_types import Cron, Daily, Schedule, Timetable
from tarry.core.cron.timezones import first_change, instant, offset, reading, zone_of

MOST_READINGS = 100
"""Maximum number of readings counted within one change."""
_NAMED = 3
_SECOND = timedelta(seconds=1)
_YEAR = timedelta(days=366)


class ClockChange(NamedTuple):
    at: datetime
    moved: timedelta
    """Positive: the clock is set forward, and readings are skipped; negative: readings occur twice."""
    sentence: str
    """When the clock is set, and by how much."""
    effect: str
    """The behaviour of the schedule."""
    around: tuple[datetime, ...]
    """The ticks before, at and after the change."""


def is_wall_clock(schedule: Schedule) -> bool:
    """Whether each local time fires once per date; otherwise every matching instant fires."""
    return isinstance(schedule, Daily) or (isinstance(schedule, Cron) and schedule.expression.names_hours)


def clock_changes(timetable: Timetable, now: datetime) -> list[ClockChange]:
    """The next two changes, within a year each; none for a period, or for a zone whose clock is never set."""
    name = timetable.schedule.zone
    if name is None:
        return []
    zone, at, changes = zone_of(name), now, list[ClockChange]()
    while len(changes) < 2 and (change := first_change(zone, at, at + _YEAR)) is not None:
        changes.append(_change(timetable, zone, change))
        at = change
    return changes


def _change(timetable: Timetable, zone: ZoneInfo, at: datetime) -> ClockChange:
    before, moved = at - _SECOND, offset(zone, at) - offset(zone, at - _SECOND)
    old, new = reading(zone, before) + _SECOND, reading(zone, at)
    way = "forward" if moved > timedelta(0) else "back"
    zone_before, zone_after = f"{before.astimezone(zone):%Z}", f"{at.astimezone(zone):%Z}"
    sentence = (
        f"{new:%a %Y-%m-%d}: at {_clock(old)} {zone_before} the clock is set {way} by {_length(moved)}, "
        f"to {_clock(new)} {zone_after}"
    )
    readings = list(islice(_readings(timetable.schedule, min(old, new), max(old, new)), MOST_READINGS + 1))
    readings = [wall for wall in readings if _is_within(timetable, instant(zone, wall))]
    around = _around(timetable, at, abs(moved))
    return ClockChange(at, moved, sentence, _effect(timetable.schedule, zone, at, moved, readings), around)


def _effect(schedule: Schedule, zone: ZoneInfo, at: datetime, moved: timedelta, readings: list[datetime]) -> str:
    is_gap, only = moved > timedelta(0), len(readings) == 1
    if not readings:
        what = "left out" if is_gap else "repeated"
        return f"No tick falls into the time that is {what}. Local times stay; in UTC they move by {_length(moved)}."
    named = _named(readings)
    if not is_wall_clock(schedule):
        if is_gap:
            return f"{named} {'does' if only else 'do'} not exist that day: {'it is' if only else 'they are'} left out."
        return f"{named} {'occurs' if only else 'occur'} twice: {'it fires' if only else 'each fires'} both times."
    if is_gap:
        then = f"{at.astimezone(zone):%H:%M %Z}"
        does = "does not exist that day: it fires at" if only else "do not exist that day: they fire once, at"
        return f"{named} {does} {then}."
    if only:
        first = instant(zone, readings[0]).astimezone(zone)
        return f"{named} occurs twice: it fires once, the first time, at {first:%H:%M %Z}."
    return f"{named} occur twice: each fires once, the first time."


def _readings(schedule: Schedule, since: datetime, until: datetime) -> Iterator[datetime]:
    """The readings of the wall clock in [since, until) that the schedule names."""
    if isinstance(schedule, Daily):
        for day in sorted({since.date(), until.date()}):
            walls = (datetime.combine(day, hour) for hour in schedule.hours)
            yield from (wall for wall in walls if since <= wall < until)
    elif isinstance(schedule, Cron):
        wall = schedule.expression.next_reading(since - _SECOND)
        while wall is not None and wall < until:
            yield wall
            wall = schedule.expression.next_reading(wall)


def _is_within(timetable: Timetable, at: datetime) -> bool:
    start, end = timetable.start_at, timetable.end_at
    return (start is None or start <= at) and (end is None or at <= end)


def _around(timetable: Timetable, at: datetime, moved: timedelta) -> tuple[datetime, ...]:
    last = timetable.last_until(at - _SECOND, at - timedelta(days=8))
    first = () if last is None else (last,)
    return (*first, *timetable.between(at - _SECOND, at + moved + timedelta(days=8), 3))


def _named(readings: list[datetime]) -> str:
    shown = [_clock(wall) for wall in readings[:_NAMED]]
    if len(readings) > MOST_READINGS:
        return f"More than {MOST_READINGS} times from {shown[0]} on"
    if len(readings) > _NAMED:
        return f"{', '.join(shown[:-1])} … {_clock(readings[-1])} ({len(readings)} times)"
    return " and ".join(", ".join(shown).rsplit(", ", 1))


def _clock(wall: datetime) -> str:
    return wall.time().isoformat("seconds" if wall.second else "minutes")


def _length(moved: timedelta) -> str:
    minutes = int(abs(moved).total_seconds() // 60)
    return f"{minutes // 60} h" if minutes % 60 == 0 else f"{minutes} min"
