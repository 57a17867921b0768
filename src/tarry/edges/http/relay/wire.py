"""JSON of Relay's routes, with Relay's names: instants in whole seconds since 1970, the end of a lease in ISO 8601.

Unknown request fields are ignored, as in Relay.
"""

import re
from datetime import datetime, timedelta
from functools import cached_property
from typing import Annotated, Any, Literal, cast
from uuid import UUID

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from tarry.api.delivery import AsyncDelivery
from tarry.core import limits
from tarry.core.analytics.anomalies import Anomaly, Severity
from tarry.core.journal.events import Event, EventKind
from tarry.core.messages.model import Counts, DeadLetter, Message, StoredMessage
from tarry.core.messages.states import State
from tarry.core.settings import QueueInfo
from tarry.edges.formats import exact
from tarry.edges.http.problems import Problem
from tarry.wire.base import NAME_PATTERN, read_instant
from tarry.wire.ids import MessageId
from tarry.wire.payload import Content

DEFAULT_QUEUE = "default"
"""The queue that always exists in Relay."""
BATCH_LIMIT = 100
ENQUEUE_LIMIT = 1_000
LONGEST_LEASE_S = 43_200
_NO_TOKEN = UUID(int=0)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
AnyMessage = StoredMessage[Any] | DeadLetter[Any]


def _seconds(value: object) -> timedelta | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value <= LONGEST_LEASE_S:
        raise ValueError("must be a number of seconds between 1 and 43,200 (12 hours)")
    return timedelta(seconds=value)


def _token(value: object) -> UUID:
    """Any text is accepted: an invalid token is treated like the token of a lost lease."""
    if not isinstance(value, str):
        raise ValueError("send the lock_token that came with the message")
    try:
        return UUID(value)
    except ValueError:
        return _NO_TOKEN


