"""The classic ways to wait for a timer, behind one interface. For their costs see docs/explanation/timers.md.

A strategy decides where timers are kept, and so when they are checked, and how a thread waits on a condition until then. A
wakeup is only a reason to check again, so a wait may end early for any reason. The delay queue and the in-memory store
accept any strategy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from tarry.core.errors import InvalidInput
from tarry.core.limits import check_positive
from tarry.core.wakeup.wait_queue import Condition
from tarry.delayqueue.timers import TimerHeap, TimerWheel


@dataclass(frozen=True, slots=True)
class Strategy:
    """The base of all strategies: a heap of timers, and waits until the head is due or a notification arrives."""

    def timers(self) -> TimerHeap[Any]:
        """The timer structure of one queue."""
        return TimerHeap()

    def waiting(self, changed: Condition, monotonic: Callable[[], float]) -> Condition:
        """The condition on which the threads of one queue wait."""
        return changed


@dataclass(frozen=True, slots=True)
class WaitNotify(Strategy):
    """Sleep until the head is due; an earlier timer notifies the sleeper. No spurious wakeups."""


@dataclass(frozen=True, slots=True)
class WaitNotifyScan(Strategy):
    """Wait and notify, and every sleeper also checks once per `scan_every`.

    So a lost notification, or a leader thread that died, costs at most one interval.
    """

    scan_every: timedelta = timedelta(seconds=1)

    def __post_init__(self) -> None:
        check_positive(self, "scan_every")

    def waiting(self, changed: Condition, monotonic: Callable[[], float]) -> Condition:
        scan_s = self.scan_every.total_seconds()
        return _TunedCondition(
            changed, lambda _, timeout: changed.wait(scan_s if timeout is None else min(timeout, scan_s))
        )


@dataclass(frozen=True, slots=True)
class BusyWait(Strategy):
    """Sleep until `spin_for` before the head is due, then poll the clock without sleeping.

    The lowest lateness at a bounded cost: one core, for at most `spin_for` per wait. Between two polls the thread
    yields (`pause`).
    """

    spin_for: timedelta = timedelta(microseconds=500)
    pause: Callable[[], None] = lambda: time.sleep(0)

    def __post_init__(self) -> None:
        if not timedelta(0) < self.spin_for <= timedelta(seconds=1):
            raise InvalidInput(f"spin_for must be positive and at most 1 s, got {self.spin_for}")

    def waiting(self, changed: Condition, monotonic: Callable[[], float]) -> Condition:
        spin_s, pause = self.spin_for.total_seconds(), self.pause

        def wait(condition: _TunedCondition, timeout: float | None) -> bool:
            if timeout is None or timeout > spin_s:
                return changed.wait(None if timeout is None else timeout - spin_s)
            until, before = monotonic() + timeout, condition.notifications
            # Without the lock: acquiring it in every iteration would keep producers out.
            changed.release()
            try:
                while condition.notifications == before and monotonic() < until:
                    pause()
            finally:
                changed.acquire()
            return condition.notifications != before

        return _TunedCondition(changed, wait)


@dataclass(frozen=True, slots=True)
class TimingWheel(Strategy):
    """Wait and notify on a hashed timing wheel: at most one `tick` late, and one wakeup for all timers of a tick."""

    tick: timedelta = timedelta(milliseconds=1)

    def __post_init__(self) -> None:
        check_positive(self, "tick")

    def timers(self) -> TimerHeap[Any]:
        return TimerWheel(self.tick.total_seconds())


class _TunedCondition:
    """A condition with the lock and waiters of another condition, but its own `wait`."""

    def __init__(self, inner: Condition, wait: Callable[[_TunedCondition, float | None], bool]) -> None:
        self._inner = inner
        self._wait = wait
        self.acquire, self.release = inner.acquire, inner.release
        self.notifications = 0
        """For threads that spin instead of waiting on the inner condition."""

    def __enter__(self) -> bool:
        return self._inner.__enter__()

    def __exit__(self, *exc_info: Any) -> None:
        self._inner.__exit__(*exc_info)

    def wait(self, timeout: float | None = None) -> bool:
        return self._wait(self, timeout)

    def notify(self, n: int = 1) -> None:
        self.notifications += 1
        self._inner.notify(n)

    def notify_all(self) -> None:
        self.notifications += 1
        self._inner.notify_all()
