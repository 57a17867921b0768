"""A schedule as options of the command line, and as a table of a file: the same words, read in one place."""

from __future__ import annotations

from datetime import datetime, time
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from tarry.core.errors import InvalidInput
from tarry.edges.cli.exits import Usage
from tarry.edges.cli.payloads import Raw
from tarry.edges.times import delay, duration, moment

if TYPE_CHECKING:
    from tarry.core.cron import ScheduleSpec
    from tarry.core.schedules import Schedule

NONE = "none"
"""Takes a start or an end away again."""
_WHEN = "When"
_HOW = "Behaviour"

CronText = Annotated[
    str | None,
    typer.Option("--cron", metavar="EXPR", help="Five or six fields, or @daily.", rich_help_panel=_WHEN),
]
Hours = Annotated[
    str | None,
    typer.Option("--daily", metavar="HOURS", help="02:00 or 02:00,14:30.", rich_help_panel=_WHEN),
]
Every = Annotated[
    str | None,
    typer.Option("--every", metavar="DURATION", help="A period, aligned to the epoch.", rich_help_panel=_WHEN),
]
Zone = Annotated[
    str | None,
    typer.Option("--tz", metavar="ZONE", help="For --cron and --daily: Europe/Berlin, UTC.", rich_help_panel=_WHEN),
]
Start = Annotated[
    str | None, typer.Option("--start", metavar="TIME", help="No tick before this, or none.", rich_help_panel=_WHEN)
]
End = Annotated[
    str | None, typer.Option("--end", metavar="TIME", help="No tick after this, or none.", rich_help_panel=_WHEN)
]
Queue = Annotated[str | None, typer.Option("--queue", metavar="QUEUE", help="Where the messages go.")]
Payload = Annotated[str | None, typer.Option("--payload", metavar="JSON", help="JSON, - for stdin, @FILE; else null.")]
Priority = Annotated[int | None, typer.Option("--priority", metavar="N", help="0 (last) to 9 (first).")]
Type = Annotated[str | None, typer.Option("--type", metavar="TYPE", help="For consumers that ask for one.")]
Misfire = Annotated[
    str | None,
    typer.Option("--misfire", metavar="POLICY", help="Missed ticks: once, skip or all.", rich_help_panel=_HOW),
]
CatchUp = Annotated[
    str | None,
    typer.Option("--catch-up", metavar="DURATION", help="How old a tick all makes up for.", rich_help_panel=_HOW),
]
Grace = Annotated[
    str | None,
    typer.Option("--grace", metavar="DURATION", help="So late is still on time; 1m.", rich_help_panel=_HOW),
]
Overlap = Annotated[
    str | None,
    typer.Option(
        "--overlap", metavar="POLICY", help="allow, or skip while the last one is live.", rich_help_panel=_HOW
    ),
]
Jitter = Annotated[
    str | None, typer.Option("--jitter", metavar="DURATION", help="Up to so much later.", rich_help_panel=_HOW)
]
InAdvance = Annotated[
    str | None,
    typer.Option("--in-advance", metavar="DURATION", help="How far ahead to plan.", rich_help_panel=_HOW),
]

_SPANS = {"catch_up": "catch_up_for", "grace": "grace_for", "jitter": "jitter_for", "in_advance": "in_advance_for"}
_INSTANTS = {"start": "start_at", "end": "end_at"}
_POLICIES = ("misfire", "overlap")


class Given(NamedTuple):
    """As typed, or as a file has it; None was not said."""

    cron: str | None = None
    daily: str | list[str | time] | None = None
    every: str | None = None
    zone: str | None = None
    start: str | None = None
    end: str | None = None
    queue: str | None = None
    priority: int | None = None
    type: str | None = None
    misfire: str | None = None
    catch_up: str | None = None
    grace: str | None = None
    overlap: str | None = None
    jitter: str | None = None
    in_advance: str | None = None


def schedule_of(given: Given) -> Schedule | None:
    """None if no times were given."""
    from tarry.core import schedules

    ways = [name for name in ("cron", "daily", "every") if getattr(given, name) is not None]
    if len(ways) > 1:
        raise Usage(f"give one of cron, daily and every, not {' and '.join(ways)}")
    if not ways:
        return None
    if given.every is not None:
        if given.zone is not None:
            raise Usage("a period has no zone: it goes by elapsed time", hint="leave the zone away, or use --cron")
        return schedules.Periodic(duration(given.every, "every"))
    if given.zone is None:
        raise Usage("by which clock? a wall-clock schedule needs a zone", hint="for example --tz Europe/Berlin, or UTC")
    if given.cron is not None:
        return schedules.Cron(given.cron, given.zone)
    hours = given.daily.split(",") if isinstance(given.daily, str) else given.daily or []
    return schedules.Daily([hour.strip() if isinstance(hour, str) else hour for hour in hours], given.zone)


def new_spec(prefix: str, given: Given, raw: Raw, source: str) -> ScheduleSpec:
    from tarry.core.cron import Policy, ScheduleSpec

    schedule = schedule_of(given)
    if schedule is None:
        raise Usage("when is it to fire?", hint="give --cron, --daily or --every; try it with: tarry cron next")
    if given.queue is None:
        raise Usage("where do its messages go?", hint="--queue NAME")
    return ScheduleSpec(
        prefix=prefix,
        schedule=schedule,
        queue=given.queue,
        payload=raw.data,
        content_type=raw.content_type,
        priority=given.priority or 0,
        type=given.type,
        policy=Policy(**policy_of(given)),
        source=source,
    )


def changed_spec(spec: ScheduleSpec, given: Given, raw: Raw | None) -> ScheduleSpec:
    """Only what was named changes; times are changed as a whole, but a zone may be changed alone."""
    import dataclasses

    from tarry.core.schedules import Periodic
    from tarry.core.schedules import schedule_of as stored

    if given.cron is None and given.daily is None and given.every is None:
        schedule = spec.schedule
        if given.zone is not None:
            if isinstance(schedule, Periodic):
                raise Usage("a period has no zone: it goes by elapsed time")
            schedule = stored(schedule.kind, schedule.text, given.zone)
    else:
        zone = given.zone or (None if given.every is not None else spec.schedule.zone)
        schedule = schedule_of(given._replace(zone=zone)) or spec.schedule
    changes: dict[str, Any] = {"schedule": schedule}
    for name in ("queue", "priority", "type"):
        if getattr(given, name) is not None:
            changes[name] = getattr(given, name)
    if raw is not None:
        changes |= {"payload": raw.data, "content_type": raw.content_type}
    return dataclasses.replace(spec, policy=dataclasses.replace(spec.policy, **policy_of(given)), **changes)


def _instant(text: str, name: str) -> datetime:
    at = moment(text, name)
    if not isinstance(at, datetime):
        raise InvalidInput(f"{name} is an instant, not a time from now: {text!r:.80}")
    return at


def policy_of(given: Given) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(given, name) for name in _POLICIES if getattr(given, name) is not None}
    for name, field in _SPANS.items():
        if (text := getattr(given, name)) is not None:
            found[field] = delay(text, name)
    for name, field in _INSTANTS.items():
        if (text := getattr(given, name)) is not None:
            found[field] = None if text == NONE else _instant(text, name)
    return found
