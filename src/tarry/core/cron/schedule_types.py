"""When something is to happen again and again: periodic, daily, by cron expression. Time is an argument.

Two kinds of time, told apart by what a schedule is about:

- **wall clock**: it names hours of the day (daily schedules, `30 2 * * *`, `0 */2 * * *`). Each reading counts once per
  local date: one that falls into a gap fires at the first instant after it, one that comes twice fires the first time.
  Several that fall into one gap are one tick.
- **elapsed**: it runs in every hour (`*/15 * * * *`, `0 * * * *`) or has a period. It fires at every instant that fits:
  a repeated hour has its ticks twice, an hour that is left out has none.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import islice
from typing import Protocol

from tarry.core import cron_expressions, zones
from tarry.core.errors import InvalidInput

SHORTEST_PERIOD = timedelta(seconds=1)
LONGEST_PERIOD = timedelta(days=3653)
MOST_HOURS = 24 * 60
"""Of a daily schedule, each counted once."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_US = timedelta(microseconds=1)
_MINUTE = timedelta(minutes=1)
_LAST_YEAR = 9990
"""Ticks beyond it would leave Python's calendar."""
BEGIN = _EPOCH
"""Timetables begin with 1970: nothing is looked for in the centuries before."""


class Schedule(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def text(self) -> str:
        """In words that `schedule_of` reads back."""
        ...

    @property
    def zone(self) -> str | None: ...
    @property
    def config_hash(self) -> str:
        """Equal schedules have equal ones. For periodic and daily ones those of DelayedQueue's CronService."""
        ...

    def next_after(self, at: datetime) -> datetime | None:
        """The first tick strictly after an instant, in UTC; None if there is none any more."""
        ...


@dataclass(frozen=True, slots=True)
class Periodic:
    """Every so often, aligned to the epoch: every process finds the same instants, whenever it began."""

    every: timedelta
    kind: str = field(default="periodic", init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.every, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"every must be a timedelta, not {type(self.every).__name__}")
        if not SHORTEST_PERIOD <= self.every <= LONGEST_PERIOD or self.every % _MS:
            raise InvalidInput(f"every must be whole milliseconds between 1 second and 10 years, not {self.every}")

    @property
    def text(self) -> str:
        return f"{self.every // _MS}ms"

    @property
    def zone(self) -> str | None:
        return None

    @property
    def config_hash(self) -> str:
        return hash_of(f"\nperiodic-tick:\n  period-ms: {self.every // _MS}\n")

    def next_after(self, at: datetime) -> datetime | None:
        found = _EPOCH + ((at - _EPOCH) // self.every + 1) * self.every
        return found if found.year < _LAST_YEAR else None


class Daily:
    """At the same hours every day, by the wall clock of a zone."""

    __slots__ = ("_zone", "hours")
    kind = "daily"

    def __init__(self, hours: Iterable[str | time], zone: str) -> None:
        if isinstance(hours, str):
            raise InvalidInput(f"hours is a list of times such as ['02:00', '14:30'], not {hours!r:.80}")
        self.hours = _different(hours)
        self._zone = zones.zone_of(zone)
        if not self.hours:
            raise InvalidInput("a daily schedule needs at least one hour", hint="hours=['02:00']")

    @property
    def text(self) -> str:
        return ", ".join(hour.isoformat("seconds" if hour.second else "minutes") for hour in self.hours)

    @property
    def zone(self) -> str | None:
        return self._zone.key

    @property
    def config_hash(self) -> str:
        return hash_of(f"\ndaily-cron:\n  zone: {self.zone}\n  hours: {self.text}\n")

    def next_after(self, at: datetime) -> datetime | None:
        day = zones.reading(self._zone, at).date()
        while day.year < _LAST_YEAR:
            # Later readings never come earlier, so the first one after `at` is found by halving.
            first = bisect_right(self.hours, at, key=lambda hour: self._instant(day, hour))
            if first < len(self.hours):
                return self._instant(day, self.hours[first])
            day += timedelta(days=1)
        return None

    def _instant(self, day: date, hour: time) -> datetime:
        return zones.instant(self._zone, datetime.combine(day, hour))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Daily) and (self.hours, self.zone) == (other.hours, other.zone)

    def __hash__(self) -> int:
        return hash((self.hours, self.zone))

    def __repr__(self) -> str:
        return f"Daily([{self.text}], zone={self.zone!r})"


class Cron:
    """By a cron expression of five or six fields, by the wall clock of a zone."""

    __slots__ = ("_zone", "expression")
    kind = "cron"

    def __init__(self, expression: str, zone: str) -> None:
        self.expression = cron_expressions.parse(expression)
        self._zone = zones.zone_of(zone)

    @property
    def text(self) -> str:
        return self.expression.text

    @property
    def zone(self) -> str | None:
        return self._zone.key

    @property
    def config_hash(self) -> str:
        return hash_of(f"\ncron:\n  zone: {self.zone}\n  expression: {self.text}\n")

    @property
    def is_wall_clock(self) -> bool:
        return self.expression.names_hours

    def next_after(self, at: datetime) -> datetime | None:
        found = self._next_by_wall_clock(at) if self.is_wall_clock else self._next_by_elapsed_time(at)
        return found if found is None or found.year < _LAST_YEAR else None

    def _next_by_wall_clock(self, at: datetime) -> datetime | None:
        # Later readings never come earlier, so the first one that leads beyond `at` is it. Readings that do not are
        # those of an hour that `at` sees for the second time.
        wall: datetime | None = zones.reading(self._zone, at)
        while (wall := self.expression.next_reading(wall)) is not None:
            found = zones.instant(self._zone, wall)
            if found > at:
                return found
        return None

    def _next_by_elapsed_time(self, at: datetime) -> datetime | None:
        shift = zones.offset(self._zone, at)
        wall = searched = (at + shift).replace(tzinfo=None)
        fits = self.expression.next_reading(wall)
        while fits is not None:
            found = fits.replace(tzinfo=UTC) - shift
            change = zones.first_change(self._zone, at, found)
            if change is None:
                return found
            # The clock is set on the way there: look again from the first instant after that, which counts too.
            at, shift = change, zones.offset(self._zone, change)
            wall = (change + shift - timedelta(seconds=1)).replace(tzinfo=None)
            if not searched <= wall < fits:  # else nothing fits before it: a rare expression is searched for once
                fits, searched = self.expression.next_reading(wall), wall
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cron) and (self.text, self.zone) == (other.text, other.zone)

    def __hash__(self) -> int:
        return hash((self.text, self.zone))

    def __repr__(self) -> str:
        return f"Cron({self.text!r}, zone={self.zone!r})"


