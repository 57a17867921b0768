"""Binary COPY of large batches of new messages."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from tarry.core.messages.model import CONFLICT_CODES, REPLACE, Draft
from tarry.storage.postgres.arrays import EPOCH, US
from tarry.storage.postgres.statement import Copy


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
    def rows() -> Iterator[tuple[Any, ...]]:
        queue, now = reserved.queue, (reserved.now - EPOCH) // US
        for draft, version in zip(drafts, reserved.versions, strict=True):
            due = reserved.due_us(draft, now)
            rule = 0 if draft.conflict is REPLACE else CONFLICT_CODES[draft.conflict.rule]
            yield now, queue, version, due, due, draft.priority, rule, draft.key, draft.payload, draft.content_type

    return Copy(
        "copy tarry.message (created_at, queue, version, due_at, planned_at, priority, conflict, key, payload, content_type) "
        "from stdin (format binary)",
        ("int8", "int4", "int8", "int8", "int8", "int2", "int2", "text", "bytea", "text"),
        rows(),
    )


def copy_events(drafts: Sequence[Draft], reserved: Reserved) -> Copy:
    def rows() -> Iterator[tuple[Any, ...]]:
        queue, now, with_payload = reserved.queue, (reserved.now - EPOCH) // US, reserved.journal == "payloads"
        for draft, version in zip(drafts, reserved.versions, strict=True):
            due, size, digest = reserved.due_us(draft, now), len(draft.payload), sha256(draft.payload).digest()[:8]
            kept, detail = (draft.payload, _detail(draft.content_type)) if with_payload else (None, None)
            yield now, queue, 0, "offered", version, due, size, draft.priority, draft.key, digest, kept, detail

    return Copy(
        "copy tarry.event (at, queue, attempt, kind, version, due_at, size, priority, key, payload_hash, payload, detail) "
        "from stdin (format binary)",
        ("int8", "int4", "int4", "text", "int8", "int8", "int4", "int2", "text", "bytea", "bytea", "bytea"),
        rows(),
    )


def _detail(content_type: str | None) -> bytes | None:
    """`tarry.detail` of a message without type and headers, in version 1 of jsonb's binary format."""
    return None if content_type is None else b"\x01" + json.dumps({"content_type": content_type}).encode()
