"""Time that only a test moves, for code that waits on a condition."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from typing import Any

TIMEOUT_S = 20
"""Only for tests that fail: nothing waits for time to pass."""


class Interrupted(BaseException): ...


@dataclass(eq=False)
class Sleeper:
    timeout: float | None
    wake_at: float
    awake: bool = False
    """It only pauses between two looks at the clock: it sees every notification, and takes none away from sleepers."""
    woken: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None


class VirtualTime:
    """A clock that only `advance` moves, and a condition whose waits end by that clock."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._lock = threading.RLock()
        self._parked = threading.Condition(self._lock)
        self.sleepers: list[Sleeper] = []
        self.waits: list[float | None] = []

    def monotonic(self) -> float:
        with self._lock:
            return self._now

    def __enter__(self) -> bool:
        return self._lock.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._lock.__exit__(*error)

    def acquire(self) -> bool:
        return self._lock.acquire()

    def release(self) -> None:
        self._lock.release()

    def pause(self) -> None:
        """What a thread that waits awake does between two looks: here it looks when the test moves the clock."""
        with self._lock:
            self._park(Sleeper(0.0, self._now, awake=True))

    def wait(self, timeout: float | None = None) -> bool:
        return self._park(Sleeper(timeout, math.inf if timeout is None else self._now + timeout))

    def _park(self, sleeper: Sleeper) -> bool:
        self.sleepers.append(sleeper)
        self.waits.append(sleeper.timeout)
        self._parked.notify_all()
        self._lock.release()
        try:
            assert sleeper.woken.wait(TIMEOUT_S), "this thread was not notified"
        finally:
            self._lock.acquire()
        if sleeper.error is not None:
            raise sleeper.error
        return True

    def notify(self, n: int = 1) -> None:
        asleep = [sleeper for sleeper in self.sleepers if not sleeper.awake]
        for sleeper in [*asleep[:n], *(sleeper for sleeper in self.sleepers if sleeper.awake)]:
            self._wake(sleeper)

    def notify_all(self) -> None:
        self.notify(len(self.sleepers))

    def advance(self, seconds: float) -> None:
        with self._lock:
            self._now += seconds
            for sleeper in [sleeper for sleeper in self.sleepers if sleeper.wake_at <= self._now]:
                self._wake(sleeper)

    def interrupt(self, sleeper: Sleeper) -> None:
        with self._lock:
            sleeper.error = Interrupted()
            self._wake(sleeper)

    def lose(self, sleeper: Sleeper) -> None:
        """As if its thread had died: neither time nor a call wakes it any more. `interrupt` ends it for good."""
        with self._lock:
            self.sleepers.remove(sleeper)

    def parked(self, n: int) -> list[Sleeper]:
        """Waits until exactly so many wait, however long: a woken thread has looked, and left or gone to sleep again."""
        with self._parked:
            reached = self._parked.wait_for(lambda: len(self.sleepers) == n, TIMEOUT_S)
            assert reached, f"wanted {n} to wait, and there are {len(self.sleepers)}"
            return list(self.sleepers)

    def until(self, *timeouts: float | None) -> list[Sleeper]:
        """Waits until exactly these waits are going on, in any order."""
        with self._parked:
            expected = sorted(timeouts, key=str)
            reached = self._parked.wait_for(
                lambda: sorted((sleeper.timeout for sleeper in self.sleepers), key=str) == expected, TIMEOUT_S
            )
            assert reached, f"wanted {expected}, and there are {[sleeper.timeout for sleeper in self.sleepers]}"
            return list(self.sleepers)

    def _wake(self, sleeper: Sleeper) -> None:
        if sleeper in self.sleepers:
            self.sleepers.remove(sleeper)
        sleeper.woken.set()
