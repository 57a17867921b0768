"""tarry receive: take messages by hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tarry.core.errors import InvalidInput
from tarry.core.outcomes import Settled
from tarry.core.states import State
from tarry.edges.cli import views
from tarry.edges.cli.exits import Conflicting, ExitCode
from tarry.edges.cli.output import Column
from tarry.edges.cli.payloads import Raw, payload_fields, payload_line, raw_queue
from tarry.edges.cli.session import Session, command
from tarry.edges.cli.text import plural
from tarry.edges.times import delay, duration, exact

if TYPE_CHECKING:
    from tarry.app import App
    from tarry.handles.delivery import Delivery
    from tarry.handles.queue import Queue

PEEKED = 10_000
_COLUMNS = (
    Column("key", style="bold"),
    Column("due"),
    Column("priority", right=True),
    Column("attempt", right=True),
    Column("type"),
    Column("payload"),
)
_HELD_COLUMNS = (*_COLUMNS[:-1], Column("token"), Column("lease until"), _COLUMNS[-1])


def register(app: typer.Typer) -> None:
    command(
        app,
        "receive",
        examples=(
            "tarry receive orders",
            "tarry receive orders --max 10 --wait 20s -o jsonl",
            "tarry receive orders --peek",
            "tarry receive orders --hold --lease 5m -o json   # then: tarry message ack",
        ),
    )(receive)


def receive(
    cli: Session,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="From where.", show_default=False)],
    most: Annotated[int, typer.Option("--max", metavar="N", min=1, max=1000, help="At most this many.")] = 1,
    wait: Annotated[str, typer.Option("--wait", metavar="DURATION", help="How long to wait for the first.")] = "0s",
    lease: Annotated[
        str | None, typer.Option("--lease", metavar="DURATION", help="How long to hold them, 1s to 12h.")
    ] = None,
    type_: Annotated[str | None, typer.Option("--type", metavar="TYPE", help="Only messages of this type.")] = None,
    ack: Annotated[bool, typer.Option("--ack", help="Finish each after it was printed (the default).")] = False,
    peek: Annotated[bool, typer.Option("--peek", help="Only look: nothing is taken.")] = False,
    hold: Annotated[bool, typer.Option("--hold", help="Print the lease token and leave them leased.")] = False,
) -> ExitCode | None:
    """Take messages that are due, and print them.

    Each is finished after it was printed in full; what could not be printed is given back. Nothing came: an empty
    list, and still 0. With --hold a script settles them itself: tarry message ack, nack, touch, release.
    """
    if ack + peek + hold > 1:
        raise InvalidInput("give at most one of --ack, --peek and --hold")
    timeout = delay(wait, "--wait")
    lease_for = None if lease is None else duration(lease, "--lease")
    with cli.open() as opened:
        info = opened.queues.get(queue)
        if peek:
            _peek(cli, opened, queue, most, type_)
            return None
        if info.paused:
            cli.note(f"queue {queue} is paused: nothing is delivered until: tarry queue resume {queue}")
        source = raw_queue(opened, queue)
        deliveries = source.poll_many(most, timeout, type=type_, lease_for=lease_for)
        lost = _hand_over(cli, source, deliveries, opened.store.now(), hold=hold)
    if not deliveries:
        cli.note("nothing is due")
    if not lost:
        return None
    problem = f"{plural(lost, 'message was', 'messages were')} printed after the lease was lost"
    hint = "they may come again; take fewer at a time or hold them longer: --max, --lease"
    if lost == len(deliveries):
        raise Conflicting(problem, hint=hint)
    cli.note(f"{problem}: {hint}")
    return ExitCode.PARTLY


def _hand_over(
    cli: Session, source: Queue[Raw], deliveries: Sequence[Delivery[Raw]], now: datetime, *, hold: bool
) -> int:
    """Print, then ack what was printed. How many were no longer ours to ack."""
    open_, lost = list(deliveries), 0
    try:
        # Line by line each is finished at once; a table or a JSON document is whole or nothing.
        size = 1 if cli.printer.line_by_line else max(len(deliveries), 1)
        for start in range(0, max(len(deliveries), 1), size):
            some = deliveries[start : start + size]
            _print(cli, some, now, hold=hold)
            cli.printer.flush()
            if not hold and some:
                lost += sum(settled is not Settled.DONE for settled in source.ack_many([d.hold for d in some]))
            del open_[: len(some)]
    finally:
        if open_:
            source.release_many([delivery.hold for delivery in open_])
    return lost


def _print(cli: Session, deliveries: Sequence[Delivery[Raw]], now: datetime, *, hold: bool) -> None:
    cli.printer.listing(
        "tarry.delivery.list/1",
        {"messages": [_data(delivery, hold=hold) for delivery in deliveries]},
        _HELD_COLUMNS if hold else _COLUMNS,
        [_row(delivery, now, hold=hold) for delivery in deliveries],
    )


def _data(delivery: Delivery[Raw], *, hold: bool) -> dict[str, Any]:
    data: dict[str, Any] = {
        "queue": delivery.queue,
        "key": delivery.key,
        "version": delivery.version,
        "due_at": exact(delivery.due_at),
        "leased_at": exact(delivery.leased_at),
        "priority": delivery.priority,
        "attempt": delivery.attempt,
        "redelivered": delivery.redelivered,
        "type": delivery.type,
        "headers": dict(delivery.headers),
        **payload_fields(delivery.payload),
    }
    if hold:
        data |= {"token": str(delivery.token), "lease_until": exact(delivery.lease_until)}
    return data


def _row(delivery: Delivery[Raw], now: datetime, *, hold: bool) -> list[str]:
    start = [
        delivery.key,
        views.due(delivery.due_at, now),
        str(delivery.priority),
        str(delivery.attempt),
        delivery.type or "",
    ]
    held = [str(delivery.token), views.due(delivery.lease_until, now)] if hold else []
    return [*start, *held, payload_line(delivery.payload)]


def _peek(cli: Session, app: App, queue: str, most: int, type_: str | None) -> None:
    ready = app.store.messages(queue, state=State.READY, limit=PEEKED)
    wanted = [message for message in ready if type_ is None or message.type == type_]
    # In the order in which they would be delivered; the list comes in due order.
    wanted.sort(key=lambda message: (-message.priority, message.due_at, message.version))
    now = app.store.now()
    cli.printer.listing(
        "tarry.message.list/1",
        {"messages": [views.message_data(message) for message in wanted[:most]]},
        views.MESSAGE_COLUMNS,
        [views.message_row(message, now) for message in wanted[:most]],
    )
    if not wanted:
        cli.note("nothing is due")
