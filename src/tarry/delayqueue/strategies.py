"""The classic ways to wait for a timer, behind one interface. For their costs see docs/explanation/timers.md.

A strategy decides where timers are kept, and thereby when to check them, and how a thread waits on a condition until
then. A wakeup is only a reason to check again, so a wait may end early for any reason. The delay queue and the
in-memory store accept any strategy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from tarry.core.conditions import Condition
from tarry.core.errors import InvalidInput
from tarry.core.timers import TimerHeap, Timers, TimerWheel
from tarry.storage.memory.conditions import ScanningCondition, SpinningCondition


class Strategy(Protocol):
    def timers(self) -> Timers[Any]:
        """A structure for the timers of one queue."""
        ...

    def waiting(self, changed: Condition, monotonic: Callable[[], float]) -> Condition:
        """The condition on which the threads of one queue wait."""
        ...

    @property
    def scan_every(self) -> timedelta | None:
        """How often a waiting thread checks without a notification; None: never."""
        ...


@dataclass(frozen=True, slots=True)
class WaitNotify:
    """Sleep until the head is due; an earlier timer notifies the sleeper. No spurious wakeups."""

    def timers(self) -> Timers[Any]:
        return TimerHeap()

    def waiting(self, changed: Condition, monotonic: Callable[[], float]) -> Condition:
        return changed

    @property
    def scan_every(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class WaitNotifyScan:
    """Wait and notify, and every sleeper also checks by itself once per `scan_every`.

    A lost notification, or a thread that died while it slept for the head, therefore costs at most one interval.
    """

    scan_every: timedelta = timedelta(seconds=1)

    def __post_init__(self) -> None:
        if self.scan_every <= timedelta(0):
            raise InvalidInput(f"scan_every must be longer than nothing: {self.scan_every}")

    def timers(self) -> Timers[Any]:
        return TimerHeap()

    def waiting(self, changed: Condition, monotonic: Callable[[], float]) -> Condition:
        return ScanningCondition(changed, self.scan_every.total_seconds())


@dataclass(frozen=True, slots=True)
class BusyWait:
    """Sleep until `spin_for` before the head is due, then poll the clock without sleeping.

    The lowest lateness at a bounded cost: one core, for at most `spin_for` per wait. Between two polls the thread
    yields (`pause`).
    """

    spin_for: timedelta = timedelta(microseconds=500)
    pause: Callable[[], None] = lambda: time.sleep(0)

    def __post_init__(self) -> None:
        if not timedelta(0) < self.spin_for <= timedelta(seconds=1):
            raise InvalidInput(f"spin_for must be more than nothing and at most a second: {self.spin_for}")

    def timers(self) -> Timers[Any]:
        return TimerHeap()

    def waiting(self, changed: Condition, monotonic: Callable[[], float]) -> Condition:
        return SpinningCondition(changed, monotonic, self.spin_for.total_seconds(), self.pause)

    @property
    def scan_every(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class TimingWheel:
    """Wait and notify on a hashed timing wheel: at most one `tick` late, and one wakeup for all timers of a tick."""

    tick: timedelta = timedelta(milliseconds=1)

    def __post_init__(self) -> None:
        if self.tick <= timedelta(0):
            raise InvalidInput(f"tick must be longer than nothing: {self.tick}")

    def timers(self) -> Timers[Any]:
        return TimerWheel(self.tick.total_seconds())

    def waiting(self, changed: Condition, monotonic: Callable[[], float]) -> Condition:
        return changed

    @property
    def scan_every(self) -> None:
        return None
