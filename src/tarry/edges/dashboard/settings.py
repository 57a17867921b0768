"""Settings of a dashboard."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from starlette.requests import Request

from tarry.core.errors import InvalidInput
from tarry.core.limits import check_positive
from tarry.edges.dashboard.redaction import Redaction

Authorize = Callable[[Request, str, str | None], bool]
"""The host application's own check: the request, the action (read, produce, consume, admin), the queue; None: all queues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardSettings:
    read_only: bool = False
    """No action is possible, whatever the key permits."""
    environment: str | None = None
    """Shown as a badge on every page, for example `production`, `staging` or `demo`."""
    redaction: Redaction = field(default_factory=Redaction)
    """What is hidden of payloads and headers."""
    trace_url: str | None = None
    """Where a trace is shown, with `{trace}` for its id: `https://tempo.example/trace/{trace}`."""
    authorize: Authorize | None = None
    """Decides instead of API keys, for a dashboard that is mounted into an application with users of its own."""
    session_for: timedelta = timedelta(hours=12)
    page_for: timedelta = timedelta(seconds=2)
    """How long a page may take; then its statement is cancelled. Reading the archive has a time of its own."""
    refresh_every: timedelta = timedelta(seconds=1)
    """How often pages are notified of changes."""

    def __post_init__(self) -> None:
        check_positive(self, "session_for", "page_for", "refresh_every")
        if self.trace_url is not None and not re.match(r"https?://.*\{trace\}", self.trace_url):
            raise InvalidInput(f"trace_url must be an http address with {{trace}} in it, got {self.trace_url!r:.200}")
        if self.environment is not None and not 1 <= len(self.environment) <= 30:
            raise InvalidInput(f"environment must have 1 to 30 characters, got {len(self.environment)}")
