"""The classic delay queue: a blocking priority queue whose head can be taken only once it is due.

It is not a store: items have no key and no lease, and a taken item is gone. It serves programs on one machine that need no
more, and it is the reference for all other ways of waiting.
"""

import math
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Generic, TypeVar

from tarry.core.errors import InvalidInput, InvalidState
from tarry.core.wakeup.wait_queue import Condition
from tarry.delayqueue.strategies import Strategy, WaitNotify
from tarry.delayqueue.timers import Timer, TimerHeap, order

T = TypeVar("T")

_DEFAULT: Strategy = WaitNotify()


class DelayQueue(Generic[T]):
    """Any number of producers and consumers; every item is taken once, never before its time, earliest first.

    Leader-follower pattern: one waiting consumer sleeps for exactly the head's delay, the others until they are
    notified, so a due item wakes one thread, not all. A consumer that leaves, also after a timeout or an exception,
    notifies the next.

    `strategy` decides where items are kept and how consumers wait. Times are readings of `monotonic`, in seconds:
    wall clock changes have no effect. A custom `condition` must have a reentrant lock: `remove` compares items, which
    runs the caller's code.
    """

    def __init__(
        self,
        *,
        strategy: Strategy = _DEFAULT,
        monotonic: Callable[[], float] = time.monotonic,
        condition: Condition | None = None,
    ) -> None:
        self._monotonic = monotonic
        self._changed = strategy.waiting(threading.Condition() if condition is None else condition, monotonic)
        self._timers: TimerHeap[T] = strategy.timers()
        self._leader: object | None = None
        self._closed = False

    def __len__(self) -> int:
        """Number of items, due or not."""
        with self._changed:
            return len(self._timers)

    @property
    def closed(self) -> bool:
        with self._changed:
            return self._closed

    def put(self, item: T, *, at: float | None = None, after: timedelta | None = None) -> Timer[T]:
        """Add an item; never blocks. It is due `at` a clock reading or `after` a delay; immediately by default or if past.

        Keep the returned timer if the item may have to be cancelled.
        """
        if item is None:
            raise InvalidInput("None cannot be an item: take and poll return it when there is no item")
        if at is not None and after is not None:
            raise InvalidInput("give either at or after, not both")
        if at is not None and math.isnan(at):
            raise InvalidInput("at must be a number, got NaN")
        with self._changed:
            if self._closed:
                raise InvalidState("the delay queue is closed", hint="put before close, or create another queue")
            now = self._monotonic()
            due = at if at is not None else now + (after or timedelta(0)).total_seconds()
            awaited = self._timers.wake_at()
            timer = self._timers.start(item, due, now)
            if self._timers.wake_at() < awaited:
                # The leader sleeps for an item that is no longer the head: another consumer must lead for this one.
                self._leader = None
                self._changed.notify()
            return timer

    def cancel(self, timer: Timer[T]) -> bool:
        """Remove an item by the timer of its `put`, in O(1). False if it was taken or cancelled before."""
        with self._changed:
            return self._timers.cancel(timer)

    def take(self, timeout: timedelta | None = None) -> T | None:
        """Block until the head is due. None when `timeout` has passed, or the queue was closed."""
        with self._changed:
            deadline = math.inf if timeout is None else self._monotonic() + timeout.total_seconds()
            try:
                return self._wait_for_head(deadline)
            finally:
                if self._leader is None and len(self._timers):
                    self._changed.notify()

    def poll(self) -> T | None:
        """The head if it is due, without waiting. Also works on the items left in a closed queue."""
        with self._changed:
            return self._pop_due(self._monotonic())

    def peek(self) -> T | None:
        """The head, due or not, without removing it."""
        with self._changed:
            timer = self._timers.first()
            return None if timer is None else timer.item

    def remaining(self) -> timedelta | None:
        """Time until the head is due: zero if it is, None if there is none."""
        with self._changed:
            timer = self._timers.first()
            if timer is None:
                return None
            seconds = max(timer.due - self._monotonic(), 0.0)
        # A float may exceed the longest timedelta, and an item may never be due.
        return timedelta(seconds=seconds) if seconds < timedelta.max.total_seconds() else timedelta.max

    def remove(self, item: T) -> bool:
        """Remove the earliest item that equals this one, due or not. Compares all items: prefer `cancel`."""
        with self._changed:
            # Iterate over a copy: comparing may run the caller's code, which may call `put`.
            equal = [timer for timer in list(self._timers) if timer.item == item]
            return bool(equal) and self._timers.cancel(min(equal, key=order))

    def drain(self, limit: int | None = None) -> list[T]:
        """The items that are due now, earliest first, at most `limit`."""
        items: list[T] = []
        with self._changed:
            now = self._monotonic()
            while (limit is None or len(items) < limit) and (item := self._pop_due(now)) is not None:
                items.append(item)
        return items

    def close(self) -> None:
        """Wake all waiting consumers; `take` then returns None. Remaining items can still be polled or drained."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _wait_for_head(self, deadline: float) -> T | None:
        # A loop around a predicate: a wakeup is only a reason to check again.
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
        this = self._leader = object()
        try:
            self._changed.wait(_waitable(seconds))
        finally:
            # Not if an earlier item has arrived: another consumer may already lead.
            if self._leader is this:
                self._leader = None

    def _pop_due(self, now: float) -> T | None:
        timer = self._timers.pop_due(now)
        return None if timer is None else timer.item


def _waitable(seconds: float) -> float | None:
    """Cap waits at the platform's maximum; the thread then checks and waits again."""
    return None if math.isinf(seconds) else min(seconds, threading.TIMEOUT_MAX)
