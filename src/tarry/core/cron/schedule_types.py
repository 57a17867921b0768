"""Schedule types: periodic, daily, cron expression. The current time is an argument.

There are two kinds of time:

- **wall clock**: schedules that name hours of the day (daily ones, `30 2 * * *`, `0 */2 * * *`). Each reading fires once
  per local date: in a gap at the first instant after it, in an overlap the first time. Several readings in one gap are
  one tick.
- **elapsed**: schedules of every hour (`*/15 * * * *`, `0 * * * *`) or with a period. They fire at every matching instant:
  a repeated hour has its ticks twice, a skipped hour has none."""

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import islice
from typing import Protocol
from zoneinfo import ZoneInfo

from tarry.core.cron import expressions, timezones
from tarry.core.errors import InvalidInput

SHORTEST_PERIOD = timedelta(seconds=1)
LONGEST_PERIOD = timedelta(days=3653)
MOST_HOURS = 24 * 60
"""Maximum number of different hours of a daily schedule."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)
_US = timedelta(microseconds=1)
_LAST_YEAR = 9990
"""Later ticks could exceed the range of Python's datetime."""
BEGIN = _EPOCH
"""The beginning of all timetables: earlier ticks are not searched."""


class Schedule(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def text(self) -> str:
        """A text that `schedule_of` parses."""
        ...

    @property
    def zone(self) -> str | None: ...
    @property
    def config_hash(self) -> str:
        """Equal for equal schedules. For periodic and daily ones as in DelayedQueue's CronService."""
        ...

    def next_after(self, at: datetime) -> datetime | None:
        """The first tick after an instant, in UTC; None if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Periodic:
    """A fixed interval, aligned to the epoch: every process computes the same instants."""

    every: timedelta
    kind = "periodic"
    zone = None

    def __post_init__(self) -> None:
        if not isinstance(self.every, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"every must be a timedelta, not {type(self.every).__name__}")
        if not SHORTEST_PERIOD <= self.every <= LONGEST_PERIOD or self.every % _MS:
            raise InvalidInput(f"every must be whole milliseconds between 1 second and 10 years, not {self.every}")

    @property
    def text(self) -> str:
        return f"{self.every // _MS}ms"

    @property
    def config_hash(self) -> str:
        return hash_of(f"\nperiodic-tick:\n  period-ms: {self.every // _MS}\n")

    def next_after(self, at: datetime) -> datetime | None:
        tick = _EPOCH + ((at - _EPOCH) // self.every + 1) * self.every
        return tick if tick.year < _LAST_YEAR else None


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Daily:
    """The same hours every day, by the wall clock of a zone."""

    hours: tuple[time, ...]
    zone: str
    kind = "daily"

    def __init__(self, hours: Iterable[str | time], zone: str) -> None:
        if isinstance(hours, str):
            raise InvalidInput(f"hours must be a list of times such as ['02:00', '14:30'], not {hours!r:.80}")
        object.__setattr__(self, "hours", _different(hours))
        object.__setattr__(self, "zone", timezones.zone_of(zone).key)
        if not self.hours:
            raise InvalidInput("a daily schedule needs at least one hour", hint="hours=['02:00']")

    def __repr__(self) -> str:
        return f"Daily([{self.text}], zone={self.zone!r})"

    @property
    def text(self) -> str:
        return ", ".join(hour.isoformat("seconds" if hour.second else "minutes") for hour in self.hours)

    @property
    def config_hash(self) -> str:
        return hash_of(f"\ndaily-cron:\n  zone: {self.zone}\n  hours: {self.text}\n")

    def next_after(self, at: datetime) -> datetime | None:
        day = timezones.reading(timezones.zone_of(self.zone), at).date()
        while day.year < _LAST_YEAR:
            # Instants grow with readings, so the first one after `at` is found by bisection.
            first = bisect_right(self.hours, at, key=lambda hour: self._instant(day, hour))
            if first < len(self.hours):
                return self._instant(day, self.hours[first])
            day += timedelta(days=1)
        return None

    def _instant(self, day: date, hour: time) -> datetime:
        return timezones.instant(timezones.zone_of(self.zone), datetime.combine(day, hour))


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Cron:
    """A cron expression of five or six fields, by the wall clock of a zone."""

    expression: expressions.CronExpression
    zone: str
    kind = "cron"

    def __init__(self, expression: str, zone: str) -> None:
        object.__setattr__(self, "expression", expressions.parse(expression))
        object.__setattr__(self, "zone", timezones.zone_of(zone).key)

    def __repr__(self) -> str:
        return f"Cron({self.text!r}, zone={self.zone!r})"

    @property
    def text(self) -> str:
        return self.expression.text

    @property
    def config_hash(self) -> str:
        return hash_of(f"\ncron:\n  zone: {self.zone}\n  expression: {self.text}\n")

    def next_after(self, at: datetime) -> datetime | None:
        zone = timezones.zone_of(self.zone)
        tick = (
            self._next_by_wall_clock(zone, at) if self.expression.names_hours else self._next_by_elapsed_time(zone, at)
        )
        return tick if tick is None or tick.year < _LAST_YEAR else None

    def _next_by_wall_clock(self, zone: ZoneInfo, at: datetime) -> datetime | None:
        # Instants grow with readings, so the first one after `at` is the tick. Readings before it belong to a repeated
        # hour, of which `at` is in the second occurrence.
        wall: datetime | None = timezones.reading(zone, at)
        while (wall := self.expression.next_reading(wall)) is not None:
            tick = timezones.instant(zone, wall)
            if tick > at:
                return tick
        return None

    def _next_by_elapsed_time(self, zone: ZoneInfo, at: datetime) -> datetime | None:
        shift = timezones.offset(zone, at)
        wall = searched = (at + shift).replace(tzinfo=None)
        reading = self.expression.next_reading(wall)
        while reading is not None:
            tick = reading.replace(tzinfo=UTC) - shift
            change = timezones.first_change(zone, at, tick)
            if change is None:
                return tick
            # The clock is set before the tick: search again from the change, which may itself be a tick.
            at, shift = change, timezones.offset(zone, change)
            wall = (change + shift - timedelta(seconds=1)).replace(tzinfo=None)
            if not searched <= wall < reading:  # otherwise the search would find the same reading
                reading, searched = self.expression.next_reading(wall), wall
        return None


@dataclass(frozen=True, slots=True)
class Ticks:
    """A schedule without a rule, whose ticks a program chooses with `install_tick`."""

    hash: str
    kind = "ticks"
    zone = None

    @property
    def text(self) -> str:
        return self.hash

    @property
    def config_hash(self) -> str:
        return self.hash

    def next_after(self, at: datetime) -> datetime | None:
        return None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A schedule that this machine cannot parse, because its zone database or its version of Tarry is too old."""

    kind: str
    text: str
    zone: str | None
    config_hash: str
    error: str

    def next_after(self, at: datetime) -> datetime | None:
        return None


@lru_cache(maxsize=4_096)
def _next_after(schedule: Schedule, at: datetime) -> datetime | None:
    """Cached, because many schedules share their ticks and are planned at the same time."""
    return schedule.next_after(at)


@dataclass(frozen=True, slots=True)
class Timetable:
    """A schedule between two dates, both included."""

    schedule: Schedule
    start_at: datetime | None = None
    end_at: datetime | None = None

    def next_after(self, at: datetime) -> datetime | None:
        at = max(at, (BEGIN if self.start_at is None else max(self.start_at, BEGIN)) - _US)
        tick = _next_after(self.schedule, at)
        return None if tick is None or (self.end_at is not None and tick > self.end_at) else tick

    def has(self, tick: datetime) -> bool:
        return tick >= BEGIN and self.next_after(tick - _US) == tick

    def after(self, at: datetime, until: datetime | None = None) -> Iterator[datetime]:
        """The ticks in (at, until]."""
        tick = self.next_after(at)
        while tick is not None and (until is None or tick <= until):
            yield tick
            tick = self.next_after(tick)

    def per_slice(
        self, at: datetime, until: datetime, every: timedelta, origin: datetime = BEGIN
    ) -> Iterator[tuple[datetime, int]]:
        """The slices of (at, until] with ticks, and their number; `every` is a minute or an hour, counted from `origin`.

        A schedule of every second has 604,800 ticks in a week. They are not enumerated: a slice whose first and last tick
        are at the same offsets as in the slice before has the same ticks, since hours and dates are whole slices."""
        repeats = self.schedule.kind in ("cron", "periodic")
        offsets: list[timedelta] = []
        tick = self.next_after(at)
        while tick is not None and tick <= until:
            start = tick - (tick - origin) % every
            last = start + every - _US
            if (
                len(offsets) > 1
                and tick == start + offsets[0]
                and last <= until
                and self.has(start + offsets[-1])
                and not self.between(start + offsets[-1], last, 1)
            ):
                yield start, len(offsets)
            else:
                ticks = [tick, *self.after(tick, min(last, until))]
                offsets = [tick - start for tick in ticks] if repeats else []
                yield start, len(ticks)
            tick = self.next_after(last)

    def between(self, at: datetime, until: datetime, limit: int) -> list[datetime]:
        return list(islice(self.after(at, until), limit))

    def last_until(self, at: datetime, after: datetime) -> datetime | None:
        """The last tick in (after, at], found by bisection to the millisecond, not by enumeration."""
        first = self.next_after(after)
        if first is None or first > at:
            return None
        steps = range(int((at - first) / _MS) + 1)
        # Bisect for the last millisecond after `first` that is followed by a tick until `at`.
        over = bisect_left(steps, True, key=lambda ms: not self.between(first + ms * _MS, at, 1))
        return self.next_after(first + (over - 1) * _MS) if over else first


def schedule_of(kind: str, text: str, zone: str | None) -> Schedule:
    """The schedule with this `kind`, `text` and `zone`."""
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
    """`schedule_of` for stored schedules: one that cannot be parsed must not prevent reading the others."""
    try:
        return schedule_of(kind, text, zone)
    except (InvalidInput, ValueError) as error:
        return Unreadable(kind, text, zone, config_hash, str(error))


def hash_of(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _different(hours: Iterable[str | time]) -> tuple[time, ...]:
    different: set[time] = set()
    for hour in hours:
        different.add(_time_of_day(hour))
        if len(different) > MOST_HOURS:
            raise InvalidInput(
                f"a daily schedule has at most {MOST_HOURS:,} different hours",
                hint="use a cron expression or a periodic schedule for more",
            )
    return tuple(sorted(different))


def _time_of_day(hour: object) -> time:
    if isinstance(hour, str):
        try:
            hour = time.fromisoformat(hour if len(hour) != 4 or hour[1] != ":" else "0" + hour)
        except ValueError:
            raise InvalidInput(f"an hour is written like 02:00 or 14:30:15, not {hour!r:.80}") from None
    if not isinstance(hour, time) or hour.tzinfo is not None or hour.microsecond:
        raise InvalidInput(f"an hour is a time of day such as 02:00, to the second and without zone, not {hour!r:.80}")
    return hour
