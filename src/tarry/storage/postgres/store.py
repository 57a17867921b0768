"""The PostgreSQL store: connections, retries, group commits, caller connections. The blocking store is generated."""

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg import AsyncConnection
from psycopg.errors import LockNotAvailable

from tarry.core.clock import Clock
from tarry.core.operation import Operation, foreign
from tarry.core.ports import Connections
from tarry.core.security.idempotency import AsyncIdempotentCall, IdempotencyKey, StoredResponse
from tarry.core.settings import QueueSettings, StoreSettings
from tarry.storage.cancellations import cancellations
from tarry.storage.postgres.arrays import register_array_dumpers
from tarry.storage.postgres.connections import (
    ForkGuard,
    aconfigure,
    caller_connection,
    caller_connection_async,
    commits_each_statement,
    configure,
    cut,
    keeps_state,
    pool_now,
    pool_options,
)
from tarry.storage.postgres.messages.group_commit import GroupCommits
from tarry.storage.postgres.messages.statements import MissingQueue
from tarry.storage.postgres.operation import PostgresOperation
from tarry.storage.postgres.prepared import session_of
from tarry.storage.postgres.retries import Tries, share
from tarry.storage.postgres.roles import PostgresRoles
from tarry.storage.postgres.runner import drive, is_interrupted, transaction
from tarry.storage.postgres.schema_name import schema_of
from tarry.storage.postgres.spare_pool import AsyncSparePool, SparePool
from tarry.storage.running import Running

R = TypeVar("R")

