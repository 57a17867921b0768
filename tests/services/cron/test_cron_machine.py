"""Any sequence of install, change, pause, crash, ack, restart and clock step, against a model that knows only the rules.

No tick is doubled; none is skipped while a scheduler lived inside the grace; nothing of an old configuration is begun after
the commit of the new; what was begun before is left to the process that began it.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tarry.api._sync.delivery import Delivery
from tarry.app import App
from tarry.core._sync.ports import Store
from tarry.core.cron.model import MADE, Verdict
from tarry.core.cron.schedule_types import Cron, Daily, Periodic, Schedule, Timetable
from tarry.core.messages.outcomes import Settled
from tarry.services.cron._sync.scheduler import Scheduler
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.testing import MutableClock, memory_app
from tests.kit.backends import SETTINGS, new_name
from tests.kit.calls import replace_call

START = datetime(2026, 3, 28, 22, tzinfo=UTC)  # a few hours before Berlin's clocks are set
MINUTE = timedelta(minutes=1)
SCHEDULES: dict[str, Schedule] = {
    "quarter": Cron("*/15 * * * *", "Europe/Berlin"),
    "half": Cron("0,30 * * * *", "UTC"),  # many instants of it are those of another one too
    "night": Cron("30 2 * * *", "Europe/Berlin"),
    "hours": Daily(["01:30", "02:30", "23:00"], "Europe/Berlin"),
    "period": Periodic(timedelta(minutes=7)),
}
Open = Callable[[MutableClock], App]


class Crash(Exception):
    """The process dies between reading and changing a schedule, or right after the commit."""


class Crashing:
    """A store under a scheduler that is killed at its next schedule change."""

    def __init__(self, store: Store, *, after: bool) -> None:
        self._store, self._after = store, after
        self.cron = copy.copy(store.cron)
        replace_call(self, "cron.apply_changes", self._crash)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _crash(self, changes: Any, **options: Any) -> Any:
        if self._after:
            self._store.run(self._store.cron.apply_changes(changes, **options))
        raise Crash


class CronMachine(RuleBasedStateMachine):
    opened: Open = staticmethod(memory_app)
    step = 5 * MINUTE
    """How often a scheduler that lives looks, at least: that is the grace."""

    @initialize(name=st.sampled_from(sorted(SCHEDULES)))
    def begin(self, name: str) -> None:
        self.clock = MutableClock(START)
        self.app = self.opened(self.clock)
        self.cron = self.app.cron()
        self.name = new_name()  # what one example leaves behind is nothing to the next
        self.queue = self.app.queue(new_name())
        self.begun: Counter[datetime] = Counter()
        """How often each tick was delivered for the first time, under whichever configuration."""
        self.skipped: set[datetime] = set()
        self.held: dict[str, Delivery[Any]] = {}
        """By a consumer that takes its time."""
        self.current: tuple[str, int] | None = None
        self.payload = 0
        self.covered_from = START
        """Since when a scheduler has run without a gap, by a clock that only went forward."""
        self.install(name, changed=False)
        self.live_on(60)

    def teardown(self) -> None:
        if hasattr(self, "app"):
            self.app.schedules.delete(self.name)
            self.app.close()

    @rule(name=st.sampled_from(sorted(SCHEDULES)), changed=st.booleans(), ahead=st.sampled_from([0, 180]))
    def install(self, name: str, changed: bool, ahead: int = 0) -> None:
        self.payload += changed
        schedule, zone = SCHEDULES[name], SCHEDULES[name].zone or ""
        given: Any = {
            "queue": self.queue.name,
            "payload": [name, self.payload],
            "grace_for": self.step,
            "in_advance_for": ahead * MINUTE,
        }
        if isinstance(schedule, Periodic):
            self.cron.install_periodic(self.name, schedule.every, **given)
        elif isinstance(schedule, Daily):
            self.cron.install_daily(self.name, schedule.hours, zone=zone, **given)
        else:
            self.cron.install_cron(self.name, schedule.text, zone=zone, **given)
        if self.current != (name, self.payload):
            self.covered_from = self.clock.pinned()
        self.current = (name, self.payload)

    @rule(minutes=st.integers(1, 90))
    def live_on(self, minutes: int) -> None:
        """Time passes while a scheduler runs."""
        for _ in range(minutes * MINUTE // self.step):
            self.clock.advance(self.step)
            assert Scheduler(self.app.store).run_once().failed == {}
            self.consume()

    @rule(minutes=st.integers(1, 600))
    def no_scheduler_runs(self, minutes: int) -> None:
        self.clock.advance(minutes * MINUTE)
        self.covered_from = self.clock.pinned()

    @rule(minutes=st.integers(1, 300), seen=st.booleans())
    def the_clock_is_set_back(self, minutes: int, seen: bool) -> None:
        """`seen`: a scheduler looks before the next tick comes."""
        self.clock.advance(-minutes * MINUTE)
        self.covered_from = self.clock.pinned() if seen else datetime.max.replace(tzinfo=UTC)
        if seen:
            Scheduler(self.app.store).run_once()

    @rule(name=st.sampled_from(sorted(SCHEDULES)), minutes=st.integers(1, 60))
    def it_is_changed_and_the_clock_is_set_back(self, name: str, minutes: int) -> None:
        """So that ticks which the old configuration has made lie ahead of the new one."""
        self.consume()
        self.install(name, changed=True)
        self.the_clock_is_set_back(minutes, seen=True)

    @rule(after=st.booleans())
    def a_scheduler_is_killed(self, after: bool) -> None:
        with suppress(Crash):
            Scheduler(Crashing(self.app.store, after=after)).run_once()  # pyright: ignore[reportArgumentType]

    @rule()
    def two_schedulers_run(self) -> None:
        for _ in range(2):
            Scheduler(self.app.store).run_once()

    @rule()
    def pause_and_resume(self) -> None:
        self.app.schedules.pause(self.name)
        self.app.schedules.resume(self.name)

    @rule(minutes=st.integers(1, 300))
    def what_was_missed_is_filled_in(self, minutes: int) -> None:
        now = self.clock.pinned()
        self.app.schedules.backfill(self.name, now - minutes * MINUTE, now)

    @rule()
    def one_is_skipped_by_hand(self) -> None:
        self.skipped.add(self.app.schedules.skip(self.name))

    @rule()
    def consume(self) -> None:
        for delivery in self.queue.try_poll_many(1_000):
            self._given(delivery)
            delivery.ack()

    @rule()
    def a_consumer_takes_its_time(self) -> None:
        if (delivery := self.queue.try_poll(lease_for=timedelta(hours=12))) is not None:
            self._given(delivery)
            self.held[delivery.key] = delivery

    @precondition(lambda self: self.held)
    @rule()
    def it_is_done_whatever_was_changed_meanwhile(self) -> None:
        _, delivery = self.held.popitem()
        assert delivery.ack() is Settled.DONE

    def _given(self, delivery: Delivery[Any]) -> None:
        if delivery.attempt > 1:  # its lease ran out: it was begun before
            self.held.pop(delivery.key, None)
            return
        assert self.current is not None
        # Everything that is begun is of the configuration that holds now.
        assert delivery.payload == list(self.current), (delivery.payload, self.current)
        tick = datetime.fromisoformat(delivery.headers["tarry-tick"])
        assert tick <= self.clock.pinned()
        self.begun[tick] += 1

    @invariant()
    def no_tick_is_doubled(self) -> None:
        assert all(count == 1 for count in self.begun.values()), self.begun

    @invariant()
    def none_is_skipped_while_a_scheduler_lived(self) -> None:
        now = self.clock.pinned()
        if self.current is None or self.covered_from >= now:
            return
        history = self.app.schedules.history(self.name, limit=100_000)
        made = {record.tick for record in history if record.verdict in MADE}
        ticks = Timetable(SCHEDULES[self.current[0]]).after(self.covered_from, now)
        missed = [tick for tick in ticks if tick not in made | self.skipped]
        assert missed == []

    @invariant()
    def the_ledger_names_every_live_message(self) -> None:
        live = {
            message.key for message in self.app.store.run(self.app.store.messages.list(self.queue.name, limit=10_000))
        }
        recorded = {
            record.key
            for record in self.app.schedules.history(self.name, limit=100_000)
            if record.live and record.verdict is not Verdict.WITHDRAWN
        }
        assert live == recorded


class TestInMemory(CronMachine.TestCase):
    settings = settings(max_examples=80)


class PostgresMachine(CronMachine):
    step = 10 * MINUTE
    """Every look is a few round trips and a commit."""


def on(dsn: str, examples: int, steps: int) -> None:
    PostgresMachine.opened = staticmethod(
        lambda clock: App(PostgresStore(dsn, clock=clock, settings=SETTINGS), dsn=dsn)
    )
    run_state_machine_as_test(
        PostgresMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            phases=[Phase.generate],  # the shortest example would take minutes to find; in memory it takes seconds
        ),
    )


def test_on_postgresql(database: str) -> None:
    on(database, 20, 25)


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_on_postgresql_for_long(database: str) -> None:
    on(database, 300, 40)
