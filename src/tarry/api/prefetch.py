"""Messages leased in advance, while their leases are fresh."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from tarry.core.errors import InvalidInput
from tarry.handles.delivery import Handed

D = TypeVar("D", bound=Handed[Any])

LARGEST = 1_000
_USABLE = 0.5
"""A message is handed out only while at least this share of its lease is left; its handler needs time, too."""
LOOK_EVERY_S = 0.5
"""Interval of checks for a paused queue: a pause takes effect within a second, also for prefetched messages."""


class Prefetched(Generic[D]):
    """A buffer of prefetched messages. Times are the caller's monotonic clock since before the poll, never the wall
    clock.
    """

    def __init__(self, size: int) -> None:
        if not 1 <= size <= LARGEST:
            raise InvalidInput(f"prefetch must be between 1 and {LARGEST:,}, not {size}")
        self.size = size
        self._held: deque[tuple[D, float]] = deque()
        self._stale: list[D] = []
        self._looked_s = 0.0

    def fill(self, deliveries: Sequence[D], asked_s: float) -> None:
        """`asked_s`: when the poll was sent, so that the real lease can only be longer than assumed."""
        self._looked_s = asked_s
        for delivery in deliveries:
            lease_s = (delivery.lease_until - delivery.leased_at).total_seconds()
            self._held.append((delivery, asked_s + lease_s * (1 - _USABLE)))

    def take(self, now_s: float) -> D | None:
        while self._held:
            delivery, usable_until_s = self._held.popleft()
            if now_s <= usable_until_s:
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
        self._stale = []
        self._held.clear()
        return rest
