"""From the values of the core to what a broker takes."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec

from tarry.core.editing import Edit
from tarry.core.limits import clip_error
from tarry.core.messages import Draft, Failure, Hold, Place
from tarry.core.redriving import DeadFilter

T = TypeVar("T")

_EPOCH = datetime.min.replace(tzinfo=UTC)

BATCH = 1_000
"""As many as a broker takes at once."""
_BODY_BYTES = 700_000
"""Of payloads in one request; a broker takes a mebibyte in all."""


def message_id(queue: str, key: str) -> str:
    return urlsafe_b64encode(f"{queue}/{key}".encode()).rstrip(b"=").decode()


def instant(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def place(of: Place) -> str:
    return f"{(of.due_at - _EPOCH) // timedelta(microseconds=1)}-{of.version}"


def seconds(span: timedelta | None) -> float | None:
    return None if span is None else span.total_seconds()


def content(payload: bytes, content_type: str | None) -> dict[str, Any]:
    if content_type is None and not payload.startswith(b'"'):
        return {"payload": msgspec.Raw(payload)}
    # A JSON string would be taken for text, and bytes are not JSON.
    return {"payload_base64": b64encode(payload).decode(), "content_type": content_type or "application/json"}


def offer(draft: Draft) -> dict[str, Any]:
    body: dict[str, Any] = {"key": draft.key, "priority": draft.priority, "on_conflict": draft.conflict.rule.value}
    body |= content(draft.payload, draft.content_type)
    if draft.due_at is not None:
        body["at"] = instant(draft.due_at)
    elif draft.delay:
        body["delay"] = draft.delay.total_seconds()
    rare = {
        "type": draft.type,
        "headers": None if draft.headers is None else dict(draft.headers),
        "lease_for": seconds(draft.lease_for),
        "max_attempts": draft.max_attempts,
        "retry": None if draft.retry is None else draft.retry.as_data(),
        "max_wait": seconds(draft.conflict.max_wait),
    }
    return body | {name: value for name, value in rare.items() if value is not None}


def edit(of: Edit) -> dict[str, Any]:
    body: dict[str, Any] = {}
    if of.payload is not None:
        body |= content(of.payload, of.content_type)
    if of.due_at is not None:
        body["at"] = instant(of.due_at)
    elif of.delay is not None:
        body["delay"] = of.delay.total_seconds()
    said = {
        "priority": of.priority,
        "type": of.type,
        "headers": None if of.headers is None else dict(of.headers),
        "lease_for": seconds(of.lease_for),
        "max_attempts": of.max_attempts,
        "retry": None if of.retry is None else of.retry.as_data(),
    }
    return body | {name: value for name, value in said.items() if name in of.named}


def batches_of_drafts(drafts: Sequence[Draft]) -> Iterator[Sequence[Draft]]:
    start, size = 0, 0
    for place, draft in enumerate(drafts):
        if place > start and (place - start == BATCH or size + len(draft.payload) > _BODY_BYTES):
            yield drafts[start:place]
            start, size = place, 0
        size += len(draft.payload)
    if start < len(drafts):
        yield drafts[start:]


def batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]


def held(queue: str, hold: Hold) -> dict[str, Any]:
    return {"id": message_id(queue, hold.key), "lock_token": str(hold.token)}


def failed(queue: str, failure: Failure) -> dict[str, Any]:
    return {
        **held(queue, failure.hold),
        "error": None if failure.error is None else clip_error(failure.error),
        "delay": seconds(failure.delay),
    }


def which(where: DeadFilter) -> dict[str, Any]:
    """As a query has it: one `version` after the other."""
    said = chosen(where)
    versions = said.pop("versions", None)
    return said if versions is None else {**said, "version": versions}


def chosen(where: DeadFilter) -> dict[str, Any]:
    said = {
        "fingerprint": where.fingerprint,
        "type": where.type,
        "key_prefix": where.key_prefix,
        "died_from": None if where.died_from is None else instant(where.died_from),
        "died_to": None if where.died_to is None else instant(where.died_to),
        "versions": None if where.versions is None else list(where.versions),
    }
    return {name: value for name, value in said.items() if value is not None}