def _whole(value: object) -> object:
    """JavaScript has one type of number, so 3.0 is an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _instant(value: object) -> datetime:
    """A date alone is its midnight in UTC, as in JavaScript."""
    return read_instant(f"{value}T00:00:00Z" if isinstance(value, str) and _DATE.fullmatch(value) else value)


def _id(value: Any) -> Any:
    """The id of a listed message, or the id itself."""
    return cast("dict[str, Any]", value).get("id") if isinstance(value, dict) else value


QueueName = Annotated[str, Field(pattern=NAME_PATTERN, max_length=100)]
TypeName = Annotated[str, Field(min_length=1, max_length=limits.TYPE_LENGTH)]
Priority = Annotated[int, Field(ge=0, le=9), BeforeValidator(_whole)]
MaxAttempts = Annotated[int, Field(ge=1, le=limits.MAX_ATTEMPTS), BeforeValidator(_whole)]
Seconds = Annotated[timedelta | None, BeforeValidator(_seconds)]
Token = Annotated[UUID, BeforeValidator(_token)]
Id = Annotated[str, Field(min_length=1, max_length=1300)]
IdOfMessage = Annotated[Id, BeforeValidator(_id)]
ErrorText = Annotated[str, Field(max_length=100_000)]
SearchText = Annotated[str, Field(min_length=1, max_length=200)]
Timestamp = Annotated[float, Field(ge=0, le=253_402_300_799, allow_inf_nan=False)]
Instant = Annotated[datetime, BeforeValidator(_instant)]
QueueType = Literal["main", "processing", "dead"]
SortColumn = Literal["created_at", "priority", "attempt_count", "type", "id", "consumer_id", "payload", "dequeued_at"]
AnyQueueType = Literal["main", "processing", "dead", "acknowledged", "archived"]


class RelayRequest(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class Enqueue(RelayRequest):
    type: TypeName
    payload: Any = None
    priority: Priority = 0
    ackTimeout: Seconds = None  # noqa: N815 - the name in Relay
    maxAttempts: MaxAttempts | None = None  # noqa: N815
    queue: QueueName = DEFAULT_QUEUE

    def core(self) -> Message[Content]:
        return Message(
            payload=self.content(),
            type=self.type,
            priority=self.priority,
            lease_for=self.ackTimeout,
            max_attempts=self.maxAttempts,
        )

    def content(self) -> Content:
        return Content.of_value(self.payload)


class ImportedMessage(Enqueue):
    """A message of an import: with the fields of an enqueue, or with those of an export."""

    type: TypeName = "default"
    payload: Any = Field(default_factory=dict[str, Any])
    payload_base64: str | None = None
    ackTimeout: Seconds = Field(  # noqa: N815
        default=None, validation_alias=AliasChoices("ackTimeout", "custom_ack_timeout", "ack_timeout_seconds")
    )
    maxAttempts: MaxAttempts | None = Field(  # noqa: N815
        default=None, validation_alias=AliasChoices("maxAttempts", "custom_max_attempts", "max_attempts")
    )
    queue: QueueName = Field(default=DEFAULT_QUEUE, validation_alias=AliasChoices("queue", "queue_name"))

    def content(self) -> Content:
        if self.payload_base64 is None:
            return super().content()
        return Content.of_base64(self.payload_base64, "application/octet-stream")


class Ack(RelayRequest):
    id: Id
    lock_token: Token


class AckBatch(RelayRequest):
    acks: Annotated[list[Ack], Field(min_length=1, max_length=BATCH_LIMIT)]


class Nack(RelayRequest):
    lock_token: Token
    errorReason: ErrorText | None = None  # noqa: N815
    error: ErrorText | None = Field(default=None, description="errorReason, by the name in Relay's documents.")


class NackItem(Ack):
    error: ErrorText | None = None


class NackBatch(RelayRequest):
    nacks: Annotated[list[NackItem], Field(min_length=1, max_length=BATCH_LIMIT)]


class Touch(RelayRequest):
    lock_token: Token
    extend_seconds: Seconds = None


class Edit(RelayRequest):
    type: TypeName | None = None
    payload: Any = None
    priority: Priority = 0


class DeleteBatch(RelayRequest):
    messageIds: Annotated[list[Id], Field(max_length=1_000)]  # noqa: N815


class Move(RelayRequest):
    messages: Annotated[list[IdOfMessage], Field(max_length=1_000)]
    fromQueue: AnyQueueType  # noqa: N815
    toQueue: AnyQueueType  # noqa: N815
    errorReason: Annotated[str, Field(max_length=2_000)] | None = None  # noqa: N815


class QueueChanges(RelayRequest):
    ack_timeout_seconds: Seconds = None
    max_attempts: MaxAttempts | None = None
    description: Annotated[str, Field(max_length=limits.DESCRIPTION_LENGTH)] | None = None

    def settings(self) -> dict[str, Any]:
        changes = {"lease_for": self.ack_timeout_seconds, "max_attempts": self.max_attempts}
        changes = {name: value for name, value in changes.items() if value is not None}
        return changes | ({"description": self.description or None} if "description" in self.model_fields_set else {})


class NewQueue(QueueChanges):
    name: QueueName
    queue_type: Literal["standard"] = "standard"


class Purge(RelayRequest):
    status: Literal["queued", "processing", "dead", "acknowledged", "archived", "all"] = "all"


class Rename(RelayRequest):
    newName: QueueName  # noqa: N815


class RelayQuery(BaseModel):
    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, given: Any) -> Any:
        """Drop parameters without a value, which forms send for empty fields."""
        return {name: value for name, value in cast("dict[str, Any]", given).items() if value != ""}


class DequeueQuery(RelayQuery):
    queue: QueueName = DEFAULT_QUEUE
    timeout: Annotated[float, Field(ge=0)] = 0
    ackTimeout: Annotated[float | None, Field(ge=1, le=LONGEST_LEASE_S)] = None  # noqa: N815
    type: SearchText | None = None
    consumerId: SearchText | None = None  # noqa: N815


class DequeueBatchQuery(DequeueQuery):
    count: Annotated[int, Field(ge=1, le=BATCH_LIMIT)]


class LogQuery(RelayQuery):
    """A page of the activity log or of the anomalies. Times are seconds since 1970."""

    queue_name: QueueName | None = None
    start_time: Timestamp | None = None
    end_time: Timestamp | None = None
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100
    offset: Annotated[int, Field(ge=0, le=10_000)] = 0


class ActivityQuery(LogQuery):
    message_id: Annotated[str | None, Field(max_length=1_300)] = None
    consumer_id: SearchText | None = None
    action: SearchText | None = None


class ConsumersQuery(RelayQuery):
    consumer_id: SearchText | None = None


class ForceQuery(RelayQuery):
    force: bool = False


class DeleteQuery(RelayQuery):
    queueType: QueueType = "main"  # noqa: N815


class StatusQuery(RelayQuery):
    include_messages: str = "true"
    queueName: QueueName | None = None  # noqa: N815


class ByDateQuery(RelayQuery):
    startTimestamp: Instant  # noqa: N815
    endTimestamp: Instant  # noqa: N815
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100


class AnomalyQuery(LogQuery):
    severity: Severity | None = None
    type: SearchText | None = None


class ExportQuery(RelayQuery):
    """Filters of a list or an export. Unknown parameters are refused: an ignored filter would show too much."""

    model_config = ConfigDict(extra="forbid")

    queueName: QueueName | None = None  # noqa: N815
    filterType: Annotated[str | None, Field(max_length=2_000, description="A comma-separated list.")] = None  # noqa: N815
    filterPriority: Annotated[int | None, Field(ge=0, le=9)] = None  # noqa: N815
    filterAttempts: Annotated[int | None, Field(ge=0, le=2**31)] = None  # noqa: N815
    startDate: Instant | None = None  # noqa: N815
    endDate: Instant | None = None  # noqa: N815
    search: SearchText | None = None
    sortBy: SortColumn = "created_at"  # noqa: N815
    sortOrder: Annotated[str, Field(pattern="^(?i:asc|desc)$")] = "desc"  # noqa: N815

    @property
    def is_filtered(self) -> bool:
        return bool(self.model_fields_set & (ExportQuery.model_fields.keys() - {"queueName", "sortBy", "sortOrder"}))

    @cached_property
    def _types(self) -> set[str]:
        return {name.strip() for name in (self.filterType or "").split(",")} - {"", "all"}

    def _finds(self, row: AnyMessage) -> bool:
        text = f"{MessageId(row.queue, row.key)} {row.key} {row.payload.decode(errors='replace')}"
        return (self.search or "").lower() in text.lower()

    def admits(self, row: AnyMessage) -> bool:
        at = row.created_at
        return (
            (not self._types or row.type in self._types)
            and self.filterPriority in (None, row.priority)
            and (self.filterAttempts is None or row.attempt >= self.filterAttempts)
            and (self.startDate is None or at >= self.startDate)
            and (self.endDate is None or at <= self.endDate)
            and (self.search is None or self._finds(row))
        )


class BrowseQuery(ExportQuery):
    page: Annotated[int, Field(ge=1)] = 1
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100

    def admits_finished(self, message: dict[str, Any]) -> bool:
        """`admits` for a message from `finished`, whose payload may be unknown."""
        text = f"{message['id']} {message['payload']}".lower()
        return (
            (not self._types or message["type"] in self._types)
            and self.filterPriority in (None, message["priority"])
            and (self.filterAttempts is None or (message["attempt_count"] or 0) >= self.filterAttempts)
            and (self.search or "").lower() in text
        )

    def sort_key(self, row: AnyMessage) -> Any:
        keys = {
            "priority": row.priority,
            "attempt_count": row.attempt,
            "type": row.type or "",
            "id": (row.queue, row.key),
            "consumer_id": row.consumer or "",
            "payload": row.payload or b"",
            "dequeued_at": seconds(getattr(row, "leased_at", None)) or 0,
        }
        return keys.get(self.sortBy, row.created_at)


_WORDS: dict[EventKind, tuple[str, str, str]] = {
    EventKind.OFFERED: ("enqueue", "enqueue", "queued"),
    EventKind.CRON_PLANNED: (EventKind.CRON_PLANNED.value, "enqueue", "queued"),
    EventKind.LEASED: ("dequeue", "dequeue", "processing"),
    EventKind.ACKED: ("acknowledge", "acknowledge", "acknowledged"),
    EventKind.NACKED: ("nack", "requeue", "queued"),
    EventKind.RELEASED: (EventKind.RELEASED.value, "requeue", "queued"),
    EventKind.EXPIRED: ("timeout_requeue", "requeue", "queued"),
    EventKind.REDRIVEN: ("move", "requeue", "queued"),
    EventKind.BURIED: ("move_to_dlq", "move_to_dlq", "dead"),
    EventKind.DROPPED: ("delete", "delete", "queued"),
    EventKind.CRON_REPLACED: (EventKind.CRON_REPLACED.value, "delete", "queued"),
    EventKind.DISCARDED: (EventKind.DISCARDED.value, "delete", "dead"),
    EventKind.QUEUE_CREATED: ("create_queue", "update", "queued"),
    EventKind.QUEUE_EDITED: ("update_queue", "update", "queued"),
    EventKind.QUEUE_RENAMED: ("rename_queue", "update", "queued"),
    EventKind.QUEUE_DELETED: ("delete_queue", "update", "queued"),
    EventKind.QUEUE_PURGED: ("purge_queue", "update", "queued"),
}
_SETTLED = frozenset({EventKind.ACKED, EventKind.NACKED, EventKind.RELEASED, EventKind.EXPIRED, EventKind.BURIED})


def problem(status: int, code: str, error: str, detail: str) -> Problem:
    """A problem with the additional fields that Relay's clients read."""
    return Problem(status, code, detail, error=error, message=detail)


