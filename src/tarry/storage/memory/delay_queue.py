"""The classic delay queue: a blocking priority queue whose head can be taken only when its time has come.

It is not a store: items have no key and no lease, and what was taken is gone. It is here for programs that need just
that on one machine, and as the reference for every other way to wait.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Generic, TypeVar

from tarry.core.conditions import Condition
from tarry.core.errors import InvalidInput, Refused
from tarry.core.timers import Timer, Timers
from tarry.core.timers.timer import order
from tarry.storage.memory.strategies import Strategy, WaitNotify

T = TypeVar("T")

_BEST: Strategy = WaitNotify()


class DelayQueue(Generic[T]):
    """Any number of producers and consumers; every item is taken once, never before its time, earliest first.

    Leader and followers: one waiting consumer sleeps for exactly the head's delay, the others until they are called.
    So a due item wakes one thread, not all of them. Whoever leaves calls the next, also by timeout or exception.

    `strategy` says where items are kept and how consumers wait. Times are readings of `monotonic`, in seconds: a change
    of the wall clock moves nothing. A `condition` of your own must have a reentrant lock: `remove` asks items whether
    they are equal, and they are the caller's.
    """

    def __init__(
        self,
        *,
        strategy: Strategy = _BEST,
        monotonic: Callable[[], float] = time.monotonic,
        condition: Condition | None = None,
    ) -> None:
        self._monotonic = monotonic
        self._changed = strategy.waiting(threading.Condition() if condition is None else condition, monotonic)
        self._timers: Timers[T] = strategy.timers()
        self._leader: object | None = None
        self._closed = False

    def __len__(self) -> int:
        """Everything inside, due or not."""
        with self._changed:
            return len(self._timers)

    @property
    def closed(self) -> bool:
        with self._changed:
            return self._closed

    def put(self, item: T, *, at: float | None = None, after: timedelta | None = None) -> Timer[T]:
        """Never blocks. Due `at` a reading of the clock, or `after` a while; without both, now. The past is due now.

        Keep what it gives if the item may have to be cancelled.
        """
        if item is None:
            raise InvalidInput("None cannot be an item: it is what take and poll give when there is none")
        if at is not None and after is not None:
            raise InvalidInput("give either at or after, not both")
        if at is not None and math.isnan(at):
            raise InvalidInput("at must be a number: nothing is before or after NaN")
        with self._changed:
            if self._closed:
                raise Refused("the delay queue is closed", hint="put before close, or make another queue")
            now = self._monotonic()
            due = at if at is not None else now + (after or timedelta(0)).total_seconds()
            awaited = self._timers.wake_at()
            timer = self._timers.start(item, due, now)
            if self._timers.wake_at() < awaited:
                # The leader sleeps for another head, which is no longer the first: somebody must lead for this one.
                self._leader = None
                self._changed.notify()
            return timer

    def cancel(self, timer: Timer[T]) -> bool:
        """Takes out what a `put` put in. False if it was taken or cancelled before. Costs the same however many wait."""
        with self._changed:
            return self._timers.cancel(timer)

    def take(self, timeout: timedelta | None = None) -> T | None:
        """Blocks until the head is due. None when `timeout` is over, or the queue was closed."""
        with self._changed:
            deadline = math.inf if timeout is None else self._monotonic() + timeout.total_seconds()
            try:
                return self._wait_for_head(deadline)
            finally:
                if self._leader is None and len(self._timers):
                    self._changed.notify()

    def poll(self) -> T | None:
        """The head if it is due, without waiting. Also what was left when the queue was closed."""
        with self._changed:
            return self._pop_due(self._monotonic())

    def peek(self) -> T | None:
        """The head, due or not; it stays."""
        with self._changed:
            timer = self._timers.first()
            return None if timer is None else timer.item

    def remaining(self) -> timedelta | None:
        """How long until the head is due: zero if it is, None if there is none."""
        with self._changed:
            timer = self._timers.first()
            if timer is None:
                return None
            seconds = max(timer.due - self._monotonic(), 0.0)
        # The longest timedelta is shorter than the longest float, and an item may be due never.
        return timedelta(seconds=seconds) if seconds < timedelta.max.total_seconds() else timedelta.max

    def remove(self, item: T) -> bool:
        """Takes out the earliest item that equals this one, due or not. It looks at all of them: prefer `cancel`."""
        with self._changed:
            # Of a copy: comparing may run code of the caller's, which may put.
            equal = [timer for timer in list(self._timers) if timer.item == item]
            return bool(equal) and self._timers.cancel(min(equal, key=order))

    def drain(self, limit: int | None = None) -> list[T]:
        """What is due by now, earliest first, at most `limit`."""
        items: list[T] = []
        with self._changed:
            now = self._monotonic()
            while limit is None or len(items) < limit:
                item = self._pop_due(now)
                if item is None:
                    break
                items.append(item)
        return items

    def close(self) -> None:
        """Wakes everybody who waits; from now on `take` gives None. What is left can still be polled or drained."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _wait_for_head(self, deadline: float) -> T | None:
        # A loop around a predicate: a wake-up is only ever a reason to look again.
        while not self._closed:
            now = self._monotonic()
            if (item := self._pop_due(now)) is not None:
                return item
            if now >= deadline:
                return None
            if not len(self._timers) or self._leader is not None:
                self._changed.wait(_waitable(deadline - now))
            else:
                self._lead(min(self._timers.wake_at(), deadline) - now)
        return None

    def _lead(self, seconds: float) -> None:
        me = self._leader = object()
        try:
            self._changed.wait(_waitable(seconds))
        finally:
            # Not if an earlier item came meanwhile: then somebody else may lead already.
            if self._leader is me:
                self._leader = None

    def _pop_due(self, now: float) -> T | None:
        timer = self._timers.pop_due(now)
        return None if timer is None else timer.item


def _waitable(seconds: float) -> float | None:
    """Longer waits than the platform knows are cut: their thread looks, and waits again."""
    return None if math.isinf(seconds) else min(seconds, threading.TIMEOUT_MAX)
