"""One ring of a timing wheel: slots, and a number whose bits say which of them hold something."""

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
"""With ticks of a millisecond: a second, 17 minutes, 12 days, 35 years. What is later still is kept elsewhere."""


class Slot(Generic[T]):
    __slots__ = ("earliest", "index", "level", "timers")

    def __init__(self, level: Level[T], index: int) -> None:
        self.level = level
        self.index = index
        # In no order: who leaves is replaced by the last. A million in sets took 180 bytes each, and so 140.
        self.timers: list[Timer[T]] = []
        self.earliest = math.inf
        """No timer here is due before. After a cancel it may be lower than need be: then somebody wakes in vain, once."""


class Level(Generic[T]):
    """All slots that hold something lie less than one turn ahead of the time that has elapsed, so none is mistaken for
    that of another turn."""

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
        """The first slot ahead that holds something."""
        occupied = self._occupied
        if not occupied:
            return None
        start = ((elapsed >> self.shift) + 1) & _MASK
        ahead = occupied >> start
        if ahead:
            return self._slots[start + _lowest_bit(ahead)]
        return self._slots[_lowest_bit(occupied)]

    def passed(self, before: int, now: int) -> Iterator[Slot[T]]:
        """Takes out the slots that time has reached between two ticks."""
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
