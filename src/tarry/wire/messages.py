"""Messages: offers, edits, deliveries, settlements, stored messages."""

import json
import re
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, Self
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tarry.core import limits
from tarry.core.durations import exact
from tarry.core.errors import InvalidInput
from tarry.core.messages import model, outcomes
from tarry.core.messages.edits import Edit
from tarry.core.messages.model import REPLACE, Conflict, ConflictRule, Draft, Failure, Lease, LeaseId
from tarry.wire import queues
from tarry.wire.base import (
    MOST,
    At,
    Duration,
    ErrorText,
    Headers,
    Instant,
    Key,
    MaxAttempts,
    Page,
    Priority,
    Request,
    Response,
    RetryRequest,
    Token,
    TypeName,
    same_fields,
)
from tarry.wire.ids import MessageId
from tarry.wire.payload import Content, MessageFields, PayloadRequest, refuse_constant

Id = Annotated[str, Meta(min_length=1, max_length=1300, examples=["b3JkZXJzL29yZGVyLTE3"])]
BuryReason = Literal["buried", "undecodable"]
Outcome = Literal["created", "updated", "ignored", "superseded"]
Settled = Literal["done", "lease_lost", "gone", "busy"]
_PROBLEM = re.compile(r"(?P<problem>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>.*)`", re.DOTALL)


class OfferRequest(PayloadRequest, kw_only=True):
    """A message to offer: the body of an offer, and a line of export and import."""

    key: Annotated[Key | None, Meta(description="Generated where absent.")] = None
    at: Instant | None = None
    after: Duration | None = None
    priority: Priority = 0
    type: TypeName | None = None
    headers: Headers | None = None
    max_attempts: MaxAttempts | None = None
    lease_for: Duration | None = None
    retry: RetryRequest | None = None
    conflict: Literal["replace", "keep", "earliest", "debounce"] = "replace"
    max_wait: Annotated[Duration | None, Meta(description="For debounce: the longest wait after the first offer.")] = (
        None
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.has_payload:
            raise InvalidInput("give a payload, or a payload_base64, and not both")
        if self.at is not None and self.after is not None:
            raise InvalidInput("give either at or after, not both")
        if (self.conflict == "debounce") != (self.max_wait is not None):
            raise InvalidInput("max_wait goes with conflict debounce, and debounce needs it")

    @classmethod
    def of(cls, draft: Draft) -> Self:
        return cls._of(
            draft,
            # The broker generates the key instead, so it knows that the key is new.
            key=None if draft.fresh else draft.key,
            after=draft.after or None,
            max_attempts=draft.max_attempts,
            conflict=draft.conflict.rule.value,
            max_wait=draft.conflict.max_wait,
            **Content(draft.payload, draft.content_type).sent(),
        )

    @classmethod
    def of_stored(cls, message: model.StoredMessage[bytes]) -> Self:
        """An offer of the same message, without its state: attempts, leases, versions."""
        content = Content(message.payload, message.content_type)
        return cls._of(message, key=message.key, max_attempts=message.own_max_attempts, **content.offered())

    @classmethod
    def _of(cls, value: Draft | model.StoredMessage[bytes], **fields: Any) -> Self:
        return cls(
            at=value.due_at,
            priority=value.priority,
            type=value.type,
            headers=None if value.headers is None else dict(value.headers),
            lease_for=value.lease_for,
            retry=None if value.retry is None else RetryRequest.of_core(value.retry),
            **fields,
        )

    def core(self) -> model.Message[Content]:
        # Field by field, as for deliveries: this runs for every offer.
        return model.Message(
            payload=self.content(),
            key=self.key,
            at=self.at,
            after=self.after,
            priority=self.priority,
            type=self.type,
            headers=self.headers,
            lease_for=self.lease_for,
            max_attempts=self.max_attempts,
            retry=self.retry and self.retry.core(),
            conflict=REPLACE if self.conflict == "replace" else Conflict(ConflictRule(self.conflict), self.max_wait),
        )

    @classmethod
    def parse_line(cls, line: bytes) -> Self:
        """A line of an import. Raises `InvalidInput` with the problem."""
        try:
            data = json.loads(line, parse_constant=refuse_constant)  # msgspec would round integers of more than 64 bits
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"not JSON: {error}"[:200]) from None
        if not isinstance(data, dict):
            raise InvalidInput(f"a line is an object, not {type(data).__name__}")
        try:
            return cls.parse(data)  # pyright: ignore[reportUnknownArgumentType]
        except msgspec.ValidationError as error:
            raise InvalidInput(_problem(str(error))) from None

    def line(self) -> bytes:
        return msgspec.json.encode(self) + b"\n"


