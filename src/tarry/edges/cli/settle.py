"""tarry message ack, nack, touch, release: settle what `tarry receive --hold` has leased."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from tarry.core.errors import InvalidInput
from tarry.core.messages import Failure, Hold
from tarry.core.outcomes import Settled
from tarry.edges.cli.exits import Conflicting, NotFound
from tarry.edges.cli.message import Key, QueueName, app
from tarry.edges.cli.session import Session, command
from tarry.edges.times import delay, duration

if TYPE_CHECKING:
    from tarry.app import App

Token = Annotated[str, typer.Argument(metavar="TOKEN", help="The token of the lease.", show_default=False)]


@command(app, "ack", examples=("tarry message ack orders order-17 $TOKEN",))
def ack(cli: Session, queue: QueueName, key: Key, token: Token) -> None:
    """Finish a message that you hold.

    The token comes from: tarry receive --hold. A lease that was lost changes nothing, and ends with 4.
    """
    hold = _hold(key, token)
    with cli.open() as opened:
        (settled,) = opened.queue(queue).ack_many([hold])
        _require_queue(opened, queue, settled)
    _report(cli, "acked", queue, key, settled)


@command(
    app,
    "nack",
    examples=(
        "tarry message nack orders order-17 $TOKEN --error 'no answer'",
        "tarry message nack orders order-17 $TOKEN --in 10m",
    ),
)
def nack(
    cli: Session,
    queue: QueueName,
    key: Key,
    token: Token,
    error: Annotated[str | None, typer.Option("--error", metavar="TEXT", help="What went wrong.")] = None,
    in_: Annotated[
        str | None,
        typer.Option("--in", metavar="DURATION", help="Try again after this long; else by the queue's rule."),
    ] = None,
) -> None:
    """Give back a message that failed.

    It is delivered again by the retry policy of its queue, or becomes a dead letter if that was its last attempt.
    """
    failure = Failure(_hold(key, token), error, None if in_ is None else delay(in_, "--in"))
    with cli.open() as opened:
        (settled,) = opened.queue(queue).nack_many([failure])
        _require_queue(opened, queue, settled)
    _report(cli, "nacked", queue, key, settled)


@command(app, "touch", examples=("tarry message touch orders order-17 $TOKEN --lease 5m",))
def touch(
    cli: Session,
    queue: QueueName,
    key: Key,
    token: Token,
    lease: Annotated[
        str | None, typer.Option("--lease", metavar="DURATION", help="From now; else as the queue says.")
    ] = None,
) -> None:
    """Hold a message for longer.

    For work that takes longer than its lease. A lease that has run out cannot be prolonged.
    """
    hold = _hold(key, token)
    lease_for = None if lease is None else duration(lease, "--lease")
    with cli.open() as opened:
        (settled,) = opened.queue(queue).touch_many([hold], lease_for)
        _require_queue(opened, queue, settled)
    _report(cli, "touched", queue, key, settled)


@command(
    app,
    "release",
    examples=("tarry message release orders order-17 $TOKEN", "tarry message release orders order-17 $TOKEN --in 10m"),
)
def release(
    cli: Session,
    queue: QueueName,
    key: Key,
    token: Token,
    in_: Annotated[str | None, typer.Option("--in", metavar="DURATION", help="Deliver it after this long.")] = None,
) -> None:
    """Give back a message untried.

    It is deliverable at once, or when you say, and the attempt does not count.
    """
    hold = _hold(key, token)
    after = None if in_ is None else delay(in_, "--in")
    with cli.open() as opened:
        (settled,) = opened.queue(queue).release_many([hold], after=after)
        _require_queue(opened, queue, settled)
    _report(cli, "released", queue, key, settled)


def _hold(key: str, token: str) -> Hold:
    try:
        return Hold(key, UUID(token))
    except ValueError:
        raise InvalidInput(f"this is not a token: {token!r:.80}", hint="tarry receive --hold prints it") from None


def _require_queue(opened: App, queue: str, settled: Settled) -> None:
    """For a misspelled name: a settle in an unknown queue answers GONE, as in one that was deleted."""
    if settled is Settled.GONE:
        opened.queues.get(queue)


def _report(cli: Session, done: str, queue: str, key: str, settled: Settled) -> None:
    if settled is Settled.GONE:
        raise NotFound(
            f"{key!r} is not live in queue {queue} any more: settled already, dropped or dead",
            hint=f"what became of it: tarry message timeline {queue} KEY",
        )
    if settled is Settled.LEASE_LOST:
        raise Conflicting(
            f"this token does not hold {key!r} any more; nothing was changed",
            hint="the lease ran out and somebody else took it, or the message was sent again",
        )
    if settled is Settled.BUSY:
        raise Conflicting(
            f"another transaction has locked {key!r}; nothing was changed",
            hint="try again: no other consumer can lease it before that transaction ends",
        )
    cli.printer.record(
        "tarry.message.settle/1",
        {"queue": queue, "key": key, "settled": settled.value, "verb": done},
        [("queue", queue), ("key", key), ("settled", done)],
    )
