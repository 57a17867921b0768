"""Turns of operations that have met a lock of another transaction: their further tries share half of the pool.

Else many blocked operations would keep every connection busy, and unrelated operations would wait for one behind them.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

from psycopg.errors import LockNotAvailable


def share(pool_size: int) -> int:
    return max(1, pool_size // 2)


class LockWait:
    """The locks that one operation has met, for `lock_for_s` since its first try that met one."""

    def __init__(self, lock_for_s: float) -> None:
        self._lock_for_s = lock_for_s
        self._until_s: float | None = None
        self._error = LockNotAvailable()

    def met(self, error: LockNotAvailable, tried_s: float) -> None:
        self._error = error
        if self._until_s is None:
            self._until_s = tried_s + self._lock_for_s

    @property
    def is_over(self) -> bool:
        return self._until_s is not None and time.monotonic() >= self._until_s

    @contextmanager
    def turn(self, turns: threading.Semaphore) -> Generator[None]:
        """Around each try. The first needs no turn. A turn that does not come in time raises the lock that was met."""
        if self._until_s is None:
            yield
            return
        if not turns.acquire(timeout=max(0.0, self._until_s - time.monotonic())):
            raise self._error
        try:
            yield
        finally:
            turns.release()

    @asynccontextmanager
    async def aturn(self, turns: asyncio.Semaphore) -> AsyncGenerator[None]:
        if self._until_s is None:
            yield
            return
        try:
            async with asyncio.timeout(self._until_s - time.monotonic()):
                await turns.acquire()
        except TimeoutError:
            raise self._error from None
        try:
            yield
        finally:
            turns.release()
