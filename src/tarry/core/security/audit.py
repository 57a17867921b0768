"""The audit log: one row per administrative action, written before the action is tried."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

AUDITS_SEARCHED = 100_000
"""Maximum number of rows that one search reads."""


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An action that is about to be tried."""

    actor: str
    """The id of an API key, `anonymous` or `command line`."""
    action: str
    queue: str | None = None
    detail: Mapping[str, Any] | None = None
    request_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited(AuditEntry):
    id: int
    at: datetime
    status: int | None = None
    """HTTP status of the response. None: the process stopped before it responded."""
