"""The database is the clock. A pinned clock exists for tests, and every statement accepts it."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    def pinned(self) -> datetime | None:
        """The instant that tests have pinned, or None: ask the authority, which is the database."""
        ...


class AuthorityClock:
    """Nothing pinned: the store's own clock decides."""

    def pinned(self) -> datetime | None:
        return None
