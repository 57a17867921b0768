"""One level of a timing wheel: slots, and an integer whose bits mark the occupied ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain
from typing import Final, Generic, TypeVar

from tarry.core.timers.timer import Timer

T = TypeVar("T")

_BITS: Final = 10
SLOTS: Final = 1 << _BITS
_MASK: Final = SLOTS - 1
LEVELS: Final = 4
"""With ticks of a millisecond: a second, 17 minutes, 12 days, 35 years. Later timers are kept in the heap."""


class Slot(Generic[T]):
    __slots__ = ("earliest", "index", "level", "timers")

    def __init__(self, level: Level[T], index: int) -> None:
        self.level = level
        self.index = index
        # Unordered: a removed timer is replaced by the last one. A million timers took 180 bytes each in sets, 140 in
        # lists.
        self.timers: list[Timer[T]] = []
        self.earliest = math.inf
        """Lower bound of the due times in this slot. After a cancel it may be too low, which causes one spurious
        wakeup.
        """


class Level(Generic[T]):
    """A ring of slots. All occupied slots are less than one turn ahead of the elapsed time, so slots of different turns
    are never confused.
    """

    __slots__ = ("_occupied", "_slots", "shift")

    def __init__(self, number: int) -> None:
        self.shift = number * _BITS
        self._slots: dict[int, Slot[T]] = {}
        self._occupied = 0

    def __iter__(self) -> Iterator[Timer[T]]:
        return chain.from_iterable(slot.timers for slot in self._slots.values())

    def put(self, timer: Timer[T], tick: int) -> None:
        index = (tick >> self.shift) & _MASK
        slot = self._slots.get(index)
        if slot is None:
            slot = self._slots[index] = Slot(self, index)
            self._occupied |= 1 << index
        timer.index = len(slot.timers)
        slot.timers.append(timer)
        if timer.due < slot.earliest:
            slot.earliest = timer.due
        timer.place = slot

    def remove(self, timer: Timer[T], slot: Slot[T]) -> None:
        last = slot.timers.pop()
        if last is not timer:
            slot.timers[timer.index] = last
            last.index = timer.index
        timer.place = None
        if not slot.timers:
            self._drop(slot)

    def next_after(self, elapsed: int) -> Slot[T] | None:
        """The first occupied slot ahead."""
        occupied = self._occupied
        if not occupied:
            return None
        start = ((elapsed >> self.shift) + 1) & _MASK
        ahead = occupied >> start
        if ahead:
            return self._slots[start + _lowest_bit(ahead)]
        return self._slots[_lowest_bit(occupied)]

    def passed(self, before: int, now: int) -> Iterator[Slot[T]]:
        """Remove and yield the slots that time has reached between two ticks."""
        turned = (now >> self.shift) - (before >> self.shift)
        while self._occupied and turned:
            slot = self.next_after(before)
            if slot is None or (slot.index - (before >> self.shift)) & _MASK > turned:
                return
            self._drop(slot)
            yield slot

    def _drop(self, slot: Slot[T]) -> None:
        del self._slots[slot.index]
        self._occupied ^= 1 << slot.index


def _lowest_bit(number: int) -> int:
    return (number & -number).bit_length() - 1
