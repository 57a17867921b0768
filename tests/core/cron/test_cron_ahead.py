"""What schedules will add to what is planned already: for the calendar, and for the forecast of the pipeline."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tarry.core.cron.model import Policy, ScheduleSpec, ScheduleState
from tarry.core.cron.planner import load_ahead
from tarry.core.cron.schedule_types import Cron, Periodic, Schedule, Ticks, Unreadable

HOUR = timedelta(hours=1)
NOON = datetime(2026, 3, 28, 12, tzinfo=UTC)
UNTIL = NOON + 24 * HOUR
PLAIN = Policy()


def state(
    name: str, schedule: Schedule, cursor_at: datetime = NOON, *, paused: bool = False, policy: Policy = PLAIN
) -> ScheduleState:
    spec = ScheduleSpec(name=name, schedule=schedule, queue=f"q-{name}", payload=b"1", policy=policy)
    at = NOON if paused else None
    return ScheduleState(spec=spec, cursor_at=cursor_at, wake_at=NOON, decided_at=NOON, installed_at=NOON, paused_at=at)


def test_each_schedule_adds_what_comes_after_its_own_cursor() -> None:
    hourly, night = Periodic(HOUR), Cron("30 2 * * *", "Europe/Berlin")
    jittered = Policy(jitter_for=HOUR, start_at=NOON + 2 * HOUR, end_at=NOON + 4 * HOUR)
    states = [
        state("a", hourly),
        state("b", hourly, NOON + 20 * HOUR),
        state("c", hourly, NOON - 20 * HOUR),
        state("d", hourly, paused=True),
        state("e", night),
        state("f", hourly, policy=jittered),
        state("g", Ticks("h")),
        state("h", Unreadable("cron", "0 0 * * *", "Mars/Olympus", "h", "no such zone")),
    ]
    load = list(load_ahead(states, NOON, UNTIL))
    expected = [
        (queue, NOON + n * HOUR, 1) for queue, first in (("q-a", 1), ("q-b", 21), ("q-c", 1)) for n in range(first, 24)
    ]
    expected.append(("q-e", datetime(2026, 3, 29, 1, tzinfo=UTC), 1))  # where 02:30 is left out
    due = [states[5].spec.due_at(NOON + n * HOUR) for n in (2, 3, 4)]
    expected += [("q-f", at.replace(second=0, microsecond=0), 1) for at in due]
    assert load == expected


def test_a_week_of_seconds_is_complete_from_the_cursor_on() -> None:
    week, second = timedelta(days=7), Periodic(timedelta(seconds=1))
    behind, ahead = state("a", second), state("b", second, NOON + timedelta(minutes=5, seconds=20))
    load = list(load_ahead([behind, ahead], NOON, NOON + week))
    assert sum(count for queue, _, count in load if queue == "q-a") == 7 * 24 * 3600 - 1
    of_b = [(minute, count) for queue, minute, count in load if queue == "q-b"]
    assert of_b[:2] == [(NOON + timedelta(minutes=5), 39), (NOON + timedelta(minutes=6), 60)]
    assert sum(count for _, count in of_b) == 7 * 24 * 3600 - 1 - 320
