# Generated from src/tarry/services/cron/scheduler.py by tools/generate-blocking. Edit that file, then run `make generate`.
"""The blocking half of `tarry.services.cron.scheduler`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import compress

from tarry.api._sync.schedule_commands import Offload, ScheduleCommands
from tarry.api.schedules import Owned
from tarry.core._sync.ports import Store
from tarry.core.cron.model import CronMessage, ScheduleChange
from tarry.core.errors import TarryError
from tarry.core.monotonic import elapsed_s
from tarry.services.cron.scheduler import AT_ONCE, KEEP_FOR, SCAN_EVERY, Generator, RunReport
from tarry.services.cron.validation import planned

_log = logging.getLogger("tarry.cron")
_FORGET_EVERY_S = 3600.0
_SHORTEST_S = 0.05
_AFTER_FAILURE_S = 1.0
_WHILE_LOCKED_S = 0.25
"""How soon to retry when a due schedule could not be planned."""


class Scheduler:
    """`run_once()` does all work that is due. For a loop around it: `tarry scheduler`, or `with app.cron():`."""

    def __init__(self, store: Store, *, timer: Callable[[], float] = elapsed_s) -> None:
        self._store = store
        self._timer = timer
        self.owned: dict[str, Owned] = {}
        self.generators: dict[str, Generator] = {}
        self._offload = Offload("tarry-scheduler", lambda: self.owned or self.generators)
        self._commands = ScheduleCommands(store, self._offload)
        self._failed: dict[str, str] = {}
        self._outrun = 0
        self._forget_s = 0.0

    def run_once(self) -> RunReport:
        """Plan the schedules that are due."""
        report, owned = RunReport(), dict(self.owned)
        # Schedules that failed or are locked by another transaction are selected first again: they must not crowd out
        # the others.
        limit = AT_ONCE + len(self._failed) + self._outrun
        due = self._store.run(self._store.cron.due(list(owned), limit=limit))
        now = self._commands.now(None)
        for group in self._offload.run(report.changes, due, now, owned):
            self._apply(group, report)
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

    def _apply(self, changes: list[ScheduleChange], report: RunReport) -> None:
        try:
            applied = self._store.run(self._store.cron.apply_changes(changes, together=False))
        except ConnectionError:
            raise
        except TarryError as error:
            if len(changes) == 1:
                report.failed[changes[0].name] = error.message
                return
            for change in changes:  # find the change that failed the batch, and apply the others
                self._apply([change], report)
            return
        report.outrun += applied.count(False)
        for change in compress(changes, applied):
            report.planned += sum(tick.draft is not None for tick in change.ticks)
            wake_at = None if change.after is None else change.after.wake_at
            report.more |= wake_at is not None and wake_at <= change.decided_at  # the limit of one plan was reached

    def cycle(self) -> float:
        """Run all steps once; returns the seconds until the next cycle."""
        report = self.run_once()
        self._generate()
        self._forget()
        if report.more:
            return 0.0
        wake = self._store.run(self._store.cron.next_wake_in(list(self.owned)))
        shortest_s = _WHILE_LOCKED_S if report.outrun else _SHORTEST_S
        scan_s = SCAN_EVERY.total_seconds()
        rest = scan_s if wake is None else min(max(wake.total_seconds(), shortest_s), scan_s)
        soonest_s = min((self._forget_s, *(generator.next_s for generator in self.generators.values())))
        rest = min(rest, max(0.0, soonest_s - self._timer()))
        return max(rest, _AFTER_FAILURE_S) if report.failed else rest

    def _generate(self) -> None:
        for name, generator in list(self.generators.items()):
            if generator.next_s > self._timer():
                continue
            generator.next_s = self._timer() + generator.every_s
            try:
                messages: list[CronMessage] = list(generator.generate(self._commands.now(None)))
                ticks = planned(generator.spec, messages, self._store.settings.payload_limit)
            except ConnectionError:
                raise
            except Exception:
                _log.exception("the ticks of %r could not be generated; trying again", name)
                continue
            is_installed = self._commands.install_ticks(generator.spec, ticks, again=generator.installed)
            generator.installed = True
            if not is_installed:
                self.generators.pop(name, None)
                _log.warning("%r was installed anew by another process: this process no longer plans it", name)

    def _forget(self) -> None:
        if self._timer() < self._forget_s:
            return
        began_s = self._timer()
        now = self._commands.now(None)
        forgotten = self._store.run(self._store.cron.forget_ticks(now - KEEP_FOR))
        # One batch at a time with planning in between, for at most half of the time, until none is left.
        took_s = self._timer() - began_s
        self._forget_s = self._timer() + (max(took_s, _SHORTEST_S) if forgotten else _FORGET_EVERY_S)
        if forgotten:
            _log.info("forgot %d old entries of the ledger", forgotten)
