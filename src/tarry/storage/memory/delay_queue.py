"""The classic delay queue: a blocking priority queue whose head can be taken only when its time has come.

It is not a store: items have no key and no lease, and what was taken is gone. It is here for programs that need just
that on one machine, and as the reference for every other way to wait.
"""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from types import TracebackType
from typing import Generic, NamedTuple, Protocol, TypeVar

from tarry.core.errors import InvalidInput, Refused

T = TypeVar("T")


class Condition(Protocol):
    """What a delay queue needs of `threading.Condition`; a test may bring one whose time is not real.

    Its lock must be reentrant: `remove` asks the items whether they are equal, and they are the caller's.
    """

    def __enter__(self) -> bool: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    def wait(self, timeout: float | None = None) -> bool: ...
    def notify(self, n: int = 1) -> None: ...
    def notify_all(self) -> None: ...


class _Entry(NamedTuple, Generic[T]):
    """Number before item: equal times come out in the order of `put`, and items are never compared."""

    due: float
    number: int
    item: T


class DelayQueue(Generic[T]):
    """Any number of producers and consumers; every item is taken once, never before its time, earliest first.

    Leader and followers: one waiting consumer sleeps for exactly the head's delay, the others until they are called.
    So a due item wakes one thread, not all of them. Whoever leaves calls the next, also by timeout or exception.

    Times are readings of `monotonic`, in seconds: a change of the wall clock moves nothing.
    """

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic, condition: Condition | None = None) -> None:
        self._monotonic = monotonic
        self._changed: Condition = threading.Condition() if condition is None else condition
        self._heap: list[_Entry[T]] = []
        self._numbers = count()
        self._leader: object | None = None
        self._closed = False

    def __len__(self) -> int:
        """Everything inside, due or not."""
        with self._changed:
            return len(self._heap)

    @property
    def closed(self) -> bool:
        with self._changed:
            return self._closed

    def put(self, item: T, *, at: float | None = None, after: timedelta | None = None) -> None:
        """Never blocks. Due `at` a reading of the clock, or `after` a while; without both, now. The past is due now."""
        if item is None:
            raise InvalidInput("None cannot be an item: it is what take and poll give when there is none")
        if at is not None and after is not None:
            raise InvalidInput("give either at or after, not both")
        if at is not None and math.isnan(at):
            raise InvalidInput("at must be a number: nothing is before or after NaN")
        with self._changed:
            if self._closed:
                raise Refused("the delay queue is closed", hint="put before close, or make another queue")
            due = at if at is not None else self._monotonic() + (after or timedelta(0)).total_seconds()
            entry = _Entry(due, next(self._numbers), item)
            heapq.heappush(self._heap, entry)
            if self._heap[0] is entry:
                # The leader sleeps for another head, which is no longer the first: somebody must lead for this one.
                self._leader = None
                self._changed.notify()

    def take(self, timeout: timedelta | None = None) -> T | None:
        """Blocks until the head is due. None when `timeout` is over, or the queue was closed."""
        with self._changed:
            deadline = math.inf if timeout is None else self._monotonic() + timeout.total_seconds()
            try:
                return self._wait_for_head(deadline)
            finally:
                if self._leader is None and self._heap:
                    self._changed.notify()

    def poll(self) -> T | None:
        """The head if it is due, without waiting. Also what was left when the queue was closed."""
        with self._changed:
            return self._pop_due(self._monotonic())

    def peek(self) -> T | None:
        """The head, due or not; it stays."""
        with self._changed:
            return self._heap[0].item if self._heap else None

    def remaining(self) -> timedelta | None:
        """How long until the head is due: zero if it is, None if there is none."""
        with self._changed:
            if not self._heap:
                return None
            seconds = max(self._heap[0].due - self._monotonic(), 0.0)
        # The longest timedelta is shorter than the longest float, and an item may be due never.
        return timedelta(seconds=seconds) if seconds < timedelta.max.total_seconds() else timedelta.max

    def remove(self, item: T) -> bool:
        """Takes out the earliest item that equals this one, due or not."""
        with self._changed:
            equal = [entry for entry in self._heap if entry.item == item]
            if not equal:
                return False
            self._heap.remove(min(equal, key=_order))
            heapq.heapify(self._heap)
            return True

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
            if not self._heap or self._leader is not None:
                self._changed.wait(_waitable(deadline - now))
            else:
                self._lead(min(self._heap[0].due, deadline) - now)
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
        return heapq.heappop(self._heap).item if self._heap and self._heap[0].due <= now else None


def _order(entry: _Entry[T]) -> tuple[float, int]:
    return entry.due, entry.number


def _waitable(seconds: float) -> float | None:
    """Longer waits than the platform knows are cut: their thread looks, and waits again."""
    return None if math.isinf(seconds) else min(seconds, threading.TIMEOUT_MAX)
