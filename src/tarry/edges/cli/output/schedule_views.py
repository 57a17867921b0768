"""Printed forms of schedules and ticks: wire form for programs, columns for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from tarry.core.cron.model import times
from tarry.edges.cli.output.payloads import payload_line
from tarry.edges.cli.output.printer import Cell, EntityView, TableColumn, Value, entity_view
from tarry.edges.formats import instant, relative
from tarry.wire import schedules as wire
from tarry.wire.base import data_of
from tarry.wire.payload import Content

if TYPE_CHECKING:
    from tarry.core.cron.model import ScheduleState, TickRecord
    from tarry.core.cron.planner import Fire

_TONES = {"critical": "red", "paused": "yellow", "good": "green"}


class Scheduled(NamedTuple):
    """A schedule, the database time, and the next tick if it is known."""

    state: ScheduleState
    now: datetime
    ahead: Sequence[Fire] = ()

    @property
    def next_at(self) -> datetime | None:
        return wire.next_at(self.state, self.now)


class NotedFire(NamedTuple):
    fire: Fire
    zone: str | None
    note: str
    now: datetime


def local(at: datetime, zone: str | None) -> str:
    """Local time with its offset."""
    from tarry.core.cron.timezones import zone_of

    return f"{at.astimezone(zone_of(zone or 'UTC')):%a %Y-%m-%d %H:%M:%S %z}"


def _next(schedule: Scheduled) -> str:
    at = schedule.next_at
    skipped = ", which is skipped" if schedule.ahead and schedule.ahead[0].verdict == "skipped" else ""
    return "" if at is None else f"{instant(at)} ({relative(at, schedule.now)}){skipped}"


def _standing(schedule: Scheduled) -> Value:
    from tarry.edges.schedule_words import condition

    tone, words = condition(schedule.state, schedule.now, schedule.next_at)
    return Cell(words, _TONES[tone]) if tone in _TONES else words


def _bound(at: datetime | None) -> str:
    return "open" if at is None else instant(at)


def _payload(schedule: Scheduled) -> str:
    spec = schedule.state.spec
    if spec.payload is None:
        return "computed by the program that installed it"
    return payload_line(Content(spec.payload, spec.content_type))


def _tick(record: TickRecord) -> str:
    return instant(record.tick) + ("" if record.until is None else f" … {instant(record.until)}")


SCHEDULES: EntityView[Scheduled] = entity_view(
    "tarry.schedule.list/1",
    "schedules",
    TableColumn("schedule", "state.spec.name", style="bold"),
    TableColumn("when", lambda schedule: times(schedule.state.spec.schedule)),
    TableColumn("zone", "state.spec.schedule.zone"),
    TableColumn("queue", "state.spec.queue"),
    TableColumn("next", _next),
    TableColumn("state", _standing),
    TableColumn("priority", "state.spec.priority", only="record"),
    TableColumn("type", "state.spec.type", only="record"),
    TableColumn("misfire", "state.spec.policy.misfire"),
    TableColumn("catch up", "state.spec.policy.catch_up_for", only="record"),
    TableColumn("grace", "state.spec.policy.grace_for", only="record"),
    TableColumn("overlap", "state.spec.policy.overlap"),
    TableColumn("jitter", "state.spec.policy.jitter_for", only="record"),
    TableColumn("in advance", "state.spec.policy.in_advance_for", only="record"),
    TableColumn("from", lambda schedule: _bound(schedule.state.spec.policy.start_at), only="record"),
    TableColumn("to", lambda schedule: _bound(schedule.state.spec.policy.end_at), only="record"),
    TableColumn("hash", "state.spec.hash", only="record"),
    TableColumn("source", "state.spec.source"),
    TableColumn("installed at", lambda schedule: instant(schedule.state.installed_at), only="record"),
    TableColumn("paused because", lambda schedule: schedule.state.paused_reason or None, only="record"),
    TableColumn("payload", _payload, only="record"),
    data=lambda schedule: wire.Schedule.of(schedule.state, schedule.now),
)
_VERDICTS = {"planned": "green", "triggered": "green", "backfilled": "green", "skipped": "yellow", "withdrawn": "blue"}
TICKS: EntityView[TickRecord] = entity_view(
    "tarry.tick.list/1",
    "ticks",
    TableColumn("tick", _tick),
    TableColumn("verdict", "verdict.value", style=_VERDICTS),
    TableColumn("reason"),
    TableColumn("decided", lambda record: instant(record.decided_at)),
    TableColumn("message", lambda record: (record.key or "") + (" (live)" if record.live else "")),
)
FIRES: EntityView[NotedFire] = entity_view(
    "tarry.fire.list/1",
    "fires",
    TableColumn("tick", lambda noted: instant(noted.fire.tick)),
    TableColumn("local", lambda noted: local(noted.fire.tick, noted.zone)),
    TableColumn("in", lambda noted: relative(noted.fire.tick, noted.now).removeprefix("in ")),
    TableColumn("note"),
    data=lambda noted: {**data_of(noted.fire), "local": local(noted.fire.tick, noted.zone), "note": noted.note or None},
)
