# Generated from src/tarry/storage/postgres/store.py by tools/generate-blocking. Edit that file, then run `make generate`.
"""The blocking half of `tarry.storage.postgres.store`."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeVar

import psycopg
from psycopg import Connection
from psycopg.errors import LockNotAvailable

from tarry.core.clock import Clock
from tarry.core.operation import Operation, foreign
from tarry.core.ports import Connections
from tarry.core.security.idempotency import IdempotencyKey, IdempotentCall, StoredResponse
from tarry.core.settings import QueueSettings, StoreSettings
from tarry.storage.postgres._sync.runner import drive, is_interrupted, transaction
from tarry.storage.postgres.arrays import register_array_dumpers
from tarry.storage.postgres.connections import (
    ForkGuard,
    caller_connection,
    commits_each_statement,
    configure,
    keeps_state,
    pool_now,
    pool_options,
)
from tarry.storage.postgres.messages.statements import MissingQueue
from tarry.storage.postgres.operation import PostgresOperation
from tarry.storage.postgres.prepared import session_of
from tarry.storage.postgres.retries import Tries, share
from tarry.storage.postgres.roles import PostgresRoles
from tarry.storage.postgres.schema_name import schema_of
from tarry.storage.postgres.spare_pool import SparePool

R = TypeVar("R")
_CLOSE_POOL_WITHIN_S = 2.0
"""How long `close` of a blocking store waits for the pool's threads. Callers' threads fail at their next statement."""


class PostgresStore(PostgresRoles):
    def __init__(
        self,
        dsn: str,
        *,
        clock: Clock | None = None,
        settings: StoreSettings = StoreSettings(),
        poll_timer: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(dsn, clock, settings, poll_timer)
        self._sleep = sleep
        self._borrowed: set[Connection[Any]] = set()
        """Our connections that an idempotent call uses. It creates no queue: that would take a second connection."""
        self._schema = schema_of(dsn)
        options = pool_options(dsn, settings)
        self._lock_turns = threading.Semaphore(share(settings.pool_size))
        self._fork_guard = ForkGuard()
        tune = partial(configure, statement_for=settings.statement_for, schema=self._schema)
        self._pool = SparePool(dsn, configure=tune, open=True, **options)

    def close(self) -> None:
        """Close within a few seconds, whatever the database does: operations still running by then are cut off."""
        if not self._fork_guard.is_here:
            return
        self._listener.close()
        self._pool.close(timeout=_CLOSE_POOL_WITHIN_S)
        self.wakeup.wait_queue.notify_all()  # consumers that still wait fail at their next statement

    def connections(self) -> Connections:
        return pool_now(self._pool.get_stats())

    def run(self, operation: Operation[R], conn: Connection[Any] | None = None) -> R:
        """Run an operation, on the caller's connection if one is passed. Otherwise it may share a commit with other tasks."""
        if not isinstance(operation, PostgresOperation):
            raise foreign(operation)
        if conn is not None:
            result = self._run_external(operation, conn)
        else:
            result = self._retried(partial(self._try, operation), wait_for_locks=operation.wait_for_locks)
        if operation.on_success is not None:
            operation.on_success()
        if operation.then is not None and conn is None:
            while self._retried(partial(self._try, operation.then)):
                pass
        return result

    def run_idempotent(self, request: IdempotencyKey, do: IdempotentCall) -> StoredResponse | None:
        try:
            return self._retried(partial(self._run_idempotent, request, do))
        except MissingQueue as missing:
            if not self.settings.create_queues:
                raise
            self.run(self.queues.create(missing.name, QueueSettings(), exist_ok=True))
        return self._retried(partial(self._run_idempotent, request, do))

    def _run_idempotent(
        self, request: IdempotencyKey, do: IdempotentCall, own: Connection[Any]
    ) -> StoredResponse | None:
        with transaction(own, bounded=not keeps_state(own)):
            stored = drive(own, self.security.recall(request).start(True))
            if stored:
                return stored[0]
            self._borrowed.add(own)
            try:
                response = do(own)
            finally:
                self._borrowed.discard(own)
            drive(own, self.security.keep(request, response).start(True))
            return response

    def _try(self, operation: PostgresOperation[R], own: Connection[Any], *, brief: bool = False) -> R:
        session = session_of(own)
        if session is not None and not operation.atomic and not brief:
            return drive(own, operation.start(True))
        with transaction(own, bounded=session is None, brief=brief):
            return drive(own, operation.start(True))

    def _retried(self, work: Callable[[Connection[Any]], R], *, wait_for_locks: bool = True) -> R:
        """Run `work` on one of the store's connections, and retry it after transient errors.

        `wait_for_locks`: also retry while other transactions hold locks, for `lock_for`, without keeping the connection.
        """
        self._fork_guard.check()
        before = sys.exception()
        started_s, tries = time.monotonic(), None
        while True:
            tried_s, own, has_turn = time.monotonic(), None, False
            try:
                try:
                    if tries is not None and tries.lock is not None:
                        has_turn = self._take_turn(tries)
                    own = self._pool.getconn()
                    if tries is None and self._left_sessions:
                        tries = Tries(self.settings, self._left_sessions, started_s, wait_for_locks=wait_for_locks)
                    if tries is not None and tries.fence.is_open:
                        drive(own, tries.fence.close())
                    return work(own)
                finally:
                    if has_turn:
                        self._lock_turns.release()
                    if own is not None:
                        self._pool.putconn(own)
            except psycopg.Error as error:
                if is_interrupted(error, before):
                    raise KeyboardInterrupt from error
                if tries is None:
                    tries = Tries(self.settings, self._left_sessions, started_s, wait_for_locks=wait_for_locks)
                self._sleep(tries.failed(error, own, tried_s))
                if not isinstance(error, LockNotAvailable):
                    # Shielded: the pool mistakes a cancellation for a broken connection, and the caller would continue.
                    self._pool.check()

    def _take_turn(self, tries: Tries) -> bool:
        """Wait for a turn before a retry after a lock. Raises the earlier lock timeout if none is free in time."""
        if self._lock_turns.acquire(timeout=tries.left_s):
            return True
        raise tries.lock or LockNotAvailable()

    def _run_external(self, operation: PostgresOperation[R], conn: Connection[Any]) -> R:
        """Run an operation on the caller's connection, without retries: only the caller can repeat its transaction."""
        conn = caller_connection(conn, Connection)
        register_array_dumpers(conn.adapters)
        try:
            return self._try_external(operation, conn)
        except MissingQueue as missing:
            if not self.settings.create_queues or conn in self._borrowed:
                raise
            name = missing.name
        # Not in the caller's transaction: the uncommitted name would block other processes until its end.
        self.run(self.queues.create(name, QueueSettings(), exist_ok=True))
        return self._try_external(operation, conn)

    def _try_external(self, operation: PostgresOperation[R], conn: Connection[Any]) -> R:
        notify = self.settings.notify_with_conn or conn in self._borrowed
        with conn.transaction() if operation.atomic and commits_each_statement(conn) else nullcontext():
            return drive(conn, operation.start(False), external=True, notify=notify, schema=self._schema)
