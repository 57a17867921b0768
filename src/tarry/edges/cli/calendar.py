"""tarry calendar: what lies ahead, as a heat map of the terminal."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Annotated, NamedTuple

import typer

from tarry.core.errors import InvalidInput
from tarry.edges.cli.output import Column, Value
from tarry.edges.cli.session import Session, command
from tarry.edges.times import delay, exact

_SHADES = " ░▒▓█"
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_MINUTE = timedelta(minutes=1)
_LONGEST = timedelta(days=60)


class Slice(NamedTuple):
    """One slice of time: messages that are delayed, those that are tried again, and ticks that are to become messages."""

    start_at: datetime
    delayed: int
    retries: int
    cron: int

    @property
    def total(self) -> int:
        return self.delayed + self.retries + self.cron


def register(app: typer.Typer) -> None:
    examples = (
        "tarry calendar",
        "tarry calendar --next 24h --queue reports",
        "tarry calendar --tz Europe/Berlin -o json",
    )
    command(app, "calendar", examples=examples)(calendar)


def calendar(
    cli: Session,
    ahead: Annotated[str, typer.Option("--next", metavar="DURATION", help="How far, up to 60d.")] = "7d",
    queue: Annotated[str | None, typer.Option("--queue", metavar="QUEUE", help="Only this one.")] = None,
    zone: Annotated[str, typer.Option("--tz", metavar="ZONE", help="For days and hours.")] = "UTC",
) -> None:
    """Show what comes due, hour by hour.

    Delayed messages, retries, and the ticks of schedules that are not messages yet. A day per line; up to 6 hours ahead,
    an hour per line and a minute per cell.
    """
    from tarry.core.cron_plan import load_ahead
    from tarry.core.zones import zone_of

    span, where = delay(ahead, "--next"), zone_of(zone)
    if not _MINUTE <= span <= _LONGEST:
        raise InvalidInput(f"--next is between a minute and 60 days, not {ahead}")
    every = _MINUTE if span <= 6 * _HOUR else _HOUR
    with cli.open() as opened:
        if queue is not None:
            opened.queues.get(queue)
        now = opened.store.now()
        local = now.astimezone(where)
        # The slice that has begun; an offset of half an hour moves hours with it.
        begun = local.replace(minute=0 if every == _HOUR else local.minute, second=0, microsecond=0)
        since = begun.astimezone(now.tzinfo)
        until = now + span
        due = opened.store.due_counts(since, until, every)
        states = opened.schedules.list()
    cron: Counter[datetime] = Counter()
    for name, at, count in load_ahead(states, now, until):
        if queue in (None, name) and at < until:
            cron[since + (at - since) // every * every] += count
    messages: Counter[datetime] = Counter()
    retries: Counter[datetime] = Counter()
    for one in due:
        if queue in (None, one.queue):
            messages[one.start_at] += one.messages - one.retries
            retries[one.start_at] += one.retries
    count = -(-(until - since) // every)
    starts = [since + n * every for n in range(count)]
    slices = [Slice(at, messages[at], retries[at], cron[at]) for at in starts]
    _show(cli, slices, every, zone)


def _show(cli: Session, slices: list[Slice], every: timedelta, zone: str) -> None:
    from tarry.core.zones import zone_of

    where, most = zone_of(zone), max((one.total for one in slices), default=0)
    lines: dict[str, dict[int, int]] = {}
    for one in slices:
        at = one.start_at.astimezone(where)
        label = f"{at:%a %Y-%m-%d}" if every == _HOUR else f"{at:%a %H}:00"
        cells = lines.setdefault(label, {})
        place = at.hour if every == _HOUR else at.minute
        cells[place] = cells.get(place, 0) + one.total
    width = 24 if every == _HOUR else 60
    step = 2 if every == _HOUR else 1
    rows: list[list[Value]] = [
        ["".join(_shade(cells.get(place, 0), most) * step for place in range(width)), f"{sum(cells.values()):,}"]
        for cells in lines.values()
    ]
    header = "".join(f"{place:<{6 * step // 2}}" for place in range(0, width, 3)) if every == _HOUR else ""
    header = header or "".join(f"{place:<10}" for place in range(0, width, 10))
    cli.printer.listing(
        "tarry.calendar.list/1",
        {
            "slices": [
                {"start_at": exact(one.start_at), "delayed": one.delayed, "retries": one.retries, "cron": one.cron}
                for one in slices
                if one.total
            ]
        },
        (Column(zone), Column(header.rstrip()), Column("due", right=True)),
        [[label, *row] for label, row in zip(lines, rows, strict=True)],
        more={"every_s": every.total_seconds(), "zone": zone},
    )
    kinds = [(sum(getattr(one, kind) for one in slices), kind) for kind in ("delayed", "retries", "cron")]
    unit = "hour" if every == _HOUR else "minute"
    cli.note(f"{', '.join(f'{n:,} {kind}' for n, kind in kinds)}; █ is {most:,} in one {unit}")


def _shade(n: int, most: int) -> str:
    return _SHADES[0] if not n else _SHADES[min(4, 1 + 3 * n // most)]
