"""Rows of the in-memory store: live messages, their delivery order, and dead letters."""

import heapq
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from tarry.core.dead_letters.fingerprints import fingerprint
from tarry.core.dead_letters.redrive import DeadFilter
from tarry.core.messages.model import TRACE_HEADERS, DeadLetter, Draft, Filter, PollOptions, StoredMessage
from tarry.core.messages.retry import Retry
from tarry.core.messages.states import State, live_state
from tarry.core.settings import QueueSettings
from tarry.wire.base import same_fields

OFFERED = ("key", "payload", "content_type", "priority", "type", "lease_for", "max_attempts", "retry")
"""Fields that a row takes from its draft unchanged."""
_TOLERATED = 64
"""Removed entries that a heap may keep: rebuilding a short heap for each of them would cost more."""


def copied(headers: Mapping[str, str] | None) -> dict[str, str] | None:
    """A copy, so that later changes of the caller's mapping do not change the message. None if there are no headers."""
    return dict(headers) if headers else None


def untraced(headers: Mapping[str, str] | None) -> dict[str, str]:
    """The headers that are compared when an offer meets a live message."""
    return {name: value for name, value in (headers or {}).items() if name not in TRACE_HEADERS}


@dataclass(slots=True, eq=False)
class Row:
    """A live message. One object per version: an update creates a new row, so a holder of the old one can detect it."""

    key: str
    payload: bytes
    content_type: str | None
    version: int
    priority: int
    type: str | None
    headers: dict[str, str] | None
    lease_for: timedelta | None
    max_attempts: int | None
    retry: Retry | None
    planned_at: datetime
    """The due time of the offer, with which later offers are compared."""
    due_at: datetime
    """When the message is deliverable: the planned time until a nack changes it."""
    created_at: datetime
    due_limit: datetime | None = None
    """The latest due time that debounces can set."""
    attempt: int = 0
    attempts_of_poll: int | None = None
    """The limit of the last poll, used if the message has none."""
    last_error: str | None = None
    token: UUID | None = None
    leased_at: datetime | None = None
    lease_until: datetime | None = None
    consumer: str | None = None
    expired_at: datetime | None = None
    """When a sweeper recorded the expiry of this lease in the journal. Its holder may still settle the message."""
    origin: int | None = None

    def is_free(self, now: datetime) -> bool:
        return self.lease_until is None or self.lease_until <= now

    @property
    def has_unrecorded_lease(self) -> bool:
        return self.token is not None and self.expired_at is None

    def state(self, now: datetime) -> State:
        return live_state(due_at=self.due_at, lease_until=self.lease_until, now=now)

    def equals(self, draft: Draft, planned_at: datetime) -> bool:
        """Whether the draft would change nothing."""
        return (
            self.planned_at == planned_at
            and all(getattr(self, name) == getattr(draft, name) for name in OFFERED)
            and untraced(self.headers) == untraced(draft.headers)
        )

    def is_in(self, filter: Filter) -> bool:
        return (
            (filter.after is None or (self.due_at, self.version) > filter.after)
            and filter.type in (None, self.type)
            and filter.priority in (None, self.priority)
            and (filter.key_prefix is None or self.key.startswith(filter.key_prefix))
        )

    def leases_for(self, settings: QueueSettings, request: timedelta | None) -> timedelta:
        if request is not None:
            return request
        return self.lease_for if self.lease_for is not None else settings.lease_for

    def attempts_allowed(self, settings: QueueSettings, request: int | None = None) -> int | None:
        if self.max_attempts is not None:
            return self.max_attempts
        return request if request is not None else settings.max_attempts

    def is_exhausted(self, settings: QueueSettings, request: int | None = None) -> bool:
        allowed = self.attempts_allowed(settings, request)
        return allowed is not None and self.attempt >= allowed

    def lease(self, token: UUID, *, since: datetime, until: datetime, consumer: str | None) -> None:
        self.token, self.leased_at, self.lease_until, self.consumer = token, since, until, consumer
        self.expired_at = None

    def end_lease(self) -> None:
        self.token = self.leased_at = self.lease_until = self.consumer = None

    def stored(self, queue: str, settings: QueueSettings, now: datetime) -> StoredMessage[bytes]:
        own: dict[str, Any] = {
            "queue": queue,
            "state": self.state(now),
            "headers": copied(self.headers),
            "max_attempts": self.attempts_allowed(settings),
            "own_max_attempts": self.max_attempts,
            "retry": None if self.retry is None else replace(self.retry, max_attempts=None),
        }
        return StoredMessage(**same_fields(self, StoredMessage) | own)


