"""How a scheduler spends its time: planning first, forgetting in between."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tarry.core.cron import MADE, Verdict
from tarry.core.cron_plan import MOST_AT_ONCE
from tarry.core.ports import Store
from tarry.core.schedules import Periodic
from tarry.handles.asking import answered
from tarry.handles.cron_asks import AT_ONCE
from tarry.services import scheduler
from tarry.services.installing import Installing
from tarry.services.scheduler import KEEP_FOR, SCAN_EVERY, Scheduler
from tarry.testing import MutableClock, memory_app

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
        self.asked: list[tuple[float, datetime]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def forget_ticks(self, before: datetime) -> int:
        self.asked.append((self._elapsed.now_s, before))
        self._elapsed.now_s += TAKES_S
        return self.batches.pop(0) if self.batches else 0


def test_a_long_ledger_is_forgotten_in_batches_and_half_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    elapsed, clock = Elapsed(), MutableClock()
    monkeypatch.setattr(scheduler, "elapsed_s", elapsed)
    store: Any = LongLedger(memory_app(clock).store, elapsed, [10_000, 10_000, 3])
    planner = Scheduler(store)
    while elapsed.now_s < 100 + 3_500:
        rest_s = planner.cycle()
        assert rest_s <= SCAN_EVERY.total_seconds()
        elapsed.now_s += rest_s
    assert [at_s for at_s, _ in store.asked] == [100, 104, 108, 112]
    assert {before for _, before in store.asked} == {clock.pinned() - KEEP_FOR}
    while len(store.asked) < 5:
        elapsed.now_s += planner.cycle()
    assert store.asked[4][0] == pytest.approx(114 + 3_600, abs=SCAN_EVERY.total_seconds())


def test_schedules_that_fail_do_not_take_the_places_of_the_others() -> None:
    """More of them than a scheduler plans at once, all of them waiting longer than the one that is well."""
    clock, broken = MutableClock(), False

    def payload(tick: datetime) -> int:
        if broken:
            raise RuntimeError("not today")
        return 1

    store = memory_app(clock).store
    planner = Scheduler(store)
    installing = Installing(planner.duty, 1_000, "")
    installing.plans = lambda: None
    minutely = Periodic(timedelta(minutes=1))
    for n in range(AT_ONCE + 1):
        answered(store, installing.schedule(f"bad {n}", minutely, "bad", {"payload": payload}))
    soon = clock.advance(timedelta(seconds=1))
    answered(store, installing.schedule("good", minutely, "good", {"payload": 1, "start_at": soon + HOUR}))
    clock.advance(HOUR + timedelta(minutes=1))
    broken = True
    assert planner.run_once().more
    ran = planner.run_once()
    assert (len(ran.failed), ran.more) == (AT_ONCE + 1, False)
    assert [record.verdict for record in store.ticks("good")] == [Verdict.PLANNED, Verdict.PLANNED]


def test_more_missed_ticks_than_a_plan_holds_are_all_made_one_plan_after_the_other() -> None:
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
