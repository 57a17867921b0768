"""A change of a schedule that is delayed between reading the schedule and deciding."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tarry.app import App
from tarry.core.cron.model import Misfire, Policy, ScheduleSpec, ScheduleState
from tarry.core.cron.schedule_types import Periodic
from tarry.storage.memory import MemoryStore
from tarry.testing import MutableClock
from tests.kit.calls import call_of, replace_call
from tests.kit.clocks import START
from tests.kit.cron import ticks_of
from tests.kit.steps import SECOND


class Delayed(MemoryStore):
    """A store in which something happens while schedules are read, as when a statement waits for a frozen session."""

    meanwhile: Callable[[], object] | None = None

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._schedules = call_of(self, "cron.schedules")
        replace_call(self, "cron.schedules", self.schedules)

    def schedules(self, name: str | None = None) -> list[ScheduleState]:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return self._schedules(name)


def every(period: timedelta) -> ScheduleSpec:
    return ScheduleSpec(
        name="p", schedule=Periodic(period), queue="q", payload=b"1", policy=Policy(misfire=Misfire.ALL)
    )


def test_a_delayed_decision_does_not_take_a_later_one_for_a_clock_that_was_set_back() -> None:
    """Else it decides the last minute again, and makes ticks of a configuration that was not in force then."""
    clock = MutableClock(START)
    store = Delayed(clock=clock)
    with App(store, consumer="test") as app:
        app.schedules.put(every(2 * SECOND))
        clock.advance(10.5 * SECOND)
        app.schedules.put(every(SECOND))
        clock.advance(0.6 * SECOND)

        def decided_by_another_process() -> None:
            clock.advance(1.1 * SECOND)
            app.schedules.put(every(SECOND))

        store.meanwhile = decided_by_another_process
        app.schedules.put(every(SECOND))
        assert [(tick - START) / SECOND for tick in ticks_of(app.queue("q"))] == [2, 4, 6, 8, 10, 11, 12]
