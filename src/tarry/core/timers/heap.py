"""Timers in a binary heap: exact to the resolution of the clock."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import Generic, TypeVar

from tarry.core.timers.timer import Timer

T = TypeVar("T")

_TOLERATED = 64
"""Cancelled entries that a heap may keep: removing them from a short heap every time would cost more than they do."""


class TimerHeap(Generic[T]):
    """Start and pop in O(log n). Cancel in O(1): a cancelled entry stays until it surfaces or such entries outnumber
    the rest.
    """

    __slots__ = ("_heap", "_live", "_started")

    def __init__(self) -> None:
        # Tuples, because they are compared in C. The number comes before the timer, so timers are never compared.
        self._heap: list[tuple[float, int, Timer[T]]] = []
        self._live = 0
        self._started = 0

    def __len__(self) -> int:
        return self._live

    def __iter__(self) -> Iterator[Timer[T]]:
        return (timer for _, _, timer in self._heap if timer.place is self)

    def start(self, item: T, due: float, now: float) -> Timer[T]:
        self._started += 1
        timer = Timer(item, due, self._started)
        self.hold(timer)
        return timer

    def hold(self, timer: Timer[T]) -> None:
        """Add a timer that was started elsewhere."""
        timer.place = self
        self._live += 1
        heapq.heappush(self._heap, (timer.due, timer.number, timer))

    def cancel(self, timer: Timer[T]) -> bool:
        if timer.place is not self:
            return False
        timer.place = None
        self._live -= 1
        if len(self._heap) > 2 * self._live + _TOLERATED:
            self._heap = [entry for entry in self._heap if entry[2].place is self]
            heapq.heapify(self._heap)
        return True

    def pop_due(self, now: float) -> Timer[T] | None:
        timer = self.first()
        if timer is None or timer.due > now:
            return None
        heapq.heappop(self._heap)
        timer.place = None
        self._live -= 1
        return timer

    def first(self) -> Timer[T] | None:
        heap = self._heap
        while heap:
            timer = heap[0][2]
            if timer.place is self:
                return timer
            heapq.heappop(heap)
        return None

    def wake_at(self) -> float:
        timer = self.first()
        return math.inf if timer is None else timer.due
