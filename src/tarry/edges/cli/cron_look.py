"""tarry cron next, explain: what a schedule will do, and why a tick is what it is."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from tarry.edges.cli import cron_views as views
from tarry.edges.cli.cron import app
from tarry.edges.cli.exits import Usage
from tarry.edges.cli.session import Session, command
from tarry.edges.times import exact, length, moment

if TYPE_CHECKING:
    from tarry.core.cron_plan import Fire
    from tarry.core.schedules import Schedule

What = Annotated[
    str, typer.Argument(metavar="PREFIX|EXPR", help="A schedule, or an expression in quotes.", show_default=False)
]
Zone = Annotated[str | None, typer.Option("--tz", metavar="ZONE", help="For an expression: its zone.")]
_YEAR = timedelta(days=366)


@command(
    app,
    "next",
    examples=(
        "tarry cron next daily-report",
        "tarry cron next '30 2 * * *' --tz Europe/Berlin -n 5   # needs no database",
        "tarry cron next '0 18 L * *' --tz UTC --after 2030-01-01T00:00:00Z",
    ),
)
def next_ticks(
    cli: Session,
    what: What,
    n: Annotated[int, typer.Option("-n", "--count", metavar="N", min=1, max=10_000, help="How many.")] = 10,
    zone: Zone = None,
    after: Annotated[
        str | None, typer.Option("--after", metavar="TIME", help="Instead of now; for an expression.")
    ] = None,
) -> None:
    """Show the next ticks.

    Of a schedule, or of an expression that is yet to become one. By the code that plans them; where the clock is set on
    the way, it says so.
    """
    from tarry.core.cron_plan import Fire

    paused = False
    if _is_expression(what, zone):
        from tarry.core.schedules import Timetable

        schedule: Schedule = _expression(what, zone)
        now = _instant(after) or datetime.now(UTC)
        ticks = Timetable(schedule).between(now, now + 60 * _YEAR, n)
        fires: Sequence[Fire] = [Fire(tick=tick, due_at=tick) for tick in ticks]
    else:
        if zone is not None or after is not None:
            raise Usage("--tz and --after are for an expression; a schedule has its own zone, and begins now")
        with cli.open() as opened:
            state, now = opened.schedules.get(what), opened.store.now()
            schedule, paused = state.spec.schedule, state.paused
            fires = opened.schedules.preview(what, n)
    notes = [_note(schedule, fire) for fire in fires]
    cli.printer.listing(
        "tarry.fire.list/1",
        {"fires": [views.fire_data(fire, schedule.zone, note) for fire, note in zip(fires, notes, strict=True)]},
        views.FIRE_COLUMNS,
        views.fire_rows(fires, schedule.zone, now, notes),
        more={"paused": paused},
    )
    if paused:
        cli.note(f"schedule {what} is paused: a tick that comes before it is resumed is skipped")
    elif not fires:
        cli.note("there is no tick ahead")


@command(
    app,
    "explain",
    examples=(
        "tarry cron explain daily-report --at 2030-03-31T01:00:00Z",
        "tarry cron explain '30 2 * * *' --tz Europe/Berlin   # needs no database",
    ),
)
def explain(
    cli: Session,
    what: What,
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help="A tick of the schedule.")] = None,
    zone: Zone = None,
) -> None:
    """Say why a tick is what it is, or what an expression means.

    With --at: which verdict that tick got or will get, and why. Else in words, with what happens at the next two changes
    of the clock.
    """
    if at is not None:
        if _is_expression(what, zone):
            raise Usage("--at asks about a tick of a schedule; an expression has no history")
        tick = _instant(at)
        if tick is None:
            raise Usage(f"--at is an instant, not a time from now: {at!r:.80}")
        with cli.open() as opened:
            said = opened.schedules.explain(what, tick)
        cli.printer.record(
            "tarry.schedule.explain/1", {"prefix": what, "tick": exact(tick), "explanation": said}, [(what, said)]
        )
        return
    if _is_expression(what, zone):
        schedule, now = _expression(what, zone), datetime.now(UTC)
    else:
        with cli.open() as opened:
            schedule, now = opened.schedules.get(what).spec.schedule, opened.store.now()
    words, kind, changes = _words(schedule), _kind(schedule), _changes(schedule, now)
    cli.printer.record(
        "tarry.schedule.words/1",
        {"text": schedule.text, "zone": schedule.zone, "words": words, "kind": kind, "changes": changes},
        [("means", words), ("goes by", kind), *(("then", change) for change in changes)],
    )


def _is_expression(what: str, zone: str | None) -> bool:
    """A prefix may have spaces too, or begin with @. What can be read as an expression is one."""
    from tarry.core.cron_expressions import ALIASES

    if what.lower() in ALIASES or len(what.split()) in (5, 6):
        return True
    return zone is not None and (
        what.startswith("@") or "*" in what
    )  # meant as one, and to be told what is wrong with it


def _expression(what: str, zone: str | None) -> Schedule:
    from tarry.core.schedules import Cron

    if zone is None:
        raise Usage("by which clock? an expression needs a zone", hint="for example --tz Europe/Berlin, or --tz UTC")
    return Cron(what, zone)


def _instant(text: str | None) -> datetime | None:
    found = None if text is None else moment(text, "the time")
    if found is None or isinstance(found, datetime):
        return found
    raise Usage(f"an instant is wanted, not a time from now: {text!r:.80}")


def _note(schedule: Schedule, fire: Fire) -> str:
    notes: list[str] = []
    if fire.verdict is not None and fire.verdict.value != "planned":
        notes.append(fire.verdict.value)
    if schedule.zone is not None:
        from tarry.core.zones import comes, first_change, offset, reading, zone_of

        zone = zone_of(schedule.zone)
        if first_change(zone, fire.tick - timedelta(seconds=1), fire.tick) is not None:
            moved = offset(zone, fire.tick) - offset(zone, fire.tick - timedelta(seconds=1))
            notes.append("the clock is set forward here" if moved > timedelta(0) else "the clock is set back here")
        elif comes(zone, reading(zone, fire.tick)) > 1:
            notes.append("this hour comes twice")
    if fire.due_at != fire.tick:
        notes.append(f"due {exact(fire.due_at)}")
    return ", ".join(notes)


def _words(schedule: Schedule) -> str:
    from tarry.core.schedules import Cron, Periodic

    if isinstance(schedule, Cron):
        return schedule.expression.explain()
    if isinstance(schedule, Periodic):
        return f"every {length(schedule.every)}, counted from the epoch"
    return schedule.text if schedule.kind != "daily" else f"every day at {schedule.text}"


def _kind(schedule: Schedule) -> str:
    from tarry.core.schedules import Cron

    if schedule.kind == "daily" or (isinstance(schedule, Cron) and schedule.is_wall_clock):
        return "the wall clock: each reading once per local date"
    return "elapsed time: every instant that fits"


def _changes(schedule: Schedule, now: datetime) -> list[str]:
    """What becomes of the ticks around the next two changes of the clock."""
    if schedule.zone is None:
        return []
    from tarry.core.schedules import Timetable
    from tarry.core.zones import first_change, offset, zone_of

    zone, at, said = zone_of(schedule.zone), now, list[str]()
    for _ in range(2):
        change = first_change(zone, at, at + _YEAR)
        if change is None:
            break
        moved = offset(zone, change) - offset(zone, change - timedelta(seconds=1))
        near, just_before = timedelta(hours=3), change - timedelta(seconds=1)
        table = Timetable(schedule)
        ticks = table.between(change - near, just_before, 1_000)[-2:] + table.between(just_before, change + near, 3)
        shown = ", ".join(views.local(tick, schedule.zone) for tick in ticks) or "no tick is near"
        way = "forward" if moved > timedelta(0) else "back"
        said.append(f"{views.local(change, schedule.zone)}, the clock is set {way} by {abs(moved)}: {shown}")
        at = change
    return said
