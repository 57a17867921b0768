"""A hashed timing wheel: time is cut into ticks, and a timer is dropped into the slot of its tick."""

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
"""The tick of everything that is so far away that its number would overflow; also of "never"."""


class TimerWheel(Generic[T]):
    """Start and cancel in O(1), however many wait. Whoever sleeps until `wake_at` is at most one tick late, never early.

    Long delays go to coarser levels: a slot of the next level is a whole turn of the one before. When time reaches such
    a slot, its timers move down. Slots are found by the bits of a number, so empty ones cost nothing, and nobody
    wakes for them.

    A slot that time has reached is poured into a small heap, which knows exact times. So the order is that of the due times,
    also within a tick, and who looks in the middle of a tick gets what is due by then.
    """

    __slots__ = ("_earliest", "_elapsed", "_levels", "_live", "_reached", "_started", "_tick")

    def __init__(self, tick: float = 0.001) -> None:
        """`tick` in seconds: how late a timer may be, and how long one wake-up lasts for those after it."""
        if not 0 < tick < math.inf:
            raise InvalidInput(f"a tick lasts longer than nothing, and not for ever: {tick} s")
        self._tick = tick
        self._levels: tuple[Level[T], ...] = tuple(Level(number) for number in range(LEVELS))
        self._reached: TimerHeap[T] = TimerHeap()
        self._elapsed = -1
        self._earliest: float | None = math.inf
        """No timer is due before. None: look for it when somebody asks."""
        self._live = 0
        self._started = 0

    def __len__(self) -> int:
        return self._live

    def __iter__(self) -> Iterator[Timer[T]]:
        return chain(self._reached, *self._levels)

    def start(self, item: T, due: float, now: float) -> Timer[T]:
        # Without this the first timers after a pause would land in slots as coarse as the pause was long.
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
        """Looks through one slot per level: not for the hot path."""
        slots = (level.next_after(self._elapsed) for level in self._levels)
        heads = [min(slot.timers, key=order) for slot in slots if slot is not None]
        if (reached := self._reached.first()) is not None:
            heads.append(reached)
        return min(heads, key=order, default=None)

    def wake_at(self) -> float:
        """The end of the first tick that holds something."""
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
            # Of a timer that was cancelled, perhaps: whoever woke for it must not wake for it again.
            self._earliest = None

    def _place(self, timer: Timer[T]) -> None:
        tick, elapsed = self._tick_of(timer.due), self._elapsed
        if tick > elapsed:
            for level in self._levels:
                if (tick >> level.shift) - (elapsed >> level.shift) < SLOTS:
                    level.put(timer, tick)
                    return
        # Time has reached it, or it is so far away that a place in the heap is no burden.
        self._reached.hold(timer)

    def _tick_of(self, instant: float) -> int:
        """Grows with the instant, whatever the rounding: what is due is never in a tick that lies ahead."""
        quotient = instant / self._tick
        if quotient < 0:
            return -1
        return int(quotient) if quotient < _FAR else _FAR
