"""The port for search and bulk jobs."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from tarry.core.messages.model import MessagePosition
from tarry.core.operation import Operation
from tarry.core.search.bulk import BulkJob, BulkProgress, Verb
from tarry.core.search.hits import SearchPage
from tarry.core.search.query import Search


class SearchRole(Protocol):
    """Searches over many queues, with a bounded scan per queue, and bulk jobs that change all matches."""

    def messages(
        self,
        search: Search,
        queues: Sequence[str],
        *,
        limit: int = 50,
        after: MessagePosition | None = None,
        payloads: bool = False,
    ) -> Operation[SearchPage]:
        """Live messages of these queues. The caller checks payload terms. Without `payloads`, payloads are empty."""
        ...

    def journal_since(self) -> Operation[datetime | None]:
        """Start of the oldest day in the journal: older events are only in the archive. None: unknown."""
        ...

    def start_bulk(
        self, verb: Verb, query: str, queues: Sequence[str], *, started_by: str, error: str | None = None
    ) -> Operation[BulkJob]:
        """Store a running job. `services.bulk` runs it."""
        ...

    def bulk_jobs(
        self, *, job: int | None = None, idle_for: timedelta | None = None, limit: int = 50
    ) -> Operation[list[BulkJob]]:
        """One job by id, or all, newest first. `idle_for`: only running jobs without progress for this long."""
        ...

    def save_bulk(self, job: int, progress: BulkProgress, *, step: int | None = None) -> Operation[BulkJob | None]:
        """Add the progress of a step if it is still the next one, and return the job. Without `step`, end a running job,
        whose current step is still added. None: the job was not changed."""
        ...

    def forget_bulk(self, *, limit: int = 1_000) -> Operation[int]:
        """Delete jobs that finished more than `KEPT_FOR` ago; returns how many."""
        ...
