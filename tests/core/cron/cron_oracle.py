"""What a cron expression means, by brute force: every minute is looked at. It shares no line with what it judges.

Written from the words of docs/explanation/cron.md alone: a small matcher of its own, and the clock of Python's zoneinfo.
"""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
_DAYS = {name: n for n, name in enumerate(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))}
_MONTHS = {
    name: n
    for n, name in enumerate(
        ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"), start=1
    )
}


def transitions(zone: str, since: datetime, until: datetime) -> list[datetime]:
    """Every minute at which the clock of a zone is set, found by looking at every hour and then at every minute."""
    changes: list[datetime] = []
    info, hour = ZoneInfo(zone), timedelta(hours=1)
    at, before = since, since.astimezone(info).utcoffset()
    while at < until:
        after = (at + hour).astimezone(info).utcoffset()
        if after != before:
            minute = next(m for m in range(1, 61) if (at + m * MINUTE).astimezone(info).utcoffset() == after)
            changes.append(at + minute * MINUTE)
        at, before = at + hour, after
    return changes


def numbers(text: str, low: int, high: int, names: dict[str, int]) -> set[int]:
    values: set[int] = set()
    for part in text.split(","):
        span, _, step = part.partition("/")
        if span == "*":
            first, last = low, high
        else:
            start, _, end = span.partition("-")
            first = names[start] if start in names else int(start)
            last = (names[end] if end in names else int(end)) if end else (high if step else first)
        values |= set(range(first, last + 1, int(step or 1)))
    return values


@cache
def day_test(days: str, months: str, weekdays: str) -> Callable[[date], bool]:
    in_months = numbers(months, 1, 12, _MONTHS)

    def of_month(day: date) -> bool:
        last = monthrange(day.year, day.month)[1]
        if days == "L":
            return day.day == last
        if days == "LW":
            working = [n for n in range(1, last + 1) if date(day.year, day.month, n).weekday() < 5]
            return day.day == working[-1]
        return day.day in numbers(days, 1, 31, {})

    def of_week(day: date) -> bool:
        sunday_first = (day.weekday() + 1) % 7
        if "#" in weekdays:
            name, _, nth = weekdays.partition("#")
            weekday = _DAYS[name] if name in _DAYS else int(name) % 7
            return sunday_first == weekday and (day.day - 1) // 7 + 1 == int(nth)
        if weekdays.endswith("L"):
            last = monthrange(day.year, day.month)[1]
            return sunday_first == int(weekdays[:-1]) % 7 and day.day > last - 7
        return sunday_first in {n % 7 for n in numbers(weekdays, 0, 7, _DAYS)}

    both = days.startswith("*") or weekdays.startswith("*")

    def test(day: date) -> bool:
        if day.month not in in_months:
            return False
        return (of_month(day) and of_week(day)) if both else (of_month(day) or of_week(day))

    return test


class Oracle:
    """All the minutes around one change of one clock."""

    def __init__(self, zone: str, since: datetime, until: datetime) -> None:
        info = ZoneInfo(zone)
        self.since, self.until = since, until
        count = (until - since) // MINUTE
        self.instants = [since + n * MINUTE for n in range(count + 1)]
        self.readings = [at.astimezone(info).replace(tzinfo=None, fold=0) for at in self.instants]
        self._first: dict[datetime, datetime] = {}
        for at, reading in zip(self.instants, self.readings, strict=True):
            self._first.setdefault(reading, at)
        self._days = {reading.date() for reading in self.readings}
        self._span = list(self._all_readings())

    def ticks(self, expression: str) -> list[datetime]:
        """In (since, until), away from the edges by a day: there a reading may have come before we looked."""
        minutes, hours, days, months, weekdays = expression.split()
        m, h = numbers(minutes, 0, 59, {}), numbers(hours, 0, 23, {})
        on = day_test(days, months, weekdays)
        good_days = {day for day in self._days if on(day)}
        edge = timedelta(hours=6)

        def fits(reading: datetime) -> bool:
            return reading.minute in m and reading.hour in h and reading.date() in good_days

        if len(h) == 24:
            matching = {at for at, reading in zip(self.instants, self.readings, strict=True) if fits(reading)}
        else:
            matching = {self._once(reading) for reading in self._span if fits(reading)}
        return sorted(at for at in matching if self.since + edge < at < self.until - edge)

    def _all_readings(self) -> Iterator[datetime]:
        """Also those that never are."""
        reading, last = min(self.readings), max(self.readings)
        while reading <= last:
            yield reading
            reading += MINUTE

    def _once(self, reading: datetime) -> datetime:
        """The first time that it comes; if it never does, the first minute at which the clock is beyond it."""
        if reading in self._first:
            return self._first[reading]
        return next(at for at, shown in zip(self.instants, self.readings, strict=True) if shown > reading)


def around(change: datetime, days: float = 1.25) -> tuple[datetime, datetime]:
    span = timedelta(days=days)
    return change - span, change + span


EXPRESSIONS = (
    "*/15 * * * *",
    "0 * * * *",
    "30 0 * * *",
    "0 0 * * *",
    "30 1 * * *",
    "30 2 * * *",
    "0 3 * * *",
    "15,45 2,3 * * *",
    "*/20 1 * * *",
    "0 */2 * * *",
    "59 23 * * *",
    "0 2 * * SUN",
    "0 1 L * *",
    "30 2 LW * *",
    "30 2 * * 0#2",
    "45 1 * * 0L",
    "*/30 * * 3,4,9-11 *",
    "10 2 1-15 * 7",
)

SINCE, UNTIL = datetime(2020, 1, 1, tzinfo=UTC), datetime(2041, 1, 1, tzinfo=UTC)
