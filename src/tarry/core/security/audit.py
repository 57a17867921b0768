"""Who changed what: one row per action of an administrator, written before the action is tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    id: int
    at: datetime
    actor: str
    """The id of a key, or who else it was: `anonymous`, `command line`."""
    action: str
    queue: str | None = None
    detail: Mapping[str, Any] | None = None
    request_id: str | None = None
    status: int | None = None
    """The answer. None: it was not given, because the process ended before."""