def lock_lost() -> Problem:
    return problem(409, "lease_lost", "LOCK_LOST", "this lock_token is no longer the message's lock")


def not_found(status: int = 404) -> Problem:
    detail = "there is no live message with this id: it was acknowledged, or never existed"
    return problem(status, "gone", "NOT_FOUND", detail)


def delivery(
    queue: str, delivery: AsyncDelivery[Content], stored: StoredMessage[Any] | None, consumer: str | None
) -> dict[str, Any]:
    """`stored`: the message as it is now, or None if it was dropped."""
    return {
        "id": str(MessageId(queue, delivery.key)),
        "queue_name": queue,
        "type": delivery.type,
        **_payload(delivery.payload),
        "priority": delivery.priority,
        "status": "processing",
        "consumer_id": consumer,
        "attempt_count": delivery.attempt,
        "lock_token": str(delivery.token),
        "locked_until": exact(delivery.lease_until),
        "ack_timeout_seconds": round(delivery.lease_for.total_seconds()),
        "dequeued_at": seconds(delivery.leased_at),
        "created_at": None if stored is None else seconds(stored.created_at),
        "max_attempts": None if stored is None else stored.max_attempts,
        "last_error": None if stored is None else stored.last_error,
    }


def message(row: AnyMessage, *, with_payload: bool = True) -> dict[str, Any]:
    content = row.payload if isinstance(row.payload, Content) else Content(row.payload, row.content_type)
    shown = {
        "id": str(MessageId(row.queue, row.key)),
        "queue_name": row.queue,
        "type": row.type,
        **(_payload(content) if with_payload else {"payload": None, "payload_omitted": True}),
        "priority": row.priority,
        "attempt_count": row.attempt,
        "consumer_id": row.consumer,
        "created_at": seconds(row.created_at),
        **_WITHOUT_VALUE,
    }
    if isinstance(row, DeadLetter):
        return shown | {"status": "dead", "last_error": row.error or _DEATHS.get(row.reason, row.reason)}
    shown |= {
        "max_attempts": row.max_attempts,
        "ack_timeout_seconds": None if row.lease_for is None else round(row.lease_for.total_seconds()),
        "last_error": row.last_error,
    }
    if row.state is State.LEASED:
        leased = {"dequeued_at": seconds(row.leased_at), "locked_until": exact(row.lease_until)}
        return shown | {"status": "processing", **leased}
    if row.lease_until is not None:
        shown["last_error"] = "Timeout - requeued"
    return shown | {"status": "queued", "consumer_id": None}


