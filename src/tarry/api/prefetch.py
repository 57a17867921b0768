"""Messages leased in advance, while their leases are fresh."""

from collections import deque
from collections.abc import Sequence
from math import inf
from typing import Any, Generic, TypeVar

from tarry.api.delivery import DeliveredMessage
from tarry.core.errors import InvalidInput

D = TypeVar("D", bound=DeliveredMessage[Any])

LARGEST = 1_000
_ADAPTIVE_MOST = 50
"""Few, since a body that suddenly takes long keeps them from other consumers; and more would gain little: a poll costs as
much CPU as two acks, so a fiftieth of it is 3 % of a message, where a twentieth was 8 %."""
_AHEAD_S = 0.05
"""Without a fixed size as many are held as will start within this time, and none for twice as long: others may have them."""
_WEIGHT = 0.2
"""Of the last message in the moving average of the time that a message takes."""
_GROWTH = 8
"""A poll leases at most so many times as many as the one before it: 1, 8, 50. The first messages may have been quick by
chance."""
_USABLE = 0.5
"""A message is handed out only while at least this share of its lease is left; its handler needs time, too."""
LOOK_EVERY_S = 0.5
"""Interval of checks for a paused queue: a pause takes effect within a second, also for prefetched messages."""


class Prefetched(Generic[D]):
    """A buffer of prefetched messages. Times are the caller's monotonic clock since before the poll, never the wall
    clock."""

    def __init__(self, size: int | None) -> None:
        """Without a size it follows the time that the caller takes for a message, beginning with 1."""
        if size is not None and not 1 <= size <= LARGEST:
            raise InvalidInput(f"prefetch must be between 1 and {LARGEST:,}, not {size}")
        self.size = size or 1
        """How many to poll."""
        self._is_adaptive = size is None
        self._average_s: float | None = None
        self._most = _GROWTH
        self._taken_s: float | None = None
        self._held: deque[tuple[D, float]] = deque()
        self._stale: list[D] = []
        self._looked_s = 0.0

    def fill(self, deliveries: Sequence[D], polled_s: float, now_s: float) -> None:
        """`polled_s`: when the poll was sent, so that the real lease can only be longer than assumed."""
        self._looked_s = polled_s
        self._most = _GROWTH * self.size
        held_until_s = now_s + 2 * _AHEAD_S if self._is_adaptive else inf
        for delivery in deliveries:
            lease_s = (delivery.lease_until - delivery.leased_at).total_seconds()
            self._held.append((delivery, min(held_until_s, polled_s + lease_s * (1 - _USABLE))))

    def take(self, now_s: float) -> D | None:
        if self._is_adaptive and self._taken_s is not None:
            took_s = now_s - self._taken_s
            average_s = took_s if self._average_s is None else self._average_s + _WEIGHT * (took_s - self._average_s)
            self.size = min(_ADAPTIVE_MOST, self._most, 1 + int(_AHEAD_S / max(average_s, 1e-6)))
            self._average_s = average_s
        self._taken_s = None
        while self._held:
            delivery, usable_until_s = self._held.popleft()
            if now_s <= usable_until_s:
                self._taken_s = now_s
                return delivery
            self._stale.append(delivery)
        return None

    def should_look(self, now_s: float) -> bool:
        """Whether to check for a pause before the next message is handed out."""
        if not self._held or now_s - self._looked_s < LOOK_EVERY_S:
            return False
        self._looked_s = now_s
        return True

    def rest(self) -> list[D]:
        """Remove and return everything not handed out, stale messages first."""
        rest = self._stale + [delivery for delivery, _ in self._held]
        self._stale, self._taken_s = [], None
        self._held.clear()
        return rest
