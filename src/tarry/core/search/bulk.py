"""Jobs that change all messages matching a search. Stored, so they survive the process that started them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from tarry.core.messages.model import MessagePosition
from tarry.core.messages.states import State
from tarry.core.search.query import Search, parse

KEPT_FOR = timedelta(days=30)
"""How long a finished job is listed."""
IDLE_FOR = timedelta(seconds=30)
"""After this time without progress, a sweeper continues a running job: its process has stopped."""


class Verb(StrEnum):
    DELIVER = "deliver"
    BURY = "bury"
    DROP = "drop"


class BulkState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkJob:
    id: int
    verb: Verb
    query: str
    queues: tuple[str, ...]
    """Queues that the caller may change."""
    started_by: str
    state: BulkState
    created_at: datetime
    updated_at: datetime
    error: str | None = None
    """Error of the dead letters, for `bury`."""
    changed: int = 0
    skipped: int = 0
    """Messages that had changed since they were read, or were leased."""
    reason: str | None = None
    after: MessagePosition | None = None
    """Start of the next page."""
    step: int = 0
    ended_at: datetime | None = None

    @classmethod
    def begin(
        cls, id: int, verb: Verb, query: str, queues: Sequence[str], now: datetime, *, by: str, error: str | None
    ) -> BulkJob:
        return cls(
            id=id,
            verb=verb,
            query=query,
            queues=tuple(queues),
            started_by=by,
            state=BulkState.RUNNING,
            created_at=now,
            updated_at=now,
            error=error,
        )

    def saved(self, now: datetime, progress: BulkProgress, step: int | None) -> BulkJob | None:
        """The job after `SearchRole.save_bulk`, for stores without SQL."""
        if not self.is_running if step is None else self.step != step:
            return None
        state = progress.state if self.is_running else self.state
        return replace(
            self,
            changed=self.changed + progress.changed,
            skipped=self.skipped + progress.skipped,
            after=progress.after or self.after,
            state=state,
            reason=progress.reason or self.reason,
            step=self.step + (step is not None),
            updated_at=now,
            ended_at=None if state is BulkState.RUNNING else self.ended_at or now,
        )

    @property
    def is_running(self) -> bool:
        return self.state is BulkState.RUNNING

    @property
    def search(self) -> Search:
        """Relative times in the query count from the start of the job. `deliver` selects delayed messages by default."""
        search = parse(self.query, self.created_at)
        return replace(search, state=search.state or State.DELAYED) if self.verb is Verb.DELIVER else search


class BulkProgress(NamedTuple):
    """Progress of one step of a job."""

    changed: int = 0
    skipped: int = 0
    after: MessagePosition | None = None
    state: BulkState = BulkState.RUNNING
    reason: str | None = None
