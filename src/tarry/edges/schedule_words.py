"""Schedules in words: their times, their policies, and their state."""

from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from tarry.core.cron.clock_changes import is_wall_clock
from tarry.core.cron.model import Misfire, Overlap, ScheduleState, times
from tarry.core.cron.planner import Fire
from tarry.core.cron.schedule_types import Cron, Periodic, Schedule, Ticks, Unreadable
from tarry.core.cron.timezones import comes, first_change, offset, reading, zone_of
from tarry.edges.formats import exact

LATE_FOR = timedelta(minutes=1)
"""A schedule that is overdue for this long counts as not planned by any scheduler."""
MISFIRE = {
    Misfire.ONCE: "one message for all missed ticks",
    Misfire.SKIP: "missed ticks are left out",
    Misfire.ALL: "every missed tick fires late, within the catch-up time",
}
OVERLAP = {
    Overlap.ALLOW: "fires also while the message before is unfinished",
    Overlap.SKIP: "left out while the message before is unfinished",
}


def sentence(schedule: Schedule) -> str:
    if isinstance(schedule, Cron):
        return schedule.expression.explain()
    if isinstance(schedule, Periodic):
        return f"{times(schedule)}, counted from the epoch"
    return schedule.text if schedule.kind != "daily" else f"every day at {schedule.text}"


def clock(schedule: Schedule) -> str:
    if is_wall_clock(schedule):
        return "wall clock: each local time once per date"
    return "elapsed time: every matching instant"


def note(schedule: Schedule, fire: Fire) -> str:
    """Remarks about a future tick: a verdict, a clock change, another due time."""
    notes: list[str] = []
    if fire.verdict is not None and fire.verdict.value != "planned":
        notes.append(fire.verdict.value)
    if schedule.zone is not None:
        zone = zone_of(schedule.zone)
        if first_change(zone, fire.tick - timedelta(seconds=1), fire.tick) is not None:
            moved = offset(zone, fire.tick) - offset(zone, fire.tick - timedelta(seconds=1))
            notes.append("the clock is set forward here" if moved > timedelta(0) else "the clock is set back here")
        elif comes(zone, reading(zone, fire.tick)) > 1:
            notes.append("this hour comes twice")
    if fire.due_at != fire.tick:
        notes.append(f"due {exact(fire.due_at)}")
    return ", ".join(notes)


class ScheduleCondition(NamedTuple):
    tone: Literal["good", "paused", "critical", "none", "info"]
    words: str


def condition(state: ScheduleState, now: datetime, next_at: datetime | None) -> ScheduleCondition:
    """Whether it fires, and why not."""
    schedule = state.spec.schedule
    if isinstance(schedule, Unreadable):
        return ScheduleCondition("critical", f"invalid here: {schedule.error}")
    if state.paused:
        return ScheduleCondition("paused", "paused")
    if isinstance(schedule, Ticks):
        return ScheduleCondition("info", "ticks by a program")
    if state.wake_at is None and next_at is None:
        return ScheduleCondition("none", "ended")
    if state.wake_at is not None and now - state.wake_at > LATE_FOR:
        return ScheduleCondition("critical", "no scheduler plans it")
    return ScheduleCondition("good", "active")
