"""Rows of the Redis store, as its scripts pack them, and what is made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from struct import Struct
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from tarry.core.journal.events import KINDS, Event, EventKind, JournalLevel
from tarry.core.messages.model import TRACE_HEADERS, DeadLetter, Draft, Lease, LeaseId, StoredMessage
from tarry.core.messages.retry import Retry
from tarry.core.messages.states import live_state
from tarry.core.settings import QueueInfo, QueueSettings
from tarry.storage.redis.operation import duration, instant, json_text, micros, since, stored_retry
from tarry.wire.base import plain, same_fields

P = TypeVar("P")

_HASH_BYTES = 8


class MessageRow(msgspec.Struct, gc=False):
    """A live message, or a dead letter; instants and durations are microseconds."""

    version: int
    due_at: int
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

    def lease_id(self, key: str) -> LeaseId:
        return LeaseId(key, UUID(hex=self.token))

    def lease(self, key: str, payload: P) -> Lease[P]:
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


_FIRST, _CREATED, _SHORT, _LONG = Struct("<16sddIIB16sB"), Struct("<d32sI"), Struct("<H"), Struct("<I")


@lru_cache(1_000)
def _options(packed: bytes) -> tuple[Any, ...]:
    return tuple(None if value is False else value for value in msgspec.msgpack.decode(packed))


def row_of(packed: bytes) -> MessageRow:
    """Unpack a row, in the layout of `_packed.lua`."""
    version, leased_at, lease_until, _, attempt, priority, _, length = _FIRST.unpack_from(packed)
    due_end = 58 + length
    consumer_end: int = due_end + 2 + _SHORT.unpack_from(packed, due_end)[0]
    created = consumer_end + 1 + packed[consumer_end]
    created_at, token, length = _CREATED.unpack_from(packed, created)
    more_end = created + 44 + length
    content_type, type, headers, lease_for, max_attempts, retry = _options(packed[more_end + 4 :])
    row = MessageRow(
        int(version),
        int(packed[58:due_end]),
        int(created_at),
        priority,
        attempt,
        type=type,
        content_type=content_type,
        headers=headers,
        lease_for=lease_for,
        max_attempts=max_attempts,
        retry=retry,
        consumer=packed[due_end + 2 : consumer_end].decode() or None,
    )
    if lease_until:
        row.token, row.leased_at, row.lease_until = token.decode(), int(leased_at), int(lease_until)
    if length:
        for name, value in msgspec.msgpack.decode(packed[created + 44 : more_end]).items():
            if name in MessageRow.__struct_fields__:
                setattr(row, name, int(value) if name == "origin" else value)
    return row


def draft_fields(draft: Draft) -> dict[str, Any]:
    """Draft fields that messages of a batch can share, for `_offer.lua`, without those that are None."""
    headers, trace = split_headers(draft.headers)
    fields = {
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


@lru_cache(1_000)
def packed_options(
    content_type: str | None,
    type: str | None,
    headers: str | None,
    lease_for: timedelta | None,
    max_attempts: int | None,
    retry: Retry | None,
) -> bytes:
    """Options in the bytes of `pack_options` in `_packed.lua`: an offer is compared with the live row."""
    values = (content_type, type, headers, duration(lease_for), max_attempts, stored_retry(retry))
    return msgspec.msgpack.encode([False if value is None else value for value in values], enc_hook=plain)


def split_headers(headers: Mapping[str, str] | None) -> tuple[str | None, str | None]:
    """Headers that an identical offer must repeat, and trace headers."""
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
    pairs = zip(record[::2], record[1::2], strict=True)
    fields = {name.decode(): value.decode() for name, value in pairs if name != b"counters"}
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


_HEAD, _KIND = Struct("<dB"), Struct("<BB")
_WITH_LEASE, _WITH_CONTENT, _WITH_PAYLOAD, _WITH_SIZE = 1, 2, 4, 8


def first_id(id: bytes) -> int:
    """The id of an entry is that of its last event, and how many there are."""
    last, _, n = id.partition(b"-")
    return int(last) - int(n) + 1


def events_of(id: bytes, fields: Sequence[bytes], queue: str | None = None) -> list[Event]:
    """The events of an entry of the stream, in the layout of `_journal.lua`, oldest first; without kinds that a newer version
    wrote and this one does not know."""
    entry = fields[1]
    at, length = _HEAD.unpack_from(entry)
    position = _HEAD.size + length
    name, number = queue or entry[_HEAD.size : position].decode(), first_id(id)
    events: list[Event] = []
    while position < len(entry):
        flags, length = _KIND.unpack_from(entry, position)
        position += 2 + length
        kind = entry[position - length : position].decode()
        parts: list[bytes] = []
        for size in (_SHORT, _SHORT, _LONG, _LONG):
            (length,) = size.unpack_from(entry, position)
            position += size.size + length
            parts.append(entry[position - length : position])
        if kind in KINDS:
            events.append(_event(number, EventKind(kind), instant(at), name, flags, *parts))
        number += 1
    return events


def _event(
    id: int, kind: EventKind, at: datetime, queue: str, flags: int, key: bytes, row: bytes, rest: bytes, payload: bytes
) -> Event:
    values: dict[str, Any] = msgspec.msgpack.decode(rest) if rest else {}
    if row:
        version, leased_at, lease_until, size, attempt, priority, payload_hash, length = _FIRST.unpack_from(row)
        values |= {
            "key": key.decode(),
            "version": int(version),
            "attempt": attempt,
            "priority": priority,
            "due_at": instant(row[58 : 58 + length]),
            "consumer": row[60 + length :].decode() or None,
            "payload": payload if flags & _WITH_PAYLOAD else None,
        }
        if flags & _WITH_LEASE and lease_until:
            values |= {"leased_at": instant(leased_at), "lease_until": instant(lease_until)}
        if flags & (_WITH_CONTENT | _WITH_SIZE):
            values["size"] = size
        if flags & _WITH_CONTENT:
            values["payload_hash"] = bytes.fromhex(payload_hash.decode())
    return Event(id=id, kind=kind, at=at, queue=queue, **values)


def _values(row: msgspec.Struct, kind: type[Any]) -> dict[str, Any]:
    """The row fields that a value of this kind has, with instants and durations instead of microseconds."""
    values = same_fields(row, kind)
    for name, value in values.items():
        if value is not None and name.endswith(("_at", "_until", "_for")):
            values[name] = since(value) if name.endswith("_for") else instant(value)
    return values
