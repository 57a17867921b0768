"""Schedules and ledger entries in the form that the scripts store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from tarry.core.cron.model import (
    Overlap,
    Policy,
    Reason,
    ScheduleChange,
    ScheduleSpec,
    ScheduleState,
    TickChange,
    TickRecord,
    Verdict,
)
from tarry.core.cron.schedule_types import stored_schedule
from tarry.storage.redis.operation import instant, micros
from tarry.storage.redis.rows import draft_fields, payload_hash


class _State(msgspec.Struct):
    """Fields that scripts compare."""

    revision: int
    ledger: str
    queue: str
    decided_at: str
    wake_at: str | None = None


class _Body(msgspec.Struct):
    """Fields that only clients read."""

    kind: str
    text: str
    zone: str | None
    hash: str
    policy: Policy
    payload: bytes | None
    content_type: str | None
    priority: int
    type: str | None
    source: str
    cursor_at: datetime
    generation: int
    installed_at: datetime
    paused_at: datetime | None
    paused_reason: str | None


_SCHEDULE = ("kind", "text", "zone")
_SPEC = ("hash", "policy", "payload", "content_type", "priority", "type", "source")
_PROGRESS = ("cursor_at", "generation", "installed_at", "paused_at", "paused_reason")
_state = msgspec.msgpack.Decoder(_State).decode
_body = msgspec.msgpack.Decoder(_Body).decode


def state_of(name: str, packed: bytes, body: bytes, forgotten: bytes, *, last_live: bool) -> ScheduleState:
    state, rest = _state(packed), _body(body)
    spec = ScheduleSpec(
        name=name,
        queue=state.queue,
        schedule=stored_schedule(rest.kind, rest.text, rest.zone, rest.hash),
        **{field: getattr(rest, field) for field in _SPEC[1:]},
    )
    return ScheduleState(
        spec=spec,
        wake_at=None if state.wake_at is None else instant(state.wake_at),
        decided_at=instant(state.decided_at),
        revision=state.revision,
        ledger=state.ledger,
        last_live=last_live,
        forgotten_until=instant(forgotten) if forgotten else None,
        **{field: getattr(rest, field) for field in _PROGRESS},
    )


def _stored_body(state: ScheduleState) -> bytes:
    sources = ((state.spec.schedule, _SCHEDULE), (state.spec, _SPEC), (state, _PROGRESS))
    return msgspec.msgpack.encode({name: getattr(source, name) for source, names in sources for name in names})


def text(at: datetime | None) -> str | None:
    return None if at is None else str(micros(at))


def stored_changes(changes: Sequence[ScheduleChange]) -> tuple[list[dict[str, Any]], list[bytes]]:
    """Changes as `begin.lua` takes them, and the arguments that they refer to by number: bodies and payloads."""
    arguments: list[bytes] = []

    def argument(value: bytes) -> int:
        arguments.append(value)
        return len(arguments) + 1

    def tick_fields(change: ScheduleChange, tick: TickChange) -> dict[str, Any]:
        draft = tick.draft
        fields = {
            "hash": tick.hash,
            "tick": text(tick.tick),
            "til": text(tick.until),
            "count": tick.count,
            "verdict": tick.verdict.value,
            "reason": tick.reason.value,
            "by_instant": change.by_instant(tick),
            "due_at": None if draft is None else text(draft.due_at),
        }
        if draft is not None and tick.queue is not None:
            fields |= {
                "queue": tick.queue,
                "draft": {"key": draft.key, "hash": payload_hash(draft.payload), **draft_fields(draft)},
                "payload": argument(draft.payload),
                "detail": _detail(change.name, tick.hash, tick.tick),
            }
        return fields

    def fields(change: ScheduleChange) -> dict[str, Any]:
        after = change.after
        state = None if after is None else {
            "queue": after.spec.queue,
            "wake_at": text(after.wake_at),
            "decided_at": text(after.decided_at),
            "by_code": after.spec.by_code,
            "skips": after.spec.policy.overlap is Overlap.SKIP,
        }  # fmt: skip
        return {
            "name": change.name,
            "expected": None if change.expected is None else str(change.expected),
            "moves_only": change.moves_only,
            "decided_at": text(change.decided_at),
            "state": state,
            "body": None if after is None else argument(_stored_body(after)),
            "withdraw": [
                {
                    "hash": config_hash,
                    "tick": text(tick),
                    "reason": reason.value,
                    "detail": _detail(change.name, config_hash, tick) | {"reason": reason.value},
                }
                for config_hash, tick, reason in change.withdraw
            ],
            "ticks": [tick_fields(change, tick) for tick in change.ticks],
        }

    return [fields(change) for change in changes], arguments


def _detail(name: str, config_hash: str, tick: datetime) -> dict[str, str]:
    return {"schedule": name, "hash": config_hash, "tick": tick.isoformat()}


class _Entry(msgspec.Struct):
    tick: str
    hash: str
    verdict: str
    reason: str
    decided_at: str
    due_at: str | None = None
    til: str | None = None
    count: int | None = None
    queue: str | None = None
    key: str | None = None
    version: int | None = None


class LedgerRow:
    """One entry, and where its message may be."""

    def __init__(self, row: Sequence[Any]) -> None:
        member, packed, name, is_open, ledger = row
        self.member, self.ledger = member.decode(), ledger.decode()
        self.is_open = bool(is_open)
        self.stored = _entry(packed)
        self._queue_name = name.decode() or None

    @property
    def id(self) -> dict[str, Any]:
        return {"ledger": self.ledger, "member": self.member, "version": self.stored.version}

    def record(self, name: str, *, live: bool) -> TickRecord:
        entry = self.stored
        return TickRecord(
            name=name,
            hash=entry.hash,
            tick=instant(entry.tick),
            until=None if entry.til is None else instant(entry.til),
            count=entry.count,
            verdict=Verdict(entry.verdict),
            reason=Reason(entry.reason),
            decided_at=instant(entry.decided_at),
            due_at=None if entry.due_at is None else instant(entry.due_at),
            queue=self._queue_name,
            key=entry.key,
            version=entry.version,
            live=live,
            ledger=self.ledger,
        )


_entry = msgspec.msgpack.Decoder(_Entry).decode
