"""Rows of the Redis store, as its scripts pack them, and what is made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec

from tarry.core.journal.events import KINDS, Event, EventKind, JournalLevel
from tarry.core.messages.model import TRACE_HEADERS, DeadLetter, Draft, Lease, StoredMessage
from tarry.core.messages.retry import Retry
from tarry.core.messages.states import live_state
from tarry.core.settings import QueueInfo, QueueSettings
from tarry.storage.redis.operation import duration, instant, json_text, micros, since, stored_retry
from tarry.wire.base import same_fields

_HASH_BYTES = 8


class MessageRow(msgspec.Struct, gc=False):
    """A live message, or a dead letter; instants and durations are microseconds."""

    version: int
    due_at: str
    created_at: int
    priority: int
    attempt: int
    key: str = ""
    type: str | None = None
    content_type: str | None = None
    headers: str | None = None
    trace: str | None = None
    lease_for: int | None = None
    max_attempts: int | None = None
    retry: str | None = None
    last_error: str | None = None
    token: str | None = None
    leased_at: int | None = None
    lease_until: int | None = None
    consumer: str | None = None
    origin: int | None = None
    died_at: int | None = None
    reason: str = ""
    error: str | None = None
    fingerprint: str | None = None

    @property
    def all_headers(self) -> dict[str, str] | None:
        if self.headers is None and self.trace is None:
            return None
        return msgspec.json.decode(self.headers or "{}") | msgspec.json.decode(self.trace or "{}")

    def lease(self, key: str, payload: bytes) -> Lease[bytes]:
        return Lease(
            key,
            payload,
            self.version,
            UUID(hex=self.token),
            self.attempt,
            self.priority,
            instant(self.due_at),
            instant(self.lease_until or 0),
            instant(self.leased_at or 0),
            self.type,
            self.all_headers,
            self.content_type,
        )

    def message(
        self, queue: str, key: str, payload: bytes, now: datetime, queue_attempts: int | None
    ) -> StoredMessage[bytes]:
        values = _values(self, StoredMessage)
        own: dict[str, Any] = {
            "queue": queue,
            "key": key,
            "payload": payload,
            "state": live_state(due_at=values["due_at"], lease_until=values["lease_until"], now=now),
            "headers": self.all_headers,
            "max_attempts": queue_attempts if self.max_attempts is None else self.max_attempts,
            "own_max_attempts": self.max_attempts,
            "retry": retry_of(self.retry),
        }
        return StoredMessage(**values | own)

    def letter(self, queue: str, payload: bytes) -> DeadLetter[bytes]:
        own: dict[str, Any] = {"queue": queue, "payload": payload, "headers": self.all_headers}
        return DeadLetter(**_values(self, DeadLetter) | own)


row_of: Callable[[bytes], MessageRow] = msgspec.msgpack.Decoder(MessageRow).decode


def draft_fields(draft: Draft) -> dict[str, Any]:
    """A draft as `offer.lua` takes it; what is None is left out."""
    headers, trace = split_headers(draft.headers)
    fields = {
        "key": draft.key,
        "hash": payload_hash(draft.payload),
        "due_at": None if draft.due_at is None else str(micros(draft.due_at)),
        "after": duration(draft.after),
        "priority": draft.priority,
        "conflict": draft.conflict.rule.value,
        "max_wait": duration(draft.conflict.max_wait),
        "type": draft.type,
        "content_type": draft.content_type,
        "headers": headers,
        "trace": trace,
        "lease_for": duration(draft.lease_for),
        "max_attempts": draft.max_attempts,
        "retry": stored_retry(draft.retry),
    }
    return {name: value for name, value in fields.items() if value is not None}


def split_headers(headers: Mapping[str, str] | None) -> tuple[str | None, str | None]:
    """Those that an identical offer must repeat, and those of its trace."""
    if not headers:
        return None, None
    own = {name: value for name, value in headers.items() if name not in TRACE_HEADERS}
    trace = {name: value for name, value in headers.items() if name in TRACE_HEADERS}
    return json_text(own) if own else None, json_text(trace) if trace else None


def payload_hash(payload: bytes) -> str:
    return sha256(payload).hexdigest()[: 2 * _HASH_BYTES]


def retry_of(text: str | None) -> Retry | None:
    if text is None:
        return None
    data = msgspec.json.decode(text)
    return Retry(
        initial_for=since(round(data["initial_for"] * 1_000_000)),
        factor=data["factor"],
        cap_for=since(round(data["cap_for"] * 1_000_000)),
        jitter=data["jitter"],
    )


def info_of(record: Sequence[bytes]) -> QueueInfo:
    """A queue from the fields and values of its record."""
    texts = [part.decode() for part in record]
    fields = dict(zip(texts[::2], texts[1::2], strict=True))
    attempts, depth, paused_at = fields.get("max_attempts"), fields.get("max_depth"), fields.get("paused_at")
    handler_attempts = fields.get("handler_max_attempts")
    settings = QueueSettings(
        lease_for=since(fields["lease_for"]),
        max_attempts=None if attempts is None else int(attempts),
        retry=retry_of(fields["retry"]) or Retry(),
        journal=JournalLevel(fields["journal"]),
        retention_for=since(fields["retention_for"]),
        target_lag_for=since(fields["target_lag_for"]),
        max_depth=None if depth is None else int(depth),
        description=fields.get("description"),
        handler_max_attempts=None if handler_attempts is None else int(handler_attempts),
    )
    return QueueInfo(
        name=fields["name"],
        settings=settings,
        created_at=instant(fields["created_at"]),
        updated_at=instant(fields.get("updated_at", fields["created_at"])),
        paused_at=None if paused_at is None else instant(paused_at),
        paused_reason=fields.get("paused_reason"),
    )


class _EventRow(msgspec.Struct, gc=False):
    kind: str
    at: int
    queue: str
    key: str | None = None
    version: int | None = None
    attempt: int | None = None
    priority: int | None = None
    due_at: str | None = None
    leased_at: int | None = None
    lease_until: int | None = None
    consumer: str | None = None
    size: int | None = None
    hash: str | None = None
    error: str | None = None
    detail: dict[str, Any] | None = None


_event_row = msgspec.msgpack.Decoder(_EventRow).decode


def event_of(id: bytes, fields: Sequence[bytes], queue: str | None = None) -> Event | None:
    """An entry of the stream; None if a newer version wrote a kind that this one does not know."""
    row = _event_row(fields[1])
    if row.kind not in KINDS:
        return None
    own: dict[str, Any] = {
        "id": int(id.partition(b"-")[0]),
        "kind": EventKind(row.kind),
        "at": instant(row.at),
        "queue": queue or row.queue,
        "payload_hash": None if row.hash is None else bytes.fromhex(row.hash),
        "payload": fields[3] if len(fields) > 2 else None,
    }
    return Event(**_values(row, Event) | own)


def _values(row: msgspec.Struct, kind: type[Any]) -> dict[str, Any]:
    """The fields of a row that a value of this kind has, too: instants and durations instead of microseconds."""
    values = same_fields(row, kind)
    for name, value in values.items():
        if value is not None and name.endswith(("_at", "_until", "_for")):
            values[name] = since(value) if name.endswith("_for") else instant(value)
    return values
