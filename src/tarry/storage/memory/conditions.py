"""Conditions with modified waits."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from tarry.core.conditions import Condition


class _Around:
    """A condition with the lock and waiters of another; a subclass changes the duration of waits."""

    def __init__(self, inner: Condition) -> None:
        self._inner = inner
        self.acquire = inner.acquire
        self.release = inner.release

    def __enter__(self) -> bool:
        return self._inner.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._inner.__exit__(kind, error, trace)

    def notify(self, n: int = 1) -> None:
        self._inner.notify(n)

    def notify_all(self) -> None:
        self._inner.notify_all()


class ScanningCondition(_Around):
    """Limits every wait to one interval."""

    def __init__(self, inner: Condition, scan_every_s: float) -> None:
        super().__init__(inner)
        self._scan_every_s = scan_every_s

    def wait(self, timeout: float | None = None) -> bool:
        return self._inner.wait(self._scan_every_s if timeout is None else min(timeout, self._scan_every_s))


class SpinningCondition(_Around):
    """Spins for the last part of a wait."""

    def __init__(
        self, inner: Condition, monotonic: Callable[[], float], spin_s: float, pause: Callable[[], None]
    ) -> None:
        super().__init__(inner)
        self._monotonic = monotonic
        self._spin_s = spin_s
        self._pause = pause
        self._calls = 0

    def wait(self, timeout: float | None = None) -> bool:
        if timeout is None or timeout > self._spin_s:
            return self._inner.wait(None if timeout is None else timeout - self._spin_s)
        until, seen = self._monotonic() + timeout, self._calls
        # Without the lock: acquiring it in every iteration would keep producers out.
        self.release()
        try:
            while self._calls == seen and self._monotonic() < until:
                self._pause()
        finally:
            self.acquire()
        return self._calls != seen

    def notify(self, n: int = 1) -> None:
        self._calls += 1  # for spinning threads
        super().notify(n)

    def notify_all(self) -> None:
        self._calls += 1
        super().notify_all()
