"""Rulings about schedules, from the values of the core to what a broker takes. What follows from the schedule is left out."""

from __future__ import annotations

from typing import Any

from tarry.core import schedules
from tarry.core.cron import Ruling, ScheduleSpec, ScheduleState, TickRuling
from tarry.core.errors import InvalidInput
from tarry.storage.http.writing import content, instant

_SPANS = ("catch_up_for", "grace_for", "jitter_for", "in_advance_for")


def moved(ruling: Ruling) -> dict[str, Any]:
    return {**_decided(ruling), **({} if ruling.after is None else _reached(ruling.after))}


def ruled(ruling: Ruling) -> dict[str, Any]:
    after = ruling.after
    withdrawn = [
        {"hash": hash, "tick": instant(tick), "reason": reason.value} for hash, tick, reason in ruling.withdraw
    ]
    said: dict[str, Any] = {**_decided(ruling), "after": None, "withdraw": withdrawn}
    if after is not None:
        said["after"] = _reached(after)
        if not ruling.moves_only:
            said["after"] |= {"schedule": _written(after.spec), "paused_reason": after.paused_reason}
            said["after"]["paused_at"] = None if after.paused_at is None else instant(after.paused_at)
    return said


def _decided(ruling: Ruling) -> dict[str, Any]:
    spec = None if ruling.after is None else ruling.after.spec
    return {
        "prefix": ruling.prefix,
        "expected": ruling.expected,
        "ruled_at": instant(ruling.ruled_at),
        "ticks": [] if spec is None else [_tick(one, spec) for one in ruling.ticks],
    }


def _reached(state: ScheduleState) -> dict[str, Any]:
    wake_at = state.wake_at
    return {"cursor_at": instant(state.cursor_at), "wake_at": None if wake_at is None else instant(wake_at)}


def _tick(one: TickRuling, spec: ScheduleSpec) -> dict[str, Any]:
    said: dict[str, Any] = {"tick": instant(one.tick), "verdict": one.verdict.value, "reason": one.reason.value}
    if one.hash != spec.hash:
        said["hash"] = one.hash
    if one.until is not None:
        said["until"] = instant(one.until)
    if one.count is not None:
        said["count"] = one.count
    if one.draft is None:
        return said
    if one.draft.due_at is not None and one.draft.due_at != spec.due_at(one.tick):
        said["due_at"] = instant(one.draft.due_at)
    if (one.draft.payload, one.draft.content_type) != (spec.payload, spec.content_type):
        said |= content(one.draft.payload, one.draft.content_type)
    return said


def _written(spec: ScheduleSpec) -> dict[str, Any]:
    policy = spec.policy
    return {
        **_times(spec),
        "queue": spec.queue,
        "priority": spec.priority,
        "type": spec.type,
        "misfire": policy.misfire.value,
        "overlap": policy.overlap.value,
        **{name: getattr(policy, name).total_seconds() for name in _SPANS},
        "start_at": None if policy.start_at is None else instant(policy.start_at),
        "end_at": None if policy.end_at is None else instant(policy.end_at),
        "source": spec.source,
        **({"by_code": True} if spec.payload is None else content(spec.payload, spec.content_type)),
    }


def _times(spec: ScheduleSpec) -> dict[str, Any]:
    when = spec.schedule
    if isinstance(when, schedules.Periodic):
        return {"every": when.every.total_seconds()}
    if isinstance(when, schedules.Daily):
        return {"daily": [hour.isoformat() for hour in when.hours], "zone": when.zone}
    if isinstance(when, schedules.Cron):
        return {"cron": when.text, "zone": when.zone}
    if isinstance(when, schedules.Ticks):
        return {"ticks": when.hash}
    raise InvalidInput(
        f"schedule {spec.prefix!r} cannot be read here, and so not be written: {when.text!r:.80}",
        hint="update the zones of this machine (tzdata), or its Tarry",
    )
