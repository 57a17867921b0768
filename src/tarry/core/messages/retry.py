"""Retry policies: the delay after a failure, and the maximum number of attempts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from tarry.core import limits
from tarry.core.errors import InvalidInput

_STEEPEST = 62
"""Maximum exponent: every cap is reached by then, and floating point does not overflow (also in SQL)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Exponential back-off: `initial_for * factor ** (attempt - 1)`, at most `cap_for`, shortened by up to `jitter`.

    `max_attempts=None` leaves the number of attempts to the queue."""

    initial_for: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    cap_for: timedelta = timedelta(minutes=10)
    jitter: float = 0.1
    max_attempts: int | None = None

    def __post_init__(self) -> None:
        limits.check_delay(self.initial_for, "initial_for")
        limits.check_delay(self.cap_for, "cap_for")
        for name in ("factor", "jitter"):
            if not isinstance(getattr(self, name), (int, float)) or isinstance(getattr(self, name), bool):
                raise InvalidInput(f"{name} must be a number, not {getattr(self, name)!r:.120}")
        if not 1.0 <= self.factor <= 10.0:
            raise InvalidInput(f"factor must be between 1 and 10, not {self.factor!r}")
        if not 0.0 <= self.jitter <= 1.0:
            raise InvalidInput(f"jitter must be between 0 and 1, not {self.jitter!r}")
        limits.check_max_attempts(self.max_attempts)

    @classmethod
    def exponential(
        cls,
        initial_for: timedelta = timedelta(seconds=1),
        *,
        factor: float = 2.0,
        cap_for: timedelta = timedelta(minutes=10),
        jitter: float = 0.1,
        max_attempts: int | None = None,
    ) -> Retry:
        return cls(initial_for=initial_for, factor=factor, cap_for=cap_for, jitter=jitter, max_attempts=max_attempts)

    @classmethod
    def fixed(cls, every: timedelta, *, max_attempts: int | None = None) -> Retry:
        return cls(initial_for=every, factor=1.0, cap_for=every, jitter=0.0, max_attempts=max_attempts)

    @classmethod
    def at_once(cls, *, max_attempts: int | None = None) -> Retry:
        return cls.fixed(timedelta(0), max_attempts=max_attempts)

    def delay(self, attempt: int, spread: float) -> timedelta:
        """The delay after failure number `attempt` (1 is the first); `spread` in [0, 1) is the caller's random number.

        `nack.sql` computes the same for a batch in one statement; the contract suite compares them."""
        steps = min(max(attempt, 1) - 1, _STEEPEST)
        seconds = min(self.initial_for.total_seconds() * self.factor**steps, self.cap_for.total_seconds())
        return timedelta(seconds=seconds * (1.0 - self.jitter * spread))

    def as_data(self) -> dict[str, float]:
        """The JSON form, with durations in seconds and without `max_attempts`, which is stored separately."""
        return {
            "initial_for": self.initial_for.total_seconds(),
            "factor": self.factor,
            "cap_for": self.cap_for.total_seconds(),
            "jitter": self.jitter,
        }


def check_retry(retry: object) -> Retry | None:
    if retry is not None and not isinstance(retry, Retry):
        raise InvalidInput(f"retry must be a tarry.Retry, as Retry.fixed(…), not {retry!r:.120}")
    return retry
