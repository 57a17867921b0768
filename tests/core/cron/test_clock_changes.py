"""What a schedule does where the clock of its zone is set, in words that agree with its ticks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tarry.core.cron.clock_changes import clock_changes
from tarry.core.cron.schedule_types import Cron, Daily, Periodic, Schedule, Timetable
from tarry.core.cron.timezones import zone_of

JUNE = datetime(2026, 6, 1, tzinfo=UTC)
NEW_YORK, LONDON, LORD_HOWE = "America/New_York", "Europe/London", "Australia/Lord_Howe"


def effects(schedule: Schedule) -> list[str]:
    return [change.effect for change in clock_changes(Timetable(schedule), JUNE)]


@pytest.mark.parametrize(
    ("schedule", "back", "forward"),
    [
        (
            Cron("30 2 * * *", NEW_YORK),
            "No tick falls into the time that is repeated. Local times stay; in UTC they move by 1 h.",
            "02:30 does not exist that day: it fires at 03:00 EDT.",
        ),
        (
            Cron("30 1 * * *", NEW_YORK),
            "01:30 occurs twice: it fires once, the first time, at 01:30 EDT.",
            "No tick falls into the time that is left out. Local times stay; in UTC they move by 1 h.",
        ),
        (
            Daily(["01:15", "01:45"], LONDON),
            "01:15 and 01:45 occur twice: each fires once, the first time.",
            "01:15 and 01:45 do not exist that day: they fire once, at 02:00 BST.",
        ),
        (
            Cron("*/15 * * * *", LONDON),
            "01:00, 01:15 … 01:45 (4 times) occur twice: each fires both times.",
            "01:00, 01:15 … 01:45 (4 times) do not exist that day: they are left out.",
        ),
    ],
)
def test_a_change_by_an_hour_is_explained(schedule: Schedule, back: str, forward: str) -> None:
    assert effects(schedule) == [back, forward]


def test_a_change_by_half_an_hour_is_explained() -> None:
    forward, back = clock_changes(Timetable(Cron("15 2 * * *", LORD_HOWE)), JUNE)
    assert forward.moved == timedelta(minutes=30) == -back.moved
    assert forward.sentence == "Sun 2026-10-04: at 02:00 +1030 the clock is set forward by 30 min, to 02:30 +11"
    assert forward.effect == "02:15 does not exist that day: it fires at 02:30 +11."
    assert back.effect.startswith("No tick falls into the time that is repeated.")
    assert (
        effects(Cron("45 1 * * *", LORD_HOWE))[1] == "01:45 occurs twice: it fires once, the first time, at 01:45 +11."
    )


def test_the_ticks_around_a_change_are_those_of_the_timetable() -> None:
    forward = clock_changes(Timetable(Cron("30 2 * * *", NEW_YORK)), JUNE)[1]
    shown = [f"{tick.astimezone(zone_of(NEW_YORK)):%a %H:%M %Z}" for tick in forward.around]
    assert shown == ["Sat 02:30 EST", "Sun 03:00 EDT", "Mon 02:30 EDT", "Tue 02:30 EDT"]


def test_a_schedule_of_every_second_is_explained_without_listing_its_readings() -> None:
    assert effects(Cron("* * * * * *", NEW_YORK))[0] == (
        "More than 100 times from 01:00 on occur twice: each fires both times."
    )


@pytest.mark.parametrize(
    "schedule", [Periodic(timedelta(hours=1)), Cron("0 2 * * *", "UTC"), Cron("0 2 * * *", "Asia/Tokyo")]
)
def test_without_a_clock_that_is_set_there_is_nothing_to_explain(schedule: Schedule) -> None:
    assert effects(schedule) == []


def test_after_the_end_of_a_schedule_a_change_has_no_effect() -> None:
    table = Timetable(Cron("30 1 * * *", NEW_YORK), end_at=JUNE + timedelta(days=30))
    assert "No tick" in clock_changes(table, JUNE)[0].effect
