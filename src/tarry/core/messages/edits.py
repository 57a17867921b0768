"""What an edit by hand changes about a live message, and what it leaves as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from tarry.core.retry import Retry

FIELDS = ("payload", "due_at", "priority", "type", "headers", "lease_for", "max_attempts", "retry")


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Checked and encoded, as a store takes it. Only the fields that are `named` count, since None is a value, too."""

    named: frozenset[str]
    """Of `FIELDS`, at least one."""
    payload: bytes | None = None
    content_type: str | None = None
    """Goes with the payload."""
    due_at: datetime | None = None
    delay: timedelta | None = None
    """In place of `due_at`; it counts by the store's clock."""
    priority: int | None = None
    type: str | None = None
    headers: Mapping[str, str] | None = None
    lease_for: timedelta | None = None
    max_attempts: int | None = None
    retry: Retry | None = None

    @property
    def detail(self) -> dict[str, list[str]]:
        """For the journal."""
        return {"fields": sorted(self.named)}
