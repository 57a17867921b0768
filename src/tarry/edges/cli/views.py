"""What queues, messages and dead letters look like: as data for programs, as cells for people."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tarry.core.messages import Counted, Counts, DeadLetter, StoredMessage
from tarry.core.settings import QueueInfo, QueueSettings
from tarry.core.states import State
from tarry.edges.cli.output import Cell, Column, Value
from tarry.edges.cli.payloads import Raw, payload_fields, payload_line
from tarry.edges.cli.text import shortened
from tarry.edges.times import exact, instant, length, relative

PAYLOAD_WIDTH = 60
STATE_STYLES = {State.DELAYED: "blue", State.READY: "green", State.LEASED: "yellow", State.DEAD: "red"}

QUEUE_COLUMNS = (
    Column("queue", style="bold"),
    Column("delayed", right=True),
    Column("ready", right=True),
    Column("leased", right=True),
    Column("dead", right=True),
    Column("state"),
    Column("lease", right=True, spare=True),
    Column("attempts", right=True, spare=True),
    Column("retry", spare=True),
    Column("journal", spare=True),
)
MESSAGE_COLUMNS = (
    Column("key", style="bold"),
    Column("state"),
    Column("due"),
    Column("priority", right=True, spare=True),
    Column("attempt", right=True, spare=True),
    Column("version", right=True, spare=True),
    Column("type", spare=True),
    Column("payload"),
)
DEAD_COLUMNS = (
    Column("version", right=True),
    Column("key", style="bold"),
    Column("died"),
    Column("attempt", right=True),
    Column("reason"),
    Column("error"),
)


def queue_data(info: QueueInfo, counts: Counts | None = None) -> dict[str, Any]:
    data: dict[str, Any] = {
        "name": info.name,
        "paused": info.paused,
        "paused_at": exact(info.paused_at),
        "paused_reason": info.paused_reason,
        "created_at": exact(info.created_at),
        "settings": info.settings.as_data(),
    }
    if counts is not None:
        by_state = {name: counted_data(getattr(counts, name)) for name in ("delayed", "ready", "leased", "dead")}
        data["counts"] = {**by_state, "lag_for": counts.lag_for.total_seconds()}
    return data


def counted_data(counted: Counted) -> dict[str, Any]:
    return {"n": counted.n, "capped": counted.capped}


def queue_row(info: QueueInfo, counts: Counts) -> list[Value]:
    settings = info.settings
    return [
        info.name,
        str(counts.delayed),
        str(counts.ready),
        str(counts.leased),
        Cell(str(counts.dead), "red" if counts.dead.n else ""),
        _queue_state(info),
        length(settings.lease_for),
        _attempts(settings),
        _retry(settings),
        settings.journal.value,
    ]


def queue_fields(info: QueueInfo, counts: Counts | None = None) -> list[tuple[str, Value]]:
    settings = info.settings
    fields: list[tuple[str, Value]] = [("queue", info.name), ("state", _queue_state(info))]
    if info.paused_at is not None:
        fields.append(("paused at", instant(info.paused_at)))
    if info.paused_reason:
        fields.append(("paused because", info.paused_reason))
    if counts is not None:
        fields += [
            ("delayed", str(counts.delayed)),
            ("ready", str(counts.ready)),
            *([("oldest due for", length(counts.lag_for))] if counts.ready.n else []),
            ("leased", str(counts.leased)),
            ("dead", Cell(str(counts.dead), "red" if counts.dead.n else "")),
        ]
    return [
        *fields,
        ("lease", length(settings.lease_for)),
        ("max attempts", _attempts(settings)),
        ("retry", _retry(settings)),
        ("retry jitter", f"{settings.retry.jitter:.0%}"),
        ("journal", settings.journal.value),
        ("retention", length(settings.retention_for)),
        ("target lag", length(settings.target_lag_for)),
        ("created at", instant(info.created_at)),
    ]


def _queue_state(info: QueueInfo) -> Value:
    return Cell("paused", "yellow") if info.paused else Cell("running", "green")


def _attempts(settings: QueueSettings) -> str:
    return "unlimited" if settings.max_attempts is None else f"{settings.max_attempts:,}"


def _retry(settings: QueueSettings) -> str:
    retry = settings.retry
    growth = "" if retry.factor == 1 else f" x{retry.factor:g} up to {length(retry.cap_for)}"
    return f"{length(retry.initial_for)}{growth}"


def raw(message: StoredMessage[bytes] | DeadLetter[bytes]) -> Raw:
    return Raw(message.payload, message.content_type)


def message_data(message: StoredMessage[bytes]) -> dict[str, Any]:
    return {
        "queue": message.queue,
        "key": message.key,
        "version": message.version,
        "state": message.state.value,
        "due_at": exact(message.due_at),
        "created_at": exact(message.created_at),
        "priority": message.priority,
        "attempt": message.attempt,
        "max_attempts": message.max_attempts,
        "type": message.type,
        "headers": dict(message.headers or {}),
        "lease_until": exact(message.lease_until) if message.state is State.LEASED else None,
        "consumer": message.consumer if message.state is State.LEASED else None,
        "last_error": message.last_error,
        "origin": message.origin,
        **payload_fields(raw(message)),
    }


def message_row(message: StoredMessage[bytes], now: datetime) -> list[Value]:
    return [
        message.key,
        _state(message.state),
        due(message.due_at, now),
        str(message.priority),
        str(message.attempt),
        str(message.version),
        message.type or "",
        shortened(payload_line(raw(message)), PAYLOAD_WIDTH),
    ]


def message_fields(message: StoredMessage[bytes], now: datetime) -> list[tuple[str, Value]]:
    attempts = f"{message.attempt} of {message.max_attempts or 'unlimited'}"
    fields: list[tuple[str, Value]] = [
        ("key", message.key),
        ("queue", message.queue),
        ("state", _state(message.state)),
        ("due", due(message.due_at, now)),
        ("created", due(message.created_at, now)),
        ("version", str(message.version)),
        ("priority", str(message.priority)),
        ("attempt", attempts),
    ]
    if message.type is not None:
        fields.append(("type", message.type))
    fields += [(f"header {name}", value) for name, value in sorted((message.headers or {}).items())]
    if message.state is State.LEASED and message.lease_until is not None:
        fields += [("leased by", message.consumer or "?"), ("lease until", due(message.lease_until, now))]
    if message.origin is not None:
        fields.append(("redriven from", f"version {message.origin}"))
    if message.last_error:
        fields.append(("last error", message.last_error.partition("\n")[0]))
    fields.append(("content type", message.content_type or "application/json"))
    return [*fields, ("payload", payload_line(raw(message)))]


def dead_data(dead: DeadLetter[bytes]) -> dict[str, Any]:
    return {
        "queue": dead.queue,
        "key": dead.key,
        "version": dead.version,
        "died_at": exact(dead.died_at),
        "due_at": exact(dead.due_at),
        "attempt": dead.attempt,
        "priority": dead.priority,
        "reason": dead.reason,
        "error": dead.error,
        "fingerprint": dead.fingerprint,
        "consumer": dead.consumer,
        "origin": dead.origin,
        "type": dead.type,
        "headers": dict(dead.headers or {}),
        **payload_fields(raw(dead)),
    }


def dead_row(dead: DeadLetter[bytes], now: datetime) -> list[Value]:
    error = (dead.error or "").partition("\n")[0]
    return [
        str(dead.version),
        dead.key,
        due(dead.died_at, now),
        str(dead.attempt),
        dead.reason,
        Cell(shortened(error, PAYLOAD_WIDTH), "red"),
    ]


def due(at: datetime, now: datetime) -> str:
    return f"{instant(at)} ({relative(at, now)})"


def _state(state: State) -> Cell:
    return Cell(state.value, STATE_STYLES.get(state, ""))
