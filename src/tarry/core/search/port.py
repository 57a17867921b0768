"""The role of a store for searching: reads over many queues, each of which scans a bounded number of rows, and the jobs that
change all matches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from tarry.core.messages.model import Counted, MessagePosition, StoredMessage
from tarry.core.operation import Operation
from tarry.core.search.bulk import BulkJob, BulkProgress, Verb
from tarry.core.search.query import Search

WALK = 10_000
"""Messages that one search may scan, shared by its queues; per priority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPage:
    """A page in due order."""

    messages: list[StoredMessage[bytes]]
    matching: Counted
    """How many match, of those that were scanned; `capped`: not all were scanned."""
    scanned: int
    horizon: MessagePosition | None = None
    """Where the scan ended, if it did not reach the end: the next page begins there."""


class SearchRole(Protocol):
    def messages(
        self,
        search: Search,
        queues: Sequence[str],
        *,
        limit: int = 50,
        after: MessagePosition | None = None,
        payloads: bool = False,
    ) -> Operation[SearchPage]:
        """Live messages of these queues. Terms about payloads are left to the caller. `payloads` False: they are empty."""
        ...

    def journal_since(self) -> Operation[datetime | None]:
        """The beginning of the oldest day in the journal: what was before is in the archive only. None: not known."""
        ...

    def start_bulk(
        self, verb: Verb, query: str, queues: Sequence[str], *, started_by: str, error: str | None = None
    ) -> Operation[BulkJob]:
        """Store a running job. `services.bulk` runs it."""
        ...

    def bulk_jobs(
        self, *, job: int | None = None, idle_for: timedelta | None = None, limit: int = 50
    ) -> Operation[list[BulkJob]]:
        """The newest first: one by its id, or all. `idle_for`: running ones that had no progress for this long."""
        ...

    def save_bulk(self, job: int, progress: BulkProgress, *, step: int | None = None) -> Operation[BulkJob | None]:
        """Add the progress of one step, if that is still the next one, and return the job. Without `step`, end a running
        job, whose current step is still added. None: neither."""
        ...
