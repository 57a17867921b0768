"""Maintenance of queues that are not polled. Delivery does not depend on it; the reported state does.

The sweeper records expired leases in the journal, buries messages without attempts left, advances redrive jobs, continues
bulk jobs whose process has stopped, creates journal partitions in advance, drops those that no queue retains, and reports
what blocks vacuum. Any number of sweepers may run; only the elected one works."""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from tarry.core.errors import InvalidState, StoreUnavailable
from tarry.core.maintenance.leadership import Leadership
from tarry.core.maintenance.sweeping import Partitions, PrunedDay, SweepCursor, VacuumProblem
from tarry.core.operation import Operation
from tarry.core.ports import AsyncStore
from tarry.core.search.bulk import IDLE_FOR, BulkJob
from tarry.core.settings import SweeperSettings
from tarry.services.bulk import advance
from tarry.services.leader import Leader
from tarry.services.loop import Loop

_log = logging.getLogger("tarry")
NAME = "sweeper"
RESIGN_WITHIN_S = 0.5
PARTITION_STEPS = 3
_RAREST_S = 60.0
"""Longest interval between checks of a queue without expiries. Intervals double up to it: many quiet queues cost little."""


@dataclass(slots=True, kw_only=True)
class SweepReport:
    """The result of one round."""

    leading: bool = False
    fence: int | None = None
    queues: int = 0
    expired: int = 0
    buried: int = 0
    labelled: int = 0
    removed: int = 0
    """Messages of force-deleted queues whose deletion was interrupted."""
    forgotten: int = 0
    """Idempotency responses past their retention."""
    rolled_up: int = 0
    """Events added to the rollups."""
    pruned: list[PrunedDay] = field(default_factory=list[PrunedDay])
    """Journal days that were dropped, or could not be."""
    redriven: int = 0
    changed: int = 0
    """Messages changed by bulk jobs."""
    has_jobs: bool = False
    """A redrive job is unfinished."""
    is_blocked: bool = False
    """A redrive job had to wait for another open transaction."""
    partitions: Partitions | None = None
    vacuum_problems: list[VacuumProblem] = field(default_factory=list[VacuumProblem])
    took_s: float = 0.0

    @property
    def did_something(self) -> bool:
        made = self.partitions.made if self.partitions is not None else 0
        done = self.expired or self.buried or self.labelled or self.removed or self.redriven or self.changed
        return bool(done or made or self.vacuum_problems or self.days_pruned)

    @property
    def days_pruned(self) -> int:
        return sum(day.why is None for day in self.pruned)


