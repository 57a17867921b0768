"""What the cron service asks of a store, blocking and awaitable: part of the ports, see there for `conn`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Protocol

from tarry.core.cron import Ruling, ScheduleState, TickRecord


class DueCount(NamedTuple):
    """How many live messages of a queue come due in one slice of time."""

    queue: str
    start_at: datetime
    messages: int
    retries: int


class Scheduling(Protocol):
    def schedules(self, prefix: str | None = None, *, conn: Any = None) -> list[ScheduleState]:
        """One, if there is one, or all of them by prefix."""
        ...

    def due_schedules(self, owned: Sequence[str], *, limit: int = 1000, conn: Any = None) -> list[ScheduleState]:
        """Those that need a scheduler now. `owned`: prefixes whose payloads the caller can make."""
        ...

    def next_wake_in(self, owned: Sequence[str], *, conn: Any = None) -> timedelta | None:
        """How long until one needs a scheduler; negative if one does already, None if none ever will."""
        ...

    def rule(self, rulings: Sequence[Ruling], *, together: bool = True, conn: Any = None) -> list[bool]:
        """Apply rulings, each about another schedule, in one transaction. False: its schedule has changed since it was
        read, and nothing was done about it; `together`, nothing about any of them. Not `together`, a ruling that only moves
        a schedule does not wait for a transaction that has locked it: it is False then, too."""
        ...

    def ticks(
        self,
        prefix: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        conn: Any = None,
    ) -> list[TickRecord]:
        """The ledger of a prefix, newest first."""
        ...

    def waiting_ticks(self, prefix: str, *, conn: Any = None) -> list[TickRecord]:
        """Ticks whose messages nobody was given yet, of whatever configuration."""
        ...

    def forget_ticks(self, before: datetime, *, conn: Any = None) -> int:
        """Forget a batch of old entries, and say how many they were."""
        ...

    def due_counts(self, since: datetime, until: datetime, every: timedelta, *, conn: Any = None) -> list[DueCount]: ...


class AsyncScheduling(Protocol):
    async def schedules(self, prefix: str | None = None, *, conn: Any = None) -> list[ScheduleState]: ...
    async def due_schedules(
        self, owned: Sequence[str], *, limit: int = 1000, conn: Any = None
    ) -> list[ScheduleState]: ...
    async def next_wake_in(self, owned: Sequence[str], *, conn: Any = None) -> timedelta | None: ...
    async def rule(self, rulings: Sequence[Ruling], *, together: bool = True, conn: Any = None) -> list[bool]: ...
    async def ticks(
        self,
        prefix: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        conn: Any = None,
    ) -> list[TickRecord]: ...
    async def waiting_ticks(self, prefix: str, *, conn: Any = None) -> list[TickRecord]: ...
    async def forget_ticks(self, before: datetime, *, conn: Any = None) -> int: ...
    async def due_counts(
        self, since: datetime, until: datetime, every: timedelta, *, conn: Any = None
    ) -> list[DueCount]: ...
