"""tarry cron: list, show, add, edit, pause, resume, trigger, skip, backfill, delete; the rest is in `cron_file`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from tarry.core.cron import schedule_types
from tarry.core.cron.model import Policy, ScheduleSpec
from tarry.core.errors import UnknownSchedule
from tarry.edges.cli.context import CommandSession, command, now_of
from tarry.edges.cli.exit_codes import Conflicting, NotFound, Usage
from tarry.edges.cli.help import argument, option
from tarry.edges.cli.options import DryRun, Priority, Reason, Text, Yes, changed, instant_of
from tarry.edges.cli.output import schedule_views as views
from tarry.edges.cli.output.payloads import read_payload
from tarry.edges.cli.output.printer import plain
from tarry.edges.formats import duration, plural
from tarry.wire.payload import Content

if TYPE_CHECKING:
    from datetime import time

    from tarry.app import App

Name = Annotated[str, argument("NAME", "The schedule.")]
Payload = Annotated[str | None, option("--payload JSON", "JSON (default null), - for stdin, @FILE.")]
_when = partial(option, panel="When")
_how = partial(option, panel="Behaviour")


@dataclass(frozen=True)
class ScheduleOptions:
    """A schedule as options, or as a table of a file; None: not given."""

    queue: Annotated[str | None, option("--queue QUEUE", "The queue of its messages.")] = None
    priority: Priority = None
    type: Annotated[str | None, option("--type TYPE", "For consumers that poll for one type.")] = None
    cron: Annotated[str | None, _when("--cron EXPR", "Five or six fields, or @daily.")] = None
    daily: Annotated[str | None, _when("--daily HOURS", "02:00 or 02:00,14:30.")] = None
    """In a file also a list of times."""
    every: Annotated[str | None, _when("--every DURATION", "A period, aligned to the epoch.")] = None
    zone: Annotated[str | None, _when("--zone ZONE", "For --cron and --daily: Europe/Berlin, UTC.")] = None
    start: Annotated[str | None, _when("--start TIME", "No tick before this, or none.")] = None
    end: Annotated[str | None, _when("--end TIME", "No tick after this, or none.")] = None
    misfire: Annotated[str | None, _how("--misfire POLICY", "Missed ticks: once, skip or all.")] = None
    catch_up: Annotated[str | None, _how("--catch-up DURATION", "With misfire all: the oldest tick to make up.")] = None
    grace: Annotated[str | None, _how("--grace DURATION", "A tick this late is not missed; 1m.")] = None
    overlap: Annotated[str | None, _how("--overlap POLICY", "allow, or skip while the last one is live.")] = None
    jitter: Annotated[str | None, _how("--jitter DURATION", "Due up to this much later.")] = None
    in_advance: Annotated[str | None, _how("--in-advance DURATION", "How far ahead to plan.")] = None

    def schedule(self, *, zone: str | None) -> schedule_types.Schedule | None:
        """None if no times were given."""
        ways = [name for name in ("cron", "daily", "every") if getattr(self, name) is not None]
        if len(ways) > 1:
            raise Usage(f"give one of cron, daily and every, not {' and '.join(ways)}")
        if self.every is not None:
            if self.zone is not None:
                raise Usage("a period has no zone: it counts elapsed time", hint="remove the zone, or use --cron")
            return schedule_types.Periodic(duration(self.every, "every"))
        if not ways:
            return None
        if zone is None:
            raise Usage("a wall-clock schedule needs a zone", hint="for example --zone Europe/Berlin, or --zone UTC")
        if self.cron is not None:
            return schedule_types.Cron(self.cron, zone)
        daily: Any = self.daily  # a list of times in a file
        hours: Sequence[str | time] = daily.split(",") if isinstance(daily, str) else daily or ()
        return schedule_types.Daily([hour.strip() if isinstance(hour, str) else hour for hour in hours], zone)

    def new_spec(self, name: str, content: Content, source: str, *, flags: bool = True) -> ScheduleSpec:
        schedule = self.schedule(zone=self.zone)
        if schedule is None:
            raise Usage(
                "no times were given", hint="give --cron, --daily or --every; try them with: tarry cron preview"
            )
        if self.queue is None:
            raise Usage("no queue was given", hint="give --queue NAME")
        return ScheduleSpec(
            name=name,
            schedule=schedule,
            queue=self.queue,
            payload=content.data,
            content_type=content.content_type,
            priority=self.priority or 0,
            type=self.type,
            policy=changed(Policy(), self, flags=flags),
            source=source,
        )

    def changed_spec(self, spec: ScheduleSpec, content: Content | None) -> ScheduleSpec:
        """Only the given options change. Times change as a whole, but a zone may change alone."""
        schedule = self.schedule(zone=self.zone or spec.schedule.zone) or spec.schedule
        if self.zone is not None and schedule is spec.schedule:
            if isinstance(schedule, schedule_types.Periodic):
                raise Usage("a period has no zone: it counts elapsed time", hint="remove --zone, or use --cron")
            schedule = schedule_types.schedule_of(schedule.kind, schedule.text, self.zone)
        changes: dict[str, Any] = {"schedule": schedule, "policy": changed(spec.policy, self)}
        changes |= {n: getattr(self, n) for n in ("queue", "priority", "type") if getattr(self, n) is not None}
        if content is not None:
            changes |= {"payload": content.data, "content_type": content.content_type}
        return dataclasses.replace(spec, **changes)


@command("cron list", "tarry cron list", "tarry cron list -o json | jq -r '.schedules[].name'")
def list_schedules(cli: CommandSession) -> None:
    """List the schedules with their next tick.

    Includes schedules from code and files. "no scheduler plans it": start tarry scheduler, or the program that computes its
    payloads.
    """
    with cli.open() as app:
        states, now = app.schedules.list(), now_of(app)
    empty = "there are no schedules; to add one: tarry cron add hello --every 5m --queue hello"
    cli.listing(views.SCHEDULES, [views.Scheduled(state, now) for state in states], empty=empty)


@command("cron show", "tarry cron show daily-report", "tarry cron show daily-report --ticks 50 -o json")
def show(
    cli: CommandSession, name: Name, ticks: Annotated[int, option("--ticks N", "How many past ticks.", min=0)] = 10
) -> None:
    """Show a schedule and its last ticks.

    The ledger records which ticks became a message, which were skipped, and why. It outlives the schedule.
    """
    with cli.open() as app:
        history, now = app.schedules.history(name, limit=ticks), now_of(app)
        try:
            state, ahead = app.schedules.get(name), app.schedules.preview(name, 1)
        except UnknownSchedule:
            if not history:
                raise
            state, ahead = None, []
    if state is None:
        cli.note(f"schedule {name} was deleted; this is its history")
    else:
        more = {"ticks": [plain(views.TICKS.data(record)) for record in history]}
        cli.printer.view(views.SCHEDULES, views.Scheduled(state, now, ahead), more=more)
    if state is None or (history and cli.printer.for_people):
        cli.printer.lines([""] if state else [])
        cli.listing(views.TICKS, history)


@command(
    "cron add",
    "tarry cron add nightly --cron '0 2 * * *' --zone Europe/Berlin --queue jobs",
    "tarry cron add beat --every 5m --queue beats --payload '[1]'",
    "tarry cron add mails --daily 08:00,17:30 --zone UTC --queue mails",
    audited=True,
)
def add(cli: CommandSession, name: Name, options: ScheduleOptions, payload: Payload = None, text: Text = False) -> None:
    """Add a schedule.

    Its next tick is planned immediately; later ticks need a scheduler: tarry scheduler. To preview the times: tarry cron
    preview.
    """
    spec = options.new_spec(name, read_payload(payload, text=text, binary=False), "cli")
    with cli.open() as app:
        if any(state.name == name for state in app.schedules.list()):
            raise Conflicting(f"schedule {name!r} exists already", hint=f"to change it: tarry cron edit {name}")
        _put(cli, app, spec)


@command(
    "cron edit",
    "tarry cron edit daily-report --cron '30 2 * * *'",
    "tarry cron edit daily-report --zone Europe/Oslo --misfire all --catch-up 6h",
    audited=True,
)
def edit(
    cli: CommandSession, name: Name, options: ScheduleOptions, payload: Payload = None, text: Text = False
) -> None:
    """Change a schedule.

    Only the named options change, in one step: undelivered messages of the old configuration are deleted and planned
    again. A schedule of code or of a file is changed until its owner installs it again.
    """
    raw = None if payload is None else read_payload(payload, text=text, binary=False)
    if options == ScheduleOptions() and raw is None:
        raise Usage("no option was given", hint="for example --cron '30 2 * * *'; see: tarry cron edit -h")
    with cli.open() as app:
        _put(cli, app, options.changed_spec(app.schedules.get(name).spec, raw))


@command("cron pause", "tarry cron pause daily-report --reason 'the printer is broken'", audited=True)
def pause(cli: CommandSession, name: Name, reason: Reason = None) -> None:
    """Stop a schedule from firing.

    Messages of earlier ticks are still delivered. Ticks during the pause are skipped, and recorded in the ledger.
    """
    with cli.open() as app:
        app.schedules.pause(name, reason=reason)
        _print(cli, app, name)


@command("cron resume", "tarry cron resume daily-report", audited=True)
def resume(cli: CommandSession, name: Name) -> None:
    """Let a paused schedule fire again.

    It fires from the next tick on. To make up for skipped ticks: tarry cron backfill.
    """
    with cli.open() as app:
        app.schedules.resume(name)
        _print(cli, app, name)


@command("cron trigger", "tarry cron trigger daily-report", audited=True)
def trigger(cli: CommandSession, name: Name) -> None:
    """Fire a schedule now, once.

    Its next tick stays as planned. Also works for a paused schedule.
    """
    with cli.open() as app:
        tick = app.schedules.trigger(name)
    cli.printer.record("tarry.schedule.trigger/1", {"name": name, "tick": tick})


@command("cron skip", "tarry cron skip daily-report", audited=True)
def skip(cli: CommandSession, name: Name) -> None:
    """Skip the next tick.

    Only this one: the tick after it fires. Each call skips one more tick.
    """
    with cli.open() as app:
        tick = app.schedules.skip(name)
    cli.printer.record("tarry.schedule.skip/1", {"name": name, "tick": tick})


@command(
    "cron backfill",
    "tarry cron backfill beat --since 2030-01-01T00:00Z --until 2030-01-08T00:00Z",
    'tarry cron backfill beat --dry-run --since "$SINCE" --until "$UNTIL"',
    audited=True,
)
def backfill(
    cli: CommandSession,
    name: Name,
    since: Annotated[str, option("--since TIME", "From this instant on.", show_default=False)],
    until: Annotated[str, option("--until TIME", "Before this instant.", show_default=False)],
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Offer the messages of missed ticks.

    For ticks that were skipped or precede the installation. A tick that became a message is not repeated.
    """
    span = instant_of(since, "--since"), instant_of(until, "--until")
    with cli.open() as app:
        ticks = app.schedules.missing(name, *span)
        if not dry_run and ticks:
            cli.confirm(f"Offer {plural(len(ticks), 'message')} in one transaction?", yes=yes)
            ticks = app.schedules.backfill(name, *span)
    first, last = (ticks[0], ticks[-1]) if ticks else (None, None)
    span_of_ticks = {"first": first, "last": last, "ticks": list(ticks)}
    made = {"name": name, "made": not dry_run, "count": len(ticks)}
    cli.printer.record("tarry.schedule.backfill/1", {**made, **span_of_ticks})


@command("cron delete", "tarry cron delete daily-report", "tarry cron delete daily-report --yes", audited=True)
def delete(cli: CommandSession, name: Name, yes: Yes = False) -> None:
    """Delete a schedule.

    Its undelivered messages are deleted as well; leased ones can be settled. Its history stays.
    """
    with cli.open() as app:
        app.schedules.get(name)
        cli.confirm(f"Delete schedule {name}?", yes=yes)
        if not app.schedules.delete(name):
            raise NotFound(str(UnknownSchedule(name)), hint="see: tarry cron list")
    cli.printer.record("tarry.schedule.delete/1", {"name": name, "deleted": True})


def _put(cli: CommandSession, app: App, spec: ScheduleSpec) -> None:
    """Store the schedule, and create its queue if it does not exist, as `tarry offer` does."""
    cli.create_queue(app, spec.queue)
    app.schedules.put(spec)
    _print(cli, app, spec.name)


def _print(cli: CommandSession, app: App, name: str) -> None:
    schedule = views.Scheduled(app.schedules.get(name), now_of(app), app.schedules.preview(name, 1))
    cli.printer.view(views.SCHEDULES, schedule)
