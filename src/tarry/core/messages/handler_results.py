"""Return values of handlers. None means success; an exception means failure."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from tarry.core import limits
from tarry.core.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Snooze:
    """Deliver the message again `after` a while, or `at` an instant. The attempt does not count."""

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
    """Make the message a dead letter now, with a reason."""

    reason: str

    def __post_init__(self) -> None:
        if not isinstance(self.reason, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"the reason of Bury must be text, not {type(self.reason).__name__}")


@dataclass(frozen=True, slots=True)
class Release:
    """Release the message for another worker: it is deliverable immediately, and the attempt does not count.

    If no other worker can handle it, return `Snooze`: a released message would come back to this worker immediately."""


HandlerReturn = Snooze | Bury | Release | None
