"""Printed forms of entities: wire form for programs, columns for people."""

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from tarry.core.dead_letters.redrive import DeadFilter, DeadGroup, RedriveJob, RedrivePhase, RedriveState
from tarry.core.messages.model import Counts, DeadLetter, StoredMessage
from tarry.core.messages.states import State
from tarry.core.settings import QueueInfo
from tarry.edges.cli.output.payloads import payload_line
from tarry.edges.cli.output.printer import Ago, Cell, EntityView, Fields, TableColumn, Value, entity_view
from tarry.edges.cli.output.text import shortened
from tarry.edges.formats import instant, length, plural, relative
from tarry.wire import dead_letters as wire
from tarry.wire.messages import Message
from tarry.wire.payload import Content
from tarry.wire.queues import CountedQueue, Queue

PAYLOAD_WIDTH = 60
_ERROR_WIDTH = 80


def due(at: datetime, now: datetime) -> str:
    return f"{instant(at)} ({relative(at, now)})"


# Queues


class CountedInfo(NamedTuple):
    """A queue and, unless it was just changed, its message counts."""

    info: QueueInfo
    counts: Counts | None = None


def _queue_data(queue: CountedInfo) -> Queue:
    return Queue.of(queue.info) if queue.counts is None else CountedQueue.of_counted(queue.info, queue.counts)


def _count(state: str) -> Callable[[CountedInfo], Value]:
    def value(queue: CountedInfo) -> Value:
        if queue.counts is None:
            return None
        count = getattr(queue.counts, state)
        return Cell(str(count), "red" if state == "dead" and count.n else "")

    return value


def _lag(queue: CountedInfo) -> Value:
    return queue.counts.lag_for if queue.counts is not None and queue.counts.ready.n else None


def _attempts(queue: CountedInfo) -> str:
    settings = queue.info.settings
    if settings.handler_max_attempts is not None:
        return f"{settings.handler_max_attempts:,} by handler"
    return "unlimited" if settings.max_attempts is None else f"{settings.max_attempts:,}"


def _depth(queue: CountedInfo) -> str | None:
    most = queue.info.settings.max_depth
    return None if most is None else f"{most:,} live messages"


def _retry(queue: CountedInfo) -> str:
    retry = queue.info.settings.retry
    growth = "" if retry.factor == 1 else f" x{retry.factor:g} up to {length(retry.cap_for)}"
    return f"{length(retry.initial_for)}{growth}"


QUEUES: EntityView[CountedInfo] = entity_view(
    "tarry.queue.list/1",
    "queues",
    TableColumn("queue", "info.name", style="bold"),
    TableColumn("delayed", _count("delayed"), right=True),
    TableColumn("ready", _count("ready"), right=True),
    TableColumn("oldest is late by", _lag, only="record"),
    TableColumn("leased", _count("leased"), right=True),
    TableColumn("dead", _count("dead"), right=True),
    TableColumn("state", lambda queue: Cell(*("paused", "yellow") if queue.info.paused else ("running", "green"))),
    TableColumn("paused at", lambda queue: queue.info.paused_at and instant(queue.info.paused_at), only="record"),
    TableColumn("paused because", lambda queue: queue.info.paused_reason or None, only="record"),
    TableColumn("lease", "info.settings.lease_for", right=True, spare=True),
    TableColumn("attempts", _attempts, right=True, spare=True),
    TableColumn("retry", _retry, spare=True),
    TableColumn("retry jitter", lambda queue: f"{queue.info.settings.retry.jitter:.0%}", only="record"),
    TableColumn("journal", "info.settings.journal", spare=True),
    TableColumn("retention", "info.settings.retention_for", only="record"),
    TableColumn("target lag", "info.settings.target_lag_for", only="record"),
    TableColumn("at most", _depth, only="record"),
    TableColumn("description", "info.settings.description", only="record"),
    TableColumn("created at", lambda queue: instant(queue.info.created_at), only="record"),
    data=_queue_data,
)


# Messages


def _payload(message: StoredMessage[bytes] | DeadLetter[bytes]) -> str:
    return payload_line(Content(message.payload, message.content_type))


def _headers(message: StoredMessage[bytes] | DeadLetter[bytes]) -> Fields:
    return [(f"header {name}", value) for name, value in sorted((message.headers or {}).items())]


def _leased(value: Callable[[StoredMessage[bytes]], Value]) -> Callable[[StoredMessage[bytes]], Value]:
    """The value if the message is leased, otherwise None."""
    return lambda message: value(message) if message.state is State.LEASED and message.lease_until is not None else None


def _origin(message: StoredMessage[bytes] | DeadLetter[bytes]) -> str | None:
    return None if message.origin is None else f"version {message.origin}"


def _first_line(text: str | None) -> str:
    return (text or "").partition("\n")[0]