_WITHOUT_VALUE = dict.fromkeys(
    ("lock_token", "locked_until", "dequeued_at", "acknowledged_at", "max_attempts", "ack_timeout_seconds")
)
_DEATHS = {"exhausted": "Timeout after max attempts", "buried": "Moved to dead letters"}
"""The error shown for a dead letter without one, after a nack without an error or an expired lease."""


def finished(event: Event, offered: Event | None) -> dict[str, Any]:
    """A finished message, built from its ack and, if the journal still has it, its offer."""
    detail = (None if offered is None else offered.detail) or {}
    data = None if offered is None else offered.payload
    content = {"payload": None} if data is None else _payload(Content(data, detail.get("content_type")))
    return {
        "id": _message_id(event),
        "queue_name": event.queue,
        "type": detail.get("type"),
        **content,
        "priority": event.priority,
        "status": "acknowledged",
        "attempt_count": event.attempt,
        "max_attempts": None,
        "ack_timeout_seconds": None,
        "consumer_id": event.consumer,
        "created_at": None if offered is None else seconds(offered.at),
        "dequeued_at": seconds(event.leased_at),
        "acknowledged_at": seconds(event.at),
        "lock_token": None,
        "locked_until": None,
        "last_error": None,
    }


def words(kind: EventKind) -> tuple[str, str, str]:
    """Relay's action in the activity log, and the type and status of a live event. Other kinds keep their own name, and are
    an `update` of a queued message."""
    return _WORDS.get(kind, (kind.value, "update", "queued"))