@dataclass(frozen=True, slots=True)
class Ticks:
    """No rule: somebody's own program says which ticks there are. What `install_tick` leaves behind."""

    hash: str
    kind: str = field(default="ticks", init=False)

    @property
    def text(self) -> str:
        return self.hash

    @property
    def zone(self) -> str | None:
        return None

    @property
    def config_hash(self) -> str:
        return self.hash

    def next_after(self, at: datetime) -> datetime | None:
        return None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A schedule that this machine cannot read: its database of zones is older than the schedule, or its Tarry is."""

    kind: str
    text: str
    zone: str | None
    config_hash: str
    error: str

    def next_after(self, at: datetime) -> datetime | None:
        return None


@lru_cache(maxsize=4_096)
def _next_after(schedule: Schedule, at: datetime) -> datetime | None:
    """Of many schedules most have the times of some other, and are planned at the same moments."""
    return schedule.next_after(at)


@dataclass(frozen=True, slots=True)
class Timetable:
    """A schedule between two dates, both included."""

    schedule: Schedule
    start_at: datetime | None = None
    end_at: datetime | None = None

    def next_after(self, at: datetime) -> datetime | None:
        at = max(at, (BEGIN if self.start_at is None else max(self.start_at, BEGIN)) - _US)
        found = _next_after(self.schedule, at)
        return None if found is None or (self.end_at is not None and found > self.end_at) else found

    def has(self, tick: datetime) -> bool:
        return tick >= BEGIN and self.next_after(tick - _US) == tick

    def after(self, at: datetime, until: datetime | None = None) -> Iterator[datetime]:
        """The ticks in (at, until]."""
        found = self.next_after(at)
        while found is not None and (until is None or found <= until):
            yield found
            found = self.next_after(found)

    def per_minute(self, at: datetime, until: datetime) -> Iterator[tuple[datetime, int]]:
        """How many ticks of (at, until] each minute has, where it has any. A week of seconds is 604,800 ticks, and a minute
        whose first and last tick lie as in the one before has all of them: hours and dates are those of a whole minute."""
        alike = self.schedule.kind in ("cron", "periodic")
        known: list[timedelta] = []
        found = self.next_after(at)
        while found is not None and found <= until:
            minute = found.replace(second=0, microsecond=0)
            last = minute + _MINUTE - _US
            if len(known) > 1 and found == minute + known[0] and last <= until and self.has(minute + known[-1]):
                yield minute, len(known)
            else:
                ticks = [found, *self.after(found, min(last, until))]
                known = [tick - minute for tick in ticks] if alike else []
                yield minute, len(ticks)
            found = self.next_after(last)

    def between(self, at: datetime, until: datetime, limit: int) -> list[datetime]:
        return list(islice(self.after(at, until), limit))

    def last_until(self, at: datetime, after: datetime) -> datetime | None:
        """The last tick in (after, at], however many there are before it: found by halving, to the millisecond."""
        found = self.next_after(after)
        if found is None or found > at:
            return None
        steps = range(int((at - found) / _MS) + 1)
        # From `found` on, how many milliseconds later there is no further tick until `at`.
        first = found
        over = bisect_left(steps, True, key=lambda ms: not self._has_more(first + ms * _MS, at))
        return self.next_after(found + (over - 1) * _MS) if over else found

    def _has_more(self, at: datetime, until: datetime) -> bool:
        following = self.next_after(at)
        return following is not None and following <= until

    def coming(self, now: datetime, in_advance_for: timedelta) -> list[datetime]:
        """What lies ahead: everything within the horizon, and at least the next tick, however far it is."""
        found: list[datetime] = []
        for tick in self.after(now):
            if found and tick > now + in_advance_for:
                break
            found.append(tick)
        return found


def schedule_of(kind: str, text: str, zone: str | None) -> Schedule:
    """What `kind`, `text` and `zone` of a schedule say."""
    match kind:
        case "periodic":
            return Periodic(int(text.removesuffix("ms")) * _MS)
        case "daily":
            return Daily(text.split(", "), zone or "UTC")
        case "cron":
            return Cron(text, zone or "UTC")
        case "ticks":
            return Ticks(text)
        case _:
            raise InvalidInput(f"there is no kind of schedule named {kind!r:.80}")


def stored_schedule(kind: str, text: str, zone: str | None, config_hash: str) -> Schedule:
    """`schedule_of` for what was stored elsewhere: one that cannot be read must not keep the others from being read."""
    try:
        return schedule_of(kind, text, zone)
    except (InvalidInput, ValueError) as error:
        return Unreadable(kind, text, zone, config_hash, str(error))


def hash_of(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _different(hours: Iterable[str | time]) -> tuple[time, ...]:
    found: set[time] = set()
    for hour in hours:
        found.add(_time_of_day(hour))
        if len(found) > MOST_HOURS:
            raise InvalidInput(
                f"a daily schedule has at most {MOST_HOURS:,} different hours",
                hint="write what fires more often as a cron expression, or with a period",
            )
    return tuple(sorted(found))


def _time_of_day(hour: object) -> time:
    if isinstance(hour, str):
        try:
            hour = time.fromisoformat(hour if len(hour) != 4 or hour[1] != ":" else "0" + hour)
        except ValueError:
            raise InvalidInput(f"an hour is written like 02:00 or 14:30:15, not {hour!r:.80}") from None
    if not isinstance(hour, time) or hour.tzinfo is not None or hour.microsecond:
        raise InvalidInput(f"an hour is a time of day such as 02:00, to the second and without zone, not {hour!r:.80}")
    return hour
