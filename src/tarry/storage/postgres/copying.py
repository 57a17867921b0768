"""COPY in binary, for large batches of new messages: the rows are packed here, and the server only has to store them."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

from tarry.core.messages import ConflictRule, Draft
from tarry.storage.postgres.statement import Copy

_START = b"PGCOPY\n\xff\r\n\x00" + struct.pack(">ii", 0, 0)
_END = struct.pack(">h", -1)
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)

CONFLICTS = {
    ConflictRule.REPLACE: 0,
    ConflictRule.KEEP: 1,
    ConflictRule.EARLIEST: 2,
    ConflictRule.DEBOUNCE: 3,
}
"""How the table writes down the rule a message was offered with."""


@dataclass(frozen=True, slots=True)
class Reserved:
    """What `reserve` found: the queue's id and journal level, the time, and versions to give out."""

    queue: int
    journal: str
    now: datetime
    versions: Sequence[int]

    def due_us(self, draft: Draft) -> int:
        return ((self.now + draft.delay if draft.due_at is None else draft.due_at) - _EPOCH) // _US


def is_copyable(draft: Draft) -> bool:
    """New for certain, and without any of the options that most messages do not have."""
    return draft.fresh and not (
        draft.type or draft.headers or draft.lease_for or draft.max_attempts or draft.retry or draft.conflict.max_wait
    )


def copy_messages(drafts: Sequence[Draft], reserved: Reserved) -> Copy:
    """Each row in one piece: what is fixed and the length of the key, the key, the length of the payload, the payload."""
    fixed = struct.Struct(">h iq iq iq iq ii ih ih i".replace(" ", "")).pack
    now = (reserved.now - _EPOCH) // _US
    queue, due_us = reserved.queue, reserved.due_us

    def rows() -> Iterable[bytes]:
        for draft, version in zip(drafts, reserved.versions, strict=True):
            key, payload, due = draft.key.encode(), draft.payload, due_us(draft)
            rule = CONFLICTS[draft.conflict.rule]
            head = fixed(10, 8, version, 8, due, 8, due, 8, now, 4, queue, 2, draft.priority, 2, rule, len(key))
            yield b"".join((head, key, _length(len(payload)), payload, _optional(draft.content_type)))

    return Copy(
        "copy tarry.message (version, due_at, planned_at, created_at, queue, priority, conflict, key, payload, content_type) "
        "from stdin (format binary)",
        _blocks(rows()),
    )


def copy_events(drafts: Sequence[Draft], reserved: Reserved, offered: bytes = b"offered") -> Copy:
    fixed = struct.Struct(">h iq iq iq ii ii ii ih".replace(" ", "")).pack
    now = (reserved.now - _EPOCH) // _US
    kind = _field(offered)
    queue, due_us = reserved.queue, reserved.due_us
    with_payload = reserved.journal == "payloads"

    def rows() -> Iterable[bytes]:
        for draft, version in zip(drafts, reserved.versions, strict=True):
            key, payload = draft.key.encode(), draft.payload
            head = fixed(12, 8, now, 8, version, 8, due_us(draft), 4, queue, 4, 0, 4, len(payload), 2, draft.priority)
            digest = sha256(payload).digest()[:8]
            body = _field(payload) + _told(draft.content_type) if with_payload else _NULL + _NULL
            yield b"".join((head, kind, _length(len(key)), key, _EIGHT, digest, body))

    return Copy(
        "copy tarry.event (at, version, due_at, queue, attempt, size, priority, kind, key, payload_hash, payload, detail) "
        "from stdin (format binary)",
        _blocks(rows()),
    )


_NULL = struct.pack(">i", -1)
_length = struct.Struct(">i").pack
_EIGHT = _length(8)


def _field(value: bytes) -> bytes:
    return _length(len(value)) + value


def _optional(value: str | None) -> bytes:
    return _NULL if value is None else _field(value.encode())


def _told(content_type: str | None) -> bytes:
    """What `tarry.told` says of a message without type and headers, as jsonb in version 1 of its binary form."""
    return _NULL if content_type is None else _field(b"\x01" + json.dumps({"content_type": content_type}).encode())


def _blocks(rows: Iterable[bytes], size: int = 256 * 1024) -> Iterable[bytes]:
    block: list[Any] = [_START]
    held = 0
    for row in rows:
        block.append(row)
        held += len(row)
        if held >= size:
            yield b"".join(block)
            block, held = [], 0
    yield b"".join([*block, _END])