@dataclass(eq=False)
class Sweeper:
    """The sweeper. As an async context manager it runs until the block ends; or call `run_once` directly."""

    store: AsyncStore
    settings: SweeperSettings = SweeperSettings()
    holder: str = "candidate"
    on_report: Callable[[SweepReport], None] = lambda report: None
    timer: Callable[[], float] = time.monotonic
    random: Callable[[], float] = random.random
    _cursors: dict[str, SweepCursor] = field(default_factory=dict[str, SweepCursor], init=False)
    """Positions in long queues, where the next round continues."""
    _rests: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]], init=False)
    """Queues without expiries: time of the next check, and the current interval."""
    _maintain_at: float | None = field(default=None, init=False)
    _vacuum_problems: frozenset[str] = field(default=frozenset(), init=False)
    _bulk_job: BulkJob | None = field(default=None, init=False)
    """Taken over from a stopped process."""

    def __post_init__(self) -> None:
        self._leader = Leader(self.store, NAME, self.holder, self.settings.lead_for, self.timer)
        self._loop = Loop(NAME, self._round, every=self.settings.every)

    async def run_once(self) -> SweepReport:
        """Run one round through all queues, unless and until another process leads."""
        self._rests.clear()
        return await self._work()

    async def _work(self) -> SweepReport:
        started = self.timer()
        report = SweepReport()
        if (leadership := await self._leader.leadership()) is not None:
            report.leading, report.fence = True, leadership.fence
            is_due = self._maintain_at is None or self.timer() >= self._maintain_at
            if is_due:
                # First, because everything else in a round writes events, which need a journal partition.
                await self._make_partitions(report, leadership)
            await self._sweep_queues(report)
            if is_due:
                self._maintain_at = self.timer() + self.settings.maintain_every.total_seconds()
                await self._maintain(report, leadership)
            await self._roll_up(report)
            if is_due:
                await self._prune(report)
            await self._advance_redrives(report)
            await self._advance_bulk(report)
        report.took_s = self.timer() - started
        return report

    async def __aenter__(self) -> Self:
        self._loop.start()
        return self

    async def __aexit__(self, *raised: object) -> None:
        try:
            await self._loop.end()
        finally:
            # Also if this task is cancelled. If the database is unavailable, the lease expires.
            resigning = asyncio.create_task(self.resign(), name="tarry-resign")
            await asyncio.wait({resigning}, timeout=RESIGN_WITHIN_S)
            resigning.cancel()

    async def _round(self) -> float | None:
        report = await self._work()
        self.on_report(report)
        if not report.leading:
            # Check for leadership about as often as the leader renews it.
            return self.settings.lead_for.total_seconds() / 3 * (1 + 0.2 * self.random())
        rest_s = self.settings.every.total_seconds() * (0.9 + 0.2 * self.random())
        if self._cursors and (report.expired or report.buried):
            return 0.0  # many consumers have stopped: more expiries are likely
        due_in = await self.store.run(self.store.dead_letters.next_redrive_in()) if report.has_jobs else None
        return rest_s if due_in is None or report.is_blocked else min(rest_s, due_in.total_seconds())

    async def _sweep_queues(self, report: SweepReport) -> None:
        infos = [info for info in await self.store.run(self.store.queues.infos()) if not info.paused]
        self._cursors = {info.name: self._cursors[info.name] for info in infos if info.name in self._cursors}
        self._rests = {info.name: self._rests[info.name] for info in infos if info.name in self._rests}
        due = [info.name for info in infos if self.timer() >= self._rests.get(info.name, (0.0, 0.0))[0]]
        unfinished = self._cursors.keys()
        unchecked = [name for name in due if name not in unfinished]
        needing = {*unfinished, *await self.store.run(self.store.maintenance.needing_sweep(unchecked))}
        for name in due:
            before = report.expired + report.buried
            if name in needing:
                await self._sweep(name, report)
            report.queues += 1
            _, rested_s = self._rests.get(name, (0.0, 0.0))
            if report.expired + report.buried > before or name in self._cursors:
                rested_s = 0.0
            every_s = self.settings.every.total_seconds()
            rest_s = min(max(every_s, 2 * rested_s), max(every_s, _RAREST_S), 6 * every_s)
            # Minus half a round, so that a round that starts slightly early does not skip the queue.
            self._rests[name] = (self.timer() + rest_s - every_s / 2, rest_s)

    async def _sweep(self, queue: str, report: SweepReport) -> None:
        cursor = self._cursors.pop(queue, None)
        for _ in range(self.settings.most_steps):
            if (leadership := await self._leader.leadership()) is None:
                return
            swept = await self.store.run(
                self.store.maintenance.sweep(queue, after=cursor, limit=self.settings.batch, leadership=leadership)
            )
            report.expired += swept.expired
            report.buried += swept.buried
            if (cursor := swept.cursor) is None:
                return
        if cursor is not None:
            self._cursors[queue] = cursor

    async def _make_partitions(self, report: SweepReport, leadership: Leadership) -> None:
        try:
            for _ in range(PARTITION_STEPS):
                report.partitions = await self.store.run(
                    self.store.maintenance.make_partitions(self.settings.partition_days, leadership=leadership)
                )
                if not report.partitions.more:
                    break
        except (InvalidState, StoreUnavailable) as error:
            # InvalidState: the journal is being read. Partitions for the next days exist, then the overflow partition.
            # StoreUnavailable: reading a large overflow partition may exceed the statement timeout. Expired leases must not
            # wait for either.
            level = logging.INFO if isinstance(error, InvalidState) else logging.WARNING
            _log.log(level, "sweeper: no partitions were made ahead: %s", error)

    async def _maintain(self, report: SweepReport, leadership: Leadership) -> None:
        report.labelled = await self.store.run(self.store.dead_letters.label(leadership=leadership))
        report.removed = await self._in_batches(self.store.maintenance.remove_leftovers, 1)
        forget, batch = self.store.security.forget_responses, self.settings.batch
        report.forgotten = await self._in_batches(
            lambda: forget(self.settings.responses_for, limit=batch, leadership=leadership), batch
        )
        await self.store.run(self.store.rollups.forget())
        await self.store.run(self.store.search.forget_bulk())
        report.vacuum_problems = await self.store.run(self.store.maintenance.vacuum_problems())
        for what, problem, hint in report.vacuum_problems:
            if what not in self._vacuum_problems:
                _log.warning("sweeper: %s: %s (%s)", what, problem, hint)
        self._vacuum_problems = frozenset(problem.what for problem in report.vacuum_problems)

    async def _prune(self, report: SweepReport) -> None:
        try:
            report.pruned = await self.store.run(self.store.maintenance.prune_journal())
        except (InvalidState, StoreUnavailable) as error:
            _log.warning("sweeper: the journal was not pruned: %s", error)

    async def _roll_up(self, report: SweepReport) -> None:
        """Update the rollups; after a long time without a sweeper they catch up over several rounds."""
        until, is_complete = self.timer() + self.settings.work_for.total_seconds(), False
        while not is_complete and self.timer() < until:
            events, is_complete = await self.store.run(self.store.rollups.roll_up())
            report.rolled_up += events

    async def _in_batches(self, remove: Callable[[], Operation[int]], full: int) -> int:
        """Remove batches until one is not full or the time limit is reached."""
        removed, until = 0, self.timer() + self.settings.work_for.total_seconds()
        while self.timer() < until:
            step = await self.store.run(remove())
            removed += step
            if step < full:
                break
        return removed

    async def _advance_redrives(self, report: SweepReport) -> None:
        if await self.store.run(self.store.dead_letters.next_redrive_in()) is None:
            return
        report.has_jobs = True
        until = self.timer() + self.settings.work_for.total_seconds()
        job_id: int | None = None
        others: list[int] | None = None
        while self.timer() < until and (leadership := await self._leader.leadership()) is not None:
            try:
                job = await self.store.run(self.store.dead_letters.advance_redrive(job_id, leadership=leadership))
            except InvalidState as error:
                # Another open transaction has locked a key of this job. The job would be selected first every time, so
                # the others are advanced by id, and the next round does not start immediately.
                _log.info("sweeper: a redrive job waits: %s", error)
                report.is_blocked, job = True, None
                if others is None:
                    jobs = await self.store.run(self.store.dead_letters.redrive_jobs())
                    others = [other.id for other in jobs if not other.ended]
            if job is not None:
                report.redriven += job.moved
            elif others:
                job_id = others.pop()
            else:
                return

    async def _advance_bulk(self, report: SweepReport) -> None:
        until = self.timer() + self.settings.work_for.total_seconds()
        while self.timer() < until and await self._leader.leadership() is not None:
            job = self._bulk_job
            if job is None or not job.is_running:
                idle = await self.store.run(self.store.search.bulk_jobs(idle_for=IDLE_FOR, limit=1))
                if not idle:
                    return
                job = idle[0]
            self._bulk_job = await advance(self.store, job)
            report.changed += 0 if self._bulk_job is None else self._bulk_job.changed - job.changed

    async def resign(self) -> None:
        """Let another sweeper take over before the lease expires."""
        try:
            await self._leader.resign()
        except Exception as error:
            _log.info("sweeper: the leadership was not resigned, it ends with its lease: %s", error)
