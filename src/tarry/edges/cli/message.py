"""tarry message: look at single messages, and drop them."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from tarry.core.states import State
from tarry.edges.cli import views
from tarry.edges.cli.exits import Conflicting, NotFound
from tarry.edges.cli.help import group
from tarry.edges.cli.session import Session, command
from tarry.edges.cli.text import plural

app = group("message", "Look at messages, settle and drop them.")

QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.", show_default=False)]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The key of the message.", show_default=False)]


class LiveState(StrEnum):
    DELAYED = "delayed"
    READY = "ready"
    LEASED = "leased"


@command(app, "show", examples=("tarry message show orders order-17", "tarry message show orders order-17 -o json"))
def show(cli: Session, queue: QueueName, key: Key) -> None:
    """Show one live message in full.

    Leases nothing. What is finished or dead is not live any more; its history is: tarry message timeline.
    """
    with cli.open() as opened:
        found = opened.queue(queue, bytes).read(key)
        now = opened.store.now()
    if found is None:
        raise missing(queue, key)
    cli.printer.record("tarry.message/1", views.message_data(found), views.message_fields(found, now))


@command(
    app,
    "list",
    examples=(
        "tarry message list orders",
        "tarry message list orders --state leased",
        "tarry message list orders --limit 1000 -o jsonl | jq -r .key",
    ),
)
def list_messages(
    cli: Session,
    queue: QueueName,
    state: Annotated[
        LiveState | None, typer.Option("--state", metavar="STATE", help="delayed, ready or leased; else all.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=10_000, help="At most this many.")] = 100,
) -> None:
    """List live messages in the order they are due.

    Leases nothing. For dead ones: tarry dlq list.
    """
    with cli.open() as opened:
        opened.queues.get(queue)
        found = opened.store.messages(queue, state=None if state is None else State(state.value), limit=limit)
        now = opened.store.now()
    cli.printer.listing(
        "tarry.message.list/1",
        {"messages": [views.message_data(message) for message in found]},
        views.MESSAGE_COLUMNS,
        [views.message_row(message, now) for message in found],
    )
    if not found:
        cli.note("there are no such messages")
    elif len(found) == limit:
        cli.note(f"the first {plural(limit, 'message')}; there may be more: --limit")


@command(
    app,
    "drop",
    examples=("tarry message drop orders order-17", "tarry message drop orders order-17 --version 4711 --yes"),
)
def drop(
    cli: Session,
    queue: QueueName,
    key: Key,
    version: Annotated[
        int | None, typer.Option("--version", metavar="V", help="Only if it is still this version.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove one live message.

    Delayed, ready or leased: it is gone, and a lease on it is lost. If it changes while you are being asked, it stays.
    """
    with cli.open() as opened:
        handle = opened.queue(queue, bytes)
        found = handle.read(key)
        if found is None:
            raise missing(queue, key)
        if version is not None and found.version != version:
            raise _changed(key, found.version)
        if not yes:
            now = opened.store.now()
            cli.confirm(
                f"Drop {key!r} of queue {queue}, {found.state.value}, due {views.due(found.due_at, now)}?", yes=False
            )
            version = found.version
        if not handle.drop(key, version=version):
            again = handle.read(key)
            raise missing(queue, key) if again is None else _changed(key, again.version)
    cli.printer.record(
        "tarry.message.drop/1",
        {"queue": queue, "key": key, "version": found.version if version is None else version, "dropped": True},
        [("queue", queue), ("key", key), ("dropped", "yes")],
    )


def missing(queue: str, key: str) -> NotFound:
    return NotFound(
        f"queue {queue} has no live message with the key {key!r}",
        hint=f"what became of it: tarry message timeline {queue} KEY, or tarry dlq list {queue}",
    )


def _changed(key: str, version: int) -> Conflicting:
    return Conflicting(f"{key!r} has changed: it is version {version} now; nothing was dropped")
