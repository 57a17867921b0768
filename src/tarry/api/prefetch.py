"""Buffer of messages leased in advance."""

from collections import deque
from collections.abc import Sequence
from math import inf
from typing import Any, Generic, TypeVar

from tarry.api.delivery import DeliveredMessage
from tarry.core.errors import InvalidInput

D = TypeVar("D", bound=DeliveredMessage[Any])

LARGEST = 1_000
_ADAPTIVE_MOST = 50
"""Maximum adaptive size. A loop body that suddenly slows down withholds the buffer from other consumers, and more would gain
little: a poll costs as much CPU as two acks, so polling 50 adds 3 % per message, and polling 20 added 8 %."""
_AHEAD_S = 0.05
"""An adaptive buffer holds the messages that will start within this time. After twice this time they count as stale, so that
other consumers can have them."""
_WEIGHT = 0.2
"""Weight of the last message in the moving average of handling times."""
_GROWTH = 8
"""Maximum growth from one poll to the next: 1, 8, 50. The first messages may have been quick by chance."""
_USABLE = 0.5
"""A message is handed out only while at least this share of its lease is left: its handler needs time as well."""
LOOK_EVERY_S = 0.5
"""Interval of checks for a paused queue, so that a pause takes effect within a second for prefetched messages too."""


class Prefetched(Generic[D]):
    """A buffer of prefetched messages. Times are readings of the caller's monotonic clock, never of the wall clock."""

    def __init__(self, size: int | None) -> None:
        """`size=None`: adapt to the caller's handling time per message, starting with 1."""
        if size is not None and not 1 <= size <= LARGEST:
            raise InvalidInput(f"prefetch must be between 1 and {LARGEST:,}, not {size}")
        self.size = size or 1
        """Number of messages to poll next."""
        self._is_adaptive = size is None
        self._average_s: float | None = None
        self._most = _GROWTH
        self._taken_s: float | None = None
        self._held: deque[tuple[D, float]] = deque()
        self._stale: list[D] = []
        self._looked_s = 0.0

    def fill(self, deliveries: Sequence[D], polled_s: float, now_s: float) -> None:
        """`polled_s`: when the poll was sent. Counting from then can only underestimate the lease."""
        self._looked_s = polled_s
        self._most = _GROWTH * self.size
        held_until_s = now_s + 2 * _AHEAD_S if self._is_adaptive else inf
        for delivery in deliveries:
            lease_s = (delivery.lease_until - delivery.leased_at).total_seconds()
            self._held.append((delivery, min(held_until_s, polled_s + lease_s * (1 - _USABLE))))

    def take(self, now_s: float) -> D | None:
        if self._is_adaptive and self._taken_s is not None:
            last_s = now_s - self._taken_s
            average_s = last_s if self._average_s is None else self._average_s + _WEIGHT * (last_s - self._average_s)
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
