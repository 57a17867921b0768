"""The PostgreSQL store for code that awaits: connections, retries, group commits, and the caller's own connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.errors import LockNotAvailable
from psycopg_pool import AsyncConnectionPool

from tarry.core.analytics.port import Analytics
from tarry.core.clock import Clock
from tarry.core.operation import Operation, foreign
from tarry.core.ports import Connections
from tarry.core.security.idempotency import AsyncDoing, IdempotencyKey, StoredResponse
from tarry.core.settings import QueueSettings, StoreSettings
from tarry.storage.postgres.analytics.store import analytics_on
from tarry.storage.postgres.arrays import register_array_dumpers
from tarry.storage.postgres.connections import (
    aconfigure,
    caller_connection,
    commits_each_statement,
    cut,
    keeps_state,
    pool_now,
    pool_options,
)
from tarry.storage.postgres.messages.group_commit import GroupCommits
from tarry.storage.postgres.messages.statements import MissingQueue
from tarry.storage.postgres.operation import PostgresOperation
from tarry.storage.postgres.retries import NO_TURN, Tries, share
from tarry.storage.postgres.roles import PostgresRoles
from tarry.storage.postgres.runner import adrive, atransaction, cancellations
from tarry.storage.postgres.statement import Op

R = TypeVar("R")

CLOSE_WITHIN_S = 3.0
"""`close` waits so long for statements that have begun."""
CUT_OFF_WITHIN_S = 0.5
"""… and then so long for what was cut off to notice."""


class AsyncPostgresStore(PostgresRoles):
    def __init__(
        self,
        dsn: str,
        *,
        clock: Clock | None = None,
        settings: StoreSettings = StoreSettings(),
        poll_timer: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(dsn, clock, settings, poll_timer)
        self._sleep = sleep
        self._borrowed: set[AsyncConnection[Any]] = set()
        """Connections of ours that a `do` of `once` uses. No queue is created there: that would take another connection."""
        self._lock_turns = asyncio.Semaphore(share(settings.pool_size))
        self._in_flight = InFlight()
        self._group_commits = GroupCommits(self._retried, self._try, lock_for_s=settings.lock_for.total_seconds())
        self._pool = AsyncConnectionPool[AsyncConnection[Any]](
            dsn,
            configure=partial(aconfigure, statement_for=settings.statement_for),
            open=False,
            **pool_options(dsn, settings),
        )
        self.analytics: Analytics = analytics_on(self._run_op)

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        """Within `CLOSE_WITHIN_S` and a moment, whatever the database does: what has not ended by then is cut off."""
        end_s = time.monotonic() + CLOSE_WITHIN_S
        await self._in_flight.ended(CLOSE_WITHIN_S)
        await self._group_commits.drain(end_s)
        self._in_flight.cut_off()
        leaving = asyncio.create_task(asyncio.to_thread(self._subscription.close))  # it waits for a thread
        await self._pool.close(timeout=max(CUT_OFF_WITHIN_S, end_s - time.monotonic()))
        await asyncio.wait({leaving}, timeout=CUT_OFF_WITHIN_S)
        self.wakeup.wait_queue.notify_all()  # consumers that still wait fail at their next statement

    async def connections(self) -> Connections:
        return pool_now(self._pool.get_stats())

    async def run(self, operation: Operation[R], conn: AsyncConnection[Any] | None = None) -> R:
        """Operations of many tasks may share a commit; in the caller's own transaction they are the caller's."""
        if not isinstance(operation, PostgresOperation):
            raise foreign(operation)
        if conn is not None:
            result = await self._run_external(operation, conn)
        elif operation.group_item is not None:
            result = await self._group_commits.submit(operation.group_item)
        else:
            result = await self._retried(partial(self._try, operation), wait_for_locks=operation.wait_for_locks)
        if operation.on_success is not None:
            operation.on_success()
        if operation.then is not None and conn is None:
            while await self._retried(partial(self._try, operation.then)):
                pass
        return result

    async def once(self, request: IdempotencyKey, do: AsyncDoing) -> StoredResponse | None:
        try:
            return await self._retried(partial(self._once, request, do))
        except MissingQueue as missing:
            if not self.settings.create_queues:
                raise
            await self.run(self.queues.create(missing.name, QueueSettings(), exist_ok=True))
        return await self._retried(partial(self._once, request, do))

    async def _once(self, request: IdempotencyKey, do: AsyncDoing, own: AsyncConnection[Any]) -> StoredResponse | None:
        async with atransaction(own, bounded=not keeps_state(own)):
            stored = await adrive(own, self.security.recall(request).start(True))
            if stored:
                return stored[0]
            self._borrowed.add(own)
            try:
                response = await do(own)
            finally:
                self._borrowed.discard(own)
            await adrive(own, self.security.keep(request, response).start(True))
            return response

    async def _run_op(self, make: Callable[[], Op[R]], *, atomic: bool = False) -> R:
        return await self.run(PostgresOperation(lambda own: make(), atomic))

    async def _try(self, operation: PostgresOperation[R], own: AsyncConnection[Any], *, brief: bool = False) -> R:
        if not operation.atomic and not brief and keeps_state(own):
            return await adrive(own, operation.start(True))
        async with atransaction(own, bounded=not keeps_state(own), brief=brief):
            return await adrive(own, operation.start(True))

    async def _retried(self, work: Callable[[AsyncConnection[Any]], Awaitable[R]], *, wait_for_locks: bool = True) -> R:
        """Run `work` with a connection of the store, and retry it after errors that are transient."""
        cancelled = cancellations()
        tries = Tries(self.settings, self._left_sessions, time.monotonic(), wait_for_locks=wait_for_locks)
        while True:
            tried_s, own = time.monotonic(), None
            try:
                with self._in_flight:
                    async with tries.aturn(self._lock_turns) if tries.has_met_lock else NO_TURN:
                        own = await self._pool.getconn()
                        try:
                            if cancellations() > cancelled:  # `wait_for` in the pool forgets it before Python 3.12
                                raise asyncio.CancelledError
                            with self._in_flight.using(own):
                                if tries.fence.is_open:
                                    await adrive(own, tries.fence.close())
                                return await work(own)
                        finally:
                            await self._pool.putconn(own)
            except psycopg.Error as error:
                if cancellations() > cancelled:  # the driver raises the error that has ended its statement instead
                    raise asyncio.CancelledError from error
                await self._sleep(tries.failed(error, own, tried_s))
                if not isinstance(error, LockNotAvailable):
                    # In a task of its own: the pool takes a cancellation for a broken connection, and the caller would go on.
                    await asyncio.shield(self._pool.check())

    async def _run_external(self, operation: PostgresOperation[R], conn: AsyncConnection[Any]) -> R:
        """On the caller's connection, once: only the caller can repeat its transaction."""
        register_array_dumpers(caller_connection(conn, AsyncConnection).adapters)
        try:
            return await self._try_external(operation, conn)
        except MissingQueue as missing:
            if not self.settings.create_queues or conn in self._borrowed:
                raise
            name = missing.name
        # Not in the caller's transaction: there, the new name would block other processes until it ends.
        await self.run(self.queues.create(name, QueueSettings(), exist_ok=True))
        return await self._try_external(operation, conn)

    async def _try_external(self, operation: PostgresOperation[R], conn: AsyncConnection[Any]) -> R:
        notify = self.settings.notify_with_conn or conn in self._borrowed
        async with conn.transaction() if operation.atomic and commits_each_statement(conn) else nullcontext():
            return await adrive(conn, operation.start(False), external=True, notify=notify)


class InFlight:
    """Operations in flight, so that closing a store can wait for them and then cut them off: `with in_flight:` around each,
    in one event loop."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()
        self._used: set[AsyncConnection[Any]] = set()
        self._is_over = False

    def __enter__(self) -> None:
        self._count += 1
        self._none.clear()

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count:
            self._none.set()

    @contextmanager
    def using(self, conn: AsyncConnection[Any]) -> Generator[None]:
        """The connection of a piece of work, for as long as it has it."""
        self._used.add(conn)
        try:
            if self._is_over:
                cut(conn)
            yield
        finally:
            self._used.discard(conn)

    def cut_off(self) -> None:
        """End every connection in use: what waits for an answer on it fails at once, also if the server is frozen."""
        self._is_over = True
        for conn in self._used:
            cut(conn)

    async def ended(self, within_s: float) -> None:
        """Also what is about to begin: a consumer that was not closed releases its leases in a task of its own, which was
        only just created."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                for _ in range(5):
                    await asyncio.sleep(0)
                    await self._none.wait()