@dataclass(slots=True, eq=False)
class DeadRow:
    row: Row
    died_at: datetime
    reason: str
    error: str | None
    consumer: str | None = None
    fingerprint: str = ""

    def __post_init__(self) -> None:
        self.fingerprint = fingerprint(self.reason, self.error)

    def fits(self, where: DeadFilter) -> bool:
        row = self.row
        return where.fits(self.fingerprint, row.type, self.died_at, row.key, row.version)

    @property
    def age_order(self) -> tuple[datetime, int]:
        return self.died_at, self.row.version

    def letter(self, queue: str) -> DeadLetter[bytes]:
        own: dict[str, Any] = {"queue": queue, "headers": copied(self.row.headers), **same_fields(self, DeadLetter)}
        return DeadLetter(**same_fields(self.row, DeadLetter) | own)


class RowHeap:
    """Rows by an instant, then version. Removed rows stay in the heap until they reach its head or outnumber the others."""

    __slots__ = ("_entries", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[datetime, int, Row]] = []
        self._entries: dict[int, tuple[datetime, int, Row]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, at: datetime, row: Row) -> None:
        entry = (at, row.version, row)
        self._entries[row.version] = entry
        heapq.heappush(self._heap, entry)
        self._sweep()

    def remove(self, row: Row) -> None:
        if self._entries.pop(row.version, None) is not None:
            self._sweep()

    def head(self) -> tuple[datetime, Row] | None:
        while self._heap:
            entry = self._heap[0]
            if self._entries.get(entry[1]) is entry:
                return entry[0], entry[2]
            heapq.heappop(self._heap)
        return None

    def _sweep(self) -> None:
        # Otherwise a key that is updated forever, or a type that is never polled, would fill the memory.
        if len(self._heap) > 2 * len(self._entries) + _TOLERATED:
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)


@dataclass(slots=True, eq=False)
class RowView:
    """The rows of a queue or of one type: waiting rows by priority, and leased rows."""

    waiting: defaultdict[int, RowHeap] = field(default_factory=lambda: defaultdict(RowHeap))
    leased: RowHeap = field(default_factory=RowHeap)

    def __len__(self) -> int:
        return len(self.leased) + sum(map(len, self.waiting.values()))


class DeliveryOrder:
    """All rows of one queue in delivery order, also per type: finds the next message without a scan.

    Waiting messages are ordered by due time and leased ones by the end of their lease, both independent of the current time.
    So a clock that is set back needs no repair: a message moved too early is moved back when it reaches the head.
    """

    def __init__(self) -> None:
        self._views: dict[str | None, RowView] = {None: RowView()}

    def wait(self, row: Row) -> None:
        """Make a row deliverable from its due time on."""
        for view in self._views_of(row):
            view.leased.remove(row)
            view.waiting[row.priority].put(row.due_at, row)

    def lease(self, row: Row) -> None:
        """Make a row undeliverable until its lease ends."""
        assert row.lease_until is not None  # noqa: S101 - for the type checker: the row has a lease
        for view in self._views_of(row):
            view.waiting[row.priority].remove(row)
            # The lease ends before the due time only if the clock was set back between poll and touch.
            view.leased.put(max(row.lease_until, row.due_at), row)

    def remove(self, row: Row) -> None:
        for view in self._views_of(row):
            view.waiting[row.priority].remove(row)
            view.leased.remove(row)
        if row.type is not None and not self._views[row.type]:
            # There may be as many types as messages: an empty view must not outlive its last message.
            del self._views[row.type]

    def take(self, n: int, now: datetime, options: PollOptions) -> list[Row]:
        """Remove and return the first `n` deliverable rows. The caller must put each of them back or settle it."""
        taken: list[Row] = []
        view = self._views.get(options.type)
        if view is None:
            return taken
        self._return_expired(view, now)
        for priority in sorted(view.waiting, reverse=not options.lowest_first):
            heap = view.waiting[priority]
            while len(taken) < n and (head := self._free_head(heap, now)) is not None and head.due_at <= now:
                self.remove(head)
                taken.append(head)
        return taken

    def next_at(self, now: datetime, type: str | None) -> datetime | None:
        """When a row may become deliverable; not after `now`: immediately."""
        view = self._views.get(type)
        if view is None:
            return None
        self._return_expired(view, now)
        heads = [self._free_head(heap, now) for heap in view.waiting.values()]
        instants = [head.due_at for head in heads if head is not None]
        if (leased := view.leased.head()) is not None:
            instants.append(leased[0])
        return min(instants, default=None)

    def _free_head(self, heap: RowHeap, now: datetime) -> Row | None:
        while (head := heap.head()) is not None:
            row = head[1]
            if row.is_free(now):
                return row
            self.lease(row)  # its lease had expired before the clock was set back
        return None

    def _return_expired(self, view: RowView, now: datetime) -> None:
        while (head := view.leased.head()) is not None and head[0] <= now:
            self.wait(head[1])

    def _views_of(self, row: Row) -> tuple[RowView, ...]:
        every = self._views[None]
        return (every,) if row.type is None else (every, self._views.setdefault(row.type, RowView()))
