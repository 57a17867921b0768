"""The journal: one append-only event per change, written in the transaction of the change."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, StrEnum
from typing import Any


class EventKind(StrEnum):
    """The kinds of events, in all layers; a test compares them with the database's type `event_kind`."""

    OFFERED = "offered"
    UPDATED = "updated"
    LEASED = "leased"
    TOUCHED = "touched"
    ACKED = "acked"
    NACKED = "nacked"
    RELEASED = "released"
    REFUSED = "refused"
    EXPIRED = "expired"
    BURIED = "buried"
    REDRIVEN = "redriven"
    DROPPED = "dropped"
    EDITED = "edited"
    DISCARDED = "discarded"
    CRON_PLANNED = "cron_planned"
    CRON_REPLACED = "cron_replaced"
    QUEUE_CREATED = "queue_created"
    QUEUE_EDITED = "queue_edited"
    QUEUE_RENAMED = "queue_renamed"
    QUEUE_PAUSED = "queue_paused"
    QUEUE_RESUMED = "queue_resumed"
    QUEUE_PURGED = "queue_purged"
    QUEUE_DELETED = "queue_deleted"


KINDS = frozenset(kind.value for kind in EventKind)
"""The kinds of this version. During a rolling deploy a newer version may write other kinds, which readers skip."""


class JournalLevel(Enum):
    """How much of its history a queue records."""

    OFF = "off"
    """Nothing: no timeline and no pipeline, for queues where every microsecond counts."""
    EVENTS = "events"
    """Every event with size and hash of the payload, never the payload."""
    PAYLOADS = "payloads"
    """Events, and the payload with `offered`, `updated` and `edited`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    id: int
    kind: EventKind
    at: datetime
    queue: str
    key: str | None = None
    version: int | None = None
    attempt: int | None = None
    priority: int | None = None
    due_at: datetime | None = None
    leased_at: datetime | None = None
    lease_until: datetime | None = None
    consumer: str | None = None
    size: int | None = None
    payload_hash: bytes | None = None
    payload: bytes | None = None
    error: str | None = None
    detail: Mapping[str, Any] | None = None
