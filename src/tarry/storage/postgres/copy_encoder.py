"""Binary COPY, and its encoder for large batches of new messages."""

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256

from tarry.core.messages.model import CONFLICT_CODES, REPLACE, Draft
from tarry.storage.postgres.arrays import EPOCH, US
from tarry.storage.postgres.statement import Copy

_START = b"PGCOPY\n\xff\r\n\x00" + struct.pack(">ii", 0, 0)
_END = struct.pack(">h", -1)
_BLOCK = 256 * 1024
NULL = struct.pack(">i", -1)
length = struct.Struct(">i").pack


def field(value: bytes) -> bytes:
    return length(len(value)) + value


def blocks(rows: Iterable[bytes]) -> Iterator[bytes]:
    """A binary COPY of these rows, in blocks."""
    block, held = [_START], 0
    for row in rows:
        block.append(row)
        held += len(row)
        if held >= _BLOCK:
            yield b"".join(block)
            block, held = [], 0
    yield b"".join([*block, _END])


@dataclass(frozen=True, slots=True)
class Reserved:
    """The result of `reserve`: the queue's id and journal level, the time, and versions to allocate."""

    queue: int
    journal: str
    now: datetime
    versions: Sequence[int]

    def due_us(self, draft: Draft, now_us: int) -> int:
        if draft.due_at is None:
            return now_us + draft.after // US if draft.after else now_us
        return (draft.due_at - EPOCH) // US


def is_copyable(draft: Draft) -> bool:
    """Whether the key is certainly new and no rare option is set."""
    return draft.fresh and not (
        draft.type or draft.headers or draft.lease_for or draft.max_attempts or draft.retry or draft.conflict.max_wait
    )


def copy_messages(drafts: Sequence[Draft], reserved: Reserved) -> Copy:
    """Encode each row with few calls: shared fields, fixed-size fields and key length, key, payload length, payload."""
    fixed = struct.Struct(">iqiqiqihihi").pack
    now = (reserved.now - EPOCH) // US
    common = struct.pack(">hiqii", 10, 8, now, 4, reserved.queue)
    due_us = reserved.due_us

    def rows() -> Iterable[bytes]:
        for draft, version in zip(drafts, reserved.versions, strict=True):
            key, payload, due = draft.key.encode(), draft.payload, due_us(draft, now)
            rule = 0 if draft.conflict is REPLACE else CONFLICT_CODES[draft.conflict.rule]
            head = fixed(8, version, 8, due, 8, due, 2, draft.priority, 2, rule, len(key))
            yield b"".join((common, head, key, length(len(payload)), payload, _optional(draft.content_type)))

    return Copy(
        "copy tarry.message (created_at, queue, version, due_at, planned_at, priority, conflict, key, payload, content_type) "
        "from stdin (format binary)",
        blocks(rows()),
    )


def copy_events(drafts: Sequence[Draft], reserved: Reserved, offered: bytes = b"offered") -> Copy:
    fixed = struct.Struct(">iqiqiiihi").pack
    now = (reserved.now - EPOCH) // US
    common = struct.pack(">hiqiiii", 12, 8, now, 4, reserved.queue, 4, 0) + field(offered)
    due_us = reserved.due_us
    eight, with_payload = length(8), reserved.journal == "payloads"

    def rows() -> Iterable[bytes]:
        for draft, version in zip(drafts, reserved.versions, strict=True):
            key, payload = draft.key.encode(), draft.payload
            head = fixed(8, version, 8, due_us(draft, now), 4, len(payload), 2, draft.priority, len(key))
            body = field(payload) + _detail(draft.content_type) if with_payload else 2 * NULL
            yield b"".join((common, head, key, eight, sha256(payload).digest()[:8], body))

    return Copy(
        "copy tarry.event (at, queue, attempt, kind, version, due_at, size, priority, key, payload_hash, payload, detail) "
        "from stdin (format binary)",
        blocks(rows()),
    )


def _optional(value: str | None) -> bytes:
    return NULL if value is None else field(value.encode())


def _detail(content_type: str | None) -> bytes:
    """`tarry.detail` of a message without type and headers, in version 1 of jsonb's binary format."""
    return NULL if content_type is None else field(b"\x01" + json.dumps({"content_type": content_type}).encode())