def event(event: Event, type: str | None = None) -> dict[str, Any]:
    """The fields that have a meaning here; Relay has 37, most of them always null. `type`: used if the event has none."""
    detail = event.detail or {}
    return {
        "log_id": str(event.id),
        "message_id": _message_id(event),
        "action": words(event.kind)[0],
        "timestamp": seconds(event.at),
        "queue": event.queue,
        "source_queue": detail.get("from_queue"),
        "dest_queue": detail.get("redriven_to"),
        "priority": event.priority,
        "message_type": detail.get("type") or type,
        "consumer_id": event.consumer,
        "prev_consumer_id": None,
        "attempt_count": event.attempt,
        "max_attempts": detail.get("max_attempts"),
        "time_in_queue_ms": _ms(event.due_at, event.at) if event.kind is EventKind.LEASED else None,
        "processing_time_ms": _ms(event.leased_at, event.at) if event.kind in _SETTLED else None,
        "payload_size_bytes": event.size,
        "error_reason": event.error,
        "reason": detail.get("reason"),
        "batch_id": None,
        "triggered_by": "api",
    }


def anomaly(anomaly: Anomaly) -> dict[str, Any]:
    return {
        "log_id": str(anomaly.id),
        "message_id": _message_id(anomaly),
        "timestamp": seconds(anomaly.raised_at),
        "queue": anomaly.queue,
        "consumer_id": anomaly.consumer,
        "anomaly": {
            "type": anomaly.detector,
            "severity": anomaly.severity.value,
            "description": anomaly.sentence,
            "threshold": anomaly.expected_high,
            "actual": anomaly.observed,
        },
    }


def queue(info: QueueInfo, counts: Counts) -> dict[str, Any]:
    return {
        "name": info.name,
        "queue_type": "standard",
        "ack_timeout_seconds": round(info.settings.lease_for.total_seconds()),
        "max_attempts": info.settings.max_attempts,
        "partition_interval": None,
        "retention_interval": None,
        "description": info.settings.description,
        "created_at": exact(info.created_at),
        "updated_at": exact(info.updated_at),
        "message_count": counts.delayed.n + counts.ready.n,
        "processing_count": counts.leased.n,
        "dead_count": counts.dead.n,
    }


def seconds(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp())


def _ms(start: datetime | None, end: datetime) -> int | None:
    return None if start is None else max(0, round((end - start).total_seconds() * 1000))


def _message_id(of: Event | Anomaly) -> str | None:
    return None if of.key is None else str(MessageId(of.queue, of.key))


def _payload(content: Content) -> dict[str, Any]:
    shown = content.shown()
    return {name: shown[name] for name in ("payload", "payload_base64") if name in shown}
