"""Clocks that are set: every schedule against an oracle that looks at every minute."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import available_timezones

import pytest

from tarry.core.cron.schedule_types import Cron, Daily, Timetable
from tests.core.cron.cron_oracle import EXPRESSIONS, SINCE, UNTIL, Oracle, around, transitions

# One of each kind: an hour at night, at midnight, half an hour, 23:00 that is not there, a month of every year, none.
DISTINCTIVE = (
    "America/New_York",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "America/Havana",
    "America/Nuuk",
    "Africa/Casablanca",
    "America/Santiago",
    "Africa/Cairo",
    "Antarctica/Troll",
    "Asia/Kolkata",
    "UTC",
)


def compare(zone: str, change: datetime, expressions: tuple[str, ...]) -> int:
    since, until = around(change)
    oracle = Oracle(zone, since, until)
    edge = timedelta(hours=6)
    for expression in expressions:
        ticks = Timetable(Cron(expression, zone)).after(since + edge, until - edge - timedelta(seconds=1))
        assert list(ticks) == oracle.ticks(expression), (zone, change, expression)
    return len(expressions)


@cache
def changes(zone: str) -> list[datetime]:
    return transitions(zone, SINCE, UNTIL)


@pytest.mark.parametrize("zone", DISTINCTIVE)
def test_around_every_change_of_a_year_the_ticks_are_those_of_the_oracle(zone: str) -> None:
    # A year of whole days: the search for changes looks at every hour.
    changes = transitions(zone, datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))
    for change in changes or [datetime(2026, 3, 29, 1, tzinfo=UTC)]:
        compare(zone, change, EXPRESSIONS)


def test_a_sample_of_all_zones_and_years() -> None:
    """Another sample every day would be a test that fails by chance; the whole is the sweep below."""
    choice = random.Random(5)
    zones = sorted(available_timezones() - {"localtime", "posixrules", "Factory"})
    for _ in range(25):
        zone = choice.choice(zones)
        year = datetime(choice.randint(2020, 2040), 1, 1, tzinfo=UTC)
        for change in transitions(zone, year, year + timedelta(days=365)):
            compare(zone, change, tuple(choice.sample(EXPRESSIONS, 6)))


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_every_zone_every_change_until_2040_and_every_expression() -> None:
    zones = sorted(available_timezones() - {"localtime", "posixrules", "Factory"})
    oracles: dict[tuple[datetime, timedelta | None, timedelta | None], dict[str, list[datetime]]] = {}
    compared = turned = 0
    edge, second = timedelta(hours=6), timedelta(seconds=1)
    for zone in zones:
        for change in changes(zone):
            since, until = around(change)
            # Zones whose clocks are set at the same instant from the same to the same have the same oracle.
            from zoneinfo import ZoneInfo

            info = ZoneInfo(zone)
            kind = (change, (change - second).astimezone(info).utcoffset(), change.astimezone(info).utcoffset())
            if kind not in oracles:
                oracle = Oracle(zone, since, until)
                oracles[kind] = {expression: oracle.ticks(expression) for expression in EXPRESSIONS}
            turned += 1
            for expression in EXPRESSIONS:
                ticks = list(Timetable(Cron(expression, zone)).after(since + edge, until - edge - second))
                assert ticks == oracles[kind][expression], (zone, change, expression)
                compared += 1
    print(f"{len(zones)} zones, {turned:,} changes ({len(oracles):,} different ones), {compared:,} comparisons")


@pytest.mark.parametrize("zone", DISTINCTIVE)
def test_a_daily_schedule_is_the_cron_expression_of_its_hours(zone: str) -> None:
    daily, cron = Daily(["02:30", "1:15"], zone), [Cron("30 2 * * *", zone), Cron("15 1 * * *", zone)]
    since, until = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    expected = {tick for hour in cron for tick in Timetable(hour).after(since, until)}
    assert list(Timetable(daily).after(since, until)) == sorted(expected)
