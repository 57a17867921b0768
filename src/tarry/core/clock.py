"""The clock of a store: the database's own, or an instant that a test has pinned."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    def pinned(self) -> datetime | None:
        """The pinned instant, or None to use the database's clock."""
        ...


class AuthorityClock:
    """Pins nothing: the store's own clock decides."""

    def pinned(self) -> datetime | None:
        return None
