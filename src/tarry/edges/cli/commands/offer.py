"""tarry offer, poll."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

from tarry.core.errors import InvalidInput, UnknownQueue
from tarry.core.messages.model import Conflict, ConflictRule, Filter
from tarry.core.messages.outcomes import Settled
from tarry.core.messages.states import State
from tarry.edges.cli import options as opt
from tarry.edges.cli.context import CommandSession, command, now_of
from tarry.edges.cli.exit_codes import Conflicting, ExitCode
from tarry.edges.cli.help import argument, option
from tarry.edges.cli.options import due_of, headers_of, parsed
from tarry.edges.cli.output.payloads import payload_line, raw_queue, read_payload
from tarry.edges.cli.output.printer import Cell, EntityView, TableColumn, entity_view, plain
from tarry.edges.cli.output.views import MESSAGES, due
from tarry.edges.formats import delay, duration, exact, instant, plural
from tarry.wire import messages as wire
from tarry.wire.payload import Content

if TYPE_CHECKING:
    from tarry.api._sync.delivery import Delivery
    from tarry.api._sync.queue import Queue
    from tarry.app import App

_OUTCOMES = {"created": "green", "updated": "yellow", "ignored": "dim"}
_RULES = ", ".join(rule.value for rule in ConflictRule)
PEEKED = 10_000


@command(
    "offer",
    "tarry offer orders '{\"id\": 17}' --after 30m --key order-17",
    "tarry offer orders @order.json --at 2030-01-31T18:00:00+02:00",
    "echo 'hello' | tarry offer greetings - --text",
    "tarry offer orders null --key order-17 --conflict keep",
    "tarry offer index 7 --key 7 --after 5s --conflict debounce --max-wait 1m",
    "tarry offer mails 7 --max-attempts 3 --retry-initial 10s --retry-factor 3",
)
def offer(
    cli: CommandSession,
    queue: Annotated[str, argument("QUEUE", "The queue; created if it does not exist.")],
    payload: Annotated[
        str | None, argument("[PAYLOAD|-|@FILE]", "JSON (default null), - for stdin, @ for a file.")
    ] = None,
    after: opt.After = None,
    at: opt.At = None,
    key: Annotated[str | None, option("--key KEY", "The key; default: a new one.")] = None,
    priority: Annotated[int, option("--priority N", "0 (last) to 9 (first).")] = 0,
    type_: Annotated[str | None, option("--type TYPE", "For consumers that poll for one type.")] = None,
    header: opt.Header = None,
    lease: Annotated[str | None, option("--lease-for DURATION", "Of its own, 1s to 12h; else the queue's.")] = None,
    max_attempts: Annotated[int | None, option("--max-attempts N", "Of its own; else the queue's.")] = None,
    conflict: Annotated[
        ConflictRule, option("--conflict RULE", f"If the key is live: {_RULES}.")
    ] = ConflictRule.REPLACE,
    max_wait: Annotated[str | None, option("--max-wait DURATION", "With debounce: the longest postponement.")] = None,
    *,
    retry: opt.RetryOptions,
    text: opt.Text = False,
    binary: opt.Binary = False,
) -> None:
    """Store a message until it is due.

    Prints its key, the outcome (created, updated or ignored) and when it is due. A live message with the same key is
    replaced, unless --conflict names another rule; offering the same message again is ignored.
    """
    options: dict[str, Any] = {
        **due_of(after, at),
        "priority": priority,
        "type": type_,
        "headers": headers_of(header or []),
        "lease_for": parsed(duration, lease, "--lease-for"),
        "max_attempts": max_attempts,
        "retry": retry.retry(),
        "conflict": Conflict(conflict, parsed(delay, max_wait, "--max-wait")),
    }
    raw = read_payload(payload, text=text, binary=binary)
    from tarry.api.drafts import fresh_key

    key = fresh_key() if key is None else key
    with cli.open() as app:
        target = raw_queue(app, queue)
        try:
            outcome = target.offer(key, raw, **options)
        except UnknownQueue:
            cli.create_queue(app, queue)
            outcome = target.offer(key, raw, **options)
        now = now_of(app)
        # A consumer may have finished it already.
        stored = app.store.run(app.store.messages.read(queue, key))
    due_at = stored.due_at if stored else options.get("at") or now + options.get("after", timedelta(0))
    if after is not None or at is not None:
        cli.note(f"due at {instant(due_at)}")
    version = stored.version if stored else None
    cli.printer.record(
        "tarry.offer/1",
        {"queue": queue, "key": key, "outcome": outcome.value, "version": version, "due_at": exact(due_at)},
        [("key", key), ("outcome", Cell(outcome.value, _OUTCOMES.get(outcome.value, ""))), ("due", due(due_at, now))],
    )


@command(
    "poll",
    "tarry poll orders",
    "tarry poll orders --max 10 --wait 20s -o jsonl",
    "tarry poll orders --peek",
    "tarry poll orders --no-ack --lease-for 5m --json   # then: tarry message ack",
)
def poll(
    cli: CommandSession,
    queue: opt.QueueName,
    most: Annotated[int, option("--max N", "At most this many.", min=1, max=1000)] = 1,
    wait: Annotated[str, option("--wait DURATION", "How long to wait for the first.")] = "0s",
    lease: opt.LeaseFor = None,
    type_: opt.Type = None,
    max_attempts: Annotated[int | None, option("--max-attempts N", "Instead of the queue's.")] = None,
    lowest_first: Annotated[bool, option("--lowest-first", "Begin with the lowest priority.")] = False,
    peek: Annotated[bool, option("--peek", "List ready messages, and lease nothing.")] = False,
    ack: Annotated[
        bool | None, option("--ack/--no-ack", "Ack after printing (default), or print the token and keep the lease.")
    ] = None,
) -> ExitCode | None:
    """Lease messages that are due, print and ack them.

    A message is acked after it was printed in full; one that could not be printed is released. If nothing is due the
    list is empty and the exit code is 0. With --no-ack a script settles them: tarry message ack, nack, touch, release,
    bury.
    """
    if peek and ack is not None:
        raise InvalidInput("--peek leases nothing: give it without --ack and --no-ack")
    timeout, lease_for = delay(wait, "--wait"), parsed(duration, lease, "--lease-for")
    with cli.open() as app:
        info = app.queues.get(queue)
        if peek:
            _peek(cli, app, queue, most, type_, lowest_first=lowest_first)
            return None
        if info.paused:
            cli.note(f"queue {queue} is paused; to deliver its messages: tarry queue resume {queue}")
        source = raw_queue(app, queue)
        deliveries = source.poll_many(
            most, timeout, type=type_, lease_for=lease_for, max_attempts=max_attempts, lowest_first=lowest_first
        )
        lost = _print_and_ack(cli, source, deliveries, now_of(app), keep=ack is False)
    if not deliveries:
        cli.note("nothing is due")
    if not lost:
        return None
    problem = f"{plural(lost, 'message was', 'messages were')} printed after the lease was lost"
    hint = "they may be delivered again; lease fewer at a time or for longer: --max, --lease-for"
    if lost == len(deliveries):
        raise Conflicting(problem, hint=hint)
    cli.note(f"{problem}: {hint}")
    return ExitCode.PARTLY


def _print_and_ack(
    cli: CommandSession, source: Queue[Content], deliveries: Sequence[Delivery[Content]], now: datetime, *, keep: bool
) -> int:
    """Print, then ack the printed messages, unless the leases are to be kept. Returns how many leases were lost."""
    unprinted, lost = list(deliveries), 0
    try:
        # JSON lines are acked one by one; a table or a JSON document is complete or invalid.
        size = 1 if cli.printer.line_by_line else max(len(deliveries), 1)
        for start in range(0, max(len(deliveries), 1), size):
            batch = deliveries[start : start + size]
            cli.listing(_LEASED if keep else _ACKED, batch, now=now)
            cli.printer.flush()
            if not keep and batch:
                lost += sum(settled is not Settled.DONE for settled in source.leases.ack([d.lease_id for d in batch]))
            del unprinted[: len(batch)]
    finally:
        if unprinted:
            source.leases.release([delivery.lease_id for delivery in unprinted])
    return lost


def _leased_data(delivery: Delivery[Content]) -> dict[str, Any]:
    return {**plain(wire.Delivery.of(delivery.queue, delivery.lease)), "headers": dict(delivery.headers)}


def _acked_data(delivery: Delivery[Content]) -> dict[str, Any]:
    return {name: value for name, value in _leased_data(delivery).items() if name not in ("token", "lease_until")}


_COLUMNS: Sequence[TableColumn[Delivery[Content]]] = (
    TableColumn("key", style="bold"),
    TableColumn("due", "due_at"),
    TableColumn("priority", right=True),
    TableColumn("attempt", right=True),
    TableColumn("type"),
)
_PAYLOAD: TableColumn[Delivery[Content]] = TableColumn("payload", lambda delivery: payload_line(delivery.payload))
_ACKED: EntityView[Delivery[Content]] = entity_view(
    "tarry.delivery.list/1", "messages", *_COLUMNS, _PAYLOAD, data=_acked_data
)
_LEASE: Sequence[TableColumn[Delivery[Content]]] = (
    TableColumn("token", lambda d: str(d.token)),
    TableColumn("lease until", "lease_until"),
)
_LEASED = replace(_ACKED, data=_leased_data, columns=(*_COLUMNS, *_LEASE, _PAYLOAD))


def _peek(cli: CommandSession, app: App, queue: str, most: int, type_: str | None, *, lowest_first: bool) -> None:
    ready = app.store.messages.list(queue, state=State.READY, limit=PEEKED, filter=Filter(type=type_))
    sign = 1 if lowest_first else -1
    # In delivery order; the store lists by due time.
    messages = sorted(app.store.run(ready), key=lambda each: (sign * each.priority, each.due_at, each.version))
    cli.listing(MESSAGES, messages[:most], now=now_of(app), empty="nothing is due")
