"""A hashed timing wheel: time is divided into ticks, and a timer goes into the slot of its tick."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain
from typing import Final, Generic, TypeVar, cast

from tarry.core.errors import InvalidInput
from tarry.core.timers.heap import TimerHeap
from tarry.core.timers.levels import LEVELS, SLOTS, Level, Slot
from tarry.core.timers.timer import Timer, order

T = TypeVar("T")

_FAR: Final = 1 << 62
"""The tick of instants whose number would overflow, including infinity."""


class TimerWheel(Generic[T]):
    """Start and cancel in O(1). A caller that sleeps until `wake_at` is at most one tick late, never early.

    Long delays go to coarser levels: a slot of the next level is a whole turn of the level below. When time reaches
    such a slot, its timers move down. Occupied slots are found by the bits of an integer, so empty slots cost nothing
    and cause no wakeups.

    A slot that time has reached is moved to a small heap with exact times. Timers are therefore popped in the order of
    due times, also within a tick, and a call in the middle of a tick returns what is due by then.
    """

    __slots__ = ("_earliest", "_elapsed", "_levels", "_live", "_reached", "_started", "_tick")

    def __init__(self, tick: float = 0.001) -> None:
        """`tick` in seconds: the maximum lateness of a timer, and the interval that one wakeup covers."""
        if not 0 < tick < math.inf:
            raise InvalidInput(f"a tick lasts longer than nothing, and not for ever: {tick} s")
        self._tick = tick
        self._levels: tuple[Level[T], ...] = tuple(Level(number) for number in range(LEVELS))
        self._reached: TimerHeap[T] = TimerHeap()
        self._elapsed = -1
        self._earliest: float | None = math.inf
        """Lower bound of all due times. None: compute it on demand."""
        self._live = 0
        self._started = 0

    def __len__(self) -> int:
        return self._live

    def __iter__(self) -> Iterator[Timer[T]]:
        return chain(self._reached, *self._levels)

    def start(self, item: T, due: float, now: float) -> Timer[T]:
        # Without this the first timers after a pause would go into slots as coarse as the pause was long.
        self._advance(now)
        self._started += 1
        timer = Timer(item, due, self._started)
        self._place(timer)
        self._live += 1
        if self._earliest is not None and due < self._earliest:
            self._earliest = due
        return timer

    def cancel(self, timer: Timer[T]) -> bool:
        place = cast("Slot[T] | TimerHeap[T] | None", timer.place)
        if isinstance(place, Slot):
            if place.level not in self._levels:
                return False
            place.level.remove(timer, place)
        elif not self._reached.cancel(timer):
            return False
        self._left(timer)
        return True

    def pop_due(self, now: float) -> Timer[T] | None:
        self._advance(now)
        timer = self._reached.pop_due(now)
        if timer is not None:
            self._left(timer)
        return timer

    def first(self) -> Timer[T] | None:
        """Searches one slot per level: not for the hot path."""
        slots = (level.next_after(self._elapsed) for level in self._levels)
        heads = [min(slot.timers, key=order) for slot in slots if slot is not None]
        if (reached := self._reached.first()) is not None:
            heads.append(reached)
        return min(heads, key=order, default=None)

    def wake_at(self) -> float:
        """The end of the first occupied tick."""
        due = self._earliest
        if due is None:
            slots = (level.next_after(self._elapsed) for level in self._levels)
            due = min([self._reached.wake_at(), *(slot.earliest for slot in slots if slot is not None)])
            self._earliest = due
        tick = self._tick_of(due)
        # The later of both: the end of a tick may be rounded to just before its last instant.
        return due if tick == _FAR else max(due, (tick + 1) * self._tick)

    def _left(self, timer: Timer[T]) -> None:
        self._live -= 1
        if self._earliest is not None and timer.due <= self._earliest:
            self._earliest = None

    def _advance(self, now: float) -> None:
        tick = self._tick_of(now)
        if tick <= self._elapsed:
            return
        before, self._elapsed = self._elapsed, tick
        for level in self._levels:
            for slot in level.passed(before, tick):
                for timer in slot.timers:
                    self._place(timer)
        if self._earliest is not None and self._earliest <= now:
            # Possibly of a cancelled timer: the caller that woke for it must not wake for it again.
            self._earliest = None

    def _place(self, timer: Timer[T]) -> None:
        tick, elapsed = self._tick_of(timer.due), self._elapsed
        if tick > elapsed:
            for level in self._levels:
                if (tick >> level.shift) - (elapsed >> level.shift) < SLOTS:
                    level.put(timer, tick)
                    return
        # Already reached, or so far away that there are few enough to keep in the heap.
        self._reached.hold(timer)

    def _tick_of(self, instant: float) -> int:
        """Monotonic in the instant despite rounding: a due timer is never in a tick that lies ahead."""
        quotient = instant / self._tick
        if quotient < 0:
            return -1
        return int(quotient) if quotient < _FAR else _FAR
