"""Rate limits."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import timedelta

from tarry.core.errors import InvalidInput

_MOST = 100_000
_LONGEST = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `n` in any interval of length `per`."""

    n: int
    per: timedelta = timedelta(seconds=1)

    def __post_init__(self) -> None:
        if not isinstance(self.n, int) or isinstance(self.n, bool) or not 1 <= self.n <= _MOST:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"a rate is a whole number from 1 to {_MOST:,} per time, not {self.n!r:.120}")
        if not isinstance(self.per, timedelta) or not timedelta(0) < self.per <= _LONGEST:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"a rate is per a timedelta of at most a day, not {self.per!r:.120}")

    def shared_by(self, sharers: int) -> Rate:
        """The share of each of `sharers` participants, so that all together keep the rate."""
        if self.n >= sharers:
            return Rate(self.n // sharers, self.per)
        return Rate(1, min(_LONGEST, self.per * sharers / self.n))


class Pace:
    """A sliding-window rate limiter. The caller supplies the time: seconds of any monotonic clock."""

    def __init__(self, rate: Rate) -> None:
        self._n, self._per_s = rate.n, rate.per.total_seconds()
        self._starts: deque[float] = deque()

    def free(self, now_s: float) -> int:
        """How many may start now."""
        while self._starts and self._starts[0] + self._per_s <= now_s:
            self._starts.popleft()
        return self._n - len(self._starts)

    def wait_s(self, now_s: float) -> float:
        """Seconds until the next may start; zero if immediately."""
        return 0.0 if self.free(now_s) > 0 else self._starts[0] + self._per_s - now_s

    def start(self, now_s: float) -> None:
        self._starts.append(now_s)
