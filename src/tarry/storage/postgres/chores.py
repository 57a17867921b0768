"""The verbs that care for what went wrong or was left lying: dead letters, redrive jobs, leaders, sweepers.

As in `verbs`, `sync` and `aio`: the decisions once, and a shell for code that blocks and one for code that awaits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from tarry.core.clock import Clock
from tarry.core.leading import Leadership
from tarry.core.messages import DeadLetter
from tarry.core.redriving import EVERY_LETTER, DeadFilter, DeadGroup, DeadPlace, Matching, RedriveJob, RedriveState
from tarry.core.sweeping import Partitions, Strain, SweepPlace, Swept
from tarry.storage.postgres import dead_ops, dead_statements, upkeep_statements
from tarry.storage.postgres.statement import Op

R = TypeVar("R")


class ChoreVerbs(ABC):
    """Each verb as an op, with the clock filled in."""

    _clock: Clock

    @abstractmethod
    def _in(self, queue: str, make: Callable[[datetime | None], Op[R]]) -> Op[R]: ...

    def dead_letters(
        self, queue: str, where: DeadFilter, limit: int, before: DeadPlace | None
    ) -> Op[list[DeadLetter[bytes]]]:
        return self._in(queue, lambda now: dead_ops.dead_letters(queue, where, limit, before, now))

    def dead_groups(self, queue: str, limit: int, cap: int) -> Op[list[DeadGroup]]:
        return self._in(queue, lambda now: dead_ops.groups(queue, limit, cap, now))

    def count_dead(self, queue: str, where: DeadFilter, limit: int) -> Op[Matching]:
        return self._in(queue, lambda now: dead_ops.count(queue, where, limit, now))

    def redrivable(self, queue: str, limit: int) -> Op[list[int]]:
        return self._in(queue, lambda now: dead_statements.redrivable(queue, limit).run())

    def redrive(self, queue: str, versions: Sequence[int], limit: int) -> Op[int]:
        return self._in(queue, lambda now: dead_statements.redrive(queue, versions, limit, now).run())

    def purge_dead(self, queue: str, where: DeadFilter) -> Op[int]:
        return self._in(queue, lambda now: dead_ops.purge_dead(queue, where, now))

    def start_redrive(
        self, queue: str, where: DeadFilter, *, rate: float | None, canary: int, who: str | None, request: UUID
    ) -> Op[RedriveJob]:
        return self._in(
            queue,
            lambda now: dead_ops.start_redrive(
                queue, where, rate=rate, canary=canary, who=who, request=request, now=now
            ),
        )

    def redrive_job(self, job: int) -> Op[RedriveJob | None]:
        return dead_ops.redrive_job(job)

    def redrive_jobs(self, queue: str | None, limit: int) -> Op[list[RedriveJob]]:
        return dead_statements.jobs(queue=queue, limit=limit).run()

    def turn_redrive(self, job: int, state: RedriveState, reason: str | None) -> Op[RedriveJob]:
        return dead_ops.turn_redrive(job, state, reason, self._clock.pinned())

    def advance_redrive(self, job: int | None, lead: Leadership | None) -> Op[RedriveJob | None]:
        return dead_ops.advance_redrive(job, lead, self._clock.pinned())

    def next_redrive_in(self) -> Op[timedelta | None]:
        return dead_statements.next_redrive_in(self._clock.pinned()).run()

    def lead(self, name: str, holder: str, lead_for: timedelta) -> Op[Leadership | None]:
        return upkeep_statements.lead(name, holder, lead_for, self._clock.pinned()).run()

    def lead_on(self, held: Leadership, lead_for: timedelta) -> Op[Leadership | None]:
        return upkeep_statements.lead_on(held, lead_for, self._clock.pinned()).run()

    def lead_end(self, held: Leadership) -> Op[bool]:
        return upkeep_statements.lead_end(held, self._clock.pinned()).run()

    def leader(self, name: str) -> Op[Leadership | None]:
        return upkeep_statements.leader(name, self._clock.pinned()).run()

    def sweep(self, queue: str, after: SweepPlace | None, limit: int, lead: Leadership | None) -> Op[Swept]:
        return upkeep_statements.sweep(queue, after, limit, lead, self._clock.pinned()).run()

    def label_dead(self, limit: int, lead: Leadership | None) -> Op[int]:
        return dead_ops.label(None, limit, lead, self._clock.pinned())

    def make_partitions(self, days: int, lead: Leadership | None) -> Op[Partitions]:
        return upkeep_statements.make_partitions(days, lead, self._clock.pinned())

    def strains(self) -> Op[list[Strain]]:
        return upkeep_statements.strains().run()


class Chores(ABC):
    """The shell for code that blocks."""

    @abstractmethod
    def _do(
        self, make: Callable[[ChoreVerbs], Op[R]], conn: Any, *, atomic: bool = False, wait_for_locks: bool = True
    ) -> R: ...

    def dead_letters(
        self,
        queue: str,
        *,
        where: DeadFilter = EVERY_LETTER,
        limit: int = 100,
        before: DeadPlace | None = None,
        conn: Any = None,
    ) -> list[DeadLetter[bytes]]:
        return self._do(lambda verbs: verbs.dead_letters(queue, where, limit, before), conn)

    def dead_groups(self, queue: str, *, limit: int = 100, cap: int = 10_000, conn: Any = None) -> list[DeadGroup]:
        return self._do(lambda verbs: verbs.dead_groups(queue, limit, cap), conn)

    def count_dead(
        self, queue: str, *, where: DeadFilter = EVERY_LETTER, limit: int = 10_000, conn: Any = None
    ) -> Matching:
        return self._do(lambda verbs: verbs.count_dead(queue, where, limit), conn)

    def redrive(self, queue: str, *, versions: Sequence[int] | None = None, limit: int = 1000, conn: Any = None) -> int:
        named = self._do(lambda verbs: verbs.redrivable(queue, limit), conn) if versions is None else versions
        return self._do(lambda verbs: verbs.redrive(queue, named, limit), conn)

    def purge_dead(self, queue: str, *, where: DeadFilter = EVERY_LETTER, conn: Any = None) -> int:
        return self._do(lambda verbs: verbs.purge_dead(queue, where), conn, atomic=True)

    def start_redrive(
        self,
        queue: str,
        *,
        where: DeadFilter,
        rate: float | None,
        canary: int,
        who: str | None,
        request: UUID,
        conn: Any = None,
    ) -> RedriveJob:
        return self._do(
            lambda verbs: verbs.start_redrive(queue, where, rate=rate, canary=canary, who=who, request=request), conn
        )

    def redrive_job(self, job: int, *, conn: Any = None) -> RedriveJob | None:
        return self._do(lambda verbs: verbs.redrive_job(job), conn)

    def redrive_jobs(self, queue: str | None = None, *, limit: int = 100, conn: Any = None) -> list[RedriveJob]:
        return self._do(lambda verbs: verbs.redrive_jobs(queue, limit), conn)

    def turn_redrive(self, job: int, state: RedriveState, *, reason: str | None = None, conn: Any = None) -> RedriveJob:
        return self._do(lambda verbs: verbs.turn_redrive(job, state, reason), conn)

    def advance_redrive(
        self, job: int | None = None, *, lead: Leadership | None = None, conn: Any = None
    ) -> RedriveJob | None:
        return self._do(lambda verbs: verbs.advance_redrive(job, lead), conn)

    def next_redrive_in(self, *, conn: Any = None) -> timedelta | None:
        return self._do(lambda verbs: verbs.next_redrive_in(), conn)

    def lead(self, name: str, holder: str, lead_for: timedelta, *, conn: Any = None) -> Leadership | None:
        return self._do(lambda verbs: verbs.lead(name, holder, lead_for), conn)

    def lead_on(self, held: Leadership, lead_for: timedelta, *, conn: Any = None) -> Leadership | None:
        return self._do(lambda verbs: verbs.lead_on(held, lead_for), conn)

    def lead_end(self, held: Leadership, *, conn: Any = None) -> bool:
        return self._do(lambda verbs: verbs.lead_end(held), conn)

    def leader(self, name: str, *, conn: Any = None) -> Leadership | None:
        return self._do(lambda verbs: verbs.leader(name), conn)

    def sweep(
        self,
        queue: str,
        *,
        after: SweepPlace | None = None,
        limit: int = 1000,
        lead: Leadership | None = None,
        conn: Any = None,
    ) -> Swept:
        return self._do(lambda verbs: verbs.sweep(queue, after, limit, lead), conn)

    def label_dead(self, *, limit: int = 1000, lead: Leadership | None = None, conn: Any = None) -> int:
        return self._do(lambda verbs: verbs.label_dead(limit, lead), conn)

    def make_partitions(self, days: int, *, lead: Leadership | None = None, conn: Any = None) -> Partitions:
        # Once: while it waits for the journal, every writer waits behind it.
        return self._do(lambda verbs: verbs.make_partitions(days, lead), conn, atomic=True, wait_for_locks=False)

    def strains(self, *, conn: Any = None) -> list[Strain]:
        return self._do(lambda verbs: verbs.strains(), conn)


class AsyncChores(ABC):
    """The shell for code that awaits."""

    @abstractmethod
    async def _do(
        self, make: Callable[[ChoreVerbs], Op[R]], conn: Any, *, atomic: bool = False, wait_for_locks: bool = True
    ) -> R: ...

    async def dead_letters(
        self,
        queue: str,
        *,
        where: DeadFilter = EVERY_LETTER,
        limit: int = 100,
        before: DeadPlace | None = None,
        conn: Any = None,
    ) -> list[DeadLetter[bytes]]:
        return await self._do(lambda verbs: verbs.dead_letters(queue, where, limit, before), conn)

    async def dead_groups(
        self, queue: str, *, limit: int = 100, cap: int = 10_000, conn: Any = None
    ) -> list[DeadGroup]:
        return await self._do(lambda verbs: verbs.dead_groups(queue, limit, cap), conn)

    async def count_dead(
        self, queue: str, *, where: DeadFilter = EVERY_LETTER, limit: int = 10_000, conn: Any = None
    ) -> Matching:
        return await self._do(lambda verbs: verbs.count_dead(queue, where, limit), conn)

    async def redrive(
        self, queue: str, *, versions: Sequence[int] | None = None, limit: int = 1000, conn: Any = None
    ) -> int:
        named = await self._do(lambda verbs: verbs.redrivable(queue, limit), conn) if versions is None else versions
        return await self._do(lambda verbs: verbs.redrive(queue, named, limit), conn)

    async def purge_dead(self, queue: str, *, where: DeadFilter = EVERY_LETTER, conn: Any = None) -> int:
        return await self._do(lambda verbs: verbs.purge_dead(queue, where), conn, atomic=True)

    async def start_redrive(
        self,
        queue: str,
        *,
        where: DeadFilter,
        rate: float | None,
        canary: int,
        who: str | None,
        request: UUID,
        conn: Any = None,
    ) -> RedriveJob:
        return await self._do(
            lambda verbs: verbs.start_redrive(queue, where, rate=rate, canary=canary, who=who, request=request), conn
        )

    async def redrive_job(self, job: int, *, conn: Any = None) -> RedriveJob | None:
        return await self._do(lambda verbs: verbs.redrive_job(job), conn)

    async def redrive_jobs(self, queue: str | None = None, *, limit: int = 100, conn: Any = None) -> list[RedriveJob]:
        return await self._do(lambda verbs: verbs.redrive_jobs(queue, limit), conn)

    async def turn_redrive(
        self, job: int, state: RedriveState, *, reason: str | None = None, conn: Any = None
    ) -> RedriveJob:
        return await self._do(lambda verbs: verbs.turn_redrive(job, state, reason), conn)

    async def advance_redrive(
        self, job: int | None = None, *, lead: Leadership | None = None, conn: Any = None
    ) -> RedriveJob | None:
        return await self._do(lambda verbs: verbs.advance_redrive(job, lead), conn)

    async def next_redrive_in(self, *, conn: Any = None) -> timedelta | None:
        return await self._do(lambda verbs: verbs.next_redrive_in(), conn)

    async def lead(self, name: str, holder: str, lead_for: timedelta, *, conn: Any = None) -> Leadership | None:
        return await self._do(lambda verbs: verbs.lead(name, holder, lead_for), conn)

    async def lead_on(self, held: Leadership, lead_for: timedelta, *, conn: Any = None) -> Leadership | None:
        return await self._do(lambda verbs: verbs.lead_on(held, lead_for), conn)

    async def lead_end(self, held: Leadership, *, conn: Any = None) -> bool:
        return await self._do(lambda verbs: verbs.lead_end(held), conn)

    async def leader(self, name: str, *, conn: Any = None) -> Leadership | None:
        return await self._do(lambda verbs: verbs.leader(name), conn)

    async def sweep(
        self,
        queue: str,
        *,
        after: SweepPlace | None = None,
        limit: int = 1000,
        lead: Leadership | None = None,
        conn: Any = None,
    ) -> Swept:
        return await self._do(lambda verbs: verbs.sweep(queue, after, limit, lead), conn)

    async def label_dead(self, *, limit: int = 1000, lead: Leadership | None = None, conn: Any = None) -> int:
        return await self._do(lambda verbs: verbs.label_dead(limit, lead), conn)

    async def make_partitions(self, days: int, *, lead: Leadership | None = None, conn: Any = None) -> Partitions:
        # Once: while it waits for the journal, every writer waits behind it.
        return await self._do(lambda verbs: verbs.make_partitions(days, lead), conn, atomic=True, wait_for_locks=False)

    async def strains(self, *, conn: Any = None) -> list[Strain]:
        return await self._do(lambda verbs: verbs.strains(), conn)
