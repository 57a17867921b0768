"""The classic ways to wait for a timer, behind one interface. docs/explanation/timers.md says what each costs.

A strategy decides where timers are kept, and so when it pays to look at them, and how a thread waits on a condition until
then. A wake-up is only ever a reason to look again, so a wait may end early, for any reason or none. The delay queue and the
memory store take any of them.
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
        """A place for the timers of one queue."""
        ...

    def waiting(self, changed: Condition, monotonic: Callable[[], float]) -> Condition:
        """The condition as the threads of one queue wait on it."""
        ...

    @property
    def scan_every(self) -> timedelta | None:
        """How often a sleeper looks by itself, though nobody calls it; None: never."""
        ...


@dataclass(frozen=True, slots=True)
class WaitNotify:
    """Sleep until the head is due; an earlier timer calls the sleeper. Nobody wakes in vain."""

    def timers(self) -> Timers[Any]:
        return TimerHeap()

    def waiting(self, changed: Condition, monotonic: Callable[[], float]) -> Condition:
        return changed

    @property
    def scan_every(self) -> None:
        return None


@dataclass(frozen=True, slots=True)
class WaitNotifyScan:
    """Wait and notify, and every sleeper also looks by itself once per `scan_every`.

    So a call that was lost, or a thread that died while it slept for the head, costs no more than one interval.
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
    """Sleep until `spin_for` before the head is due, and then look at the clock without sleeping.

    The lowest lateness for a bounded price: one core, for at most `spin_for` per wait. Between two looks the thread gives
    way to others (`pause`).
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
    """Wait and notify on a hashed timing wheel: at most one `tick` late, and one wake-up for all timers of a tick."""

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
