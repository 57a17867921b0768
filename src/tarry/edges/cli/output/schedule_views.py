"""How schedules and their ticks are printed: their wire form for programs, columns for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from tarry.edges.cli.output.payloads import payload_line
from tarry.edges.cli.output.printer import Cell, EntityView, TableColumn, Value, plain
from tarry.edges.formats import instant, length, relative
from tarry.wire import schedules as wire
from tarry.wire.payload import Content

if TYPE_CHECKING:
    from tarry.core.cron.model import ScheduleSpec, ScheduleState, TickRecord
    from tarry.core.cron.planner import Fire

_TONES = {"critical": "red", "paused": "yellow", "good": "green"}


class Scheduled(NamedTuple):
    """A schedule at a time of the database's clock, and its next tick if that is known."""

    state: ScheduleState
    now: datetime
    ahead: Sequence[Fire] = ()

    @property
    def spec(self) -> ScheduleSpec:
        return self.state.spec

    @property
    def next_at(self) -> datetime | None:
        return wire.next_at(self.state, self.now)


class NotedFire(NamedTuple):
    fire: Fire
    zone: str | None
    note: str
    now: datetime


def times(spec: ScheduleSpec) -> str:
    from tarry.edges import schedule_words

    return schedule_words.times(spec.schedule)


def when(spec: ScheduleSpec) -> str:
    return f"{times(spec)} {spec.schedule.zone}" if spec.schedule.zone else times(spec)


def local(at: datetime, zone: str | None) -> str:
    """Local time with its offset."""
    from tarry.core.cron.timezones import zone_of

    return f"{at.astimezone(zone_of(zone or 'UTC')):%a %Y-%m-%d %H:%M:%S %z}"


def _next(schedule: Scheduled) -> str:
    at = schedule.next_at
    return "" if at is None else f"{instant(at)} ({relative(at, schedule.now)})"


def _next_or_never(schedule: Scheduled) -> str:
    skipped = schedule.ahead and schedule.ahead[0].verdict == "skipped"
    return (_next(schedule) or "never") + (", which is skipped" if skipped else "")


def _standing(schedule: Scheduled) -> Value:
    from tarry.edges.schedule_words import condition

    tone, words = condition(schedule.state, schedule.now, schedule.next_at)
    return Cell(words, _TONES[tone]) if tone in _TONES else words


def _misfire(schedule: Scheduled) -> str:
    policy = schedule.spec.policy
    return f"{policy.misfire.value}, catch up {length(policy.catch_up_for)}, grace {length(policy.grace_for)}"


def _span(schedule: Scheduled) -> str:
    policy = schedule.spec.policy
    return ", ".join("open" if at is None else instant(at) for at in (policy.start_at, policy.end_at))


def _payload(schedule: Scheduled) -> str:
    spec = schedule.spec
    if spec.payload is None:
        return "computed by the program that installed it"
    return payload_line(Content(spec.payload, spec.content_type))


def _tick(record: TickRecord) -> str:
    return instant(record.tick) + ("" if record.until is None else f" … {instant(record.until)}")


def _schedule_data(schedule: Scheduled) -> wire.Schedule:
    return wire.Schedule.of(schedule.state, schedule.now)


def _fire_data(noted: NotedFire) -> dict[str, Any]:
    fire = plain(wire.Fire.of(noted.fire))
    return {**fire, "local": local(noted.fire.tick, noted.zone), "note": noted.note or None}


_STATE: TableColumn[Scheduled] = TableColumn("state", _standing)
SCHEDULES: EntityView[Scheduled] = EntityView(
    "tarry.schedule.list/1",
    _schedule_data,
    (
        TableColumn("schedule", "spec.name", style="bold"),
        TableColumn("when", lambda schedule: times(schedule.spec)),
        TableColumn("zone", "spec.schedule.zone"),
        TableColumn("queue", "spec.queue"),
        TableColumn("next", _next),
        _STATE,
        TableColumn("misfire", "spec.policy.misfire"),
        TableColumn("overlap", "spec.policy.overlap"),
        TableColumn("source", "spec.source"),
    ),
    "schedules",
    (
        TableColumn("schedule", "spec.name"),
        TableColumn("when", lambda schedule: times(schedule.spec)),
        TableColumn("zone", lambda schedule: schedule.spec.schedule.zone or "none: elapsed time"),
        _STATE,
        TableColumn("next", _next_or_never),
        TableColumn("queue", "spec.queue"),
        TableColumn("priority", "spec.priority"),
        TableColumn("type", lambda schedule: schedule.spec.type or ""),
        TableColumn("misfire", _misfire),
        TableColumn("overlap", "spec.policy.overlap"),
        TableColumn("jitter", "spec.policy.jitter_for"),
        TableColumn("in advance", "spec.policy.in_advance_for"),
        TableColumn("from, to", _span),
        TableColumn("hash", "spec.hash"),
        TableColumn("source", "spec.source"),
        TableColumn("installed at", lambda schedule: instant(schedule.state.installed_at)),
        TableColumn("paused because", lambda schedule: schedule.state.paused_reason or None),
        TableColumn("payload", _payload),
    ),
)
_VERDICTS = {"planned": "green", "triggered": "green", "backfilled": "green", "skipped": "yellow", "withdrawn": "blue"}
TICKS: EntityView[TickRecord] = EntityView(
    "tarry.tick.list/1",
    wire.TickRecord.of,
    (
        TableColumn("tick", _tick),
        TableColumn("verdict", "verdict.value", style=_VERDICTS),
        TableColumn("reason"),
        TableColumn("decided", lambda record: instant(record.decided_at)),
        TableColumn("message", lambda record: (record.key or "") + (" (live)" if record.live else "")),
    ),
    "ticks",
)
FIRES: EntityView[NotedFire] = EntityView(
    "tarry.fire.list/1",
    _fire_data,
    (
        TableColumn("tick", lambda noted: instant(noted.fire.tick)),
        TableColumn("local", lambda noted: local(noted.fire.tick, noted.zone)),
        TableColumn("in", lambda noted: relative(noted.fire.tick, noted.now).removeprefix("in ")),
        TableColumn("note"),
    ),
    "fires",
)
