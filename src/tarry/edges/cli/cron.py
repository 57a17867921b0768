"""tarry cron: look at schedules, and look after them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from tarry.core.errors import UnknownSchedule
from tarry.edges.cli import cron_options as given
from tarry.edges.cli import cron_views as views
from tarry.edges.cli.exits import Conflicting, NotFound, Usage
from tarry.edges.cli.help import group
from tarry.edges.cli.payloads import read_payload
from tarry.edges.cli.session import Session, command
from tarry.edges.cli.text import plural
from tarry.edges.times import exact, instant, moment

if TYPE_CHECKING:
    from tarry.app import App

app = group("cron", "List, add, change, pause, run and explain schedules.")

Prefix = Annotated[str, typer.Argument(metavar="PREFIX", help="The schedule.", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Text = Annotated[bool, typer.Option("--text", help="The payload is text, not JSON.")]


@command(app, "list", examples=("tarry cron list", "tarry cron list -o json | jq -r '.schedules[].prefix'"))
def list_schedules(cli: Session) -> None:
    """List the schedules with their next tick.

    Those of code and of files as well. "no scheduler plans it" means: start tarry scheduler, or the program that makes
    its payloads.
    """
    with cli.open() as opened:
        found, now = opened.schedules.list(), opened.store.now()
    cli.printer.listing(
        "tarry.schedule.list/1",
        {"schedules": [views.state_data(state, now) for state in found]},
        views.SCHEDULE_COLUMNS,
        [views.state_row(state, now) for state in found],
    )
    if not found:
        cli.note("there are no schedules yet; add one: tarry cron add hello --every 5m --queue hello")


@command(app, "show", examples=("tarry cron show daily-report", "tarry cron show daily-report --ticks 50 -o json"))
def show(
    cli: Session,
    prefix: Prefix,
    ticks: Annotated[int, typer.Option("--ticks", metavar="N", min=0, help="How much history.")] = 10,
) -> None:
    """Show a schedule and what became of its last ticks.

    The history is that of the ledger: which ticks made a message, which were skipped, and why. It outlives the schedule.
    """
    with cli.open() as opened:
        history, now = opened.schedules.history(prefix, limit=ticks), opened.store.now()
        try:
            state, ahead = opened.schedules.get(prefix), opened.schedules.preview(prefix, 1)
        except UnknownSchedule:
            if not history:
                raise
            state, ahead = None, []
    told = {"ticks": [views.tick_data(record) for record in history]}
    if state is None:
        cli.note(f"schedule {prefix} is gone; this is its history")
    else:
        fields = views.state_fields(state, now, ahead)
        cli.printer.record("tarry.schedule/1", views.state_data(state, now) | told, fields)
    if state is None or (history and cli.printer.for_people):
        cli.printer.lines([""] if state else [])
        rows = [views.tick_row(record) for record in history]
        cli.printer.listing("tarry.tick.list/1", told, views.TICK_COLUMNS, rows)


@command(
    app,
    "add",
    audited=True,
    examples=(
        "tarry cron add nightly --cron '0 2 * * *' --tz Europe/Berlin --queue jobs",
        "tarry cron add beat --every 5m --queue beats --payload '[1]'",
        "tarry cron add mails --daily 08:00,17:30 --tz UTC --queue mails",
    ),
)
def add(
    cli: Session,
    prefix: Prefix,
    queue: given.Queue = None,
    payload: given.Payload = None,
    text: Text = False,
    priority: given.Priority = None,
    type_: given.Type = None,
    cron: given.CronText = None,
    daily: given.Hours = None,
    every: given.Every = None,
    zone: given.Zone = None,
    start: given.Start = None,
    end: given.End = None,
    misfire: given.Misfire = None,
    catch_up: given.CatchUp = None,
    grace: given.Grace = None,
    overlap: given.Overlap = None,
    jitter: given.Jitter = None,
    in_advance: given.InAdvance = None,
) -> None:
    """Add a schedule.

    Its next tick is planned at once; for those after it some scheduler has to run: tarry scheduler. Try the times first
    with tarry cron next.
    """
    chosen = given.Given(
        cron, daily, every, zone, start, end, queue, priority, type_, misfire, catch_up, grace, overlap, jitter, in_advance
    )  # fmt: skip
    spec = given.new_spec(prefix, chosen, read_payload(payload, text=text, binary=False), "cli")
    with cli.open() as opened:
        if any(state.prefix == prefix for state in opened.schedules.list()):
            raise Conflicting(f"there is a schedule {prefix!r} already", hint=f"change it: tarry cron edit {prefix}")
        _queue(cli, opened, spec.queue)
        opened.schedules.put(spec)
        _shown(cli, opened, prefix)


@command(
    app,
    "edit",
    audited=True,
    examples=(
        "tarry cron edit daily-report --cron '30 2 * * *'",
        "tarry cron edit daily-report --tz Europe/London --misfire all --catch-up 6h",
    ),
)
def edit(
    cli: Session,
    prefix: Prefix,
    queue: given.Queue = None,
    payload: given.Payload = None,
    text: Text = False,
    priority: given.Priority = None,
    type_: given.Type = None,
    cron: given.CronText = None,
    daily: given.Hours = None,
    every: given.Every = None,
    zone: given.Zone = None,
    start: given.Start = None,
    end: given.End = None,
    misfire: given.Misfire = None,
    catch_up: given.CatchUp = None,
    grace: given.Grace = None,
    overlap: given.Overlap = None,
    jitter: given.Jitter = None,
    in_advance: given.InAdvance = None,
) -> None:
    """Change a schedule.

    Only what is named changes, in one step: what nobody was given yet of the old configuration is taken back, and
    planned again as the new one says. A schedule of code or of a file is changed until its owner installs it again.
    """
    chosen = given.Given(
        cron, daily, every, zone, start, end, queue, priority, type_, misfire, catch_up, grace, overlap, jitter, in_advance
    )  # fmt: skip
    raw = None if payload is None else read_payload(payload, text=text, binary=False)
    if chosen == given.Given() and raw is None:
        raise Usage("there is nothing to change", hint="name something, for example --cron '30 2 * * *'")
    with cli.open() as opened:
        spec = given.changed_spec(opened.schedules.get(prefix).spec, chosen, raw)
        _queue(cli, opened, spec.queue)
        opened.schedules.put(spec)
        _shown(cli, opened, prefix)


@command(app, "pause", audited=True, examples=("tarry cron pause daily-report --reason 'the printer is broken'",))
def pause(
    cli: Session,
    prefix: Prefix,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why, for whoever looks next.")] = None,
) -> None:
    """Stop a schedule from firing.

    What fired before is still delivered. Ticks of the pause are skipped, and the ledger says so.
    """
    with cli.open() as opened:
        opened.schedules.pause(prefix, reason=reason)
        _shown(cli, opened, prefix)


@command(app, "resume", audited=True, examples=("tarry cron resume daily-report",))
def resume(cli: Session, prefix: Prefix) -> None:
    """Let a schedule fire again.

    From the next tick on; what was skipped can be filled in: tarry cron backfill.
    """
    with cli.open() as opened:
        opened.schedules.resume(prefix)
        _shown(cli, opened, prefix)


@command(app, "run", audited=True, examples=("tarry cron run daily-report",))
def run(cli: Session, prefix: Prefix) -> None:
    """Run it once, now.

    Beside the schedule, whose next tick stays where it is. Also while it is paused.
    """
    with cli.open() as opened:
        tick = opened.schedules.trigger(prefix)
    _tick(cli, "tarry.schedule.run/1", prefix, tick)


@command(app, "skip", audited=True, examples=("tarry cron skip daily-report",))
def skip(cli: Session, prefix: Prefix) -> None:
    """Leave out the next tick.

    Once: the tick after it fires. Said twice, two ticks are left out.
    """
    with cli.open() as opened:
        tick = opened.schedules.skip_next(prefix)
    _tick(cli, "tarry.schedule.skip/1", prefix, tick)


@command(
    app,
    "backfill",
    audited=True,
    examples=(
        "tarry cron backfill beat -n --from 2030-01-01T00:00Z --to 2030-01-08T00:00Z",
        "tarry cron backfill beat -y --from 2030-01-01T00:00Z --to 2030-01-08T00:00Z",
    ),
)
def backfill(
    cli: Session,
    prefix: Prefix,
    since: Annotated[str, typer.Option("--from", metavar="TIME", help="From this instant on.", show_default=False)],
    until: Annotated[str, typer.Option("--to", metavar="TIME", help="Before this instant.", show_default=False)],
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only count them.")] = False,
    yes: Yes = False,
) -> None:
    """Make the messages of ticks that were missed.

    Those that were skipped, or lay before the schedule was installed. A tick that made a message is never made again.
    """
    span = _at(since, "--from"), _at(until, "--to")
    with cli.open() as opened:
        ticks = opened.schedules.missing(prefix, *span)
        if not dry_run and ticks:
            cli.confirm(f"Make {plural(len(ticks), 'message')} in one go?", yes=yes)
            ticks = opened.schedules.backfill(prefix, *span)
    made = not dry_run
    cli.printer.record(
        "tarry.schedule.backfill/1",
        {"prefix": prefix, "made": made, "count": len(ticks), "ticks": [exact(tick) for tick in ticks]},
        [
            ("schedule", prefix),
            ("made" if made else "would make", plural(len(ticks), "message")),
            *([("first", instant(ticks[0])), ("last", instant(ticks[-1]))] if ticks else []),
        ],
    )


@command(
    app, "delete", audited=True, examples=("tarry cron delete daily-report", "tarry cron delete daily-report --yes")
)
def delete(cli: Session, prefix: Prefix, yes: Yes = False) -> None:
    """Delete a schedule.

    With what nobody was given yet of it; what was begun is finished. Its history stays.
    """
    with cli.open() as opened:
        opened.schedules.get(prefix)
        cli.confirm(f"Delete schedule {prefix}?", yes=yes)
        if not opened.schedules.delete(prefix):
            raise NotFound(str(UnknownSchedule(prefix)))
    cli.printer.record(
        "tarry.schedule.delete/1", {"prefix": prefix, "deleted": True}, [("schedule", prefix), ("deleted", "yes")]
    )


def _at(text: str, name: str) -> datetime:
    found = moment(text, name)
    if not isinstance(found, datetime):
        raise Usage(f"{name} is an instant, not a time from now: {text!r:.80}")
    return found


def _queue(cli: Session, opened: App, name: str) -> None:
    """As sending does: a queue that is not there comes into being."""
    if all(info.name != name for info in opened.queues.list()):
        opened.queues.create(name, exist_ok=True)
        cli.note(f"queue {name} did not exist, and was created with the default settings")


def _shown(cli: Session, opened: App, prefix: str) -> None:
    state, now = opened.schedules.get(prefix), opened.store.now()
    ahead = opened.schedules.preview(prefix, 1)
    cli.printer.record("tarry.schedule/1", views.state_data(state, now), views.state_fields(state, now, ahead))


def _tick(cli: Session, schema: str, prefix: str, tick: datetime) -> None:
    cli.printer.record(schema, {"prefix": prefix, "tick": exact(tick)}, [("schedule", prefix), ("tick", instant(tick))])
