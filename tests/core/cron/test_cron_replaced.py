"""A schedule that is replaced while planning is behind is decided as if a scheduler had run just before."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tarry.app import App
from tarry.core.cron.model import Misfire, Overlap, Policy, ScheduleSpec
from tarry.core.cron.schedule_types import Cron, Daily, Periodic, Schedule
from tarry.services.cron._sync.scheduler import Scheduler
from tarry.storage.memory import MemoryStore
from tests.kit.clocks import START, WatchedClock
from tests.kit.cron import ticks_of
from tests.kit.steps import HOUR, MINUTE

NEW = [Cron("* * * * *", "UTC"), Periodic(2 * MINUTE), Daily(["00:02", "00:04"], "UTC")]


def replaced(
    new: Schedule, gap: timedelta, misfire: Misfire, overlap: Overlap, *, planned_before: bool
) -> tuple[list[datetime], list[datetime]]:
    """The ticks that make a message, and those that the ledger knows."""
    clock = WatchedClock(START)
    app = App(MemoryStore(clock=clock))

    def put(schedule: Schedule, policy: Policy) -> None:
        app.schedules.put(ScheduleSpec(name="p", schedule=schedule, queue="q", payload=b"1", policy=policy))

    put(Periodic(MINUTE), Policy(misfire=misfire, overlap=overlap, catch_up_for=10 * HOUR))
    clock.advance(gap)
    while planned_before and Scheduler(app.store).run_once().more:
        pass
    put(new, Policy(misfire=misfire))
    past = app.schedules.history("p", until=clock.pinned(), limit=10_000)
    known = {tick for record in past for tick in (record.tick, record.until) if tick is not None}
    return ticks_of(app.queue("q")), sorted(known)


@pytest.mark.parametrize("gap_s", [0, 1, 59, 60, 61, 150, 300, 3_601, 50_000])
@pytest.mark.parametrize("misfire", list(Misfire))
@pytest.mark.parametrize("overlap", list(Overlap))
@pytest.mark.parametrize("new", NEW, ids=repr)
def test_it_is_as_if_a_scheduler_had_run_just_before(
    gap_s: int, misfire: Misfire, overlap: Overlap, new: Schedule
) -> None:
    gap = timedelta(seconds=gap_s)
    behind = replaced(new, gap, misfire, overlap, planned_before=False)
    assert behind == replaced(new, gap, misfire, overlap, planned_before=True)
