"""Maintenance of queues that are not polled. Delivery does not depend on it; visibility of the actual state does.

It records expired leases in the journal, buries messages without attempts left, advances redrive jobs, creates
partitions of the journal in advance, and reports what blocks vacuum. Any number of sweepers may run; the elected one
works.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tarry.core.errors import Refused, StoreUnavailable
from tarry.core.leading import Leadership
from tarry.core.ports import AsyncStore
from tarry.core.settings import SweeperSettings
from tarry.core.sweeping import Partitions, Strain, SweepPlace
from tarry.services.leader import Leader
from tarry.services.loop import Loop, ended

_log = logging.getLogger("tarry")
NAME = "sweeper"
RESIGN_WITHIN_S = 1.0
_RAREST_S = 60.0
PARTITION_STEPS = 3
"""Longest interval for a queue without expiries, which is checked progressively less often: many quiet queues cost
little.
"""


@dataclass(slots=True, kw_only=True)
class SweepReport:
    """The result of one round."""

    leading: bool = False
    fence: int | None = None
    queues: int = 0
    expired: int = 0
    buried: int = 0
    labelled: int = 0
    forgotten: int = 0
    """Stored responses of idempotency keys that are past their retention."""
    redriven: int = 0
    has_jobs: bool = False
    """A redrive job is running, or waiting for its next step."""
    held_up: bool = False
    """A redrive job had to wait for another open transaction."""
    partitions: Partitions | None = None
    strains: list[Strain] = field(default_factory=list[Strain])
    took_s: float = 0.0

    @property
    def did_something(self) -> bool:
        made = self.partitions.made if self.partitions is not None else 0
        return bool(self.expired or self.buried or self.labelled or self.redriven or made or self.strains)


class Sweeper:
    """The sweeper. As an async context manager it runs until the block ends; or call `run_once` directly."""

    def __init__(
        self,
        store: AsyncStore,
        settings: SweeperSettings = SweeperSettings(),
        *,
        holder: str = "",
        on_report: Callable[[SweepReport], None] = lambda report: None,
        timer: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._settings = settings
        self._on_report = on_report
        self._timer = timer
        self._random = random
        self._leader = Leader(store, NAME, holder=holder, lead_for=settings.lead_for, timer=timer)
        self._loop = Loop(NAME, self._round, every=settings.every)
        self._task: asyncio.Task[None] | None = None
        self._places: dict[str, SweepPlace] = {}
        self._rests: dict[str, tuple[float, float]] = {}
        """Queues without expiries: when each is due again, and its current interval."""
        self._upkeep_at: float | None = None
        self._strained: frozenset[str] = frozenset()

    async def run_once(self) -> SweepReport:
        """One round through all queues; nothing while another process leads; stops as soon as another one does."""
        self._rests.clear()
        return await self._work()

    async def _work(self) -> SweepReport:
        started = self._timer()
        report = SweepReport()
        if (lead := await self._leader.lead()) is not None:
            report.leading, report.fence = True, lead.fence
            upkeep = self._upkeep_at is None or self._timer() >= self._upkeep_at
            if upkeep:
                # First, because whatever else a round does writes events, which need a place in the journal.
                await self._make_partitions(report, lead)
            await self._sweep_queues(report)
            if upkeep:
                self._upkeep_at = self._timer() + self._settings.upkeep_every.total_seconds()
                await self._keep_up(report, lead)
            await self._carry_jobs_on(report)
        report.took_s = self._timer() - started
        return report

    async def run(self) -> None:
        """Run until `stop`."""
        try:
            await self._loop.run()
        finally:
            # Also if this task is cancelled, but not for as long as the database is away: the lease runs out by itself.
            resigning = asyncio.create_task(self.resign(), name="tarry-resign")
            await asyncio.wait({resigning}, timeout=RESIGN_WITHIN_S)
            if not resigning.done():
                resigning.cancel()
            elif (error := resigning.exception()) is not None:
                _log.warning("the sweeper's leadership ends with its lease: %s", error)

    def stop(self) -> None:
        self._loop.stop()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.run(), name="tarry-sweeper")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._task is not None:
            await ended(self._task)

    async def _round(self) -> float | None:
        report = await self._work()
        self._on_report(report)
        if not report.leading:
            # Check for leadership about as often as the leader renews it.
            return self._settings.lead_for.total_seconds() / 3 * (1 + 0.2 * self._random())
        rest_s = self._settings.every.total_seconds() * (0.9 + 0.2 * self._random())
        if self._places and (report.expired or report.buried):
            return 0.0  # many consumers died at once: more expiries are likely
        due_in = await self._store.next_redrive_in() if report.has_jobs else None
        return rest_s if due_in is None or report.held_up else min(rest_s, due_in.total_seconds())

    async def _sweep_queues(self, report: SweepReport) -> None:
        infos = [info for info in await self._store.queue_infos() if not info.paused]
        self._places = {info.name: self._places[info.name] for info in infos if info.name in self._places}
        self._rests = {info.name: self._rests[info.name] for info in infos if info.name in self._rests}
        for info in infos:
            until, rested_s = self._rests.get(info.name, (0.0, 0.0))
            if self._timer() < until:
                continue
            before = report.expired + report.buried
            await self._sweep(info.name, report)
            report.queues += 1
            found = report.expired + report.buried > before or info.name in self._places
            self._rest(info.name, 0.0 if found else rested_s)

    def _rest(self, queue: str, rested_s: float) -> None:
        every_s = self._settings.every.total_seconds()
        rest_s = min(max(every_s, 2 * rested_s), max(every_s, _RAREST_S), 6 * every_s)
        # Minus half a round, so that a round that starts slightly early does not skip the queue.
        self._rests[queue] = (self._timer() + rest_s - every_s / 2, rest_s)

    async def _sweep(self, queue: str, report: SweepReport) -> None:
        place = self._places.pop(queue, None)
        for _ in range(self._settings.most_steps):
            if (lead := await self._leader.lead()) is None:
                return
            swept = await self._store.sweep(queue, after=place, limit=self._settings.batch, lead=lead)
            report.expired += swept.expired
            report.buried += swept.buried
            place = swept.place
            if place is None:
                return
        if place is not None:
            self._places[queue] = place  # a long queue: the next round continues here

    async def _make_partitions(self, report: SweepReport, lead: Leadership) -> None:
        try:
            for _ in range(PARTITION_STEPS):
                report.partitions = await self._store.make_partitions(self._settings.partition_days, lead=lead)
                if not report.partitions.more:
                    break
        except Refused as error:
            # The journal is being read. Partitions exist for days ahead, followed by the overflow partition.
            _log.info("sweeper: no partitions were made ahead: %s", error)
        except StoreUnavailable as error:
            # A step that reads a large overflow may take longer than a statement may. Expired leases do not wait for that.
            _log.warning("sweeper: no partitions were made ahead: %s", error)

    async def _keep_up(self, report: SweepReport, lead: Leadership) -> None:
        report.labelled = await self._store.label_dead(lead=lead)
        report.forgotten = await self._forget_answers(lead)
        report.strains = await self._store.strains()
        for strain in report.strains:
            if strain.what not in self._strained:
                _log.warning("sweeper: %s: %s (%s)", strain.what, strain.found, strain.hint)
        self._strained = frozenset(strain.what for strain in report.strains)

    async def _forget_answers(self, lead: Leadership) -> int:
        forgotten, until = 0, self._timer() + self._settings.work_for.total_seconds()
        while self._timer() < until:
            step = await self._store.forget_answers(self._settings.answers_for, limit=self._settings.batch, lead=lead)
            forgotten += step
            if step < self._settings.batch:
                break
        return forgotten

    async def _carry_jobs_on(self, report: SweepReport) -> None:
        if await self._store.next_redrive_in() is None:
            return
        report.has_jobs = True
        until = self._timer() + self._settings.work_for.total_seconds()
        one: int | None = None
        others: list[int] | None = None
        while self._timer() < until and (lead := await self._leader.lead()) is not None:
            try:
                job = await self._store.advance_redrive(one, lead=lead)
            except Refused as error:
                # Another open transaction has locked a key of this job. The job would come first again and again, so
                # the others are advanced by name, and the next round does not start at once.
                _log.info("sweeper: a redrive job waits: %s", error)
                report.held_up, job = True, None
                if others is None:
                    others = [found.id for found in await self._store.redrive_jobs() if not found.ended]
            if job is not None:
                report.redriven += job.moved
            elif others:
                one = others.pop()
            else:
                return

    async def resign(self) -> None:
        """Let another sweeper work at once, instead of after the lease expires."""
        try:
            await self._leader.resign()
        except Exception as error:
            _log.info("sweeper: the lease was not given back, it runs out by itself: %s", error)