def _problem(text: str) -> str:
    """A msgspec error with the field first: `priority: Expected …`."""
    match = _PROBLEM.fullmatch(text)
    problem, path = (text, None) if match is None else (match["problem"], match["path"])
    if unknown := _UNKNOWN.fullmatch(problem):
        problem, path = "this field is not known", ".".join(filter(None, (path, unknown["field"])))
    return f"{path[:100]}: {problem[:300]}" if path else problem[:300]


class OfferBatch(Request):
    messages: Annotated[list[OfferRequest], Meta(min_length=1, max_length=MOST)]


class EditRequest(PayloadRequest, kw_only=True):
    """Absent fields stay as they are; `null` removes a type, headers, or a setting of the message's own."""

    at: Instant | UnsetType | None = UNSET
    after: Duration | UnsetType | None = UNSET
    priority: Priority | UnsetType | None = UNSET
    type: TypeName | UnsetType | None = UNSET
    headers: Headers | UnsetType | None = UNSET
    max_attempts: MaxAttempts | UnsetType | None = UNSET
    lease_for: Duration | UnsetType | None = UNSET
    retry: RetryRequest | UnsetType | None = UNSET

    def __post_init__(self) -> None:
        if all(getattr(self, name) is UNSET for name in self.__struct_fields__):
            raise InvalidInput("nothing to change: name at least one field")
        for name in ("payload_base64", "content_type", "at", "after", "priority"):
            if getattr(self, name) is None:
                raise InvalidInput(f"{name} cannot be null: omit it to keep it as it is")
        super().__post_init__()
        if self.at is not UNSET and self.after is not UNSET:
            raise InvalidInput("give either at or after, not both")

    @classmethod
    def of(cls, edit: Edit) -> Self:
        named = edit.named - {"payload", "due_at", "retry"}
        fields: dict[str, Any] = {name: getattr(edit, name) for name in named}
        if edit.payload is not None:
            fields |= Content(edit.payload, edit.content_type).sent()
        if edit.due_at is not None:
            fields["at"] = edit.due_at
        elif edit.after is not None:
            fields["after"] = edit.after
        if "retry" in edit.named:
            fields["retry"] = edit.retry and RetryRequest.of_core(edit.retry)
        return cls(**fields)

    def changes(self) -> dict[str, Any]:
        """The arguments of `AsyncQueue.edit`."""
        named = same_fields(self, EditRequest, *PayloadRequest.__struct_fields__)
        changes = {name: value for name, value in named.items() if value is not UNSET}
        if isinstance(self.retry, RetryRequest):
            changes["retry"] = self.retry.core()
        return {**changes, "payload": self.content()} if self.has_payload else changes


class PollRequest(Request):
    max: Annotated[int, Meta(ge=1, le=MOST)] = 1
    wait: Annotated[Duration, Meta(description="How long to wait for a first message: at most 60 s.")] = timedelta(0)
    lease_for: Duration | None = None
    type: TypeName | None = None
    consumer: Annotated[str, Meta(min_length=1, max_length=limits.KEY_LENGTH)] | None = None
    max_attempts: Annotated[MaxAttempts | None, Meta(description="Overrides the queue's; a message's own wins.")] = None
    lowest_first: Annotated[bool, Meta(description="Now and then, so that nothing starves.")] = False


class ConsumerRetryPolicy(RetryRequest):
    """Of this consumer; overrides the queue's. A retry policy of the message wins."""

    max_attempts: MaxAttempts | None = None


class SettleRequest(Request):
    token: Token


class NackRequest(SettleRequest):
    error: ErrorText | None = None
    after: Annotated[Duration | None, Meta(description="Else the retry policy decides.")] = None
    retry: ConsumerRetryPolicy | None = None


class TouchRequest(SettleRequest):
    lease_for: Annotated[Duration | None, Meta(description="From now; else as long as the lease was.")] = None


class ReleaseRequest(SettleRequest):
    at: Instant | None = None
    after: Annotated[Duration | None, Meta(description="Else it is deliverable immediately.")] = None


class BuryRequest(SettleRequest):
    error: ErrorText | None = None
    reason: BuryReason = "buried"


