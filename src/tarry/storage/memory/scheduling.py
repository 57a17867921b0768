"""The verbs of the cron service, under the lock and clock of the in-memory store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any

from tarry.core.cron import Ruling, ScheduleState, TickRecord
from tarry.core.scheduling import DueCount
from tarry.storage.memory.registry import Registry
from tarry.storage.memory.schedules import Schedules


class Scheduling(ABC):
    _registry: Registry
    _schedules: Schedules

    @abstractmethod
    def _locked(self, conn: Any) -> AbstractContextManager[datetime]: ...

    def schedules(self, prefix: str | None = None, *, conn: Any = None) -> list[ScheduleState]:
        with self._locked(conn):
            return self._schedules.all(prefix)

    def due_schedules(self, owned: Sequence[str], *, limit: int = 1000, conn: Any = None) -> list[ScheduleState]:
        with self._locked(conn) as now:
            return self._schedules.due(owned, limit, now)

    def next_wake_in(self, owned: Sequence[str], *, conn: Any = None) -> timedelta | None:
        with self._locked(conn) as now:
            return self._schedules.next_wake_in(owned, now)

    def rule(self, rulings: Sequence[Ruling], *, together: bool = True, conn: Any = None) -> list[bool]:
        with self._locked(conn) as now:
            return self._schedules.rule(rulings, now, together=together)

    def ticks(
        self,
        prefix: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        conn: Any = None,
    ) -> list[TickRecord]:
        with self._locked(conn):
            return self._schedules.ticks(prefix, since, until, limit)

    def waiting_ticks(self, prefix: str, *, conn: Any = None) -> list[TickRecord]:
        with self._locked(conn):
            return self._schedules.waiting(prefix)

    def forget_ticks(self, before: datetime, *, conn: Any = None) -> int:
        with self._locked(conn):
            return self._schedules.forget(before)

    def due_counts(self, since: datetime, until: datetime, every: timedelta, *, conn: Any = None) -> list[DueCount]:
        with self._locked(conn):
            return self._registry.due_counts(since, until, every)
