"""A clock that stands still until a test moves it."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from tarry.core import limits
from tarry.core.errors import InvalidInput

_START = datetime(2024, 1, 1, tzinfo=UTC)


class MutableClock:
    """Pins every statement of a store to one instant. It may also be set back: clocks in the field do that."""

    def __init__(self, start: datetime = _START) -> None:
        self._lock = threading.Lock()
        self._now = limits.check_instant(start, "start").astimezone(UTC)

    def pinned(self) -> datetime:
        with self._lock:
            return self._now

    def set(self, at: datetime) -> datetime:
        instant = limits.check_instant(at).astimezone(UTC)
        with self._lock:
            self._now = instant
            return instant

    def advance(self, by: timedelta) -> datetime:
        """Forward, or backward by a negative `by`; gives the new instant."""
        if not isinstance(by, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"by must be a timedelta, not {type(by).__name__}")
        # One step under the lock, so that no advance of another thread is lost.
        with self._lock:
            self._now += by
            return self._now
