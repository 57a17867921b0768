"""A pinned clock that tells when it was looked at: how a test knows that a blocking poll has begun to wait."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest

from tarry.testing import MutableClock

START = datetime(2024, 1, 1, tzinfo=UTC)
PATIENCE_S = 30.0


class WatchedClock(MutableClock):
    """Every statement asks the clock once, so the number of looks is a signal: no test needs to sleep."""

    def __init__(self, start: datetime = START) -> None:
        super().__init__(start)
        self._asked = threading.Condition()
        self._looks = 0

    def pinned(self) -> datetime:
        with self._asked:
            self._looks += 1
            self._asked.notify_all()
        return super().pinned()

    @property
    def looks(self) -> int:
        with self._asked:
            return self._looks

    def await_looks(self, n: int) -> None:
        """Until it has been asked that often since it was made."""
        with self._asked:
            assert self._asked.wait_for(lambda: self._looks >= n, PATIENCE_S), "nobody asked what time it is"


@pytest.fixture
def pinned_clock() -> MutableClock:
    """For tests that make their own store."""
    return MutableClock(START)
