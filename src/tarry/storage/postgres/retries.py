"""Retries of one operation after lost connections and locks of other transactions.

Operations that have met a lock share half of the pool for their further tries. Else many blocked operations would keep every
connection busy, and unrelated operations would wait for one behind them.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext

import psycopg
from psycopg.errors import LockNotAvailable

from tarry.core.settings import StoreSettings
from tarry.storage.postgres.errors import LOCK_PAUSE_S, is_transient, translated
from tarry.storage.postgres.fencing import AnyConnection, Fence, ServerSession

NO_TURN = nullcontext()
"""Around the first try, which needs no turn."""


def share(pool_size: int) -> int:
    return max(1, pool_size // 2)


class Tries:
    """The failed tries of one operation, which is tried for `lock_for` since its first try that met a lock."""

    def __init__(
        self, settings: StoreSettings, left: list[ServerSession], started_s: float, *, wait_for_locks: bool
    ) -> None:
        self._settings = settings
        self._started_s = started_s
        self._wait_for_locks = wait_for_locks
        self._failures = 0
        self._lock: LockNotAvailable | None = None
        self._until_s = 0.0
        self.fence = Fence(left)

    @property
    def has_met_lock(self) -> bool:
        return self._lock is not None

    def failed(self, error: psycopg.Error, conn: AnyConnection | None, tried_s: float) -> float:
        """The pause before the next try. Raises what ends the operation."""
        if isinstance(error, LockNotAvailable):
            if self._lock is None:
                self._until_s = tried_s + self._settings.lock_for.total_seconds()
            self._lock = error
            if not self._wait_for_locks or time.monotonic() >= self._until_s:
                raise translated(error, 1) from error
            return LOCK_PAUSE_S
        self.fence.lost(conn)
        self._failures += 1
        retry = self._settings.connection_retry
        pause_s = retry.pause(self._failures).total_seconds()
        spent_s = time.monotonic() - self._started_s + pause_s
        if not is_transient(error) or self._failures > retry.retries or spent_s > retry.total_for.total_seconds():
            self.fence.abandon()
            raise translated(error, self._failures) from error
        return pause_s

    def take_turn(self, turns: threading.Semaphore) -> None:
        """Before each try after a lock. A turn that does not come in time raises the lock that was met."""
        if not turns.acquire(timeout=max(0.0, self._until_s - time.monotonic())):
            raise self._lock or LockNotAvailable()

    @asynccontextmanager
    async def aturn(self, turns: asyncio.Semaphore) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout(self._until_s - time.monotonic()):
                await turns.acquire()
        except TimeoutError:
            raise self._lock or LockNotAvailable() from None
        try:
            yield
        finally:
            turns.release()
