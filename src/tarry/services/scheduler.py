"""The scheduler: plans due schedules and sleeps until the next one. Any number may run, without an election."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from tarry.core.cron import CronMessage, ScheduleSpec
from tarry.core.ports import AsyncStore, Store
from tarry.handles import cron_asks
from tarry.handles.aside import Aside
from tarry.handles.asking import Ask, answered, answered_aside, answered_async, question
from tarry.handles.cron_asks import Owned, Ran
from tarry.handles.elapsed import elapsed_s
from tarry.handles.schedule_specs import planned

_log = logging.getLogger("tarry.cron")
R = TypeVar("R")

SCAN_EVERY = timedelta(seconds=5)
"""Interval of checks when nothing is due: a schedule may have been installed, or the clock set."""
KEEP_FOR = timedelta(days=90)
"""How long the ledger keeps single ticks."""
_FORGET_EVERY_S = 3600.0
_SHORTEST_S = 0.05
_AFTER_FAILURE_S = 1.0
_WHILE_LOCKED_S = 0.25
"""How soon to look again when a schedule that is due could not be planned."""


@dataclass(slots=True)
class Generator:
    """A program's function that generates ticks, called periodically."""

    spec: ScheduleSpec
    every_s: float
    generate: Callable[[datetime], Any]
    next_s: float = 0.0
    installed: bool = False


class Duty:
    """State and work of one scheduler, shared by the blocking and the async class."""

    def __init__(self, payload_limit: int, *, scan_every: timedelta = SCAN_EVERY) -> None:
        self.owned: dict[str, Owned] = {}
        self.generators: dict[str, Generator] = {}
        self.told: dict[str, str] = {}
        self._payload_limit = payload_limit
        self._scan_s = scan_every.total_seconds()
        self._forget_s = 0.0
        self._outrun = 0

    def run_once(self) -> Ask[Ran]:
        # Schedules that failed, or that another transaction has locked, come first again: they must not take the places of
        # the others.
        passed_over = len(self.told) + self._outrun
        ran = yield from cron_asks.schedule_once(dict(self.owned), cron_asks.AT_ONCE + passed_over)
        self._outrun = ran.outrun
        for prefix in ran.replaced:
            self.owned.pop(prefix, None)
            _log.warning("schedule %r was installed anew by somebody else: this process no longer plans it", prefix)
        for prefix, problem in ran.failed.items():
            if self.told.get(prefix) != problem:  # once, not in every run
                _log.error("schedule %r cannot be planned: %s", prefix, problem)
        self.told = ran.failed
        return ran

    def cycle(self) -> Ask[float]:
        """One run with all its parts; returns the seconds until the next."""
        ran = yield from self.run_once()
        yield from self._generate()
        yield from self._forget()
        if ran.more:
            return 0.0
        wake = yield from cron_asks.next_wake_in(list(self.owned))
        shortest_s = _WHILE_LOCKED_S if ran.outrun else _SHORTEST_S
        rest = self._scan_s if wake is None else min(max(wake.total_seconds(), shortest_s), self._scan_s)
        soonest_s = min((self._forget_s, *(one.next_s for one in self.generators.values())))
        rest = min(rest, max(0.0, soonest_s - elapsed_s()))
        return max(rest, _AFTER_FAILURE_S) if ran.failed else rest

    def _generate(self) -> Ask[None]:
        for prefix, one in list(self.generators.items()):
            if one.next_s > elapsed_s():
                continue
            one.next_s = elapsed_s() + one.every_s
            try:
                now = yield from question(lambda store: store.now())
                messages: list[CronMessage] = list(one.generate(now))
                ticks = planned(messages, self._payload_limit)
            except ConnectionError:
                raise
            except Exception:
                _log.exception("the ticks of %r could not be generated; trying again", prefix)
                continue
            stands = yield from cron_asks.install_ticks(one.spec, ticks, None, again=one.installed)
            one.installed = True
            if not stands:
                self.generators.pop(prefix, None)
                _log.warning("%r was installed anew by somebody else: this process no longer plans it", prefix)

    def _forget(self) -> Ask[None]:
        if elapsed_s() < self._forget_s:
            return
        began_s = elapsed_s()
        now = yield from question(lambda store: store.now())
        forgotten = yield from question(lambda store: store.forget_ticks(now - KEEP_FOR))
        # One batch at a time, with planning in between, until none is left; at most half of the time.
        took_s = elapsed_s() - began_s
        self._forget_s = elapsed_s() + (max(took_s, _SHORTEST_S) if forgotten else _FORGET_EVERY_S)
        if forgotten:
            _log.info("forgot %d old entries of the ledger", forgotten)


class Scheduler:
    """`run_once()` does all work that is due. For a loop around it: `tarry scheduler`, or `with app.cron():`."""

    def __init__(self, store: Store, *, scan_every: timedelta = SCAN_EVERY) -> None:
        self._store = store
        self.duty = Duty(store.settings.payload_limit, scan_every=scan_every)

    def run_once(self) -> Ran:
        return answered(self._store, self.duty.run_once())

    def cycle(self) -> float:
        return answered(self._store, self.duty.cycle())


class AsyncScheduler:
    """`Scheduler` for async code."""

    def __init__(self, store: AsyncStore, *, scan_every: timedelta = SCAN_EVERY) -> None:
        self._store = store
        self.duty = Duty(store.settings.payload_limit, scan_every=scan_every)
        self._aside = Aside("tarry-scheduler")

    async def run_once(self) -> Ran:
        return await self._answered(self.duty.run_once())

    async def cycle(self) -> float:
        return await self._answered(self.duty.cycle())

    async def _answered(self, ask: Ask[R]) -> R:
        if self.duty.owned or self.duty.generators:  # functions of a program run in the thread of its event loop
            return await answered_async(self._store, ask)
        return await answered_aside(self._store, ask, self._aside)
