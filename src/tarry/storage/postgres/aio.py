"""The PostgreSQL store for code that awaits. One expression per verb: what needs deciding is decided in `ops`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection, errors
from psycopg_pool import AsyncConnectionPool

from tarry.core.audit import Audited
from tarry.core.clock import AuthorityClock, Clock
from tarry.core.editing import Edit
from tarry.core.events import Event
from tarry.core.following import EventPage
from tarry.core.insights import Insights
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
from tarry.core.ports import Connections
from tarry.core.retry import Retry
from tarry.core.settings import QueueInfo, QueueSettings, StoreSettings
from tarry.core.states import State
from tarry.core.waiting import Lobby, Waited
from tarry.storage.postgres import ops
from tarry.storage.postgres.answering import AsyncAnswering
from tarry.storage.postgres.answers import OfferOnce
from tarry.storage.postgres.arrays import teach
from tarry.storage.postgres.chores import AsyncChores, ChoreVerbs
from tarry.storage.postgres.connections import aconfigure, keeps_state, keywords, pool_now
from tarry.storage.postgres.drive import adrive, atransaction
from tarry.storage.postgres.faults import LOCK_PAUSE_S, is_transient, translated
from tarry.storage.postgres.fencing import Fence, Session
from tarry.storage.postgres.group_commits import GroupCommits
from tarry.storage.postgres.guests import commits_each_statement, guest_connection
from tarry.storage.postgres.insights import PostgresInsights
from tarry.storage.postgres.listen import Listening
from tarry.storage.postgres.lock_turns import LockWait, share
from tarry.storage.postgres.scheduling import AsyncScheduling
from tarry.storage.postgres.statement import Op
from tarry.storage.postgres.statements import MissingQueue
from tarry.storage.postgres.underway import UnderWay
from tarry.storage.postgres.verbs import Offering, Verbs
from tarry.storage.postgres.wait_statements import Sleeper

P = TypeVar("P")
R = TypeVar("R")

CLOSE_WITHIN_S = 3.0
"""`close` waits so long for statements that have begun."""
CUT_OFF_WITHIN_S = 0.5
"""… and then so long for what was cut off to notice."""


class AsyncPostgresStore(AsyncChores, AsyncScheduling, AsyncAnswering):
    def __init__(self, dsn: str, *, clock: Clock | None = None, settings: StoreSettings = StoreSettings()) -> None:
        self.settings = settings
        clock = clock or AuthorityClock()
        self._verbs = Verbs(clock, create=settings.create_queues)
        self._guest_verbs = Verbs(clock, create=False)
        self._lent = set()
        self._left_sessions: list[Session] = []
        self.lobby = Lobby(
            scan_every=settings.scan_every,
            listening_scan_every=settings.listening_scan_every,
            monotonic=time.monotonic,
        )
        trusted = isinstance(clock, AuthorityClock)
        self._listening = Listening(settings.listen_dsn or dsn, self.lobby, trusted=trusted)
        self._lock_turns = asyncio.Semaphore(share(settings.pool_size))
        self._under_way = UnderWay()
        self._group_commits = GroupCommits(self._run_in_group, lock_for_s=settings.lock_for.total_seconds())
        self._pool = AsyncConnectionPool[AsyncConnection[Any]](
            dsn,
            kwargs=keywords(dsn),
            min_size=0,
            max_size=settings.pool_size,
            configure=partial(aconfigure, statement_for=settings.statement_for),
            timeout=settings.connect_for.total_seconds(),
            # Less than a caller waits: then its next try begins afresh, instead of waiting for a pause that has doubled
            # for as long as the server was away.
            reconnect_timeout=0.8 * settings.connect_for.total_seconds(),
            name="tarry",
            open=False,
        )
        self.insights: Insights = PostgresInsights(self._look)

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        """Within `CLOSE_WITHIN_S` and a moment, whatever the database does: what has not ended by then is cut off."""
        end_s = time.monotonic() + CLOSE_WITHIN_S
        await self._under_way.ended(CLOSE_WITHIN_S)
        await self._group_commits.drain(end_s)
        self._under_way.cut_off()
        leaving = asyncio.create_task(asyncio.to_thread(self._listening.close))  # the ear is in a thread of its own
        await self._pool.close(timeout=max(CUT_OFF_WITHIN_S, end_s - time.monotonic()))
        await asyncio.wait({leaving}, timeout=CUT_OFF_WITHIN_S)
        self.lobby.ring_all()  # who still waits is told by the next statement

    async def offer(self, queue: str, draft: Draft, *, conn: Any = None) -> Outcome:
        """Offers of many tasks share a commit; in the caller's own transaction they are the caller's."""
        if conn is None:
            return await self._group_commits.offer(queue, draft)
        return (await self._run(Offering(queue, [draft]), conn))[0]

    async def offer_many(self, queue: str, drafts: Sequence[Draft], *, conn: Any = None) -> list[Outcome]:
        return await self._run(Offering(queue, drafts), conn, atomic=ops.takes_several_steps(drafts))

    async def offer_once(
        self, queue: str, draft: Draft, request: Once, show: Callable[[Outcome], Answered]
    ) -> Answered | None:
        """These share a commit, too, each with its answer."""
        return await self._group_commits.offer_once(queue, OfferOnce(draft, request, show))

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
        return await self._run(
            lambda verbs: verbs.lease(
                queue,
                n,
                decode,
                type=type,
                lease_for=lease_for,
                consumer=consumer,
                max_attempts=max_attempts,
                lowest_first=lowest_first,
                own=conn is None,
            ),
            conn,
        )

    async def wait(self, queue: str, *, sleep_for: timedelta, type: str | None = None) -> Waited:
        listener = self._listening.started()
        probe = listener.probe()
        sleeper = Sleeper.of(self.settings, listener.who, sleep_for, probe)
        waited = await self._run(lambda verbs: verbs.wait(queue, type, sleeper), None)
        listener.sent(probe)
        return waited

    async def ack(self, queue: str, holds: Sequence[Hold], *, conn: Any = None) -> list[Settled]:
        if conn is None and len(holds) == 1:
            return [await self._group_commits.ack(queue, holds[0])]
        return await self._run(lambda verbs: verbs.ack(queue, holds), conn, atomic=len(holds) > ops.CHUNK)

    async def nack(
        self, queue: str, failures: Sequence[Failure], *, retry: Retry | None = None, conn: Any = None
    ) -> list[Settled]:
        return await self._run(lambda verbs: verbs.nack(queue, failures, retry), conn, atomic=len(failures) > ops.CHUNK)

    async def touch(
        self, queue: str, holds: Sequence[Hold], *, lease_for: timedelta | None = None, conn: Any = None
    ) -> list[Settled]:
        return await self._run(lambda verbs: verbs.touch(queue, holds, lease_for), conn, atomic=len(holds) > ops.CHUNK)

    async def release(
        self,
        queue: str,
        holds: Sequence[Hold],
        *,
        due_at: datetime | None = None,
        delay: timedelta | None = None,
        conn: Any = None,
    ) -> list[Settled]:
        return await self._run(
            lambda verbs: verbs.release(queue, holds, due_at, delay), conn, atomic=len(holds) > ops.CHUNK
        )

    async def bury(
        self,
        queue: str,
        holds: Sequence[Hold],
        *,
        error: str | None = None,
        reason: BuryReason = "buried",
        conn: Any = None,
    ) -> list[Settled]:
        return await self._run(
            lambda verbs: verbs.bury(queue, holds, error, reason), conn, atomic=len(holds) > ops.CHUNK
        )

    async def read(self, queue: str, key: str, *, conn: Any = None) -> StoredMessage[bytes] | None:
        return await self._run(lambda verbs: verbs.read(queue, key), conn)

    async def contains(self, queue: str, key: str, *, conn: Any = None) -> bool:
        return await self._run(lambda verbs: verbs.contains(queue, key), conn)

    async def messages(
        self,
        queue: str,
        *,
        state: State | None = None,
        limit: int = 100,
        filter: Filter = EVERYTHING,
        conn: Any = None,
    ) -> list[StoredMessage[bytes]]:
        return await self._run(lambda verbs: verbs.messages(queue, state, limit, filter), conn)

    async def timeline(
        self, queue: str, key: str, *, limit: int = 1000, before: int | None = None, conn: Any = None
    ) -> list[Event]:
        return await self._run(lambda v: v.timeline(queue, key, limit, before, own=conn is None), conn, atomic=True)

    async def counts(self, queue: str, *, limit: int = 10_000, conn: Any = None) -> Counts:
        return await self._run(lambda verbs: verbs.counts(queue, limit), conn)

    async def edit(
        self, queue: str, key: str, edit: Edit, *, version: int | None = None, force: bool = False, conn: Any = None
    ) -> Edited:
        return await self._run(lambda verbs: verbs.edit(queue, key, edit, version, force=force), conn)

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
        return await self._run(lambda verbs: verbs.give_up(queue, key, error, version, force=force), conn)

    async def drop(
        self, queue: str, key: str, *, version: int | None = None, unless_leased: bool = False, conn: Any = None
    ) -> bool:
        return await self._run(lambda verbs: verbs.drop(queue, key, version, unless_leased=unless_leased), conn)

    async def drop_all(self, queue: str, *, conn: Any = None) -> int:
        return await self._run(lambda verbs: verbs.drop_all(queue), conn, atomic=True)

    async def create_queue(self, name: str, settings: QueueSettings, *, exist_ok: bool, conn: Any = None) -> QueueInfo:
        return await self._run(lambda verbs: verbs.create_queue(name, settings, exist_ok=exist_ok), conn)

    async def edit_queue(
        self, name: str, settings: QueueSettings, *, only: frozenset[str], conn: Any = None
    ) -> QueueInfo:
        return await self._run(lambda verbs: verbs.edit_queue(name, settings, only), conn)

    async def rename_queue(self, name: str, new_name: str, *, conn: Any = None) -> QueueInfo:
        return await self._run(lambda verbs: verbs.rename_queue(name, new_name), conn)

    async def delete_queue(self, name: str, *, force: bool, conn: Any = None) -> None:
        return await self._run(lambda verbs: verbs.delete_queue(name, force=force), conn, atomic=True)

    async def queue_info(self, name: str, *, conn: Any = None) -> QueueInfo:
        return await self._run(lambda verbs: verbs.queue_info(name), conn)

    async def queue_infos(self, *, conn: Any = None) -> list[QueueInfo]:
        return await self._run(Verbs.queue_infos, conn)

    async def pause(self, name: str, *, reason: str | None = None, conn: Any = None) -> QueueInfo:
        return await self._run(lambda verbs: verbs.pause(name, paused=True, reason=reason), conn)

    async def resume(self, name: str, *, conn: Any = None) -> QueueInfo:
        return await self._run(lambda verbs: verbs.pause(name, paused=False, reason=None), conn)

    async def now(self, *, conn: Any = None) -> datetime:
        return await self._run(Verbs.now, conn)

    async def add_key(self, key: ApiKey, *, expires_for: timedelta | None, conn: Any = None) -> ApiKey:
        return await self._run(lambda verbs: verbs.add_key(key, expires_for), conn)

    async def find_keys(self, ids: Sequence[str], *, conn: Any = None) -> list[ApiKey]:
        return await self._run(lambda verbs: verbs.find_keys(ids), conn)

    async def keys(self, *, conn: Any = None) -> list[ApiKey]:
        return await self._run(Verbs.keys, conn)

    async def revoke_key(self, id: str, *, conn: Any = None) -> ApiKey | None:
        return await self._run(lambda verbs: verbs.revoke_key(id), conn)

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
        return await self._run(lambda verbs: verbs.audit(actor, action, queue, detail, request_id), conn)

    async def audited(self, id: int, status: int, *, detail: Mapping[str, Any] | None = None, conn: Any = None) -> None:
        return await self._run(lambda verbs: verbs.audited(id, status, detail), conn)

    async def audits(self, *, limit: int = 100, conn: Any = None) -> list[Audited]:
        return await self._run(lambda verbs: verbs.audits(limit), conn)

    async def follow(
        self, after: str | None, *, until: str | None = None, limit: int = 1_000, most: int = 20_000
    ) -> EventPage:
        return await self._run(lambda verbs: verbs.follow(after, until, limit, most), None, atomic=True)

    async def connections(self) -> Connections:
        return pool_now(self._pool.get_stats())

    async def _run_in_group(self, make: Callable[[Verbs], Op[R]], *, atomic: bool = False, brief: bool = False) -> R:
        return await self._retried(
            lambda own: self._driven(own, make, atomic=atomic, brief=brief), wait_for_locks=False
        )

    async def _look(self, make: Callable[[], Op[R]], *, atomic: bool = False) -> R:
        return await self._run(lambda verbs: make(), None, atomic=atomic)

    async def _do(
        self, make: Callable[[ChoreVerbs], Op[R]], conn: Any, *, atomic: bool = False, wait_for_locks: bool = True
    ) -> R:
        return await self._run(make, conn, atomic=atomic, wait_for_locks=wait_for_locks)

    async def _run(
        self,
        make: Callable[[Verbs], Op[R]],
        conn: AsyncConnection[Any] | None,
        *,
        atomic: bool = False,
        wait_for_locks: bool = True,
    ) -> R:
        """A fresh op for every try, since a generator cannot be rewound. The caller's own transaction is tried once."""
        if conn is not None:
            return await self._run_as_guest(make, conn, atomic=atomic)
        return await self._retried(lambda own: self._driven(own, make, atomic=atomic), wait_for_locks=wait_for_locks)

    async def _driven(
        self, own: AsyncConnection[Any], make: Callable[[Verbs], Op[R]], *, atomic: bool, brief: bool = False
    ) -> R:
        if not atomic and not brief and keeps_state(own):
            return await adrive(own, make(self._verbs))
        async with atransaction(own, bounded=not keeps_state(own), brief=brief):
            return await adrive(own, make(self._verbs))

    async def _retried(self, work: Callable[[AsyncConnection[Any]], Awaitable[R]], *, wait_for_locks: bool = True) -> R:
        """With a connection of ours, again and again while what went wrong passes by itself."""
        patience, failures, started = self.settings.patience, 0, time.monotonic()
        lock_wait = LockWait(self.settings.lock_for.total_seconds())
        fence = Fence(self._left_sessions)
        while True:
            tried_s, own = time.monotonic(), None
            try:
                with self._under_way:
                    async with lock_wait.aturn(self._lock_turns), self._pool.connection() as own:
                        with self._under_way.using(own):
                            await adrive(own, fence.close())
                            return await work(own)
            except errors.LockNotAvailable as error:
                lock_wait.met(error, tried_s)
                if not wait_for_locks or lock_wait.is_over:
                    raise translated(error, 1) from error
                await asyncio.sleep(LOCK_PAUSE_S)
            except psycopg.Error as error:
                fence.lost(own)
                failures += 1
                pause = patience.pause(failures).total_seconds()
                spent = time.monotonic() - started + pause
                if not is_transient(error) or failures > patience.retries or spent > patience.total_for.total_seconds():
                    fence.give_up()
                    raise translated(error, failures) from error
                await asyncio.sleep(pause)
                await self._pool.check()

    async def _run_as_guest(self, make: Callable[[Verbs], Op[R]], conn: AsyncConnection[Any], *, atomic: bool) -> R:
        teach(guest_connection(conn, AsyncConnection).adapters)
        try:
            return await self._driven_as_guest(conn, make, atomic=atomic)
        except MissingQueue as missing:
            if not self.settings.create_queues or conn in self._lent:
                raise
            name = missing.name
        # Not in the caller's transaction: there, the new name would keep everybody else waiting until it ends.
        await self.create_queue(name, QueueSettings(), exist_ok=True)
        return await self._driven_as_guest(conn, make, atomic=atomic)

    async def _driven_as_guest(self, conn: AsyncConnection[Any], make: Callable[[Verbs], Op[R]], *, atomic: bool) -> R:
        notify = self.settings.notify_with_conn or conn in self._lent
        async with conn.transaction() if atomic and commits_each_statement(conn) else nullcontext():
            return await adrive(conn, make(self._guest_verbs), guest=True, notify=notify)
