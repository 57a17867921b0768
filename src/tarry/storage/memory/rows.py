"""Rows of the in-memory store: live messages and dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from tarry.core.fingerprints import fingerprint, pattern
from tarry.core.messages import (
    TRACE_HEADERS,
    DeadLetter,
    Draft,
    Filter,
    StoredMessage,
)
from tarry.core.redriving import EVERY_LETTER, DeadFilter
from tarry.core.retry import Retry
from tarry.core.settings import QueueSettings
from tarry.core.states import State, live_state


def copied(headers: Mapping[str, str] | None) -> dict[str, str] | None:
    """A copy: later changes of the caller's mapping must not change the message. No headers are None."""
    return dict(headers) if headers else None


def untraced(headers: Mapping[str, str] | None) -> dict[str, str]:
    """The headers that count when an offer is compared with the live message."""
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
    """The due time as offered: an identical offer is compared with it."""
    due_at: datetime
    """When it is deliverable: the planned time until a nack moves it."""
    created_at: datetime
    due_limit: datetime | None = None
    """Debounces cannot delay the message beyond this."""
    attempt: int = 0
    attempts_asked: int | None = None
    """The limit requested by the last poll, used if the message has none of its own."""
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

    def state(self, now: datetime) -> State:
        return live_state(due_at=self.due_at, lease_until=self.lease_until, now=now)

    def equals(self, draft: Draft, planned_at: datetime) -> bool:
        """Whether the draft would change nothing."""
        return (
            self.payload == draft.payload
            and self.planned_at == planned_at
            and self.priority == draft.priority
            and self.type == draft.type
            and self.content_type == draft.content_type
            and untraced(self.headers) == untraced(draft.headers)
            and self.lease_for == draft.lease_for
            and self.max_attempts == draft.max_attempts
            and self.retry == draft.retry
        )

    def is_in(self, filter: Filter) -> bool:
        return filter.admits(
            key=self.key, due_at=self.due_at, version=self.version, type=self.type, priority=self.priority
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

    def hold(self, token: UUID, *, since: datetime, until: datetime, consumer: str | None) -> None:
        self.token, self.leased_at, self.lease_until, self.consumer = token, since, until, consumer
        self.expired_at = None

    def let_go(self) -> None:
        self.token = self.leased_at = self.lease_until = self.consumer = None

    def stored(self, queue: str, settings: QueueSettings, now: datetime) -> StoredMessage[bytes]:
        return StoredMessage(
            queue=queue,
            key=self.key,
            payload=self.payload,
            version=self.version,
            state=self.state(now),
            attempt=self.attempt,
            priority=self.priority,
            due_at=self.due_at,
            created_at=self.created_at,
            lease_until=self.lease_until,
            consumer=self.consumer,
            type=self.type,
            headers=copied(self.headers),
            content_type=self.content_type,
            max_attempts=self.attempts_allowed(settings),
            last_error=self.last_error,
            own_max_attempts=self.max_attempts,
            lease_for=self.lease_for,
            retry=None if self.retry is None else replace(self.retry, max_attempts=None),
            origin=self.origin,
        )


@dataclass(slots=True, eq=False)
class DeadRow:
    row: Row
    died_at: datetime
    reason: str
    error: str | None
    consumer: str | None = None
    fingerprint: str = ""
    pattern: str = ""

    def __post_init__(self) -> None:
        self.fingerprint, self.pattern = fingerprint(self.reason, self.error), pattern(self.error)

    def fits(self, where: DeadFilter) -> bool:
        return where is EVERY_LETTER or where.fits(
            fingerprint=self.fingerprint,
            type=self.row.type,
            died_at=self.died_at,
            key=self.row.key,
            version=self.row.version,
        )

    @property
    def age_order(self) -> tuple[datetime, int]:
        return self.died_at, self.row.version

    def letter(self, queue: str) -> DeadLetter[bytes]:
        row = self.row
        return DeadLetter(
            queue=queue,
            key=row.key,
            payload=row.payload,
            version=row.version,
            attempt=row.attempt,
            priority=row.priority,
            due_at=row.due_at,
            died_at=self.died_at,
            reason=self.reason,
            error=self.error,
            type=row.type,
            headers=copied(row.headers),
            content_type=row.content_type,
            fingerprint=self.fingerprint,
            consumer=self.consumer,
            origin=row.origin,
        )


def new_row(
    draft: Draft, *, version: int, planned_at: datetime, due_limit: datetime | None, created_at: datetime
) -> Row:
    return Row(
        key=draft.key,
        payload=draft.payload,
        content_type=draft.content_type,
        version=version,
        priority=draft.priority,
        type=draft.type,
        headers=copied(draft.headers),
        lease_for=draft.lease_for,
        max_attempts=draft.max_attempts,
        retry=draft.retry,
        planned_at=planned_at,
        due_at=planned_at,
        created_at=created_at,
        due_limit=due_limit,
    )
