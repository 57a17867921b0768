"""tarry message timeline: the life of one key, from the journal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from tarry.core.events import Event, EventKind, JournalLevel
from tarry.core.messages import StoredMessage
from tarry.core.states import State
from tarry.edges.cli import views
from tarry.edges.cli.exits import NotFound
from tarry.edges.cli.message import Key, QueueName, app
from tarry.edges.cli.output import Cell, Column, Value
from tarry.edges.cli.session import Session, command
from tarry.edges.cli.text import plural, shortened
from tarry.edges.times import exact, instant, relative, roughly

_STYLES = {
    EventKind.OFFERED: "blue",
    EventKind.UPDATED: "blue",
    EventKind.EDITED: "blue",
    EventKind.LEASED: "yellow",
    EventKind.ACKED: "green",
    EventKind.NACKED: "red",
    EventKind.EXPIRED: "red",
    EventKind.BURIED: "red",
    EventKind.REDRIVEN: "cyan",
}
_WITH_CONTENT = (EventKind.OFFERED, EventKind.UPDATED, EventKind.EDITED)
_DUE_ANEW = (*_WITH_CONTENT, EventKind.NACKED, EventKind.REDRIVEN)
_COLUMNS = (
    Column("at (UTC)"),
    Column("after", right=True),
    Column("event"),
    Column("version", right=True),
    Column("what"),
)


@command(
    app,
    "timeline",
    examples=("tarry message timeline orders order-17", "tarry message timeline orders order-17 -o jsonl"),
)
def timeline(
    cli: Session,
    queue: QueueName,
    key: Key,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=10_000, help="The newest N events.")] = 1000,
) -> None:
    """Show everything that happened to one key.

    Oldest first, each with the time since the event before it; also for messages that are finished, dropped or dead,
    for as long as the journal keeps them.
    """
    with cli.open() as opened:
        info = opened.queues.get(queue)
        handle = opened.queue(queue, bytes)
        live = handle.read(key)
        events = opened.store.timeline(queue, key, limit=limit)
        now = opened.store.now()
    if not events and live is None:
        off = info.settings.journal is JournalLevel.OFF
        hint = f"the journal of this queue is off: tarry queue edit {queue} --journal events" if off else None
        raise NotFound(f"nothing is known of the key {key!r} in queue {queue}", hint=hint)
    cli.printer.listing(
        "tarry.event.list/1",
        {"events": [_data(event) for event in events]},
        _COLUMNS,
        [_row(event, before) for event, before in zip(events, [None, *events], strict=False)],
        more={"queue": queue, "key": key, "live": None if live is None else views.message_data(live)},
    )
    cli.note(_ending(live, events, now))


def _ending(live: StoredMessage[bytes] | None, events: Sequence[Event], now: datetime) -> str:
    if live is None:
        return f"not live any more; last event {relative(events[-1].at, now)}"
    known = plural(len(events), "event") if events else "no events (the journal of this queue is off)"
    if live.state is State.LEASED and live.lease_until is not None:
        return f"{known}; leased now, until {views.due(live.lease_until, now)}"
    return f"{known}; {live.state.value} now, due {views.due(live.due_at, now)}"


def _row(event: Event, before: Event | None) -> list[Value]:
    since = "" if before is None else f"+{roughly(max(event.at - before.at, timedelta(0)))}"
    version = "" if event.version is None else str(event.version)
    return [instant(event.at), since, Cell(event.kind.value, _STYLES.get(event.kind, "")), version, _what(event)]


def _what(event: Event) -> str:
    """What matters about an event of its kind, in a few words."""
    parts: list[str] = []
    if event.kind in _DUE_ANEW and event.due_at:
        parts.append(f"due {relative(event.due_at, event.at)}".replace("due now", "due at once"))
    if event.kind is EventKind.LEASED and event.due_at and event.at > event.due_at:
        parts.append(f"{roughly(event.at - event.due_at)} after it was due")
    if event.attempt and event.kind is not EventKind.OFFERED:
        parts.append(f"attempt {event.attempt}")
    if event.consumer:
        parts.append(f"by {event.consumer}")
    if event.kind in (EventKind.LEASED, EventKind.TOUCHED) and event.lease_until:
        parts.append(f"held for {roughly(event.lease_until - event.at)}")
    if event.kind is EventKind.ACKED and event.leased_at:
        parts.append(f"worked {roughly(event.at - event.leased_at)}")
    if event.size is not None and event.kind in _WITH_CONTENT:
        parts.append(plural(event.size, "byte"))
    if event.kind is EventKind.EDITED and event.detail:
        parts.append(f"changed {', '.join(event.detail.get('fields', ()))}")
    if event.error:
        parts.append(shortened(event.error.partition("\n")[0], views.PAYLOAD_WIDTH))
    return ", ".join(parts)


def _data(event: Event) -> dict[str, Any]:
    return {
        "id": event.id,
        "kind": event.kind.value,
        "at": exact(event.at),
        "queue": event.queue,
        "key": event.key,
        "version": event.version,
        "attempt": event.attempt,
        "priority": event.priority,
        "due_at": exact(event.due_at),
        "leased_at": exact(event.leased_at),
        "lease_until": exact(event.lease_until),
        "consumer": event.consumer,
        "size": event.size,
        "payload_hash": None if event.payload_hash is None else event.payload_hash.hex(),
        "error": event.error,
        "detail": None if event.detail is None else dict(event.detail),
    }
