"""The in-memory store for async programs. Nothing here waits: the lock is held for microseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from tarry.core.audit import Audited
from tarry.core.cron import Ruling, ScheduleState, TickRecord
from tarry.core.editing import Edit
from tarry.core.events import Event
from tarry.core.following import EventPage
from tarry.core.insights import Insights, NoInsights
from tarry.core.keys import ApiKey
from tarry.core.messages import (
    EVERYTHING,
    BuryReason,
    Counts,
    Decode,
    Draft,
    Failure,
    Filter,
    Hold,
    Lease,
    StoredMessage,
)
from tarry.core.once import Answered, Once
from tarry.core.outcomes import Edited, Outcome, Settled
from tarry.core.ports import NO_CONNECTIONS, Connections
from tarry.core.retry import Retry
from tarry.core.scheduling import DueCount
from tarry.core.settings import QueueInfo, QueueSettings
from tarry.core.states import State
from tarry.core.waiting import Waited
from tarry.storage.memory.aio_chores import AsyncChores
from tarry.storage.memory.store import MemoryStore

P = TypeVar("P")


class AsyncMemoryStore(AsyncChores):
    """An async view of the given store: blocking and async code of one program may share its messages."""

    def __init__(self, store: MemoryStore) -> None:
        self.settings = store.settings
        self.lobby = store.lobby
        self.insights: Insights = NoInsights(store.events, store.queue_info)
        self._store = store

    async def offer(self, queue: str, draft: Draft, *, conn: Any = None) -> Outcome:
        return self._store.offer(queue, draft, conn=conn)

    async def offer_many(self, queue: str, drafts: Sequence[Draft], *, conn: Any = None) -> list[Outcome]:
        return self._store.offer_many(queue, drafts, conn=conn)

    async def offer_once(
        self, queue: str, draft: Draft, request: Once, show: Callable[[Outcome], Answered]
    ) -> Answered | None:
        return self._store.offer_once(queue, draft, request, show)

    async def lease(
        self,
        queue: str,
        n: int,
        decode: Decode[P],
        *,
        type: str | None = None,
        lease_for: timedelta | None = None,
        consumer: str | None = None,
        max_attempts: int | None = None,
        lowest_first: bool = False,
        conn: Any = None,
    ) -> list[Lease[P]]:
        return self._store.lease(
            queue,
            n,
            decode,
            type=type,
            lease_for=lease_for,
            consumer=consumer,
            max_attempts=max_attempts,
            lowest_first=lowest_first,
            conn=conn,
        )

    async def wait(self, queue: str, *, sleep_for: timedelta, type: str | None = None) -> Waited:
        return self._store.wait(queue, sleep_for=sleep_for, type=type)

    async def ack(self, queue: str, holds: Sequence[Hold], *, conn: Any = None) -> list[Settled]:
        return self._store.ack(queue, holds, conn=conn)

    async def nack(
        self, queue: str, failures: Sequence[Failure], *, retry: Retry | None = None, conn: Any = None
    ) -> list[Settled]:
        return self._store.nack(queue, failures, retry=retry, conn=conn)

    async def touch(
        self, queue: str, holds: Sequence[Hold], *, lease_for: timedelta | None = None, conn: Any = None
    ) -> list[Settled]:
        return self._store.touch(queue, holds, lease_for=lease_for, conn=conn)

    async def release(
        self,
        queue: str,
        holds: Sequence[Hold],
        *,
        due_at: datetime | None = None,
        delay: timedelta | None = None,
        conn: Any = None,
    ) -> list[Settled]:
        return self._store.release(queue, holds, due_at=due_at, delay=delay, conn=conn)

    async def bury(
        self,
        queue: str,
        holds: Sequence[Hold],
        *,
        error: str | None = None,
        reason: BuryReason = "buried",
        conn: Any = None,
    ) -> list[Settled]:
        return self._store.bury(queue, holds, error=error, reason=reason, conn=conn)

    async def read(self, queue: str, key: str, *, conn: Any = None) -> StoredMessage[bytes] | None:
        return self._store.read(queue, key, conn=conn)

    async def contains(self, queue: str, key: str, *, conn: Any = None) -> bool:
        return self._store.contains(queue, key, conn=conn)

    async def messages(
        self,
        queue: str,
        *,
        state: State | None = None,
        limit: int = 100,
        filter: Filter = EVERYTHING,
        conn: Any = None,
    ) -> list[StoredMessage[bytes]]:
        return self._store.messages(queue, state=state, limit=limit, filter=filter, conn=conn)

    async def timeline(
        self, queue: str, key: str, *, limit: int = 1000, before: int | None = None, conn: Any = None
    ) -> list[Event]:
        return self._store.timeline(queue, key, limit=limit, before=before, conn=conn)

    async def counts(self, queue: str, *, limit: int = 10_000, conn: Any = None) -> Counts:
        return self._store.counts(queue, limit=limit, conn=conn)

    async def edit(
        self, queue: str, key: str, edit: Edit, *, version: int | None = None, force: bool = False, conn: Any = None
    ) -> Edited:
        return self._store.edit(queue, key, edit, version=version, force=force, conn=conn)

    async def give_up(
        self,
        queue: str,
        key: str,
        *,
        error: str | None = None,
        version: int | None = None,
        force: bool = False,
        conn: Any = None,
    ) -> Edited:
        return self._store.give_up(queue, key, error=error, version=version, force=force, conn=conn)

    async def drop(
        self, queue: str, key: str, *, version: int | None = None, unless_leased: bool = False, conn: Any = None
    ) -> bool:
        return self._store.drop(queue, key, version=version, unless_leased=unless_leased, conn=conn)

    async def drop_all(self, queue: str, *, conn: Any = None) -> int:
        return self._store.drop_all(queue, conn=conn)

    async def create_queue(self, name: str, settings: QueueSettings, *, exist_ok: bool, conn: Any = None) -> QueueInfo:
        return self._store.create_queue(name, settings, exist_ok=exist_ok, conn=conn)

    async def edit_queue(
        self, name: str, settings: QueueSettings, *, only: frozenset[str], conn: Any = None
    ) -> QueueInfo:
        return self._store.edit_queue(name, settings, only=only, conn=conn)

    async def rename_queue(self, name: str, new_name: str, *, conn: Any = None) -> QueueInfo:
        return self._store.rename_queue(name, new_name, conn=conn)

    async def delete_queue(self, name: str, *, force: bool, conn: Any = None) -> None:
        self._store.delete_queue(name, force=force, conn=conn)

    async def queue_info(self, name: str, *, conn: Any = None) -> QueueInfo:
        return self._store.queue_info(name, conn=conn)

    async def queue_infos(self, *, conn: Any = None) -> list[QueueInfo]:
        return self._store.queue_infos(conn=conn)

    async def pause(self, name: str, *, reason: str | None = None, conn: Any = None) -> QueueInfo:
        return self._store.pause(name, reason=reason, conn=conn)

    async def resume(self, name: str, *, conn: Any = None) -> QueueInfo:
        return self._store.resume(name, conn=conn)

    async def schedules(self, prefix: str | None = None, *, conn: Any = None) -> list[ScheduleState]:
        return self._store.schedules(prefix, conn=conn)

    async def due_schedules(self, owned: Sequence[str], *, limit: int = 1000, conn: Any = None) -> list[ScheduleState]:
        return self._store.due_schedules(owned, limit=limit, conn=conn)

    async def next_wake_in(self, owned: Sequence[str], *, conn: Any = None) -> timedelta | None:
        return self._store.next_wake_in(owned, conn=conn)

    async def rule(self, rulings: Sequence[Ruling], *, together: bool = True, conn: Any = None) -> list[bool]:
        return self._store.rule(rulings, together=together, conn=conn)

    async def ticks(
        self,
        prefix: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int = 100,
        conn: Any = None,
    ) -> list[TickRecord]:
        return self._store.ticks(prefix, since=since, until=until, limit=limit, conn=conn)

    async def waiting_ticks(self, prefix: str, *, conn: Any = None) -> list[TickRecord]:
        return self._store.waiting_ticks(prefix, conn=conn)

    async def forget_ticks(self, before: datetime, *, conn: Any = None) -> int:
        return self._store.forget_ticks(before, conn=conn)

    async def due_counts(
        self, since: datetime, until: datetime, every: timedelta, *, conn: Any = None
    ) -> list[DueCount]:
        return self._store.due_counts(since, until, every, conn=conn)

    async def now(self, *, conn: Any = None) -> datetime:
        return self._store.now(conn=conn)

    async def add_key(self, key: ApiKey, *, expires_for: timedelta | None, conn: Any = None) -> ApiKey:
        return self._store.add_key(key, expires_for=expires_for, conn=conn)

    async def find_keys(self, ids: Sequence[str], *, conn: Any = None) -> list[ApiKey]:
        return self._store.find_keys(ids, conn=conn)

    async def keys(self, *, conn: Any = None) -> list[ApiKey]:
        return self._store.keys(conn=conn)

    async def revoke_key(self, id: str, *, conn: Any = None) -> ApiKey | None:
        return self._store.revoke_key(id, conn=conn)

    async def audit(
        self,
        actor: str,
        action: str,
        *,
        queue: str | None = None,
        detail: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        conn: Any = None,
    ) -> int:
        return self._store.audit(actor, action, queue=queue, detail=detail, request_id=request_id, conn=conn)

    async def audited(self, id: int, status: int, *, detail: Mapping[str, Any] | None = None, conn: Any = None) -> None:
        return self._store.audited(id, status, detail=detail, conn=conn)

    async def audits(self, *, limit: int = 100, conn: Any = None) -> list[Audited]:
        return self._store.audits(limit=limit, conn=conn)

    async def follow(
        self, after: str | None, *, until: str | None = None, limit: int = 1_000, most: int = 20_000
    ) -> EventPage:
        return self._store.follow(after, until=until, limit=limit, most=most)

    async def connections(self) -> Connections:
        return NO_CONNECTIONS

    async def close(self) -> None:
        self._store.close()