CLOSE_WITHIN_S = 3.0
"""How long `close` waits for running statements."""
_CLOSE_POOL_WITHIN_S = 2.0
"""How long `close` of a blocking store waits for the pool's threads. Callers' threads fail at their next statement."""
CUT_OFF_WITHIN_S = 0.5
"""How long `close` then waits for operations whose connections were cut off."""


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
        """Our connections that an idempotent call uses. It creates no queue: that would take a second connection."""
        self._schema = schema_of(dsn)
        options = pool_options(dsn, settings)
        if True:  # ASYNC
            self._lock_turns = asyncio.Semaphore(share(settings.pool_size))
            self._in_flight = InFlight()
            self._group_commits = GroupCommits(self._retried, self._try, lock_for_s=settings.lock_for.total_seconds())
            tune = partial(aconfigure, statement_for=settings.statement_for, schema=self._schema)
            self._pool = AsyncSparePool(dsn, configure=tune, open=False, **options)
        else:
            self._lock_turns = threading.Semaphore(share(settings.pool_size))
            self._fork_guard = ForkGuard()
            tune = partial(configure, statement_for=settings.statement_for, schema=self._schema)
            self._pool = SparePool(dsn, configure=tune, open=True, **options)

    async def open(self) -> None:  # ASYNC
        self._in_flight.check_loop()
        await self._pool.open()

    async def close(self) -> None:
        """Close within a few seconds, whatever the database does: operations still running by then are cut off."""
        if True:  # ASYNC
            self._in_flight.check_loop()
            end_s = time.monotonic() + CLOSE_WITHIN_S
            await self._in_flight.ended(CLOSE_WITHIN_S)
            await self._group_commits.drain(end_s)
            self._in_flight.cut_off()
            leaving = asyncio.create_task(asyncio.to_thread(self._listener.close))  # it waits for a thread
            await self._pool.close(timeout=max(CUT_OFF_WITHIN_S, end_s - time.monotonic()))
            await asyncio.wait({leaving}, timeout=CUT_OFF_WITHIN_S)
        else:
            if not self._fork_guard.is_here:
                return
            self._listener.close()
            self._pool.close(timeout=_CLOSE_POOL_WITHIN_S)
        self.wakeup.wait_queue.notify_all()  # consumers that still wait fail at their next statement

    async def connections(self) -> Connections:
        return pool_now(self._pool.get_stats())

    async def run(self, operation: Operation[R], conn: AsyncConnection[Any] | None = None) -> R:
        """Run an operation, on the caller's connection if one is passed. Otherwise it may share a commit with other tasks."""
        if not isinstance(operation, PostgresOperation):
            raise foreign(operation)
        if True:  # ASYNC
            if conn is None and operation.group_item is not None:
                return await self._group_commits.of(operation.group_item).submit(operation.group_item)
        if conn is not None:
            result = await self._run_external(operation, conn)
        else:
            result = await self._retried(partial(self._try, operation), wait_for_locks=operation.wait_for_locks)
        if operation.on_success is not None:
            operation.on_success()
        if operation.then is not None and conn is None:
            while await self._retried(partial(self._try, operation.then)):
                pass
        return result

    async def run_idempotent(self, request: IdempotencyKey, do: AsyncIdempotentCall) -> StoredResponse | None:
        try:
            return await self._retried(partial(self._run_idempotent, request, do))
        except MissingQueue as missing:
            if not self.settings.create_queues:
                raise
            await self.run(self.queues.create(missing.name, QueueSettings(), exist_ok=True))
        return await self._retried(partial(self._run_idempotent, request, do))

    async def _run_idempotent(
        self, request: IdempotencyKey, do: AsyncIdempotentCall, own: AsyncConnection[Any]
    ) -> StoredResponse | None:
        async with transaction(own, bounded=not keeps_state(own)):
            stored = await drive(own, self.security.recall(request).start(True))
            if stored:
                return stored[0]
            self._borrowed.add(own)
            try:
                response = await do(own)
            finally:
                self._borrowed.discard(own)
            await drive(own, self.security.keep(request, response).start(True))
            return response

    async def _try(self, operation: PostgresOperation[R], own: AsyncConnection[Any], *, brief: bool = False) -> R:
        session = session_of(own)
        if session is not None and not operation.atomic and not brief:
            return await drive(own, operation.start(True))
        async with transaction(own, bounded=session is None, brief=brief):
            return await drive(own, operation.start(True))

    async def _retried(self, work: Callable[[AsyncConnection[Any]], Awaitable[R]], *, wait_for_locks: bool = True) -> R:
        """Run `work` on one of the store's connections, and retry it after transient errors.

        `wait_for_locks`: also retry while other transactions hold locks, for `lock_for`, without keeping the connection.
        """
        if True:  # ASYNC
            before = cancellations()
        else:
            self._fork_guard.check()
            before = sys.exception()
        started_s, tries = time.monotonic(), None
        while True:
            tried_s, own, has_turn = time.monotonic(), None, False
            try:
                self._in_flight.begin()  # ASYNC
                try:
                    if tries is not None and tries.lock is not None:
                        has_turn = await self._take_turn(tries)
                    own = await self._pool.getconn()
                    if True:  # ASYNC
                        if cancellations() > before:  # before Python 3.12, the pool's `wait_for` swallows it
                            raise asyncio.CancelledError
                        self._in_flight.use(own)
                    if tries is None and self._left_sessions:
                        tries = Tries(self.settings, self._left_sessions, started_s, wait_for_locks=wait_for_locks)
                    if tries is not None and tries.fence.is_open:
                        await drive(own, tries.fence.close())
                    return await work(own)
                finally:
                    self._in_flight.end()  # ASYNC
                    if has_turn:
                        self._lock_turns.release()
                    if own is not None:
                        self._in_flight.release(own)  # ASYNC
                        await self._pool.putconn(own)
            except psycopg.Error as error:
                if is_interrupted(error, before):
                    if True:  # ASYNC
                        raise asyncio.CancelledError from error
                    raise KeyboardInterrupt from error
                if tries is None:
                    tries = Tries(self.settings, self._left_sessions, started_s, wait_for_locks=wait_for_locks)
                await self._sleep(tries.failed(error, own, tried_s))
                if not isinstance(error, LockNotAvailable):
                    # Shielded: the pool mistakes a cancellation for a broken connection, and the caller would continue.
                    await asyncio.shield(self._pool.check())

    async def _take_turn(self, tries: Tries) -> bool:
        """Wait for a turn before a retry after a lock. Raises the earlier lock timeout if none is free in time."""
        if True:  # ASYNC
            with suppress(TimeoutError):
                async with asyncio.timeout(tries.left_s):
                    return await self._lock_turns.acquire()
        else:
            if self._lock_turns.acquire(timeout=tries.left_s):
                return True
        raise tries.lock or LockNotAvailable()

    async def _run_external(self, operation: PostgresOperation[R], conn: AsyncConnection[Any]) -> R:
        """Run an operation on the caller's connection, without retries: only the caller can repeat its transaction."""
        if True:  # ASYNC
            conn = await caller_connection_async(conn)
        else:
            conn = caller_connection(conn, AsyncConnection)
        register_array_dumpers(conn.adapters)
        try:
            return await self._try_external(operation, conn)
        except MissingQueue as missing:
            if not self.settings.create_queues or conn in self._borrowed:
                raise
            name = missing.name
        # Not in the caller's transaction: the uncommitted name would block other processes until its end.
        await self.run(self.queues.create(name, QueueSettings(), exist_ok=True))
        return await self._try_external(operation, conn)

    async def _try_external(self, operation: PostgresOperation[R], conn: AsyncConnection[Any]) -> R:
        notify = self.settings.notify_with_conn or conn in self._borrowed
        async with conn.transaction() if operation.atomic and commits_each_statement(conn) else nullcontext():
            return await drive(conn, operation.start(False), external=True, notify=notify, schema=self._schema)


class InFlight(Running):  # ASYNC
    """With the connections in use, which `close` cuts off."""

    def __init__(self) -> None:
        super().__init__()
        self._used: set[AsyncConnection[Any]] = set()
        self._is_over = False

    def use(self, conn: AsyncConnection[Any]) -> None:
        self._used.add(conn)
        if self._is_over:
            cut(conn)

    def release(self, conn: AsyncConnection[Any]) -> None:
        self._used.discard(conn)

    def cut_off(self) -> None:
        """Shut down every connection in use: its operation fails immediately, even if the server is frozen."""
        self._is_over = True
        for conn in self._used:
            cut(conn)
