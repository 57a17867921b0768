"""A pinned clock that counts its reads: a test waits for a read to know that a blocking poll has begun to wait."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest

from tarry.testing import MutableClock

START = datetime(2024, 1, 1, tzinfo=UTC)
TIMEOUT_S = 30.0


class WatchedClock(MutableClock):
    """Every statement reads the clock once, so the number of reads is a signal: no test needs to sleep."""

    def __init__(self, start: datetime = START) -> None:
        super().__init__(start)
        self._read = threading.Condition()
        self._looks = 0

    def pinned(self) -> datetime:
        with self._read:
            self._looks += 1
            self._read.notify_all()
        return super().pinned()

    @property
    def looks(self) -> int:
        with self._read:
            return self._looks

    def await_looks(self, n: int) -> None:
        """Wait until the clock has been read `n` times since it was made."""
        with self._read:
            assert self._read.wait_for(lambda: self._looks >= n, TIMEOUT_S), (
                f"the clock was read {self._looks} times, expected {n}"
            )


@pytest.fixture
def pinned_clock() -> MutableClock:
    """For tests that make their own store."""
    return MutableClock(START)
