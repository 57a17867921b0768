"""Timers ordered by due time: the next one, and those due at a given instant. Nothing here waits.

Instants are readings of one monotonic clock, in seconds: any number except NaN. Not thread-safe: callers that share a
structure need a lock.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final, Generic, TypeVar

from tarry.core.errors import InvalidInput

T = TypeVar("T")

_TOLERATED: Final = 64
"""Cancelled entries that a heap may always keep: removing them from a short heap would cost more."""
_BITS: Final = 10
SLOTS: Final = 1 << _BITS
_MASK: Final = SLOTS - 1
LEVELS: Final = 4
"""With ticks of a millisecond they cover a second, 17 minutes, 12 days and 35 years. The heap has later timers."""
_FAR: Final = 1 << 62
"""The tick of instants whose number would overflow, including infinity."""


@dataclass(slots=True, eq=False)
class Timer(Generic[T]):
    """An item with a due time. Keep it to be able to cancel it."""

    item: T
    due: float
    number: int
    """Sequence number: timers with equal due times are popped in the order of their start; items are not compared."""
    container: TimerHeap[T] | Slot[T] | None = None
    """The owner of the timer, which alone may change this; None after it was popped or cancelled."""
    index: int = 0
    """The position in the slot of a wheel."""

    def __repr__(self) -> str:
        return f"<Timer {self.item!r} due {self.due}{', over' if self.container is None else ''}>"


def order(timer: Timer[T]) -> tuple[float, int]:
    return timer.due, timer.number


class TimerHeap(Generic[T]):
    """Exact to the clock's resolution. Start and pop in O(log n), cancel in O(1): a cancelled entry stays until it reaches
    the top or such entries are a majority."""

    __slots__ = ("_heap", "_live", "_started")

    def __init__(self) -> None:
        # Tuples, because they are compared in C. The number comes before the timer, so timers are never compared.
        self._heap: list[tuple[float, int, Timer[T]]] = []
        self._live = 0
        self._started = 0

    def __len__(self) -> int:
        return self._live

    def __iter__(self) -> Iterator[Timer[T]]:
        """All pending timers, unordered."""
        return (timer for _, _, timer in self._heap if timer.container is self)

    def start(self, item: T, due: float, now: float) -> Timer[T]:
        self._started += 1
        timer = Timer(item, due, self._started)
        self._insert(timer)
        return timer

    def _insert(self, timer: Timer[T]) -> None:
        timer.container = self
        self._live += 1
        heapq.heappush(self._heap, (timer.due, timer.number, timer))

    def cancel(self, timer: Timer[T]) -> bool:
        """False if the timer was popped, was cancelled, or belongs to another structure."""
        if timer.container is not self:
            return False
        timer.container = None
        self._live -= 1
        if len(self._heap) > 2 * self._live + _TOLERATED:
            self._heap = [entry for entry in self._heap if entry[2].container is self]
            heapq.heapify(self._heap)
        return True

    def pop_due(self, now: float) -> Timer[T] | None:
        """Pop the earliest timer that is due; never one that is not."""
        timer = self._head()
        if timer is None or timer.due > now:
            return None
        heapq.heappop(self._heap)
        timer.container = None
        self._live -= 1
        return timer

    def first(self) -> Timer[T] | None:
        """The earliest timer, due or not, without removing it."""
        return self._head()

    def wake_at(self) -> float:
        """When to call `pop_due` again if nothing is started before; infinity if no timer is pending."""
        timer = self._head()
        return math.inf if timer is None else timer.due

    def _head(self) -> Timer[T] | None:
        heap = self._heap
        while heap:
            timer = heap[0][2]
            if timer.container is self:
                return timer
            heapq.heappop(heap)
        return None


class TimerWheel(TimerHeap[T]):
    """A hashed timing wheel: time is divided into ticks, and a timer goes into the slot of its tick. Start and cancel in
    O(1). A caller that sleeps until `wake_at` is at most one tick late, never early.

    Long delays go to coarser levels: a slot of the next level is a whole turn of the level below. When time reaches
    such a slot, its timers move down. Occupied slots are found by the bits of an integer, so empty slots cost nothing
    and cause no wakeups.

    A reached slot is moved to the heap, which has exact times. So timers are popped in due order, even within a tick, and
    a call in the middle of a tick returns the timers due by then.
    """

    __slots__ = ("_ahead", "_earliest", "_elapsed", "_levels", "_tick")

    def __init__(self, tick: float = 0.001) -> None:
        """`tick` in seconds: the maximum lateness of a timer, and the interval that one wakeup covers."""
        if not 0 < tick < math.inf:
            raise InvalidInput(f"tick must be positive and finite, got {tick} s")
        super().__init__()
        self._tick = tick
        self._levels: tuple[Level[T], ...] = tuple(Level(number) for number in range(LEVELS))
        self._ahead = 0
        """Number of timers in slots, outside of the heap."""
        self._elapsed = -1
        self._earliest: float | None = math.inf
        """Lower bound of all due times. None: compute it on demand."""

    def __len__(self) -> int:
        return self._live + self._ahead

    def __iter__(self) -> Iterator[Timer[T]]:
        return chain(super().__iter__(), *self._levels)

    def start(self, item: T, due: float, now: float) -> Timer[T]:
        # Otherwise the first timers after a pause would go into slots as coarse as the pause was long.
        self._advance(now)
        if self._earliest is not None and due < self._earliest:
            self._earliest = due
        return super().start(item, due, now)

    def _insert(self, timer: Timer[T]) -> None:
        tick, elapsed = self._tick_of(timer.due), self._elapsed
        if tick > elapsed:
            for level in self._levels:
                if (tick >> level.shift) - (elapsed >> level.shift) < SLOTS:
                    level.put(timer, tick)
                    self._ahead += 1
                    return
        # Already reached, or so far away that only few timers exist.
        super()._insert(timer)

    def cancel(self, timer: Timer[T]) -> bool:
        slot = timer.container
        if isinstance(slot, Slot):
            if slot.level not in self._levels:
                return False
            slot.level.remove(timer, slot)
            self._ahead -= 1
        elif not super().cancel(timer):
            return False
        self._forget(timer)
        return True

    def pop_due(self, now: float) -> Timer[T] | None:
        self._advance(now)
        timer = super().pop_due(now)
        if timer is not None:
            self._forget(timer)
        return timer

    def first(self) -> Timer[T] | None:
        """Searches one slot per level: not for the hot path."""
        heads = [min(slot.timers, key=order) for slot in self._next_slots()]
        if (reached := self._head()) is not None:
            heads.append(reached)
        return min(heads, key=order, default=None)

    def wake_at(self) -> float:
        """The end of the first occupied tick."""
        due = self._earliest
        if due is None:
            due = self._earliest = min([super().wake_at(), *(slot.earliest for slot in self._next_slots())])
        tick = self._tick_of(due)
        # The later of both: the end of a tick may be rounded to just before its last instant.
        return due if tick == _FAR else max(due, (tick + 1) * self._tick)

    def _next_slots(self) -> list[Slot[T]]:
        return [slot for level in self._levels if (slot := level.next_after(self._elapsed)) is not None]

    def _forget(self, timer: Timer[T]) -> None:
        if self._earliest is not None and timer.due <= self._earliest:
            self._earliest = None

    def _advance(self, now: float) -> None:
        tick = self._tick_of(now)
        if tick <= self._elapsed:
            return
        before, self._elapsed = self._elapsed, tick
        for level in self._levels:
            for slot in level.passed(before, tick):
                self._ahead -= len(slot.timers)
                for timer in slot.timers:
                    self._insert(timer)
        if self._earliest is not None and self._earliest <= now:
            # It may belong to a cancelled timer: the caller must not wake for it again.
            self._earliest = None

    def _tick_of(self, instant: float) -> int:
        """Monotonic in the instant despite rounding: a due timer is never in a tick that lies ahead."""
        quotient = instant / self._tick
        if quotient < 0:
            return -1
        return int(quotient) if quotient < _FAR else _FAR


class Slot(Generic[T]):
    __slots__ = ("earliest", "index", "level", "timers")

    def __init__(self, level: Level[T], index: int) -> None:
        self.level = level
        self.index = index
        # Unordered: the last timer replaces a removed one. A million timers took 180 bytes each in sets, 140 in lists.
        self.timers: list[Timer[T]] = []
        self.earliest = math.inf
        """Lower bound of the due times. After a cancel it may be too low, which causes one spurious wakeup."""


class Level(Generic[T]):
    """One level of the wheel: a ring of slots, and an integer whose bits mark the occupied ones.

    All occupied slots are less than one turn ahead of the elapsed time, so slots of different turns are never confused.
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
        timer.container = slot

    def remove(self, timer: Timer[T], slot: Slot[T]) -> None:
        last = slot.timers.pop()
        if last is not timer:
            slot.timers[timer.index] = last
            last.index = timer.index
        timer.container = None
        if not slot.timers:
            self._drop(slot)

    def next_after(self, elapsed: int) -> Slot[T] | None:
        occupied = self._occupied
        if not occupied:
            return None
        start = ((elapsed >> self.shift) + 1) & _MASK
        ahead = occupied >> start
        return self._slots[start + _lowest_bit(ahead) if ahead else _lowest_bit(occupied)]

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
