"""What schedules and their ticks look like: as data for programs, as cells for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tarry.edges import schedules
from tarry.edges.cli.output import Cell, Column, Value
from tarry.edges.cli.payloads import Raw, payload_fields, payload_line
from tarry.edges.schedules import following
from tarry.edges.times import exact, instant, length, relative

if TYPE_CHECKING:
    from tarry.core.cron import ScheduleSpec, ScheduleState, TickRecord
    from tarry.core.cron_plan import Fire

SCHEDULE_COLUMNS = (
    Column("schedule", style="bold"),
    Column("when"),
    Column("zone"),
    Column("queue"),
    Column("next"),
    Column("state"),
    Column("misfire"),
    Column("overlap"),
    Column("source"),
)
TICK_COLUMNS = (Column("tick"), Column("verdict"), Column("reason"), Column("decided"), Column("message"))
FIRE_COLUMNS = (Column("tick"), Column("local"), Column("in"), Column("note"))
_STYLES = {"planned": "green", "triggered": "green", "backfilled": "green", "skipped": "yellow", "withdrawn": "blue"}


def times(spec: ScheduleSpec) -> str:
    from tarry.core.schedules import Periodic

    schedule = spec.schedule
    return f"every {length(schedule.every)}" if isinstance(schedule, Periodic) else schedule.text


def when(spec: ScheduleSpec) -> str:
    return f"{times(spec)} {spec.schedule.zone}" if spec.schedule.zone else times(spec)


def spec_data(spec: ScheduleSpec) -> dict[str, Any]:
    return schedules.spec_data(spec) | _payload(spec)


def state_data(state: ScheduleState, now: datetime) -> dict[str, Any]:
    return schedules.state_data(state, now) | _payload(state.spec)


def _payload(spec: ScheduleSpec) -> dict[str, Any]:
    return {} if spec.payload is None else payload_fields(Raw(spec.payload, spec.content_type))


def state_row(state: ScheduleState, now: datetime) -> list[Value]:
    spec, at = state.spec, following(state, now)
    return [
        state.prefix,
        times(spec),
        spec.schedule.zone or "",
        spec.queue,
        "" if at is None else f"{instant(at)} ({relative(at, now)})",
        _standing(state, now),
        spec.policy.misfire.value,
        spec.policy.overlap.value,
        spec.source,
    ]


def state_fields(state: ScheduleState, now: datetime, ahead: Sequence[Fire]) -> list[tuple[str, Value]]:
    spec, policy, at = state.spec, state.spec.policy, following(state, now)
    left_out = ", which is skipped" if ahead and ahead[0].verdict == "skipped" else ""
    fields: list[tuple[str, Value]] = [
        ("schedule", state.prefix),
        ("when", times(spec)),
        ("zone", spec.schedule.zone or "none: elapsed time"),
        ("state", _standing(state, now)),
        ("next", "never" if at is None else f"{instant(at)} ({relative(at, now)}){left_out}"),
        ("queue", spec.queue),
        ("priority", str(spec.priority)),
        ("type", spec.type or ""),
        (
            "misfire",
            f"{policy.misfire.value}, catch up {length(policy.catch_up_for)}, grace {length(policy.grace_for)}",
        ),
        ("overlap", policy.overlap.value),
        ("jitter", length(policy.jitter_for)),
        ("in advance", length(policy.in_advance_for)),
        ("from, to", f"{_shown(policy.start_at)}, {_shown(policy.end_at)}"),
        ("hash", spec.hash),
        ("source", spec.source),
        ("installed at", instant(state.installed_at)),
    ]
    if state.paused_reason:
        fields.append(("paused because", state.paused_reason))
    made = "made by the program that installed it"
    shown = made if spec.payload is None else payload_line(Raw(spec.payload, spec.content_type))
    return [*fields, ("payload", shown)]


def tick_data(record: TickRecord) -> dict[str, Any]:
    return {
        "prefix": record.prefix,
        "hash": record.hash,
        "tick": exact(record.tick),
        "until": exact(record.until),
        "count": record.count,
        "verdict": record.verdict.value,
        "reason": record.reason.value,
        "decided_at": exact(record.decided_at),
        "queue": record.queue,
        "key": record.key,
        "version": record.version,
        "due_at": exact(record.due_at),
        "live": record.live,
    }


def tick_row(record: TickRecord) -> list[Value]:
    many = "" if record.until is None else f" … {instant(record.until)}"
    return [
        instant(record.tick) + many,
        Cell(record.verdict.value, _STYLES.get(record.verdict.value, "")),
        record.reason.value,
        instant(record.decided_at),
        (record.key or "") + (" (live)" if record.live else ""),
    ]


def fire_data(fire: Fire, zone: str | None, note: str) -> dict[str, Any]:
    return {
        "tick": exact(fire.tick),
        "local": local(fire.tick, zone),
        "due_at": exact(fire.due_at),
        "verdict": None if fire.verdict is None else fire.verdict.value,
        "note": note or None,
    }


def fire_rows(fires: Sequence[Fire], zone: str | None, now: datetime, notes: Sequence[str]) -> list[list[Value]]:
    return [
        [instant(fire.tick), local(fire.tick, zone), relative(fire.tick, now).removeprefix("in "), note]
        for fire, note in zip(fires, notes, strict=True)
    ]


def local(at: datetime, zone: str | None) -> str:
    """As the clock on the wall has it, with its offset."""
    from tarry.core.zones import zone_of

    return f"{at.astimezone(zone_of(zone or 'UTC')):%a %Y-%m-%d %H:%M:%S %z}"


def _shown(at: datetime | None) -> str:
    return "open" if at is None else instant(at)


def _standing(state: ScheduleState, now: datetime) -> Value:
    from tarry.core.schedules import Ticks, Unreadable

    if isinstance(state.spec.schedule, Unreadable):
        return Cell(f"unreadable here: {state.spec.schedule.error}", "red")
    if state.paused:
        return Cell("paused", "yellow")
    if isinstance(state.spec.schedule, Ticks):
        return "ticks of a program"
    if state.wake_at is None and following(state, now) is None:
        return "ended"
    late = state.wake_at is not None and (now - state.wake_at).total_seconds() > 60
    if late:
        return Cell("no scheduler plans it", "red")
    return Cell("active", "green")
