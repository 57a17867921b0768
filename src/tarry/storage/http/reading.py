"""From what a broker answers to the values of the core. Payloads are taken out as they are, byte by byte."""

from __future__ import annotations

from base64 import b64decode
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from tarry.core.codecs import TEXT
from tarry.core.events import Event, EventKind, JournalLevel
from tarry.core.messages import Counted, Counts, DeadLetter, Lease, StoredMessage
from tarry.core.redriving import DeadFilter, DeadGroup, Matching, Phase, RedriveJob, RedriveState
from tarry.core.retry import Retry
from tarry.core.settings import QueueInfo, QueueSettings
from tarry.core.states import State


class Content(msgspec.Struct, kw_only=True):
    """A payload on the wire, and what comes with it wherever there is one."""

    queue: str
    priority: int
    type: str | None = None
    content_type: str | None = None
    payload: msgspec.Raw = msgspec.Raw()
    payload_base64: str | None = None

    @property
    def data(self) -> bytes:
        if self.payload_base64 is not None:
            return b64decode(self.payload_base64)
        if self.content_type == TEXT:
            return msgspec.json.decode(self.payload, type=str).encode()
        return bytes(self.payload)

    @property
    def stored_type(self) -> str | None:
        return None if self.content_type == "application/json" else self.content_type


class Carried(Content, kw_only=True):
    """What all messages on the wire have in common."""

    key: str
    version: int
    attempt: int
    due_at: datetime
    headers: dict[str, str] | None = None


class Delivered(Carried, kw_only=True):
    lock_token: UUID
    leased_at: datetime
    lease_until: datetime

    def lease(self) -> Lease[bytes]:
        return Lease(
            self.key, self.data, self.version, self.lock_token, self.attempt, self.priority, self.due_at,
            self.lease_until, self.leased_at, self.type, self.headers, self.stored_type,
        )  # fmt: skip


class Live(Carried, kw_only=True):
    state: State
    created_at: datetime
    max_attempts: int | None
    lease_until: datetime | None
    consumer: str | None
    last_error: str | None
    origin: int | None = None
    own_max_attempts: int | None = None
    lease_for: float | None = None
    retry: dict[str, float] | None = None

    def stored(self) -> StoredMessage[bytes]:
        return StoredMessage(
            queue=self.queue, key=self.key, payload=self.data, version=self.version, state=self.state,
            attempt=self.attempt, priority=self.priority, due_at=self.due_at, created_at=self.created_at,
            lease_until=self.lease_until, consumer=self.consumer, type=self.type, headers=self.headers,
            content_type=self.stored_type, max_attempts=self.max_attempts, last_error=self.last_error, origin=self.origin,
            own_max_attempts=self.own_max_attempts, retry=None if self.retry is None else retry(self.retry),
            lease_for=None if self.lease_for is None else timedelta(seconds=self.lease_for),
        )  # fmt: skip


class Dead(Carried, kw_only=True):
    died_at: datetime
    reason: str
    error: str | None
    fingerprint: str | None = None
    consumer: str | None = None
    origin: int | None = None

    def letter(self) -> DeadLetter[bytes]:
        return DeadLetter(
            queue=self.queue, key=self.key, payload=self.data, version=self.version, attempt=self.attempt,
            priority=self.priority, due_at=self.due_at, died_at=self.died_at, reason=self.reason, error=self.error,
            type=self.type, headers=self.headers, content_type=self.stored_type, fingerprint=self.fingerprint,
            consumer=self.consumer, origin=self.origin,
        )  # fmt: skip


class Deliveries(msgspec.Struct):
    messages: list[Delivered]


class Page(msgspec.Struct):
    messages: list[Live]
    next: str | None = None


class DeadPage(msgspec.Struct):
    dead_letters: list[Dead]
    next: str | None = None


def event(said: dict[str, Any]) -> Event:
    def at(name: str) -> datetime | None:
        return None if said[name] is None else datetime.fromisoformat(said[name])

    same = ("id", "queue", "key", "version", "attempt", "priority", "consumer", "size", "error", "detail")
    return Event(
        kind=EventKind(said["kind"]),
        at=datetime.fromisoformat(said["at"]),
        due_at=at("due_at"),
        leased_at=at("leased_at"),
        lease_until=at("lease_until"),
        payload_hash=None if said["payload_hash"] is None else bytes.fromhex(said["payload_hash"]),
        payload=None if said.get("payload_base64") is None else b64decode(said["payload_base64"]),
        **{name: said[name] for name in same},
    )


def retry(said: dict[str, float]) -> Retry:
    return Retry(
        initial_for=timedelta(seconds=said["initial_for"]),
        factor=said["factor"],
        cap_for=timedelta(seconds=said["cap_for"]),
        jitter=said["jitter"],
    )


def queue_info(said: dict[str, Any]) -> QueueInfo:
    return QueueInfo(
        name=said["name"],
        settings=QueueSettings(
            lease_for=timedelta(seconds=said["lease_for"]),
            max_attempts=said["max_attempts"],
            retry=retry(said["retry"]),
            journal=JournalLevel(said["journal"]),
            retention_for=timedelta(seconds=said["retention_for"]),
            target_lag_for=timedelta(seconds=said["target_lag_for"]),
        ),
        created_at=datetime.fromisoformat(said["created_at"]),
        paused_at=None if said["paused_at"] is None else datetime.fromisoformat(said["paused_at"]),
        paused_reason=said["paused_reason"],
    )


def counts(said: dict[str, Any]) -> Counts:
    by_state = {name: counted(said[name]) for name in ("delayed", "ready", "leased", "dead")}
    return Counts(**by_state, lag_for=timedelta(seconds=said["lag_for"]))


def counted(said: dict[str, Any]) -> Counted:
    return Counted(said["n"], said["capped"])


def matching(said: dict[str, Any]) -> Matching:
    return Matching(counted(said["letters"]), said["blocked"])


def dead_group(said: dict[str, Any]) -> DeadGroup:
    same = ("fingerprint", "reason", "pattern", "example", "example_key", "error", "fewest_attempts", "most_attempts")
    return DeadGroup(
        count=counted(said["count"]),
        first_died_at=datetime.fromisoformat(said["first_died_at"]),
        last_died_at=datetime.fromisoformat(said["last_died_at"]),
        types=tuple(said["types"]),
        **{name: said[name] for name in same},
    )


def redrive_job(said: dict[str, Any]) -> RedriveJob:
    def at(text: str | None) -> Any:
        return None if text is None else datetime.fromisoformat(text)

    where, versions = said["where"], said["where"]["versions"]
    same = ("id", "queue", "rate", "canary", "reason", "who", "redriven", "skipped", "step", "moved")
    return RedriveJob(
        where=DeadFilter(
            **{name: where[name] for name in ("fingerprint", "type", "key_prefix")},
            died_from=at(where["died_from"]),
            died_to=at(where["died_to"]),
            versions=None if versions is None else tuple(versions),
        ),
        state=RedriveState(said["state"]),
        phase=Phase(said["phase"]),
        total=counted(said["total"]),
        canaries=tuple(said["canaries"]),
        canary_keys=tuple(said["canary_keys"]),
        **{name: at(said[name]) for name in ("created_at", "updated_at", "next_at", "ended_at")},
        **{name: said[name] for name in same},
    )
