"""Schedule arithmetic is bounded: in its arguments, and in the steps of a result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.app import App
from tarry.core.cron import timezones
from tarry.core.cron.model import Misfire, Policy, ScheduleSpec
from tarry.core.cron.schedule_types import MOST_HOURS, Cron, Daily, Periodic, Timetable
from tarry.core.errors import InvalidInput, InvalidState
from tarry.services.cron._sync.scheduler import Scheduler
from tarry.storage.memory import MemoryStore
from tests.kit.clocks import START, WatchedClock
from tests.kit.steps import HOUR, MINUTE

BERLIN = "Europe/Berlin"
DAY = timedelta(days=1)
EVERY_MINUTE_OF_THE_DAY = [f"{n // 60:02}:{n % 60:02}" for n in range(24 * 60)]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the zone data was read."""
    seen: Counter[str] = Counter()

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any) -> Any:
            seen[name] += 1
            return real(*args)

        return wrapper

    for name in ("instant", "offset", "reading"):
        monkeypatch.setattr(timezones, name, counted(name, getattr(timezones, name)))
    return seen


def test_a_daily_schedule_has_as_many_hours_as_a_day_has_minutes() -> None:
    assert len(Daily(EVERY_MINUTE_OF_THE_DAY * 3, "UTC").hours) == MOST_HOURS == 24 * 60
    with pytest.raises(InvalidInput, match="at most 1,440 different hours"):
        Daily([*EVERY_MINUTE_OF_THE_DAY, "00:00:01"], "UTC")
    with pytest.raises(InvalidInput, match="at most 1,440 different hours"):
        Daily((f"{n // 3600 % 24:02}:{n // 60 % 60:02}:{n % 60:02}" for n in count()), "UTC")


def test_a_tick_of_a_daily_schedule_is_found_in_few_steps(looks: Counter[str]) -> None:
    daily = Daily(EVERY_MINUTE_OF_THE_DAY, BERLIN)
    assert daily.next_after(START + 20 * HOUR) == START + 20 * HOUR + MINUTE
    assert looks["instant"] <= 16


def test_every_reading_of_a_daily_schedule_is_found_across_gap_and_overlap() -> None:
    daily = Daily(EVERY_MINUTE_OF_THE_DAY, BERLIN)
    for month, hours in ((3, 23), (10, 25)):
        since = timezones.instant(timezones.zone_of(BERLIN), datetime(2024, month, 27 if month == 10 else 31))  # noqa: DTZ001
        ticks = Timetable(daily).between(since - MINUTE, since + hours * HOUR - MINUTE, 10_000)
        assert len(ticks) == (24 * 60 if month == 10 else 23 * 60)
        assert all(later > earlier for earlier, later in pairwise(ticks))


def test_a_rare_expression_looks_up_the_zone_of_each_year_once(looks: Counter[str]) -> None:
    rare = Cron("0 * * 2 1#5", BERLIN)
    assert rare.next_after(START) == datetime(2044, 2, 28, 23, tzinfo=UTC)
    looks.clear()
    assert rare.next_after(START + HOUR) == datetime(2044, 2, 28, 23, tzinfo=UTC)
    assert looks.total() <= 100  # two changes a year, and not each half day of 20 years


def test_a_fixed_zone_is_never_searched_for_changes(looks: Counter[str]) -> None:
    assert Cron("0 * * 2 1#5", "UTC").next_after(START) == datetime(2044, 2, 29, tzinfo=UTC)
    assert looks.total() <= 16


def test_schedules_begin_with_1970(looks: Counter[str]) -> None:
    rare = Timetable(Cron("0 * * 2 1#5", BERLIN))
    assert rare.next_after(datetime.min.replace(tzinfo=UTC)) == datetime(1988, 2, 28, 23, tzinfo=UTC)
    assert Timetable(Periodic(HOUR)).next_after(datetime.min.replace(tzinfo=UTC)) == datetime(1970, 1, 1, tzinfo=UTC)
    assert not Timetable(Periodic(HOUR)).has(datetime(1969, 12, 31, 23, tzinfo=UTC))


@pytest.mark.parametrize(
    "schedule",
    [
        Periodic(timedelta(milliseconds=1_001)),
        Daily(["00:30", "02:30"], BERLIN),
        Cron("*/7 * * * *", BERLIN),
        Cron("* * * 1 1 *", BERLIN),
    ],
    ids=repr,
)
@given(after_s=st.integers(0, 10**8), span_s=st.integers(0, 10**4))
def test_the_last_tick_of_a_range_is_the_last_one_that_is_found(
    schedule: Periodic | Daily | Cron, after_s: int, span_s: int
) -> None:
    table, after = Timetable(schedule), START + timedelta(seconds=after_s)
    until = after + timedelta(seconds=span_s)
    ticks = table.between(after, until, 20_000)
    assert table.last_until(until, after) == (ticks[-1] if ticks else None)


def test_the_last_tick_of_a_range_is_found_in_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[datetime] = []
    real = Cron.next_after

    def counted(self: Cron, at: datetime) -> datetime | None:
        steps.append(at)
        return real(self, at)

    monkeypatch.setattr(Cron, "next_after", counted)
    table = Timetable(Cron("* * * 1 1 *", "UTC"))  # 86,400 ticks on one day of the year
    assert table.last_until(START + 300 * DAY, START - 600 * DAY) == START + DAY - timedelta(seconds=1)
    assert len(steps) < 100


def app_with(payload: bytes, policy: Policy | None = None) -> tuple[App, WatchedClock]:
    clock = WatchedClock(START)
    app = App(MemoryStore(clock=clock))
    app.schedules.put(
        ScheduleSpec(name="p", schedule=Periodic(MINUTE), queue="q", payload=payload, policy=policy or Policy())
    )
    return app, clock


def test_a_preview_is_of_few_ticks() -> None:
    app, _ = app_with(b"1")
    assert len(app.schedules.preview("p", 1_000)) == 1_000
    with pytest.raises(InvalidInput, match="at most 1,000"):
        app.schedules.preview("p", 1_001)


def test_a_backfill_makes_no_more_than_the_limit_of_a_transaction() -> None:
    app, clock = app_with(bytes(200 * 1024))
    clock.advance(DAY)
    with pytest.raises(InvalidState, match="16 MiB"):
        app.schedules.backfill("p", START + HOUR, START + 12 * HOUR)
    assert len(app.schedules.backfill("p", START + HOUR, START + 2 * HOUR)) == 60


def test_a_backfill_compares_with_a_long_ledger_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.api._sync.schedules.PAGE", 7)
    app, clock = app_with(b"1")
    clock.advance(HOUR)
    app.schedules.put(ScheduleSpec(name="p", schedule=Cron("* * * * *", "UTC"), queue="q", payload=b"1"))
    assert app.schedules.backfill("p", START + 2 * MINUTE, START + 30 * MINUTE)
    assert app.schedules.missing("p", START + 2 * MINUTE, START + 30 * MINUTE) == []
    assert app.schedules.missing("p", START + 2 * MINUTE, START + 31 * MINUTE) == [START + 30 * MINUTE]


def test_large_payloads_are_planned_in_parts() -> None:
    app, clock = app_with(bytes(256 * 1024), Policy(misfire=Misfire.ALL))
    clock.advance(3 * HOUR)
    runs = [Scheduler(app.store).run_once()]
    while runs[-1].more:
        runs.append(Scheduler(app.store).run_once())
    assert max(ran.planned for ran in runs) <= 64
    assert sum(ran.planned for ran in runs) == 180
