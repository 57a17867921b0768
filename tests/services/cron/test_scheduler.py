"""How a scheduler spends its time: planning first, forgetting in between."""

from __future__ import annotations

import copy
from datetime import datetime, timedelta
from typing import Any

import pytest

from tarry.api._sync.schedule_commands import Offload, ScheduleCommands
from tarry.api.schedules import Owned
from tarry.core._sync.ports import Store
from tarry.core.cron.model import MADE, Verdict
from tarry.core.cron.planner import MOST_AT_ONCE
from tarry.core.cron.schedule_types import Periodic
from tarry.services.cron._sync.scheduler import Scheduler
from tarry.services.cron.scheduler import AT_ONCE, KEEP_FOR, SCAN_EVERY
from tarry.services.cron.validation import spec_of
from tarry.testing import MutableClock, memory_app
from tests.kit.calls import replace_call

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
TAKES_S = 2.0


class Elapsed:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class LongLedger:
    """A store with batches of old entries, each of which takes its time to be forgotten."""

    def __init__(self, store: Store, elapsed: Elapsed, batches: list[int]) -> None:
        self._store, self._elapsed, self.batches = store, elapsed, batches
        self.requests: list[tuple[float, datetime]] = []
        self.cron = copy.copy(store.cron)
        replace_call(self, "cron.forget_ticks", self.forget_ticks)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def forget_ticks(self, before: datetime) -> int:
        self.requests.append((self._elapsed.now_s, before))
        self._elapsed.now_s += TAKES_S
        return self.batches.pop(0) if self.batches else 0


def test_a_long_ledger_is_forgotten_in_batches_and_half_of_the_time() -> None:
    elapsed, clock = Elapsed(), MutableClock()
    store: Any = LongLedger(memory_app(clock).store, elapsed, [10_000, 10_000, 3])
    planner = Scheduler(store, timer=elapsed)
    while elapsed.now_s < 100 + 3_500:
        rest_s = planner.cycle()
        assert rest_s <= SCAN_EVERY.total_seconds()
        elapsed.now_s += rest_s
    assert [at_s for at_s, _ in store.requests] == [100, 104, 108, 112]
    assert {before for _, before in store.requests} == {clock.pinned() - KEEP_FOR}
    while len(store.requests) < 5:
        elapsed.now_s += planner.cycle()
    assert store.requests[4][0] == pytest.approx(114 + 3_600, abs=SCAN_EVERY.total_seconds())


def test_schedules_that_fail_do_not_take_the_places_of_the_others() -> None:
    """More of them than a scheduler plans at once, all of them waiting longer than the one that is well."""
    clock, broken = MutableClock(), False

    def payload(tick: datetime) -> int:
        if broken:
            raise RuntimeError("not today")
        return 1

    store = memory_app(clock).store
    planner = Scheduler(store)
    commands = ScheduleCommands(store, Offload("", lambda: True))
    minutely = Periodic(timedelta(minutes=1))
    for n in range(AT_ONCE + 1):
        spec, payload_of = spec_of(f"bad {n}", minutely, queue="bad", payload=payload, options={}, payload_limit=1_000)
        assert payload_of is not None
        planner.owned[spec.name] = Owned(commands.install(spec, payload_of, None).generation, payload_of)
    soon = clock.advance(timedelta(seconds=1))
    spec, _ = spec_of("good", minutely, queue="good", payload=1, options={"start_at": soon + HOUR}, payload_limit=1_000)
    commands.install(spec, None, None)
    clock.advance(HOUR + timedelta(minutes=1))
    broken = True
    assert planner.run_once().more
    ran = planner.run_once()
    assert (len(ran.failed), ran.more) == (AT_ONCE + 1, False)
    assert [record.verdict for record in store.run(store.cron.ticks("good"))] == [Verdict.PLANNED, Verdict.PLANNED]


def test_more_missed_ticks_than_the_limit_of_a_plan_are_made_by_consecutive_plans() -> None:
    clock = MutableClock()
    app, began_at = memory_app(clock), clock.pinned()
    missed = 3 * MOST_AT_ONCE + 1
    app.cron().install_periodic("p", SECOND, queue="q", misfire="all", catch_up_for=HOUR)
    clock.advance(missed * SECOND)
    planner, runs = Scheduler(app.store), 1
    while planner.run_once().more:
        runs += 1
    made = [record.tick for record in app.schedules.history("p", limit=2 * missed) if record.verdict in MADE]
    assert made[::-1] == [began_at + n * SECOND for n in range(1, missed + 2)]
    assert runs == 4