_STATES = {State.DELAYED: "blue", State.READY: "green", State.LEASED: "yellow", State.DEAD: "red"}
MESSAGES: EntityView[StoredMessage[bytes]] = entity_view(
    "tarry.message.list/1",
    "messages",
    TableColumn("key", style="bold"),
    TableColumn("queue", only="record"),
    TableColumn("state", style=_STATES),
    TableColumn("due", "due_at"),
    TableColumn("created", "created_at", only="record"),
    TableColumn("priority", right=True, spare=True),
    TableColumn("attempt", right=True, spare=True, only="list"),
    TableColumn(
        "attempt", lambda message: f"{message.attempt} of {message.max_attempts or 'unlimited'}", only="record"
    ),
    TableColumn("version", right=True, spare=True),
    TableColumn("type", spare=True),
    TableColumn("header", _headers, only="record"),
    TableColumn("leased by", _leased(lambda message: message.consumer or "?"), only="record"),
    TableColumn("lease until", _leased(lambda message: message.lease_until), only="record"),
    TableColumn("redriven from", _origin, only="record"),
    TableColumn("last error", lambda message: _first_line(message.last_error) or None, only="record"),
    TableColumn("content type", lambda message: message.content_type or "application/json", only="record"),
    TableColumn("payload", lambda message: shortened(_payload(message), PAYLOAD_WIDTH), only="list"),
    TableColumn("payload", _payload, only="record"),
    data=Message.of,
)


# Dead letters and redrive jobs


def _error_lines(dead: DeadLetter[bytes]) -> Fields:
    lines = (dead.error or "").splitlines() or [""]
    return [("error" if i == 0 else "", line) for i, line in enumerate(lines)]


def filter_words(where: DeadFilter) -> str:
    parts = [
        f"group {where.fingerprint}" if where.fingerprint else "",
        f"type {where.type}" if where.type else "",
        f"key {where.key_prefix}…" if where.key_prefix else "",
        f"since {instant(where.died_from)}" if where.died_from else "",
        f"until {instant(where.died_to)}" if where.died_to else "",
        plural(len(where.versions), "version") if where.versions is not None else "",
    ]
    return ", ".join(part for part in parts if part) or "every dead letter"


def job_state(job: RedriveJob) -> Cell:
    waiting = job.state is RedriveState.RUNNING and job.phase is RedrivePhase.VERDICT
    styles = {RedriveState.RUNNING: "green", RedriveState.DONE: "", RedriveState.FAILED: "red"}
    return Cell("waiting for canaries" if waiting else job.state.value, styles.get(job.state, "yellow"))


def _canary(job: RedriveJob) -> str:
    if not job.canary:
        return "none"
    if not job.canaries:
        return f"{job.canary} first"
    return f"{len(job.canaries)} redriven first: {', '.join(job.canary_keys[:5])}"


DEAD_LETTERS: EntityView[DeadLetter[bytes]] = entity_view(
    "tarry.dead_letter.list/1",
    "dead_letters",
    TableColumn("version", right=True),
    TableColumn("key", style="bold"),
    TableColumn("queue", only="record"),
    TableColumn("died", "died_at"),
    TableColumn("attempt", right=True),
    TableColumn("reason"),
    TableColumn("group", lambda dead: dead.fingerprint or "not computed yet: tarry dlq groups", only="record"),
    TableColumn("due", "due_at", only="record"),
    TableColumn("priority", only="record"),
    TableColumn("type", only="record"),
    TableColumn("last leased by", "consumer", only="record"),
    TableColumn("redriven from", _origin, only="record"),
    TableColumn("header", _headers, only="record"),
    TableColumn("payload", _payload, only="record"),
    TableColumn("error", lambda dead: Cell(shortened(_first_line(dead.error), PAYLOAD_WIDTH), "red"), only="list"),
    TableColumn("error", _error_lines, only="record"),
    data=wire.DeadLetter.of,
)
GROUPS: EntityView[DeadGroup] = entity_view(
    "tarry.dead_group.list/1",
    "groups",
    TableColumn("group", "fingerprint", style="bold"),
    TableColumn("dead", "count", right=True),
    TableColumn("reason"),
    TableColumn("last", lambda group: Ago(group.last_died_at)),
    TableColumn("first", lambda group: Ago(group.first_died_at)),
    TableColumn(
        "attempts",
        lambda group: "-".join(map(str, sorted({group.fewest_attempts, group.most_attempts}))),
        right=True,
    ),
    TableColumn("types", lambda group: ", ".join(group.types[:3]) + (" …" if len(group.types) > 3 else "")),
    TableColumn("error", lambda group: Cell(shortened(group.pattern or "(no error text)", _ERROR_WIDTH), "red")),
)
JOBS: EntityView[RedriveJob] = entity_view(
    "tarry.redrive.list/1",
    "redrives",
    TableColumn("job", "id", right=True, style="bold"),
    TableColumn("queue"),
    TableColumn("state", job_state),
    TableColumn("redriven", lambda job: f"{job.redriven:,}", right=True, only="list"),
    TableColumn("of", "total", right=True, only="list"),
    TableColumn("redriven", lambda job: f"{job.redriven:,} of {job.total}", only="record"),
    TableColumn("skipped", lambda job: f"{job.skipped:,}", right=True),
    TableColumn("rate", lambda job: "unlimited" if job.rate is None else f"{job.rate:g}/s", right=True),
    TableColumn("canary", _canary),
    TableColumn("started", lambda job: Ago(job.created_at), only="list"),
    TableColumn("started", "created_at", only="record"),
    TableColumn("by", lambda job: job.started_by or None),
    TableColumn("which", lambda job: filter_words(job.where)),
    TableColumn("ended", "ended_at", only="record"),
    TableColumn("reason", lambda job: job.reason or None, only="record"),
)
