"""The scheduler: plans due schedules and sleeps until the next one. Any number may run, without an election."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import compress
from typing import Any

from tarry.api.schedule_commands import AsyncOffload, AsyncScheduleCommands
from tarry.api.schedules import Owned
from tarry.core.cron import planner, schedule_changes
from tarry.core.cron.model import CronMessage, ScheduleChange, ScheduleSpec, ScheduleState
from tarry.core.errors import TarryError
from tarry.core.monotonic import elapsed_s
from tarry.core.ports import AsyncStore
from tarry.services.cron.validation import planned

SCAN_EVERY = timedelta(seconds=5)
"""Interval between checks when nothing is due: a schedule may have been installed, or the clock changed."""
KEEP_FOR = timedelta(days=90)
"""How long the ledger keeps single ticks."""
AT_ONCE = 500
"""Maximum number of schedules that a scheduler plans in one transaction."""
MOST_TICKS = 10_000
"""Maximum number of ticks that a scheduler decides in one transaction, besides the `MOST_BYTES` of their payloads."""
_log = logging.getLogger("tarry.cron")
_FORGET_EVERY_S = 3600.0
_SHORTEST_S = 0.05
_AFTER_FAILURE_S = 1.0
_WHILE_LOCKED_S = 0.25
"""How soon to retry when a due schedule could not be planned."""


@dataclass(slots=True)
class Generator:
    """A program's function that generates ticks, called periodically."""

    spec: ScheduleSpec
    every_s: float
    generate: Callable[[datetime], Any]
    next_s: float = 0.0
    installed: bool = False


@dataclass(slots=True)
class RunReport:
    """The result of one scheduler run."""

    planned: int = 0
    """Upper bound of planned messages: some may have been in the ledger already."""
    outrun: int = 0
    """Schedules that another scheduler has just planned, or that another transaction has locked."""
    failed: dict[str, str] = field(default_factory=dict[str, str])
    replaced: list[str] = field(default_factory=list[str])
    """Owned schedules that another process has installed with a different configuration."""
    more: bool = False
    """There may be more to do immediately."""

    def changes(
        self, due: Sequence[ScheduleState], now: datetime, owned: dict[str, Owned]
    ) -> list[list[ScheduleChange]]:
        """The changes, grouped into transactions of bounded size: a payload is stored with each tick. If one schedule
        fails, the others are still planned."""
        groups: list[list[ScheduleChange]] = []
        ticks = size = 0
        for state in due:
            own = owned.get(state.name) if state.spec.by_code else None
            if own is not None and own.generation != state.generation:
                self.replaced.append(state.name)
                continue
            try:
                change = schedule_changes.advance(state, now, None if own is None else own.payload_of)
            except Exception as error:
                # From the program's payload function, or a time zone that is unknown here.
                self.failed[state.name] = f"{type(error).__name__}: {error}"
                continue
            if change is None:
                continue
            added = sum(len(tick.draft.payload) for tick in change.ticks if tick.draft is not None)
            ticks, size = ticks + len(change.ticks), size + added
            if not groups or ticks > MOST_TICKS or size > planner.MOST_BYTES:
                groups.append([])
                ticks, size = len(change.ticks), added
            groups[-1].append(change)
        return groups


class AsyncScheduler:
    """`run_once()` does all work that is due. For a loop around it: `tarry scheduler`, or `with app.cron():`."""

    def __init__(self, store: AsyncStore, *, timer: Callable[[], float] = elapsed_s) -> None:
        self._store = store
        self._timer = timer
        self.owned: dict[str, Owned] = {}
        self.generators: dict[str, Generator] = {}
        self._offload = AsyncOffload("tarry-scheduler", lambda: self.owned or self.generators)
        self._commands = AsyncScheduleCommands(store, self._offload)
        self._failed: dict[str, str] = {}
        self._outrun = 0
        self._forget_s = 0.0

    async def run_once(self) -> RunReport:
        """Plan the schedules that are due."""
        report, owned = RunReport(), dict(self.owned)
        # Schedules that failed or are locked by another transaction are selected first again: they must not crowd out
        # the others.
        limit = AT_ONCE + len(self._failed) + self._outrun
        due = await self._store.run(self._store.cron.due(list(owned), limit=limit))
        now = await self._commands.now(None)
        for group in await self._offload.run(report.changes, due, now, owned):
            await self._apply(group, report)
        report.more |= len(due) == limit
        self._outrun = report.outrun
        for name in report.replaced:
            self.owned.pop(name, None)
            _log.warning("schedule %r was installed anew by another process: this process no longer plans it", name)
        for name, problem in report.failed.items():
            if self._failed.get(name) != problem:  # once, not in every run
                _log.error("schedule %r cannot be planned: %s", name, problem)
        self._failed = report.failed
        return report

    async def _apply(self, changes: list[ScheduleChange], report: RunReport) -> None:
        try:
            applied = await self._store.run(self._store.cron.apply_changes(changes, together=False))
        except ConnectionError:
            raise
        except TarryError as error:
            if len(changes) == 1:
                report.failed[changes[0].name] = error.message
                return
            for change in changes:  # find the change that failed the batch, and apply the others
                await self._apply([change], report)
            return
        report.outrun += applied.count(False)
        for change in compress(changes, applied):
            report.planned += sum(tick.draft is not None for tick in change.ticks)
            wake_at = None if change.after is None else change.after.wake_at
            report.more |= wake_at is not None and wake_at <= change.decided_at  # the limit of one plan was reached

    async def cycle(self) -> float:
        """Run all steps once; returns the seconds until the next cycle."""
        report = await self.run_once()
        await self._generate()
        await self._forget()
        if report.more:
            return 0.0
        wake = await self._store.run(self._store.cron.next_wake_in(list(self.owned)))
        shortest_s = _WHILE_LOCKED_S if report.outrun else _SHORTEST_S
        scan_s = SCAN_EVERY.total_seconds()
        rest = scan_s if wake is None else min(max(wake.total_seconds(), shortest_s), scan_s)
        soonest_s = min((self._forget_s, *(generator.next_s for generator in self.generators.values())))
        rest = min(rest, max(0.0, soonest_s - self._timer()))
        return max(rest, _AFTER_FAILURE_S) if report.failed else rest

    async def _generate(self) -> None:
        for name, generator in list(self.generators.items()):
            if generator.next_s > self._timer():
                continue
            generator.next_s = self._timer() + generator.every_s
            try:
                messages: list[CronMessage] = list(generator.generate(await self._commands.now(None)))
                ticks = planned(generator.spec, messages, self._store.settings.payload_limit)
            except ConnectionError:
                raise
            except Exception:
                _log.exception("the ticks of %r could not be generated; trying again", name)
                continue
            is_installed = await self._commands.install_ticks(generator.spec, ticks, again=generator.installed)
            generator.installed = True
            if not is_installed:
                self.generators.pop(name, None)
                _log.warning("%r was installed anew by another process: this process no longer plans it", name)

    async def _forget(self) -> None:
        if self._timer() < self._forget_s:
            return
        began_s = self._timer()
        now = await self._commands.now(None)
        forgotten = await self._store.run(self._store.cron.forget_ticks(now - KEEP_FOR))
        # One batch at a time with planning in between, for at most half of the time, until none is left.
        took_s = self._timer() - began_s
        self._forget_s = self._timer() + (max(took_s, _SHORTEST_S) if forgotten else _FORGET_EVERY_S)
        if forgotten:
            _log.info("forgot %d old entries of the ledger", forgotten)
