"""Verbs of dead letters, redrives, leadership and maintenance, under the lock and clock of the in-memory store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tarry.core.leading import Leadership
from tarry.core.messages import DeadLetter
from tarry.core.once import Answered, Doing, Once
from tarry.core.redriving import EVERY_LETTER, DeadFilter, DeadGroup, DeadPlace, Matching, RedriveJob, RedriveState
from tarry.core.sweeping import Partitions, Strain, SweepPlace, Swept
from tarry.storage.memory import redrives, removals, sweeps
from tarry.storage.memory.answers import Answers
from tarry.storage.memory.leaders import Leaders
from tarry.storage.memory.queues import MemoryQueue
from tarry.storage.memory.redrives import Redrives
from tarry.storage.memory.registry import Registry


class Chores(ABC):
    _registry: Registry
    _leaders: Leaders
    _redrives: Redrives
    answers: Answers

    @abstractmethod
    def _locked(self, conn: Any) -> AbstractContextManager[datetime]: ...
    @abstractmethod
    def _using(self, queue: str, conn: Any) -> AbstractContextManager[tuple[MemoryQueue, datetime]]: ...

    @abstractmethod
    def _changing(self, queue: str, conn: Any) -> AbstractContextManager[tuple[MemoryQueue, datetime]]: ...
    @abstractmethod
    def _ring(self, state: MemoryQueue, now: datetime) -> None: ...

    # Dead letters

    def dead_letters(
        self,
        queue: str,
        *,
        where: DeadFilter = EVERY_LETTER,
        limit: int = 100,
        before: DeadPlace | None = None,
        conn: Any = None,
    ) -> list[DeadLetter[bytes]]:
        with self._using(queue, conn) as (state, _):
            return state.dead_letters(where, limit, before)

    def dead_groups(self, queue: str, *, limit: int = 100, cap: int = 10_000, conn: Any = None) -> list[DeadGroup]:
        with self._using(queue, conn) as (state, _):
            return redrives.groups(state, limit, cap)

    def count_dead(
        self, queue: str, *, where: DeadFilter = EVERY_LETTER, limit: int = 10_000, conn: Any = None
    ) -> Matching:
        with self._using(queue, conn) as (state, _):
            return redrives.counted(state, where, limit)

    def redrive(self, queue: str, *, versions: Sequence[int] | None = None, limit: int = 1000, conn: Any = None) -> int:
        with self._changing(queue, conn) as (state, now):
            return removals.redrive(state, versions, limit, now)

    def purge_dead(self, queue: str, *, where: DeadFilter = EVERY_LETTER, conn: Any = None) -> int:
        with self._using(queue, conn) as (state, now):
            return state.purge_dead(now, where)

    # Redrive jobs

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
        with self._using(queue, conn) as (state, now):
            return self._redrives.start(state, where, now, rate=rate, canary=canary, who=who, request=request)

    def redrive_job(self, job: int, *, conn: Any = None) -> RedriveJob | None:
        with self._locked(conn):
            return self._redrives.get(job)

    def redrive_jobs(self, queue: str | None = None, *, limit: int = 100, conn: Any = None) -> list[RedriveJob]:
        with self._locked(conn):
            return self._redrives.list(queue, limit)

    def turn_redrive(self, job: int, state: RedriveState, *, reason: str | None = None, conn: Any = None) -> RedriveJob:
        with self._locked(conn) as now:
            return self._redrives.turn(job, state, reason, now)

    def advance_redrive(
        self, job: int | None = None, *, lead: Leadership | None = None, conn: Any = None
    ) -> RedriveJob | None:
        with self._locked(conn) as now:
            moved = self._redrives.advance(job, now, self._registry.queues()) if self._leads(lead, now) else None
            queue = None if moved is None else self._registry.found(moved.queue)
            if queue is not None:
                self._ring(queue, now)
            return moved

    def next_redrive_in(self, *, conn: Any = None) -> timedelta | None:
        with self._locked(conn) as now:
            return self._redrives.next_in(now)

    # Leadership and sweepers

    def lead(self, name: str, holder: str, lead_for: timedelta, *, conn: Any = None) -> Leadership | None:
        with self._locked(conn) as now:
            return self._leaders.lead(name, holder, lead_for, now)

    def lead_on(self, held: Leadership, lead_for: timedelta, *, conn: Any = None) -> Leadership | None:
        with self._locked(conn) as now:
            return self._leaders.lead_on(held, lead_for, now)

    def lead_end(self, held: Leadership, *, conn: Any = None) -> bool:
        with self._locked(conn) as now:
            return self._leaders.lead_end(held, now)

    def leader(self, name: str, *, conn: Any = None) -> Leadership | None:
        with self._locked(conn) as now:
            return self._leaders.leader(name, now)

    def sweep(
        self,
        queue: str,
        *,
        after: SweepPlace | None = None,
        limit: int = 1000,
        lead: Leadership | None = None,
        conn: Any = None,
    ) -> Swept:
        with self._locked(conn) as now:
            found = self._registry.found(queue)
            return sweeps.sweep(found, limit, now) if found is not None and self._leads(lead, now) else Swept()

    def label_dead(self, *, limit: int = 1000, lead: Leadership | None = None, conn: Any = None) -> int:
        """No-op: here a dead letter has its fingerprint from the beginning."""
        with self._locked(conn):
            return 0

    def make_partitions(self, days: int, *, lead: Leadership | None = None, conn: Any = None) -> Partitions:
        """No-op: the in-memory journal is bounded."""
        with self._locked(conn):
            return Partitions(0, 0, 0, overflowing=False)

    def strains(self, *, conn: Any = None) -> list[Strain]:
        with self._locked(conn):
            return []

    # Stored responses

    def once(self, request: Once, do: Doing) -> Answered | None:
        if found := self.answers.begin(request):
            return found[0]
        answered: Answered | None = None
        try:
            answered = do(None)
            return answered
        finally:
            self.answers.end(request, answered)

    def forget_answers(
        self, older_than: timedelta, *, limit: int = 1000, lead: Leadership | None = None, conn: Any = None
    ) -> int:
        with self._locked(conn) as now:
            return self.answers.forget(older_than, limit) if self._leads(lead, now) else 0

    def _leads(self, lead: Leadership | None, now: datetime) -> bool:
        return lead is None or self._leaders.holds(lead, now)
