"""tarry send: offer one message."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tarry.core.errors import InvalidInput, UnknownQueue
from tarry.core.messages import Conflict
from tarry.edges.cli.output import Cell
from tarry.edges.cli.payloads import Raw, raw_queue, read_payload
from tarry.edges.cli.session import Session, command
from tarry.edges.cli.views import due
from tarry.edges.times import delay, exact, instant, moment

if TYPE_CHECKING:
    from tarry.app import App
    from tarry.core.outcomes import Outcome


class OnConflict(StrEnum):
    REPLACE = "replace"
    KEEP = "keep"
    EARLIEST = "earliest"


_CONFLICTS = {
    OnConflict.REPLACE: Conflict.replace,
    OnConflict.KEEP: Conflict.keep,
    OnConflict.EARLIEST: Conflict.earliest,
}
_STYLES = {"created": "green", "updated": "yellow", "ignored": "dim"}


def register(app: typer.Typer) -> None:
    command(
        app,
        "send",
        examples=(
            "tarry send orders '{\"id\": 17}' --in 30m --key order-17",
            "tarry send orders @order.json --at 2030-01-31T18:00:00+02:00",
            "echo 'hello' | tarry send greetings - --text",
            "tarry send orders null --key order-17 --on-conflict keep",
        ),
    )(send)


def send(
    cli: Session,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="Where to; made if it is new.", show_default=False)],
    payload: Annotated[
        str | None,
        typer.Argument(metavar="[PAYLOAD|-|@FILE]", help="JSON (else null), - for stdin, @ for a file."),
    ] = None,
    in_: Annotated[
        str | None, typer.Option("--in", metavar="DURATION", help="Due after this long: 90s, 1h30m.")
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="Due then: RFC 3339 with zone, or +10m.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="Its name; else a fresh one.")] = None,
    priority: Annotated[int, typer.Option("--priority", metavar="N", help="0 (last) to 9 (first).")] = 0,
    type_: Annotated[str | None, typer.Option("--type", metavar="TYPE", help="For consumers that ask for one.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="May be given several times.")
    ] = None,
    on_conflict: Annotated[
        OnConflict, typer.Option("--on-conflict", metavar="RULE", help="If the key is live: replace, keep, earliest.")
    ] = OnConflict.REPLACE,
    text: Annotated[bool, typer.Option("--text", help="The payload is text, not JSON.")] = False,
    binary: Annotated[bool, typer.Option("--bytes", help="The payload is bytes, not JSON.")] = False,
) -> None:
    """Send a message, now or for later.

    Prints its key, what became of it (created, updated or ignored) and when it is due. A message with a key that is
    live replaces it, unless --on-conflict says otherwise; sending the very same again is ignored.
    """
    when = when_due(in_, at)
    headers = headers_of(header or [])
    raw = read_payload(payload, text=text, binary=binary)
    if isinstance(when, datetime):
        cli.note(f"due at {instant(when)}")
    from tarry.handles.drafting import fresh_key

    offer: dict[str, Any] = {
        "at": when if isinstance(when, datetime) else None,
        "after": when if isinstance(when, timedelta) else None,
        "priority": priority,
        "type": type_,
        "headers": headers,
        "conflict": _CONFLICTS[on_conflict](),
    }
    key = fresh_key() if key is None else key
    with cli.open() as opened:
        outcome = _offer(cli, opened, queue, key, raw, offer)
        now = opened.store.now()
        # A fast consumer may have taken and finished it already; then we say what we know.
        stored = opened.store.read(queue, key)
    due_at = stored.due_at if stored else when if isinstance(when, datetime) else now + (when or timedelta(0))
    version = stored.version if stored else None
    if isinstance(when, timedelta):
        cli.note(f"due at {instant(due_at)}")
    cli.printer.record(
        "tarry.send/1",
        {"queue": queue, "key": key, "outcome": outcome.value, "version": version, "due_at": exact(due_at)},
        [("key", key), ("outcome", Cell(outcome.value, _STYLES.get(outcome.value, ""))), ("due", due(due_at, now))],
    )


def _offer(cli: Session, app: App, queue: str, key: str, raw: Raw, offer: dict[str, Any]) -> Outcome:
    target = raw_queue(app, queue)
    try:
        return target.offer(key, raw, **offer)
    except UnknownQueue:
        app.queues.create(queue, exist_ok=True)
        cli.note(f"queue {queue} did not exist, and was created with the default settings")
    return target.offer(key, raw, **offer)


def when_due(in_: str | None, at: str | None) -> datetime | timedelta | None:
    if in_ is not None and at is not None:
        raise InvalidInput("give either --in or --at, not both")
    if in_ is not None:
        return delay(in_, "--in")
    return None if at is None else moment(at, "--at")


def headers_of(pairs: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidInput(f"--header is NAME=VALUE, not {pair!r:.80}")
        headers[name] = value
    return headers
