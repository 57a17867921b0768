"""tarry journal: read the journal as it grows, and drop what no queue retains."""

import time
from collections.abc import Iterable
from typing import Annotated

from tarry.core.journal.events import Event, EventKind
from tarry.core.journal.positions import EventPage
from tarry.edges.cli.commands.messages import event_details
from tarry.edges.cli.context import CommandSession, command
from tarry.edges.cli.exit_codes import Usage
from tarry.edges.cli.help import option
from tarry.edges.cli.options import OnlyQueue
from tarry.edges.cli.output.printer import plain
from tarry.edges.formats import instant, plural
from tarry.wire.events import LiveEvent

_MOST_DAYS = 100_000
_EVERY_S = 0.25
"""How often the end of the journal is queried, as for an idle broker's live events."""


@command(
    "journal tail",
    "tarry journal tail --follow",
    "tarry journal tail --follow --queue orders --kind buried -o jsonl",
    'tarry journal tail --after "$POSITION" -o jsonl',
)
def tail(
    cli: CommandSession,
    queue: OnlyQueue = None,
    kind: Annotated[list[EventKind] | None, option("--kind KIND", "Only these events; may be repeated.")] = None,
    after: Annotated[str | None, option("--after POSITION", "Of an event or of an earlier tail; else the end.")] = None,
    wait: Annotated[bool, option("--follow -f", "Wait for further events, until Ctrl-C.")] = False,
) -> None:
    """Print the events of the journal after a position.

    In commit order, without payloads; each event has the position to continue from. Without --after it starts at the end of
    the journal: with --follow it prints new events, otherwise only the position.
    """
    is_document = not cli.printer.for_people and not cli.printer.line_by_line
    if wait and is_document:
        raise Usage("--follow prints one event per line", hint="use: -o jsonl")
    kinds, events = frozenset(kind or EventKind), list[tuple[str, Event]]()
    with cli.open(queue) as app:
        journal, position, is_open = app.store.journal, after, True
        while is_open:
            page = app.store.run(journal.tail(position))
            position = page.position
            chosen = [(at, event) for at, event in page.events if queue in (None, event.queue) and event.kind in kinds]
            if is_document:
                events += chosen
            else:
                _print(cli, chosen)
            _warn_of_gap(cli, page)
            if page.complete and wait:
                time.sleep(_EVERY_S)
            is_open = wait or not page.complete
    if is_document:
        data = {"position": position, "events": [_data(at, event) for at, event in events]}
        cli.printer.record("tarry.event.tail/1", data)
    cli.note(f"for what happens after this: tarry journal tail --after '{position}'")


@command("journal prune", "tarry journal prune", "tarry journal prune -o json")
def prune(cli: CommandSession) -> None:
    """Drop the days of the journal that no queue retains.

    Whole days, older than the longest retention of all queues (tarry queue edit NAME --retention 14d), once their events
    are in the dashboard's rollups. A sweeper does the same, unless the journal is archived: then this drops only days that
    every lake has in full, compared by digest, and tarry pipeline prune also drops days that are still retained.
    """
    with cli.open() as app:
        while not app.store.run(app.store.rollups.roll_up()).complete:
            pass
        days = app.store.run(app.store.maintenance.prune_journal(archived=True, limit=_MOST_DAYS))
    dropped = [day for day in days if day.why is None]
    kept = [{"day": day.day, "why": day.why} for day in days if day.why is not None]
    events = sum(day.events for day in dropped)
    fields = [("dropped", f"{plural(len(dropped), 'day')}, {plural(events, 'event')}")]
    fields += [("kept", f"{day['day']}: {day['why']}") for day in kept]
    data = {"days": [day.day for day in dropped], "events": events, "kept": kept}
    cli.printer.record("tarry.journal.prune/1", data, fields)


def _print(cli: CommandSession, events: Iterable[tuple[str, Event]]) -> None:
    for position, event in events:
        if cli.printer.for_people:
            parts = (instant(event.at), event.queue, event.key, event.kind.value, event_details(event))
            cli.printer.lines(["  ".join(part for part in parts if part)])
        else:
            cli.printer.record("tarry.event/1", _data(position, event))
    cli.printer.flush()


def _data(position: str, event: Event) -> dict[str, object]:
    return {"position": position, **plain(LiveEvent.of(event))}


def _warn_of_gap(cli: CommandSession, page: EventPage) -> None:
    if page.gap is not None:
        cli.warn(f"events may be missing before this point ({page.gap.value})")
