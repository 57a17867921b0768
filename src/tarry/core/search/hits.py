"""Results of a search: live messages, dead letters and finished messages in one form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tarry.core.journal.events import Event
from tarry.core.messages.model import Counted, DeadLetter, KeptMessage, MessagePosition, StoredMessage
from tarry.core.messages.states import State

WALK = 10_000
"""Approximate maximum number of messages that one search scans, over all its queues."""
_SHARED = ("queue", "key", "version", "attempt", "priority", "due_at", "consumer", "type")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    queue: str
    key: str
    version: int
    state: State
    attempt: int
    priority: int
    due_at: datetime
    at: datetime
    """When a live message is due, or when a finished or dead one ended."""
    created_at: datetime | None = None
    leased_at: datetime | None = None
    lease_until: datetime | None = None
    consumer: str | None = None
    type: str | None = None
    error: str | None = None
    max_attempts: int | None = None
    trace: str | None = None
    """Trace id of its offer."""

    @classmethod
    def of_live(cls, message: StoredMessage[bytes]) -> Hit:
        fields = _fields(message, *_SHARED, "state", "created_at", "leased_at", "lease_until", "max_attempts")
        return cls(**fields, at=message.due_at, error=message.last_error, trace=trace_id(message.headers))

    @classmethod
    def of_dead(cls, letter: DeadLetter[bytes]) -> Hit:
        fields = _fields(letter, *_SHARED, "created_at", "error")
        return cls(**fields, state=State.DEAD, at=letter.died_at, trace=trace_id(letter.headers))

    @classmethod
    def of_done(cls, event: Event) -> Hit:
        return cls(
            queue=event.queue,
            key=event.key or "",
            version=event.version or 0,
            state=State.DONE,
            attempt=event.attempt or 0,
            priority=event.priority or 0,
            due_at=event.due_at or event.at,
            at=event.at,
            leased_at=event.leased_at,
            consumer=event.consumer,
            error=event.error,
        )


def trace_id(headers: Mapping[str, str] | None) -> str | None:
    """The trace id in `traceparent`, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01."""
    return ((headers or {}).get("traceparent") or "").lower()[3:35] or None


def _fields(source: KeptMessage[bytes], *names: str) -> dict[str, Any]:
    return {name: getattr(source, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPage:
    """A page in due order."""

    messages: list[StoredMessage[bytes]]
    matching: Counted
    """Matches among the scanned messages; `capped`: not all were scanned."""
    scanned: int
    horizon: MessagePosition | None = None
    """Where an incomplete scan stopped: the next page begins there."""
