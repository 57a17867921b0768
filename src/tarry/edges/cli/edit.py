"""tarry message edit: change a live message by hand."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer

from tarry.core.errors import InvalidInput
from tarry.core.outcomes import Edited
from tarry.edges.cli.exits import Conflicting
from tarry.edges.cli.message import Key, QueueName, app, missing
from tarry.edges.cli.payloads import raw_queue, read_payload
from tarry.edges.cli.send import headers_of, when_due
from tarry.edges.cli.session import Session, command


@command(
    app,
    "edit",
    examples=(
        "tarry message edit orders order-17 --in 5m --priority 9",
        "tarry message edit orders order-17 --payload '{\"total\": 42}' --version 4711",
        "tarry message edit orders order-17 --payload @fixed.json --force",
    ),
)
def edit(
    cli: Session,
    queue: QueueName,
    key: Key,
    payload: Annotated[
        str | None, typer.Option("--payload", metavar="JSON", help="Another payload: JSON, - for stdin, @FILE.")
    ] = None,
    in_: Annotated[str | None, typer.Option("--in", metavar="DURATION", help="Due after this long.")] = None,
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help="Due then: RFC 3339, or +10m.")] = None,
    priority: Annotated[int | None, typer.Option("--priority", metavar="N", help="0 (last) to 9 (first).")] = None,
    type_: Annotated[str | None, typer.Option("--type", metavar="TYPE", help="Another type; '' for none.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="In place of those it has.")
    ] = None,
    max_attempts: Annotated[
        int | None, typer.Option("--max-attempts", metavar="N", help="Of its own; 0 for the queue's.")
    ] = None,
    text: Annotated[bool, typer.Option("--text", help="The payload is text, not JSON.")] = False,
    binary: Annotated[bool, typer.Option("--bytes", help="The payload is bytes, not JSON.")] = False,
    version: Annotated[
        int | None, typer.Option("--version", metavar="V", help="Only if it is still this version.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Also while somebody works on it.")] = False,
) -> None:
    """Change a live message.

    What you do not name stays, and attempts go on counting. A message that somebody works on is left alone (exit 4),
    unless you force it: then their lease is void, and they can settle nothing.
    """
    changes: dict[str, Any] = {}
    if payload is not None:
        changes["payload"] = read_payload(payload, text=text, binary=binary)
    elif text or binary:
        raise InvalidInput("--text and --bytes go with --payload")
    due = when_due(in_, at)
    if due is not None:
        changes["at" if isinstance(due, datetime) else "after"] = due
    if priority is not None:
        changes["priority"] = priority
    if type_ is not None:
        changes["type"] = type_ or None
    if header:
        changes["headers"] = headers_of(header)
    if max_attempts is not None:
        changes["max_attempts"] = max_attempts or None
    with cli.open() as opened:
        opened.queues.get(queue)
        outcome = raw_queue(opened, queue).edit(key, version=version, force=force, **changes)
    if outcome is Edited.GONE:
        raise missing(queue, key)
    if outcome is Edited.LEASED:
        raise Conflicting(f"somebody works on {key!r}; it was left as it is", hint="take it from them: --force")
    if outcome is Edited.CHANGED:
        raise Conflicting(f"{key!r} is no longer version {version}; it was left as it is")
    cli.printer.record(
        "tarry.message.edit/1",
        {"queue": queue, "key": key, "outcome": outcome.value},
        [("queue", queue), ("key", key), ("outcome", outcome.value)],
    )