class Settle(SettleRequest):
    id: Id

    @classmethod
    def of(cls, queue: str, lease_id: LeaseId, **fields: Any) -> Self:
        return cls(id=str(MessageId(queue, lease_id.key)), token=lease_id.token, **fields)

    def core(self) -> LeaseId:
        """The lease id; its key is empty if no message can have this id."""
        id = MessageId.parse(self.id)
        return LeaseId("" if id is None else id.key, self.token)


class Nack(Settle):
    error: ErrorText | None = None
    after: Duration | None = None
    at: Instant | None = None

    @classmethod
    def of_failure(cls, queue: str, failure: Failure) -> Self:
        error = None if failure.error is None else limits.clip_error(failure.error)
        return cls.of(queue, failure.lease_id, error=error, after=failure.after, at=failure.due_at)


class SettleBatch(Request):
    messages: Annotated[list[Settle], Meta(min_length=1, max_length=MOST)]


class NackBatch(Request):
    messages: Annotated[list[Nack], Meta(min_length=1, max_length=MOST)]
    retry: ConsumerRetryPolicy | None = None


class ReleaseBatch(SettleBatch):
    at: Instant | None = None
    after: Duration | None = None


class TouchBatch(SettleBatch):
    lease_for: Duration | None = None


class BuryBatch(SettleBatch):
    error: ErrorText | None = None
    reason: BuryReason = "buried"


class Offered(Response):
    id: str
    key: str
    outcome: Outcome

    @classmethod
    def of(cls, queue: str, key: str, outcome: outcomes.Outcome) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        return cls(id=str(MessageId(queue, key)), key=key, outcome=outcome.value)


class OfferedBatch(Response):
    messages: list[Offered]


class Edited(Response):
    id: str
    key: str
    outcome: Annotated[Literal["updated", "ignored"], Meta(description="ignored: it was so already.")]


class Settlement(Response):
    outcome: Settled


class Touched(Settlement):
    lease_until: At | None = None


class SettledOne(Settlement):
    id: str


class SettledBatch(Response):
    messages: list[SettledOne]


class Delivery(MessageFields, kw_only=True):
    id: str
    token: Annotated[UUID, Meta(extra_json_schema={"type": "string", "format": "uuid"})]
    redelivered: bool
    leased_at: At
    lease_until: At

    @classmethod
    def of(cls, queue: str, lease: Lease[Content]) -> Self:  # pyright: ignore[reportIncompatibleMethodOverride]
        # Field by field instead of `Response.of`: this runs for every delivery.
        return cls(
            id=str(MessageId(queue, lease.key)),
            queue=queue,
            key=lease.key,
            version=lease.version,
            token=lease.token,
            attempt=lease.attempt,
            redelivered=lease.redelivered,
            priority=lease.priority,
            type=lease.type,
            headers=dict(lease.headers) if lease.headers else None,
            due_at=exact(lease.due_at),
            leased_at=exact(lease.leased_at),
            lease_until=exact(lease.lease_until),
            **lease.payload.shown(),
        )

    def core(self) -> Lease[bytes]:
        data, content_type = self.content()
        due_at, lease_until, leased_at = map(datetime.fromisoformat, (self.due_at, self.lease_until, self.leased_at))
        return Lease(
            self.key, data, self.version, self.token, self.attempt, self.priority,
            due_at, lease_until, leased_at, self.type, self.headers, content_type,
        )  # fmt: skip


class Deliveries(Response):
    messages: list[Delivery]


class Message(MessageFields, kw_only=True):
    id: str
    state: Literal["delayed", "ready", "leased"]
    max_attempts: Annotated[int | None, Meta(description="The limit in force: its own, else the queue's.")]
    own_max_attempts: Annotated[int | None, Meta(description="A setting of the message; so are lease_for and retry.")]
    lease_for: float | None
    retry: queues.RetryPolicy | None
    created_at: At
    leased_at: At | None
    lease_until: At | None
    consumer: str | None
    last_error: str | None
    origin: Annotated[int | None, Meta(description="The version it was redriven from.")]

    @classmethod
    def of(cls, value: model.StoredMessage[Any], /, **fields: Any) -> Self:
        return super().of(value, id=str(MessageId(value.queue, value.key)), **fields)

    def core(self) -> model.StoredMessage[bytes]:
        return self.core_with_content(model.StoredMessage[bytes])


class Messages(Page, kw_only=True):
    messages: list[Message]


class Dropped(Response):
    dropped: int
