"""Jobs that change all messages that match a search. Stored, so that they survive the process that started them."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from tarry.core.messages.model import MessagePosition
from tarry.core.messages.states import State
from tarry.core.search.query import Search, parse

KEPT_FOR = timedelta(days=30)
"""How long a job that has ended is listed."""
IDLE_FOR = timedelta(seconds=30)
"""A running job without progress for this long: its process has ended, and a sweeper continues it."""


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
    """Those that the caller may change."""
    started_by: str
    state: BulkState
    created_at: datetime
    updated_at: datetime
    error: str | None = None
    """Of the dead letters, if it buries."""
    changed: int = 0
    skipped: int = 0
    """They had changed since they were read, or were leased."""
    reason: str | None = None
    after: MessagePosition | None = None
    """Where its next page begins."""
    step: int = 0
    ended_at: datetime | None = None

    @property
    def is_running(self) -> bool:
        return self.state is BulkState.RUNNING

    @property
    def search(self) -> Search:
        """Relative times of the query are those of the start. A ready message needs no delivery."""
        search = parse(self.query, self.created_at)
        return replace(search, state=search.state or State.DELAYED) if self.verb is Verb.DELIVER else search


class BulkProgress(NamedTuple):
    """What one step of a job adds."""

    changed: int = 0
    skipped: int = 0
    after: MessagePosition | None = None
    state: BulkState = BulkState.RUNNING
    reason: str | None = None
