"""What a handler may answer instead of nothing. None means that it is done; an exception, that it failed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from tarry.core import limits
from tarry.core.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Snooze:
    """Not now: deliver it again `after` a while, or `at` an instant. The attempt does not count."""

    after: timedelta | None = None
    at: datetime | None = None

    def __post_init__(self) -> None:
        if (self.after is None) == (self.at is None):
            raise InvalidInput("a snooze needs either after or at", hint="return tarry.Snooze(timedelta(minutes=5))")
        if self.after is not None:
            limits.check_delay(self.after)
        if self.at is not None:
            limits.check_instant(self.at)


@dataclass(frozen=True, slots=True)
class Bury:
    """This can never work: make it a dead letter now, and say why."""

    reason: str

    def __post_init__(self) -> None:
        if not isinstance(self.reason, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"the reason of a burial is text, not {type(self.reason).__name__}")


@dataclass(frozen=True, slots=True)
class Release:
    """Not here: give it back untried. It is deliverable at once, and the attempt does not count.

    For another worker to take. Where none would, it comes back at once, before what is due later: then `Snooze`.
    """


Answer = Snooze | Bury | Release | None
