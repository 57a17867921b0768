"""Schedules as JSON has them, for every edge: each adds the payload in its own way."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from tarry.edges.times import exact

if TYPE_CHECKING:
    from tarry.core.cron import ScheduleSpec, ScheduleState


def spec_data(spec: ScheduleSpec) -> dict[str, Any]:
    policy = spec.policy
    return {
        "prefix": spec.prefix,
        "kind": spec.schedule.kind,
        "text": spec.schedule.text,
        "zone": spec.schedule.zone,
        "hash": spec.hash,
        "queue": spec.queue,
        "priority": spec.priority,
        "type": spec.type,
        "by_code": spec.by_code,
        "source": spec.source,
        "misfire": policy.misfire.value,
        "catch_up_for": policy.catch_up_for.total_seconds(),
        "grace_for": policy.grace_for.total_seconds(),
        "overlap": policy.overlap.value,
        "jitter_for": policy.jitter_for.total_seconds(),
        "in_advance_for": policy.in_advance_for.total_seconds(),
        "start_at": exact(policy.start_at),
        "end_at": exact(policy.end_at),
    }


def state_data(state: ScheduleState, now: datetime) -> dict[str, Any]:
    return {
        **spec_data(state.spec),
        "next_at": exact(following(state, now)),
        "paused": state.paused,
        "paused_at": exact(state.paused_at),
        "paused_reason": state.paused_reason,
        "installed_at": exact(state.installed_at),
        "generation": state.generation,
    }


def following(state: ScheduleState, now: datetime) -> datetime | None:
    return None if state.paused else state.spec.timetable.next_after(now)
