"""Time that only a test moves, for code that waits on a condition."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from typing import Any

PATIENCE_S = 20
"""Only for tests that fail: nothing waits for time to pass."""


class Interrupted(BaseException): ...


@dataclass(eq=False)
class Sleeper:
    timeout: float | None
    wake_at: float
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

    def wait(self, timeout: float | None = None) -> bool:
        sleeper = Sleeper(timeout, math.inf if timeout is None else self._now + timeout)
        self.sleepers.append(sleeper)
        self.waits.append(timeout)
        self._parked.notify_all()
        self._lock.release()
        try:
            assert sleeper.woken.wait(PATIENCE_S), "nobody called this thread"
        finally:
            self._lock.acquire()
        if sleeper.error is not None:
            raise sleeper.error
        return True

    def notify(self, n: int = 1) -> None:
        for sleeper in self.sleepers[:n]:
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

    def until(self, *timeouts: float | None) -> list[Sleeper]:
        """Waits until exactly these waits are going on, in any order."""
        with self._parked:
            wanted = sorted(timeouts, key=str)
            reached = self._parked.wait_for(
                lambda: sorted((sleeper.timeout for sleeper in self.sleepers), key=str) == wanted, PATIENCE_S
            )
            assert reached, f"wanted {wanted}, and there are {[sleeper.timeout for sleeper in self.sleepers]}"
            return list(self.sleepers)

    def _wake(self, sleeper: Sleeper) -> None:
        self.sleepers.remove(sleeper)
        sleeper.woken.set()
