"""Edits of live messages."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from tarry.core.messages.retry import Retry


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A validated and encoded edit. Only the fields in `named` apply, since None is a valid value."""

    named: frozenset[str]
    """At least one; `due_at` stands for `after` as well."""
    payload: bytes | None = None
    content_type: str | None = None
    """Belongs to the payload."""
    due_at: datetime | None = None
    after: timedelta | None = None
    """Instead of `due_at`; counted from the store's clock."""
    priority: int | None = None
    type: str | None = None
    headers: Mapping[str, str] | None = None
    lease_for: timedelta | None = None
    max_attempts: int | None = None
    retry: Retry | None = None

    @property
    def detail(self) -> dict[str, list[str]]:
        return {"fields": sorted(self.named)}
