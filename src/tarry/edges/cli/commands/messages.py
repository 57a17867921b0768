"""tarry message: show, list, why, edit, drop, timeline; and ack, nack, touch, release, bury after `tarry poll --no-ack`."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from uuid import UUID

from tarry.core.errors import InvalidInput
from tarry.core.journal.events import Event, EventKind, JournalLevel
from tarry.core.messages.explain import why_not_delivered
from tarry.core.messages.model import Failure, LeaseId, StoredMessage
from tarry.core.messages.outcomes import Edited, Settled
from tarry.core.messages.states import LIVE, State
from tarry.edges.cli import options as opt
from tarry.edges.cli.context import CommandSession, command, now_of
from tarry.edges.cli.exit_codes import Conflicting, NotFound
from tarry.edges.cli.help import argument, option
from tarry.edges.cli.options import Key, QueueName, due_of, parsed
from tarry.edges.cli.output import views
from tarry.edges.cli.output.payloads import raw_queue, read_payload
from tarry.edges.cli.output.printer import EntityView, TableColumn, entity_view, plain
from tarry.edges.cli.output.text import shortened
from tarry.edges.formats import delay, duration, plural, relative, roughly
from tarry.wire.base import data_of
from tarry.wire.events import LiveEvent
from tarry.wire.messages import Message

if TYPE_CHECKING:
    from tarry.api._sync.queue import Queue

Token = Annotated[str, argument("TOKEN", "The token of the lease.")]
ErrorText = Annotated[str | None, option("--error TEXT", "What went wrong.")]
_WITH_CONTENT = (EventKind.OFFERED, EventKind.UPDATED, EventKind.EDITED)
_STYLES = {
    **dict.fromkeys(_WITH_CONTENT, "blue"),
    **dict.fromkeys((EventKind.NACKED, EventKind.EXPIRED, EventKind.BURIED), "red"),
    EventKind.LEASED: "yellow",
    EventKind.ACKED: "green",
    EventKind.REDRIVEN: "cyan",
}
_DUE_AGAIN = (*_WITH_CONTENT, EventKind.NACKED, EventKind.REDRIVEN)


@command("message show", "tarry message show orders order-17", "tarry message show orders order-17 -o json")
def show(cli: CommandSession, queue: QueueName, key: Key) -> None:
    """Show one live message in full.

    Leases nothing. For finished and dead messages: tarry message timeline.
    """
    with cli.open() as app:
        message, now = app.queue(queue, bytes).read(key), now_of(app)
    if message is None:
        raise _missing(queue, key)
    cli.printer.view(views.MESSAGES, message, now=now)


@command(
    "message list",
    "tarry message list orders",
    "tarry message list orders --state leased",
    "tarry message list orders --limit 1000 -o jsonl | jq -r .key",
)
def list_messages(
    cli: CommandSession,
    queue: QueueName,
    state: Annotated[str | None, option("--state STATE", "delayed, ready or leased; default: all.")] = None,
    limit: opt.Limit = 100,
) -> None:
    """List live messages in the order they are due.

    Leases nothing. For dead letters: tarry dlq list.
    """
    only = None if state is None else State(opt.one_of(state, [live.value for live in LIVE], "--state"))
    with cli.open(queue) as app:
        messages, now = app.store.run(app.store.messages.list(queue, state=only, limit=limit)), now_of(app)
    cli.listing(views.MESSAGES, messages, now=now, empty="no message matches", limit=limit)


@command("message why", "tarry message why orders order-17", "tarry message why orders order-17 -o json")
def why(cli: CommandSession, queue: QueueName, key: Key) -> None:
    """Explain why a live message is not delivered yet.

    It is due later, it is leased, or its queue is paused; or it is deliverable, perhaps without a worker for its queue.
    """
    with cli.open() as app:
        info = app.queues.get(queue)
        message, now = app.queue(queue, bytes).read(key), now_of(app)
        workers = app.store.run(app.store.workers.list())
    if message is None:
        raise _missing(queue, key)
    explained = why_not_delivered(message, info, now, workers)
    at = explained.deliverable_at
    cli.printer.record(
        "tarry.message.why/1",
        {"queue": queue, "key": key, **data_of(explained)},
        [
            ("state", message.state),
            ("deliverable", explained.deliverable),
            *(("reason", reason) for reason in explained.reasons),
            ("deliverable at", None if at is None else views.due(at, now)),
        ],
    )


@command(
    "message edit",
    "tarry message edit orders order-17 --after 5m --priority 9",
    "tarry message edit orders order-17 --payload '{\"total\": 42}' --version 4711",
    "tarry message edit orders order-17 --payload @fixed.json --force",
    "tarry message edit orders order-17 --lease-for 5m --retry-initial 1m",
)
def edit(
    cli: CommandSession,
    queue: QueueName,
    key: Key,
    payload: Annotated[str | None, option("--payload JSON", "New payload: JSON, - for stdin, @FILE.")] = None,
    after: opt.After = None,
    at: opt.At = None,
    priority: opt.Priority = None,
    type_: Annotated[str | None, option("--type TYPE", "New type; '' for none.")] = None,
    header: Annotated[list[str] | None, option("--header NAME=VALUE", "Replaces all headers; may be repeated.")] = None,
    lease: Annotated[str | None, option("--lease-for DURATION|none", "Of its own; none for the queue's.")] = None,
    max_attempts: Annotated[int | None, option("--max-attempts N", "Of its own; 0 for the queue's.")] = None,
    *,
    retry: opt.RetryOptions,
    queue_retry: Annotated[bool, option("--queue-retry", "Retry as the queue does.", panel="Retries")] = False,
    text: opt.Text = False,
    binary: opt.Binary = False,
    version: opt.Version = None,
    force: Annotated[bool, option("--force", "Also while it is leased; the lease is lost.")] = False,
) -> None:
    """Change a live message.

    Only the named fields change, and attempts keep counting. A leased message is not changed (exit 4), unless --force is
    given: then its consumer loses the lease and can no longer settle it.
    """
    changes: dict[str, Any] = due_of(after, at)
    if payload is not None:
        changes["payload"] = read_payload(payload, text=text, binary=binary)
    elif text or binary:
        raise InvalidInput("--text and --bytes describe --payload, which was not given")
    if priority is not None:
        changes["priority"] = priority
    changes |= {n: v or None for n, v in (("type", type_), ("max_attempts", max_attempts)) if v is not None}
    if header:
        changes["headers"] = opt.headers_of(header)
    if lease is not None:
        changes["lease_for"] = None if lease == opt.NONE else duration(lease, "--lease-for")
    if (policy := retry.retry()) is not None or queue_retry:
        if policy is not None and queue_retry:
            raise InvalidInput("--queue-retry removes the message's own retry policy: give it without --retry options")
        changes["retry"] = policy
    with cli.open(queue) as app:
        outcome = raw_queue(app, queue).edit(key, version=version, force=force, **changes)
    if outcome is Edited.GONE:
        raise _missing(queue, key)
    if outcome is Edited.LEASED:
        raise Conflicting(f"{key!r} is leased; it was not changed", hint="to revoke the lease: --force")
    if outcome is Edited.CHANGED:
        hint = f"see its version: tarry message show {queue} KEY"
        raise Conflicting(f"{key!r} is no longer version {version}; it was not changed", hint=hint)
    cli.printer.record("tarry.message.edit/1", {"queue": queue, "key": key, "outcome": outcome.value})


@command(
    "message drop",
    "tarry message drop orders order-17",
    "tarry message drop orders order-17 --version 4711 --yes",
    "tarry message drop orders order-17 --unless-leased",
)
def drop(
    cli: CommandSession,
    queue: QueueName,
    key: Key,
    version: opt.Version = None,
    unless_leased: Annotated[bool, option("--unless-leased", "Not while a consumer leases it (exit 4).")] = False,
    yes: opt.Yes = False,
) -> None:
    """Remove one live message.

    Delayed, ready or leased; a lease on it is lost, and a worker cancels the handler that runs for it at its next
    heartbeat. If it changes before you confirm, it is not dropped.
    """
    with cli.open() as app:
        handle = app.queue(queue, bytes)
        message = handle.read(key)
        if message is None:
            raise _missing(queue, key)
        if version is not None and message.version != version:
            raise _changed(key, message.version)
        if not yes:
            due = views.due(message.due_at, now_of(app))
            cli.confirm(f"Drop {key!r} of queue {queue}, {message.state.value}, due {due}?", yes=False)
            version = message.version
        if not handle.drop(key, version=version, unless_leased=unless_leased):
            current = handle.read(key)
            if current is None:
                raise _missing(queue, key)
            if unless_leased and version in (None, current.version):
                raise Conflicting(f"{key!r} is leased; it was not dropped", hint="leave out --unless-leased")
            raise _changed(key, current.version)
    cli.printer.record(
        "tarry.message.drop/1",
        {"queue": queue, "key": key, "version": message.version if version is None else version, "dropped": True},
        [("queue", queue), ("key", key), ("dropped", "yes")],
    )


@command("message ack", "tarry message ack orders order-17 $TOKEN")
def ack(cli: CommandSession, queue: QueueName, key: Key, token: Token) -> None:
    """Finish a leased message.

    The token comes from: tarry poll --no-ack. If the lease was lost nothing changes, and the exit code is 4.
    """
    _settle(cli, "acked", queue, key, token, lambda source, lease: source.leases.ack([lease]))


@command(
    "message nack",
    "tarry message nack orders order-17 $TOKEN --error 'no answer'",
    "tarry message nack orders order-17 $TOKEN --after 10m",
    "tarry message nack orders order-17 $TOKEN --retry-initial 1m",
)
def nack(
    cli: CommandSession,
    queue: QueueName,
    key: Key,
    token: Token,
    error: ErrorText = None,
    after: Annotated[str | None, option("--after DURATION", "Retry after this long; else by the retry policy.")] = None,
    max_attempts: Annotated[
        int | None, option("--max-attempts N", "Attempts of this policy; else the queue's.", panel="Retries")
    ] = None,
    *,
    retry: opt.RetryOptions,
) -> None:
    """Report that a leased message failed.

    It is retried by its own retry policy, else the one given here, else the queue's; or it becomes a dead letter if this
    was its last attempt.
    """
    retry_in, policy = parsed(delay, after, "--after"), retry.retry()
    if max_attempts is not None:
        if policy is None:
            raise InvalidInput("--max-attempts belongs to a retry policy: give --retry-initial, too")
        policy = replace(policy, max_attempts=max_attempts)
    _settle(
        cli,
        "nacked",
        queue,
        key,
        token,
        lambda source, lease: source.leases.nack([Failure(lease, error, retry_in)], retry=policy),
    )


@command("message touch", "tarry message touch orders order-17 $TOKEN --lease-for 5m")
def touch(cli: CommandSession, queue: QueueName, key: Key, token: Token, lease: opt.LeaseFor = None) -> None:
    """Prolong a lease, counted from now.

    For work that takes longer than its lease. An expired lease cannot be prolonged.
    """
    lease_for = parsed(duration, lease, "--lease-for")
    _settle(cli, "touched", queue, key, token, lambda source, lease: source.leases.touch([lease], lease_for))


@command(
    "message release",
    "tarry message release orders order-17 $TOKEN",
    "tarry message release orders order-17 $TOKEN --after 10m",
)
def release(
    cli: CommandSession,
    queue: QueueName,
    key: Key,
    token: Token,
    after: Annotated[str | None, option("--after DURATION", "Due after this long; default: now.")] = None,
    at: opt.At = None,
) -> None:
    """Release a leased message without counting the attempt.

    It is deliverable immediately, or at the time of --after or --at.
    """
    due = due_of(after, at)
    _settle(cli, "released", queue, key, token, lambda source, lease: source.leases.release([lease], **due))


@command("message bury", "tarry message bury orders order-17 $TOKEN --error 'no such customer'")
def bury(cli: CommandSession, queue: QueueName, key: Key, token: Token, error: ErrorText = None) -> None:
    """Make a leased message a dead letter.

    For a message that no retry can help. To deliver it again: tarry dlq redrive.
    """
    _settle(cli, "buried", queue, key, token, lambda source, lease: source.leases.bury([lease], error))


Settle = Callable[["Queue[Any]", LeaseId], list[Settled]]


def _settle(cli: CommandSession, verb: str, queue: str, key: str, token: str, settle: Settle) -> None:
    try:
        lease = LeaseId(key, UUID(token))
    except ValueError:
        raise InvalidInput(f"TOKEN must be a UUID, got {token!r:.80}", hint="tarry poll --no-ack prints it") from None
    with cli.open() as app:
        (settled,) = settle(app.queue(queue), lease)
        if settled is Settled.GONE:
            app.queues.get(queue)  # an unknown queue gives GONE, too: report a misspelled name as such
    if settled is Settled.GONE:
        raise NotFound(
            f"{key!r} is not live in queue {queue} any more: settled already, dropped or dead",
            hint=f"see its history: tarry message timeline {queue} KEY",
        )
    if settled is Settled.LEASE_LOST:
        raise Conflicting(
            f"this token no longer leases {key!r}; nothing was changed",
            hint="the lease expired and another consumer polled the message, or it was offered again",
        )
    if settled is Settled.BUSY:
        raise Conflicting(
            f"another transaction has locked {key!r}; nothing was changed",
            hint="try again: no other consumer can lease it before that transaction ends",
        )
    cli.printer.record(
        "tarry.message.settle/1",
        {"queue": queue, "key": key, "settled": settled.value, "verb": verb},
        [("queue", queue), ("key", key), ("settled", verb)],
    )


def _missing(queue: str, key: str) -> NotFound:
    return NotFound(
        f"queue {queue} has no live message with the key {key!r}",
        hint=f"see its history: tarry message timeline {queue} KEY, or tarry dlq list {queue}",
    )


def _changed(key: str, version: int) -> Conflicting:
    return Conflicting(f"{key!r} has changed: it is version {version} now; nothing was dropped")


@command(
    "message timeline",
    "tarry message timeline orders order-17",
    "tarry message timeline orders order-17 -o jsonl",
)
def timeline(
    cli: CommandSession,
    queue: QueueName,
    key: Key,
    limit: Annotated[int, option("--limit N", "The newest N events.", min=1, max=10_000)] = 1000,
) -> None:
    """Show the events of one key.

    Oldest first, each with the time since the previous event; also of finished, dropped and dead messages, for as long
    as the journal keeps them.
    """
    with cli.open() as app:
        info = app.queues.get(queue)
        live = app.queue(queue, bytes).read(key)
        events = app.store.run(app.store.journal.timeline(queue, key, limit=limit))
        now = now_of(app)
    if not events and live is None:
        off = info.settings.journal is JournalLevel.OFF
        hint = f"the journal of this queue is off: tarry queue edit {queue} --journal events" if off else None
        raise NotFound(f"queue {queue} has no events of the key {key!r}", hint=hint)
    more = {"queue": queue, "key": key, "live": None if live is None else plain(Message.of(live))}
    cli.listing(_TIMELINE, list(map(TimelineEvent, events, [None, *events])), more=more)
    cli.note(_summary(live, events, now))


def _summary(live: StoredMessage[bytes] | None, events: Sequence[Event], now: datetime) -> str:
    if live is None:
        return f"no longer live; last event {relative(events[-1].at, now)}"
    count = plural(len(events), "event") if events else "no events (the journal of this queue is off)"
    if live.state is State.LEASED and live.lease_until is not None:
        return f"{count}; leased now, until {views.due(live.lease_until, now)}"
    return f"{count}; {live.state.value} now, due {views.due(live.due_at, now)}"


def event_details(event: Event) -> str:
    """The relevant facts of an event, by its kind."""
    parts: list[str] = []
    if event.kind in _DUE_AGAIN and event.due_at:
        parts.append(f"due {relative(event.due_at, event.at)}".replace("due now", "due at once"))
    if event.kind is EventKind.LEASED and event.due_at and event.at > event.due_at:
        parts.append(f"{roughly(event.at - event.due_at)} after it was due")
    if event.attempt and event.kind is not EventKind.OFFERED:
        parts.append(f"attempt {event.attempt}")
    if event.consumer:
        parts.append(f"by {event.consumer}")
    if event.kind in (EventKind.LEASED, EventKind.TOUCHED) and event.lease_until:
        parts.append(f"leased for {roughly(event.lease_until - event.at)}")
    if event.kind is EventKind.ACKED and event.leased_at:
        parts.append(f"worked {roughly(event.at - event.leased_at)}")
    if event.size is not None and event.kind in _WITH_CONTENT:
        parts.append(plural(event.size, "byte"))
    if event.kind is EventKind.EDITED and event.detail:
        parts.append(f"changed {', '.join(event.detail.get('fields', ()))}")
    if event.error:
        parts.append(shortened(event.error.partition("\n")[0], views.PAYLOAD_WIDTH))
    return ", ".join(parts)


class TimelineEvent(NamedTuple):
    """An event, and the event before it."""

    event: Event
    before: Event | None

    @property
    def after(self) -> str:
        return "" if self.before is None else f"+{roughly(max(self.event.at - self.before.at, timedelta(0)))}"


_TIMELINE: EntityView[TimelineEvent] = entity_view(
    "tarry.event.list/1",
    "events",
    TableColumn("at (UTC)", "event.at"),
    TableColumn("after", right=True),
    TableColumn("event", "event.kind", style=_STYLES),
    TableColumn("version", "event.version", right=True),
    TableColumn("details", lambda entry: event_details(entry.event)),
    data=lambda entry: LiveEvent.of(entry.event, detail=entry.event.detail),
)
