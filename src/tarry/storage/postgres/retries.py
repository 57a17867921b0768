"""Retries of one operation after lost connections and locks of other transactions.

Operations that ran into a lock share half of the pool for their retries. Otherwise many blocked operations would keep every
connection busy, and unrelated operations would have to wait.
"""

import time

import psycopg
from psycopg.errors import LockNotAvailable

from tarry.core.settings import StoreSettings
from tarry.storage.postgres.errors import LOCK_PAUSE_S, is_transient, translated
from tarry.storage.postgres.fencing import AnyConnection, Fence, ServerSession


def share(pool_size: int) -> int:
    return max(1, pool_size // 2)


class Tries:
    """The failed tries of one operation. Lock waits are retried until `lock_for` has passed since the first blocked try."""

    def __init__(
        self, settings: StoreSettings, left: list[ServerSession], started_s: float, *, wait_for_locks: bool
    ) -> None:
        self._settings = settings
        self._started_s = started_s
        self._wait_for_locks = wait_for_locks
        self._failures = 0
        self.lock: LockNotAvailable | None = None
        self._until_s = 0.0
        self.fence = Fence(left)

    def failed(self, error: psycopg.Error, conn: AnyConnection | None, tried_s: float) -> float:
        """The pause before the next try. Raises the translated error if there is none."""
        if isinstance(error, LockNotAvailable):
            if self.lock is None:
                self._until_s = tried_s + self._settings.lock_for.total_seconds()
            self.lock = error
            if not self._wait_for_locks or time.monotonic() >= self._until_s:
                raise translated(error, 1) from error
            return LOCK_PAUSE_S
        self.fence.lost(conn)
        self._failures += 1
        retry = self._settings.connection_retry
        pause_s = retry.pause(self._failures).total_seconds()
        spent_s = time.monotonic() - self._started_s + pause_s
        if not is_transient(error) or retry.is_over(self._failures, spent_s):
            self.fence.abandon()
            raise translated(error, self._failures) from error
        return pause_s

    @property
    def left_s(self) -> float:
        """Remaining time to wait for a turn. Each retry after a lock takes a turn."""
        return max(0.0, self._until_s - time.monotonic())
