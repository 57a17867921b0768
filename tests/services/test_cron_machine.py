"""Any sequence of install, change, pause, crash, ack, restart and clock step, against a model that knows only the rules.

No tick is doubled; none is skipped while a scheduler lived inside the grace; nothing of an old configuration is begun after
the commit of the new.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tarry.core.cron import MADE, Verdict
from tarry.core.ports import Store
from tarry.core.schedules import Cron, Daily, Periodic, Schedule, Timetable
from tarry.services.scheduler import Scheduler
from tarry.testing import MutableClock, memory_app

START = datetime(2026, 3, 28, 22, tzinfo=UTC)  # a few hours before Berlin's clocks are set
MINUTE = timedelta(minutes=1)
SCHEDULES: dict[str, Schedule] = {
    "quarter": Cron("*/15 * * * *", "Europe/Berlin"),
    "night": Cron("30 2 * * *", "Europe/Berlin"),
    "hours": Daily(["01:30", "02:30", "23:00"], "Europe/Berlin"),
    "period": Periodic(timedelta(minutes=7)),
}


class Crash(Exception):
    """The process dies between reading and ruling, or right after the commit."""


class Crashing:
    """A store under a scheduler that is killed at its next ruling."""

    def __init__(self, store: Store, *, after: bool) -> None:
        self._store, self._after = store, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def rule(self, rulings: Any, **options: Any) -> Any:
        if self._after:
            self._store.rule(rulings, **options)
        raise Crash


class CronMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.clock = MutableClock(START)
        self.app = memory_app(self.clock)
        self.cron = self.app.cron()
        self.queue = self.app.queue("q")
        self.begun: dict[tuple[str, datetime], int] = {}
        """How often each tick of a configuration was delivered for the first time."""
        self.current: tuple[str, int] | None = None
        self.payload = 0
        self.covered_from = START
        """Since when a scheduler has run without a gap, by a clock that only went forward."""
        self.watched: list[tuple[datetime, datetime, Schedule]] = []

    @rule(name=st.sampled_from(sorted(SCHEDULES)), changed=st.booleans())
    def install(self, name: str, changed: bool) -> None:
        self.payload += changed
        schedule = SCHEDULES[name]
        if isinstance(schedule, Periodic):
            self.cron.install_periodic("p", schedule.every, queue="q", payload=[name, self.payload])
        elif isinstance(schedule, Daily):
            self.cron.install_daily("p", schedule.hours, zone="Europe/Berlin", queue="q", payload=[name, self.payload])
        else:
            self.cron.install_cron("p", schedule.text, zone="Europe/Berlin", queue="q", payload=[name, self.payload])
        if self.current != (name, self.payload):
            self.covered_from = self.clock.pinned()
        self.current = (name, self.payload)

    @rule(minutes=st.integers(1, 90))
    def live_on(self, minutes: int) -> None:
        """Time passes while a scheduler runs: it looks at least once a minute."""
        for _ in range(minutes):
            self.clock.advance(MINUTE)
            Scheduler(self.app.store).run_once()
            self.consume()

    @rule(minutes=st.integers(1, 600))
    def nobody_is_there(self, minutes: int) -> None:
        self.clock.advance(minutes * MINUTE)
        self.covered_from = self.clock.pinned()

    @rule(minutes=st.integers(1, 300))
    def the_clock_is_set_back(self, minutes: int) -> None:
        self.clock.advance(-minutes * MINUTE)
        self.covered_from = datetime.max.replace(tzinfo=UTC)

    @rule(after=st.booleans())
    def a_scheduler_is_killed(self, after: bool) -> None:
        with suppress(Crash):
            Scheduler(Crashing(self.app.store, after=after)).run_once()  # pyright: ignore[reportArgumentType]

    @rule()
    def two_schedulers_run(self) -> None:
        for _ in range(2):
            Scheduler(self.app.store).run_once()

    @precondition(lambda self: self.current is not None)
    @rule()
    def pause_and_resume(self) -> None:
        self.app.schedules.pause("p")
        self.app.schedules.resume("p")

    @rule()
    def consume(self) -> None:
        for delivery in self.queue.try_poll_many(1_000):
            assert self.current is not None
            # Everything that is begun is of the configuration that holds now.
            assert delivery.payload == list(self.current), (delivery.payload, self.current)
            tick = datetime.fromisoformat(delivery.headers["tarry-tick"])
            assert tick <= self.clock.pinned()
            key = (delivery.key.split("/")[1], tick)
            self.begun[key] = self.begun.get(key, 0) + 1
            delivery.ack()

    @invariant()
    def no_tick_is_doubled(self) -> None:
        assert all(count == 1 for count in self.begun.values()), self.begun

    @invariant()
    def none_is_skipped_while_a_scheduler_lived(self) -> None:
        now = self.clock.pinned()
        if self.current is None or self.covered_from >= now:
            return
        schedule = SCHEDULES[self.current[0]]
        made = {
            record.tick
            for record in self.app.schedules.history("p", limit=100_000)
            if record.verdict in MADE and record.hash == schedule.config_hash
        }
        missed = [tick for tick in Timetable(schedule).after(self.covered_from, now) if tick not in made]
        assert missed == []

    @invariant()
    def the_ledger_names_every_live_message(self) -> None:
        live = {message.key for message in self.app.store.messages("q", limit=10_000)}
        told = {
            record.key
            for record in self.app.schedules.history("p", limit=100_000)
            if record.live and record.verdict is not Verdict.WITHDRAWN
        }
        assert live == told


TestCronMachine = CronMachine.TestCase
