"""Maintenance verbs of the in-memory store for async programs. Nothing here waits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from tarry.core.leading import Leadership
from tarry.core.messages import DeadLetter
from tarry.core.once import Answered, Once
from tarry.core.once import AsyncDoing as Doing
from tarry.core.redriving import EVERY_LETTER, DeadFilter, DeadGroup, DeadPlace, Matching, RedriveJob, RedriveState
from tarry.core.sweeping import Partitions, Strain, SweepPlace, Swept
from tarry.storage.memory.store import MemoryStore


class AsyncChores:
    _store: MemoryStore

    async def dead_letters(
        self,
        queue: str,
        *,
        where: DeadFilter = EVERY_LETTER,
        limit: int = 100,
        before: DeadPlace | None = None,
        conn: Any = None,
    ) -> list[DeadLetter[bytes]]:
        return self._store.dead_letters(queue, where=where, limit=limit, before=before, conn=conn)

    async def dead_groups(
        self, queue: str, *, limit: int = 100, cap: int = 10_000, conn: Any = None
    ) -> list[DeadGroup]:
        return self._store.dead_groups(queue, limit=limit, cap=cap, conn=conn)

    async def count_dead(
        self, queue: str, *, where: DeadFilter = EVERY_LETTER, limit: int = 10_000, conn: Any = None
    ) -> Matching:
        return self._store.count_dead(queue, where=where, limit=limit, conn=conn)

    async def redrive(
        self, queue: str, *, versions: Sequence[int] | None = None, limit: int = 1000, conn: Any = None
    ) -> int:
        return self._store.redrive(queue, versions=versions, limit=limit, conn=conn)

    async def purge_dead(self, queue: str, *, where: DeadFilter = EVERY_LETTER, conn: Any = None) -> int:
        return self._store.purge_dead(queue, where=where, conn=conn)

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
        return self._store.start_redrive(
            queue, where=where, rate=rate, canary=canary, who=who, request=request, conn=conn
        )

    async def redrive_job(self, job: int, *, conn: Any = None) -> RedriveJob | None:
        return self._store.redrive_job(job, conn=conn)

    async def redrive_jobs(self, queue: str | None = None, *, limit: int = 100, conn: Any = None) -> list[RedriveJob]:
        return self._store.redrive_jobs(queue, limit=limit, conn=conn)

    async def turn_redrive(
        self, job: int, state: RedriveState, *, reason: str | None = None, conn: Any = None
    ) -> RedriveJob:
        return self._store.turn_redrive(job, state, reason=reason, conn=conn)

    async def advance_redrive(
        self, job: int | None = None, *, lead: Leadership | None = None, conn: Any = None
    ) -> RedriveJob | None:
        return self._store.advance_redrive(job, lead=lead, conn=conn)

    async def next_redrive_in(self, *, conn: Any = None) -> timedelta | None:
        return self._store.next_redrive_in(conn=conn)

    async def lead(self, name: str, holder: str, lead_for: timedelta, *, conn: Any = None) -> Leadership | None:
        return self._store.lead(name, holder, lead_for, conn=conn)

    async def lead_on(self, held: Leadership, lead_for: timedelta, *, conn: Any = None) -> Leadership | None:
        return self._store.lead_on(held, lead_for, conn=conn)

    async def lead_end(self, held: Leadership, *, conn: Any = None) -> bool:
        return self._store.lead_end(held, conn=conn)

    async def leader(self, name: str, *, conn: Any = None) -> Leadership | None:
        return self._store.leader(name, conn=conn)

    async def sweep(
        self,
        queue: str,
        *,
        after: SweepPlace | None = None,
        limit: int = 1000,
        lead: Leadership | None = None,
        conn: Any = None,
    ) -> Swept:
        return self._store.sweep(queue, after=after, limit=limit, lead=lead, conn=conn)

    async def label_dead(self, *, limit: int = 1000, lead: Leadership | None = None, conn: Any = None) -> int:
        return self._store.label_dead(limit=limit, lead=lead, conn=conn)

    async def make_partitions(self, days: int, *, lead: Leadership | None = None, conn: Any = None) -> Partitions:
        return self._store.make_partitions(days, lead=lead, conn=conn)

    async def strains(self, *, conn: Any = None) -> list[Strain]:
        return self._store.strains(conn=conn)

    async def once(self, request: Once, do: Doing) -> Answered | None:
        if found := self._store.answers.begin(request):
            return found[0]
        answered: Answered | None = None
        try:
            answered = await do(None)
            return answered
        finally:
            self._store.answers.end(request, answered)

    async def forget_answers(
        self, older_than: timedelta, *, limit: int = 1000, lead: Leadership | None = None, conn: Any = None
    ) -> int:
        return self._store.forget_answers(older_than, limit=limit, lead=lead, conn=conn)
