"""Connection pools that keep one idle connection outside the pool.

A checkout and a return through the pool call 24 Python functions, or 30 if they are awaited, which cost as much as the
statement in between; and the pool gives out its connections in turns, so no server process stays in the caches. So the last
returned connection stays outside, unless a caller waits for a connection. Only public methods of the pool are used.
"""

import asyncio
import threading
from contextlib import suppress
from typing import Any, Final
from weakref import ref

from psycopg import Connection
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from tarry.storage.postgres.registered_connection import RegisteredConnection

KEEP_FOR_S: Final = 60.0
"""How long a connection stays outside. The pool then closes it if it is too old or was idle for too long."""


class SparePool(ConnectionPool[Connection[Any]]):
    def __init__(self, dsn: str, **options: Any) -> None:
        self._spare: Connection[Any] | None = None
        self._spare_lock = threading.Lock()
        self._timer: threading.Timer | None = None
        """A connection is kept only while this timer runs."""
        self._checkouts = 0
        """Threads inside the pool's own `getconn`. None of them waits there while a spare connection is kept."""
        self._is_over = False
        super().__init__(dsn, **options)

    def getconn(self, timeout: float | None = None) -> Connection[Any]:
        with self._spare_lock:
            spare = self._spare
            if spare is not None:
                self._spare = None
                return spare
            self._checkouts += 1
            if self._timer is None and not self._is_over:
                self._start_timer()
        try:
            return super().getconn(timeout)
        finally:
            with self._spare_lock:
                self._checkouts -= 1

    def putconn(self, conn: Connection[Any]) -> None:
        if conn.pgconn.transaction_status == TransactionStatus.IDLE:
            with self._spare_lock:
                if self._spare is None and not self._checkouts and self._timer is not None:
                    self._spare = conn
                    return
        super().putconn(conn)

    def check(self) -> None:
        self._return_spare()
        super().check()

    def close(self, timeout: float = 5.0) -> None:
        with self._spare_lock:
            self._is_over, timer = True, self._timer
        if timer is not None:
            timer.cancel()
        self.stop_keeping()
        super().close(timeout)

    def get_stats(self) -> dict[str, int]:
        stats = super().get_stats()
        stats["pool_available"] = stats.get("pool_available", 0) + (self._spare is not None)
        return stats

    def _start_timer(self) -> None:
        # A weak reference: the timer must not keep an unclosed pool alive.
        timer = threading.Timer(KEEP_FOR_S, _stop_keeping, (ref(self),))
        timer.name, timer.daemon = "tarry-spare-connection", True
        with suppress(RuntimeError):  # the interpreter is shutting down
            timer.start()
            self._timer = timer

    def stop_keeping(self) -> None:
        """Return the spare connection, and keep none until the next checkout from the pool."""
        with self._spare_lock:
            self._timer = None
        self._return_spare()

    def _return_spare(self) -> None:
        with self._spare_lock:
            spare, self._spare = self._spare, None
        if spare is not None:
            super().putconn(spare)


def _stop_keeping(pool: ref[SparePool]) -> None:
    if (alive := pool()) is not None:
        alive.stop_keeping()


class AsyncSparePool(AsyncConnectionPool[RegisteredConnection]):
    """The same for one event loop, where no lock is needed."""

    def __init__(self, dsn: str, **options: Any) -> None:
        self._spare: RegisteredConnection | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._checkouts = 0
        self._is_over = False
        self._returning: asyncio.Task[None] | None = None
        super().__init__(dsn, connection_class=RegisteredConnection, **options)

    async def getconn(self, timeout: float | None = None) -> RegisteredConnection:
        spare, self._spare = self._spare, None
        if spare is not None:
            return spare
        self._checkouts += 1
        try:
            conn = await super().getconn(timeout)
        finally:
            self._checkouts -= 1
        if self._timer is None and not self._is_over:
            self._timer = asyncio.get_running_loop().call_later(KEEP_FOR_S, self.stop_keeping)
        return conn

    async def putconn(self, conn: RegisteredConnection) -> None:
        is_kept = self._spare is None and not self._checkouts and self._timer is not None
        if is_kept and conn.pgconn.transaction_status == TransactionStatus.IDLE:
            self._spare = conn
        elif self._checkouts:
            # Shielded: the pool may wait until it can hand the connection to a waiting task. A cancellation would lose it.
            await asyncio.shield(super().putconn(conn))
        else:
            await super().putconn(conn)

    async def check(self) -> None:
        await self._return_spare()
        await super().check()

    async def close(self, timeout: float = 5.0) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._return_spare()
        await super().close(timeout)

    def get_stats(self) -> dict[str, int]:
        stats = super().get_stats()
        stats["pool_available"] = stats.get("pool_available", 0) + (self._spare is not None)
        return stats

    def stop_keeping(self) -> None:
        """Return the spare connection, and keep none until the next checkout from the pool."""
        self._timer = None
        self._returning = asyncio.create_task(self._return_spare(), name="tarry-spare-connection")

    async def _return_spare(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            await super().putconn(spare)
