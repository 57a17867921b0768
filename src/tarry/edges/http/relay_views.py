"""Values as Relay shows them: instants in whole seconds since 1970, the end of a lease in ISO 8601."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tarry.core.anomalies import Anomaly
from tarry.core.events import Event, EventKind
from tarry.core.messages import Counts, DeadLetter, StoredMessage
from tarry.core.settings import QueueInfo
from tarry.core.states import State
from tarry.edges.http.ids import MessageId
from tarry.edges.http.problems import Problem
from tarry.edges.times import exact
from tarry.handles.content import Content
from tarry.handles.delivery import AsyncDelivery

_ACTIONS = {
    "offered": "enqueue",
    "leased": "dequeue",
    "acked": "acknowledge",
    "nacked": "nack",
    "buried": "move_to_dlq",
    "expired": "timeout_requeue",
    "redriven": "move",
    "dropped": "delete",
    "queue_created": "create_queue",
    "queue_edited": "update_queue",
    "queue_renamed": "rename_queue",
    "queue_deleted": "delete_queue",
    "queue_purged": "purge_queue",
}
"""Where Relay has a word for it; the rest are ours."""
_SETTLED = frozenset({EventKind.ACKED, EventKind.NACKED, EventKind.RELEASED, EventKind.EXPIRED, EventKind.BURIED})


def seconds(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp())


def _ms(start: datetime | None, end: datetime) -> int | None:
    return None if start is None else max(0, round((end - start).total_seconds() * 1000))


def problem(status: int, code: str, error: str, detail: str) -> Problem:
    """A problem like any other, with the fields that Relay's clients look at."""
    return Problem(status, code, detail, error=error, message=detail)


def lock_lost() -> Problem:
    return problem(409, "lease_lost", "LOCK_LOST", "this lock_token is no longer the message's lock")


def not_found(status: int = 404) -> Problem:
    return problem(
        status, "gone", "NOT_FOUND", "there is no live message of this id: it was acknowledged, or never was"
    )


def delivery(queue: str, found: AsyncDelivery[Content]) -> dict[str, Any]:
    return {
        "id": str(MessageId(queue, found.key)),
        "queue_name": queue,
        "type": found.type,
        **_payload(found.payload),
        "priority": found.priority,
        "status": "processing",
        "attempt_count": found.attempt,
        "lock_token": str(found.token),
        "locked_until": exact(found.lease_until),
        "ack_timeout_seconds": round((found.lease_until - found.leased_at).total_seconds()),
        "dequeued_at": seconds(found.leased_at),
    }


def first(queue: str, found: Sequence[AsyncDelivery[Content]]) -> dict[str, Any]:
    return delivery(queue, found[0])


def batch(queue: str, found: Sequence[AsyncDelivery[Content]]) -> dict[str, Any]:
    return {"messages": [delivery(queue, one) for one in found], "count": len(found)}


def message(found: StoredMessage[Any]) -> dict[str, Any]:
    return {
        "id": str(MessageId(found.queue, found.key)),
        "queue_name": found.queue,
        "type": found.type,
        **_payload(_content(found)),
        "priority": found.priority,
        "status": "processing" if found.state is State.LEASED else "queued",
        "attempt_count": found.attempt,
        "max_attempts": found.max_attempts,
        "ack_timeout_seconds": None if found.lease_for is None else found.lease_for.total_seconds(),
        "locked_until": exact(found.lease_until),
        "consumer_id": found.consumer,
        "created_at": seconds(found.created_at),
        "last_error": found.last_error,
    }


def dead_letter(found: DeadLetter[Any]) -> dict[str, Any]:
    return {
        "id": str(MessageId(found.queue, found.key)),
        "queue_name": found.queue,
        "type": found.type,
        **_payload(_content(found)),
        "priority": found.priority,
        "status": "dead",
        "attempt_count": found.attempt,
        "consumer_id": found.consumer,
        "created_at": seconds(found.due_at),
        "last_error": found.error or found.reason,
    }


def created_at(found: StoredMessage[Any] | DeadLetter[Any]) -> datetime:
    """Of a dead letter, as near as is known: when it was due."""
    return found.created_at if isinstance(found, StoredMessage) else found.due_at


def searched(found: StoredMessage[Any] | DeadLetter[Any]) -> str:
    """What a search looks at, in lower case."""
    return f"{MessageId(found.queue, found.key)} {found.key} {found.payload.decode(errors='replace')}".lower()


def found(one: StoredMessage[Any] | DeadLetter[Any]) -> dict[str, Any]:
    return message(one) if isinstance(one, StoredMessage) else dead_letter(one)


def action(kind: EventKind) -> str:
    return _ACTIONS.get(kind.value, kind.value)


def event(found: Event) -> dict[str, Any]:
    """Relay has 37 fields, most of them always null; these are the ones that mean something."""
    detail = found.detail or {}
    return {
        "log_id": str(found.id),
        "message_id": None if found.key is None else str(MessageId(found.queue, found.key)),
        "action": action(found.kind),
        "timestamp": seconds(found.at),
        "queue": found.queue,
        "priority": found.priority,
        "message_type": detail.get("type"),
        "consumer_id": found.consumer,
        "attempt_count": found.attempt,
        "max_attempts": detail.get("max_attempts"),
        "time_in_queue_ms": _ms(found.due_at, found.at) if found.kind is EventKind.LEASED else None,
        "processing_time_ms": _ms(found.leased_at, found.at) if found.kind in _SETTLED else None,
        "payload_size_bytes": found.size,
        "error_reason": found.error,
        "reason": detail.get("reason"),
        "triggered_by": "api",
    }


def anomaly(found: Anomaly) -> dict[str, Any]:
    return {
        "log_id": str(found.id),
        "message_id": None if found.key is None else str(MessageId(found.queue, found.key)),
        "timestamp": seconds(found.raised_at),
        "queue": found.queue,
        "consumer_id": found.consumer,
        "anomaly": {
            "type": found.detector,
            "severity": found.severity.value,
            "description": found.sentence,
            "threshold": found.expected_high,
            "actual": found.observed,
        },
    }


def queue(info: QueueInfo, counts: Counts | None = None) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "name": info.name,
        "queue_type": "standard",
        "ack_timeout_seconds": round(info.settings.lease_for.total_seconds()),
        "max_attempts": info.settings.max_attempts,
        "partition_interval": None,
        "retention_interval": None,
        "description": None,
        "created_at": exact(info.created_at),
    }
    if counts is not None:
        shown["message_count"] = counts.delayed.n + counts.ready.n
        shown["processing_count"] = counts.leased.n
        shown["dead_count"] = counts.dead.n
    return shown


def _content(found: StoredMessage[Any] | DeadLetter[Any]) -> Content:
    return found.payload if isinstance(found.payload, Content) else Content(found.payload, found.content_type)


def _payload(content: Content) -> dict[str, Any]:
    shown = content.shown()
    return {name: shown[name] for name in ("payload", "payload_base64") if name in shown}
