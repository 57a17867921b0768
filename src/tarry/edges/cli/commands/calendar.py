"""tarry calendar: a heat map of due messages and ticks."""

from collections import Counter
from datetime import datetime, timedelta
from typing import Annotated, NamedTuple

from tarry.core.cron.planner import load_ahead
from tarry.core.cron.timezones import zone_of
from tarry.core.errors import InvalidInput
from tarry.edges.cli.context import CommandSession, command, now_of
from tarry.edges.cli.help import option
from tarry.edges.cli.options import OnlyQueue
from tarry.edges.cli.output.printer import EntityView, TableColumn, Value, entity_view
from tarry.edges.formats import delay

_SHADES = " ░▒▓█"
_HOUR = timedelta(hours=1)
_MINUTE = timedelta(minutes=1)
_LONGEST = timedelta(days=60)


class CalendarSlice(NamedTuple):
    """Counts of one hour or minute: delayed messages, retries, and ticks that are not messages yet."""

    start_at: datetime
    delayed: int
    retries: int
    cron: int

    @property
    def total(self) -> int:
        return self.delayed + self.retries + self.cron


_SLICES: EntityView[CalendarSlice] = entity_view("tarry.calendar.list/1", "slices")


@command(
    "calendar",
    "tarry calendar",
    "tarry calendar --next 24h --queue reports",
    "tarry calendar --zone Europe/Berlin -o json",
)
def calendar(
    cli: CommandSession,
    ahead: Annotated[str, option("--next DURATION", "How far ahead, up to 60d.")] = "7d",
    queue: OnlyQueue = None,
    zone: Annotated[str, option("--zone ZONE", "The zone of days and hours.")] = "UTC",
) -> None:
    """Show what is due, hour by hour.

    Delayed messages, retries, and ticks of schedules that are not messages yet. One line per day; up to 6 hours ahead,
    one line per hour and one cell per minute.
    """
    span, local_zone = delay(ahead, "--next"), zone_of(zone)
    if not _MINUTE <= span <= _LONGEST:
        raise InvalidInput(f"--next must be between 1m and 60d, got {ahead}")
    every = _MINUTE if span <= 6 * _HOUR else _HOUR
    with cli.open(queue) as app:
        now = now_of(app)
        local = now.astimezone(local_zone)
        # The start of the current slice; a zone with an offset of half an hour shifts the hours.
        start = local.replace(minute=0 if every == _HOUR else local.minute, second=0, microsecond=0)
        since, until = start.astimezone(now.tzinfo), now + span
        due_counts = app.store.run(app.store.cron.due_counts(since, until, every))
        states = app.schedules.list()
    messages: Counter[datetime] = Counter()
    retries: Counter[datetime] = Counter()
    ticks: Counter[datetime] = Counter()
    for due in due_counts:
        if queue in (None, due.queue):
            messages[due.start_at] += due.messages - due.retries
            retries[due.start_at] += due.retries
    for name, at, count in load_ahead(states, now, until):
        if queue in (None, name) and at < until:
            ticks[since + (at - since) // every * every] += count
    starts = [since + n * every for n in range(-(-(until - since) // every))]
    _print(cli, [CalendarSlice(at, messages[at], retries[at], ticks[at]) for at in starts], every, zone)


def _print(cli: CommandSession, slices: list[CalendarSlice], every: timedelta, zone: str) -> None:
    by_hour = every == _HOUR
    most = max((part.total for part in slices), default=0)
    lines: dict[str, Counter[int]] = {}
    for part in slices:
        at = part.start_at.astimezone(zone_of(zone))
        cells = lines.setdefault(f"{at:%a %Y-%m-%d}" if by_hour else f"{at:%a %H}:00", Counter())
        cells[at.hour if by_hour else at.minute] += part.total
    # An hour is two characters wide, a minute one.
    width, step, labelled = (24, 2, 3) if by_hour else (60, 1, 10)
    header = "".join(f"{cell:<{labelled * step}}" for cell in range(0, width, labelled))
    rows: list[list[Value]] = [
        [
            label,
            "".join(step * _SHADES[min(4, 1 + 3 * n // most) if (n := cells[cell]) else 0] for cell in range(width)),
            f"{cells.total():,}",
        ]
        for label, cells in lines.items()
    ]
    if cli.printer.for_people:
        cli.printer.table((TableColumn(zone), TableColumn(header.rstrip()), TableColumn("due", right=True)), rows)
    else:
        busy = [part for part in slices if part.total]
        cli.listing(_SLICES, busy, more={"every_s": every.total_seconds(), "zone": zone})
    counts = ", ".join(f"{sum(getattr(p, kind) for p in slices):,} {kind}" for kind in ("delayed", "retries", "cron"))
    cli.note(f"{counts}; █ is {most:,} per {'hour' if by_hour else 'minute'}")
