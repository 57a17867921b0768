"""The verbs of the cron service: the shell for code that blocks and the one for code that awaits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from tarry.core.cron import Ruling, ScheduleState, TickRecord
from tarry.core.scheduling import DueCount
from tarry.storage.postgres.statement import Op
from tarry.storage.postgres.verbs import Verbs

R = TypeVar("R")


class Scheduling(ABC):
    @abstractmethod
    def _run(self, make: Callable[[Verbs], Op[R]], conn: Any, *, atomic: bool = False) -> R: ...

    def schedules(self, prefix: str | None = None, *, conn: Any = None) -> list[ScheduleState]:
        return self._run(lambda verbs: verbs.cron.schedules(prefix), conn)

    def due_schedules(self, owned: Sequence[str], *, limit: int = 1000, conn: Any = None) -> list[ScheduleState]:
        return self._run(lambda verbs: verbs.cron.due_schedules(owned, limit), conn)

    def next_wake_in(self, owned: Sequence[str], *, conn: Any = None) -> timedelta | None:
        return self._run(lambda verbs: verbs.cron.next_wake_in(owned), conn)

    def rule(self, rulings: Sequence[Ruling], *, together: bool = True, conn: Any = None) -> list[bool]:
        return self._run(lambda verbs: verbs.cron.rule(rulings, together=together), conn, atomic=True)

    def ticks(
        self,
        prefix: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        conn: Any = None,
    ) -> list[TickRecord]:
        return self._run(lambda verbs: verbs.cron.ticks(prefix, since, until, limit), conn)

    def waiting_ticks(self, prefix: str, *, conn: Any = None) -> list[TickRecord]:
        return self._run(lambda verbs: verbs.cron.waiting_ticks(prefix), conn)

    def forget_ticks(self, before: datetime, *, conn: Any = None) -> int:
        return self._run(lambda verbs: verbs.cron.forget_ticks(before), conn)

    def due_counts(self, since: datetime, until: datetime, every: timedelta, *, conn: Any = None) -> list[DueCount]:
        return self._run(lambda verbs: verbs.cron.due_counts(since, until, every), conn)


class AsyncScheduling(ABC):
    @abstractmethod
    async def _run(self, make: Callable[[Verbs], Op[R]], conn: Any, *, atomic: bool = False) -> R: ...

    async def schedules(self, prefix: str | None = None, *, conn: Any = None) -> list[ScheduleState]:
        return await self._run(lambda verbs: verbs.cron.schedules(prefix), conn)

    async def due_schedules(self, owned: Sequence[str], *, limit: int = 1000, conn: Any = None) -> list[ScheduleState]:
        return await self._run(lambda verbs: verbs.cron.due_schedules(owned, limit), conn)

    async def next_wake_in(self, owned: Sequence[str], *, conn: Any = None) -> timedelta | None:
        return await self._run(lambda verbs: verbs.cron.next_wake_in(owned), conn)

    async def rule(self, rulings: Sequence[Ruling], *, together: bool = True, conn: Any = None) -> list[bool]:
        return await self._run(lambda verbs: verbs.cron.rule(rulings, together=together), conn, atomic=True)

    async def ticks(
        self,
        prefix: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        conn: Any = None,
    ) -> list[TickRecord]:
        return await self._run(lambda verbs: verbs.cron.ticks(prefix, since, until, limit), conn)

    async def waiting_ticks(self, prefix: str, *, conn: Any = None) -> list[TickRecord]:
        return await self._run(lambda verbs: verbs.cron.waiting_ticks(prefix), conn)

    async def forget_ticks(self, before: datetime, *, conn: Any = None) -> int:
        return await self._run(lambda verbs: verbs.cron.forget_ticks(before), conn)

    async def due_counts(
        self, since: datetime, until: datetime, every: timedelta, *, conn: Any = None
    ) -> list[DueCount]:
        return await self._run(lambda verbs: verbs.cron.due_counts(since, until, every), conn)
