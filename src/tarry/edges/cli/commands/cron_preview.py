"""tarry cron preview, explain: the ticks ahead, and the reasons of a tick."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated

from tarry.core.cron.clock_changes import clock_changes
from tarry.core.cron.expressions import ALIASES
from tarry.core.cron.planner import Fire
from tarry.core.cron.schedule_types import Cron, Schedule, Timetable
from tarry.edges import schedule_words as words
from tarry.edges.cli.context import CommandSession, command, now_of
from tarry.edges.cli.exit_codes import Usage
from tarry.edges.cli.help import argument, option
from tarry.edges.cli.options import instant_of, parsed
from tarry.edges.cli.output import schedule_views as views

What = Annotated[str, argument("NAME|EXPR", "A schedule, or an expression in quotes.")]
Zone = Annotated[str | None, option("--zone ZONE", "The zone of an expression.")]
_YEAR = timedelta(days=366)


@command(
    "cron preview",
    "tarry cron preview daily-report",
    "tarry cron preview '30 2 * * *' --zone Europe/Berlin   # needs no database",
    "tarry cron preview '0 18 L * *' --zone UTC --since 2030-01-01T00:00:00Z",
)
def preview(
    cli: CommandSession,
    what: What,
    n: Annotated[int, option("-n --count N", "How many.", min=1, max=10_000)] = 10,
    zone: Zone = None,
    since: Annotated[str | None, option("--since TIME", "Start of an expression; default: now.")] = None,
) -> None:
    """Show the next ticks.

    Of a schedule, or of an expression before it becomes one. Computed by the scheduler's code; changes of the clock are
    noted.
    """
    paused = False
    if _is_expression(what, zone):
        schedule = _expression(what, zone)
        now = parsed(instant_of, since, "--since") or datetime.now(UTC)
        ticks = Timetable(schedule).between(now, now + 60 * _YEAR, n)
        fires: Sequence[Fire] = [Fire(tick=tick, due_at=tick) for tick in ticks]
    else:
        if zone is not None or since is not None:
            raise Usage("--zone and --since need an expression; a schedule has its own zone and starts now")
        with cli.open() as app:
            state, now = app.schedules.get(what), now_of(app)
            schedule, paused = state.spec.schedule, state.paused
            fires = app.schedules.preview(what, n)
    noted = [views.NotedFire(fire, schedule.zone, words.note(schedule, fire), now) for fire in fires]
    cli.listing(views.FIRES, noted, more={"paused": paused})
    if paused:
        cli.note(f"schedule {what} is paused: its ticks are skipped until: tarry cron resume {what}")
    elif not fires:
        cli.note("there are no more ticks")


@command(
    "cron explain",
    "tarry cron explain daily-report --at 2030-03-31T01:00:00Z",
    "tarry cron explain '30 2 * * *' --zone Europe/Berlin   # needs no database",
)
def explain(
    cli: CommandSession,
    what: What,
    at: Annotated[str | None, option("--at TIME", "A tick of the schedule.")] = None,
    zone: Zone = None,
) -> None:
    """Explain a tick of a schedule, or an expression.

    With --at: the verdict of that tick, past or future, and its reason. Otherwise the meaning in words, and the ticks at
    the next two changes of the clock.
    """
    if at is not None:
        if _is_expression(what, zone):
            raise Usage("--at needs a schedule; an expression has no history")
        tick = instant_of(at, "--at")
        with cli.open() as app:
            explanation = app.schedules.explain(what, tick)
        explained = {"name": what, "tick": tick, "explanation": explanation}
        cli.printer.record("tarry.schedule.explain/1", explained)
        return
    if _is_expression(what, zone):
        schedule, now = _expression(what, zone), datetime.now(UTC)
    else:
        with cli.open() as app:
            schedule, now = app.schedules.get(what).spec.schedule, now_of(app)
    meaning, kind = words.sentence(schedule), words.clock(schedule)
    changes = [
        f"{change.sentence}. {change.effect} Ticks: {', '.join(views.local(at, schedule.zone) for at in change.around)}"
        for change in clock_changes(Timetable(schedule), now)
    ]
    cli.printer.record(
        "tarry.schedule.words/1",
        {"text": schedule.text, "zone": schedule.zone, "words": meaning, "kind": kind, "changes": changes},
        [("means", meaning), ("clock", kind), *(("then", change) for change in changes)],
    )


def _is_expression(what: str, zone: str | None) -> bool:
    """The name of a schedule may have spaces, too; text that parses as an expression is an expression."""
    if what.lower() in ALIASES or len(what.split()) in (5, 6):
        return True
    return zone is not None and (what.startswith("@") or "*" in what)  # an invalid expression, for its error message


def _expression(what: str, zone: str | None) -> Schedule:
    if zone is None:
        raise Usage("an expression needs a zone", hint="for example --zone Europe/Berlin, or --zone UTC")
    return Cron(what, zone)
