"""Values as answers show them: instants in RFC 3339 with microseconds, durations in seconds."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from tarry.core.audit import Audited
from tarry.core.events import Event
from tarry.core.keys import ApiKey
from tarry.core.messages import Counted, Counts, DeadLetter, StoredMessage
from tarry.core.redriving import DeadGroup, RedriveJob
from tarry.core.settings import QueueInfo
from tarry.edges.http.ids import MessageId
from tarry.edges.times import exact
from tarry.handles.content import Content
from tarry.handles.delivery import AsyncDelivery


def answer(body: Mapping[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body), status, headers, "application/json")


def delivery(queue: str, found: AsyncDelivery[Content]) -> dict[str, Any]:
    return {
        "id": str(MessageId(queue, found.key)),
        "queue": queue,
        "key": found.key,
        "version": found.version,
        "lock_token": str(found.token),
        "attempt": found.attempt,
        "redelivered": found.redelivered,
        "priority": found.priority,
        "type": found.type,
        "headers": dict(found.headers) or None,
        "due_at": exact(found.due_at),
        "leased_at": exact(found.leased_at),
        "lease_until": exact(found.lease_until),
        **found.payload.shown(),
    }


def message(found: StoredMessage[Any]) -> dict[str, Any]:
    return {
        "id": str(MessageId(found.queue, found.key)),
        "queue": found.queue,
        "key": found.key,
        "version": found.version,
        "state": found.state.value,
        "attempt": found.attempt,
        "max_attempts": found.max_attempts,
        "own_max_attempts": found.own_max_attempts,
        "lease_for": None if found.lease_for is None else found.lease_for.total_seconds(),
        "retry": None if found.retry is None else found.retry.as_data(),
        "priority": found.priority,
        "type": found.type,
        "headers": found.headers,
        "due_at": exact(found.due_at),
        "created_at": exact(found.created_at),
        "lease_until": exact(found.lease_until),
        "consumer": found.consumer,
        "last_error": found.last_error,
        "origin": found.origin,
        **_content(found).shown(),
    }


def dead_letter(found: DeadLetter[Any]) -> dict[str, Any]:
    return {
        "version": found.version,
        "queue": found.queue,
        "key": found.key,
        "attempt": found.attempt,
        "priority": found.priority,
        "type": found.type,
        "headers": found.headers,
        "due_at": exact(found.due_at),
        "died_at": exact(found.died_at),
        "reason": found.reason,
        "error": found.error,
        "fingerprint": found.fingerprint,
        "consumer": found.consumer,
        "origin": found.origin,
        **_content(found).shown(),
    }


def _content(found: StoredMessage[Any] | DeadLetter[Any]) -> Content:
    return found.payload if isinstance(found.payload, Content) else Content(found.payload, found.content_type)


def dead_group(found: DeadGroup) -> dict[str, Any]:
    return {
        "fingerprint": found.fingerprint,
        "reason": found.reason,
        "pattern": found.pattern,
        "count": counted(found.count),
        "first_died_at": exact(found.first_died_at),
        "last_died_at": exact(found.last_died_at),
        "example": found.example,
        "example_key": found.example_key,
        "error": found.error,
        "types": list(found.types),
        "fewest_attempts": found.fewest_attempts,
        "most_attempts": found.most_attempts,
    }


def redrive(job: RedriveJob) -> dict[str, Any]:
    where = job.where
    return {
        "id": job.id,
        "queue": job.queue,
        "where": {
            "fingerprint": where.fingerprint,
            "type": where.type,
            "key_prefix": where.key_prefix,
            "died_from": exact(where.died_from),
            "died_to": exact(where.died_to),
            "versions": where.versions,
        },
        "state": job.state.value,
        "phase": job.phase.value,
        "share": job.share,
        "total": counted(job.total),
        "redriven": job.redriven,
        "skipped": job.skipped,
        "rate": job.rate,
        "canary": job.canary,
        "canaries": job.canaries,
        "canary_keys": job.canary_keys,
        "reason": job.reason,
        "who": job.who,
        "step": job.step,
        "moved": job.moved,
        "created_at": exact(job.created_at),
        "updated_at": exact(job.updated_at),
        "next_at": exact(job.next_at),
        "ended_at": exact(job.ended_at),
    }


def event(found: Event) -> dict[str, Any]:
    return {
        "id": found.id,
        "kind": found.kind.value,
        "at": exact(found.at),
        "queue": found.queue,
        "key": found.key,
        "version": found.version,
        "attempt": found.attempt,
        "priority": found.priority,
        "due_at": exact(found.due_at),
        "leased_at": exact(found.leased_at),
        "lease_until": exact(found.lease_until),
        "consumer": found.consumer,
        "size": found.size,
        "payload_hash": None if found.payload_hash is None else found.payload_hash.hex(),
        "payload_base64": None if found.payload is None else b64encode(found.payload).decode(),
        "error": found.error,
        "detail": found.detail,
    }


def queue(info: QueueInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "created_at": exact(info.created_at),
        "paused": info.paused,
        "paused_at": exact(info.paused_at),
        "paused_reason": info.paused_reason,
        **info.settings.as_data(),
    }


def counted(found: Counted) -> dict[str, Any]:
    return {"n": found.n, "capped": found.capped}


def counts(found: Counts) -> dict[str, Any]:
    return {
        "delayed": counted(found.delayed),
        "ready": counted(found.ready),
        "leased": counted(found.leased),
        "dead": counted(found.dead),
        "lag_for": found.lag_for.total_seconds(),
    }


def key(found: ApiKey) -> dict[str, Any]:
    return {
        "id": found.id,
        "name": found.name,
        "actions": sorted(found.actions),
        "queues": list(found.queues),
        "active": found.active,
        "created_at": exact(found.created_at),
        "expires_at": exact(found.expires_at),
        "revoked_at": exact(found.revoked_at),
    }


def audited(found: Audited) -> dict[str, Any]:
    return {
        "id": found.id,
        "at": exact(found.at),
        "actor": found.actor,
        "action": found.action,
        "queue": found.queue,
        "detail": found.detail,
        "request_id": found.request_id,
        "status": found.status,
    }
