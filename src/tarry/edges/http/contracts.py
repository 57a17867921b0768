"""What requests and answers look like. Unknown fields are refused, and nothing is taken for what it is not."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, Self, cast
from uuid import UUID

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from tarry.core import limits
from tarry.core.errors import InvalidInput
from tarry.core.messages import Conflict
from tarry.core.retry import Retry
from tarry.edges.times import duration, moment

MOST = 1_000
"""Messages in one batch, rows on one page."""
MOST_ERRORS = 1_000
"""Errors of one request that are listed."""


def _duration(value: object) -> timedelta:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise InvalidInput('write a duration as seconds (90, 1.5) or as text ("10m", "PT10M")')
    if isinstance(value, str):
        return duration(value, "this")
    if not 0 <= value <= limits.LONGEST_DELAY.total_seconds():
        raise InvalidInput("a duration is between 0 seconds and 10 years")
    return timedelta(seconds=value)


def instant(value: object) -> datetime:
    found = moment(value, "this") if isinstance(value, str) and not value.startswith("+") else None
    if not isinstance(found, datetime):
        raise InvalidInput("write an instant in RFC 3339 with its zone: 2030-01-31T18:00:00Z")
    return found


def _few_headers(value: Any) -> Any:
    """Before each of them is validated."""
    if isinstance(value, dict) and (n := len(cast("dict[Any, Any]", value))) > limits.HEADER_BYTES:
        raise InvalidInput(f"{n:,} headers have more than the {limits.HEADER_BYTES:,} bytes that are allowed")
    return cast("Any", value)


def _uuid(value: object) -> UUID:
    try:
        found = UUID(value) if isinstance(value, str) else None
    except ValueError:
        found = None
    if found is None or str(found) != value:
        raise InvalidInput("this is a UUID, in lower case; a lock_token is copied from a delivery, as it is")
    return found


Duration = Annotated[
    timedelta,
    BeforeValidator(_duration),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0, "maximum": 315_619_200},
                {"type": "string", "pattern": "^[0-9]{1,6}(ms|s|m|h|d)$"},
            ],
            "examples": [90, "10m"],
        }
    ),
]
Instant = Annotated[
    datetime,
    BeforeValidator(instant),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2030-01-31T18:00:00.000000Z"]}),
]
LockToken = Annotated[
    UUID,
    BeforeValidator(_uuid),
    WithJsonSchema({"type": "string", "format": "uuid", "description": "From a delivery."}),
]
RequestName = Annotated[UUID, BeforeValidator(_uuid), WithJsonSchema({"type": "string", "format": "uuid"})]
Key = Annotated[str, Field(min_length=1, max_length=limits.KEY_LENGTH, examples=["order-17"])]
TypeName = Annotated[str, Field(min_length=1, max_length=limits.TYPE_LENGTH, examples=["invoice"])]
NAME_PATTERN = r"^(\.{0,2}[A-Za-z0-9_-]|\.{3})[A-Za-z0-9._-]*$"
"""As `limits.check_queue_name` allows it: neither `.` nor `..`. Without look-ahead, which pydantic does not have."""
QueueName = Annotated[str, Field(pattern=NAME_PATTERN, max_length=100, examples=["orders"])]
ContentType = Annotated[str, Field(pattern=r"^[A-Za-z0-9.+-]{1,60}/[A-Za-z0-9.+-]{1,60}$")]
Priority = Annotated[int, Field(ge=0, le=9)]
MaxAttempts = Annotated[int, Field(ge=1, le=limits.MAX_ATTEMPTS)]
Version = Annotated[int, Field(ge=1, le=2**63 - 1)]
Versions = Annotated[list[Version], Field(min_length=1, max_length=MOST)]
Id = Annotated[str, Field(min_length=1, max_length=1300, examples=["b3JkZXJzL29yZGVyLTE3"])]
Headers = Annotated[dict[str, str], BeforeValidator(_few_headers)]
ErrorText = Annotated[str, Field(max_length=100_000)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="wrap")
    @classmethod
    def _with_few_errors(cls, value: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Replace a long list of errors by one: listing 100,000 takes more than half a second of the event loop."""
        if isinstance(value, dict) and (members := len(cast("dict[Any, Any]", value))) > len(cls.model_fields) + 20:
            raise InvalidInput(f"it has {members:,} fields, and only {len(cls.model_fields)} are known")
        try:
            return handler(value)
        except ValidationError as error:
            if error.error_count() > MOST_ERRORS:
                raise InvalidInput(f"{error.error_count():,} fields are wrong") from None
            raise


def clipped(text: str) -> str:
    """Why somebody did something, fit to be stored."""
    return limits.clip_error(text)


class RetryPolicy(Strict):
    initial_for: Duration = timedelta(seconds=1)
    factor: Annotated[float, Field(ge=1, le=10)] = 2.0
    cap_for: Duration = timedelta(minutes=10)
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.1

    def retry(self, max_attempts: int | None = None) -> Retry:
        return Retry(
            initial_for=self.initial_for,
            factor=float(self.factor),
            cap_for=self.cap_for,
            jitter=float(self.jitter),
            max_attempts=max_attempts,
        )


class ConsumerRetryPolicy(RetryPolicy):
    """Of this consumer, in place of the queue's. What a message says for itself wins."""

    max_attempts: MaxAttempts | None = None


class OfferRequest(Strict):
    payload: Any = Field(default=None, description="Any JSON. A string is stored as text.")
    payload_base64: str | None = Field(default=None, description="Instead of payload: bytes, with their content_type.")
    content_type: ContentType | None = None
    key: Key | None = Field(default=None, description="Generated where absent.")
    at: Instant | None = None
    delay: Duration | None = None
    priority: Priority = 0
    type: TypeName | None = None
    headers: Headers | None = None
    max_attempts: MaxAttempts | None = None
    lease_for: Duration | None = None
    retry: RetryPolicy | None = None
    on_conflict: Literal["replace", "keep", "earliest", "debounce"] = "replace"
    max_wait: Duration | None = Field(default=None, description="For debounce: never pushed back further than this.")

    @model_validator(mode="after")
    def _consistent(self) -> OfferRequest:
        given = self.model_fields_set
        if ("payload" in given) == (self.payload_base64 is not None):
            raise InvalidInput("give a payload, or a payload_base64, and not both")
        if self.content_type is not None and self.payload_base64 is None:
            raise InvalidInput("content_type goes with payload_base64; a payload is JSON, or text if it is a string")
        if self.at is not None and self.delay is not None:
            raise InvalidInput("give either at or delay, not both")
        if (self.on_conflict == "debounce") != (self.max_wait is not None):
            raise InvalidInput("max_wait goes with on_conflict debounce, and debounce needs it")
        return self

    def conflict(self) -> Conflict:
        if self.max_wait is not None:
            return Conflict.debounce(self.max_wait)
        return {"replace": Conflict.replace, "keep": Conflict.keep, "earliest": Conflict.earliest}[self.on_conflict]()


class EditRequest(Strict):
    """What is not named stays as it is; `null` takes a type, headers, or a wish of the message's own away."""

    payload: Any = None
    payload_base64: str | None = None
    content_type: ContentType | None = None
    at: Instant | None = None
    delay: Duration | None = None
    priority: Priority | None = None
    type: TypeName | None = None
    headers: Headers | None = None
    max_attempts: MaxAttempts | None = None
    lease_for: Duration | None = None
    retry: RetryPolicy | None = None

    @model_validator(mode="after")
    def _consistent(self) -> EditRequest:
        given = self.model_fields_set
        if not given:
            raise InvalidInput("nothing is to change: name at least one field")
        for name in ("payload_base64", "content_type", "at", "delay", "priority"):
            if name in given and getattr(self, name) is None:
                raise InvalidInput(f"{name} cannot be null: leave it away to keep it as it is")
        if "payload" in given and "payload_base64" in given:
            raise InvalidInput("give a payload, or a payload_base64, and not both")
        if "content_type" in given and "payload_base64" not in given:
            raise InvalidInput("content_type goes with payload_base64; a payload is JSON, or text if it is a string")
        if "at" in given and "delay" in given:
            raise InvalidInput("give either at or delay, not both")
        return self


class OfferBatch(Strict):
    messages: Annotated[list[OfferRequest], Field(min_length=1, max_length=MOST)]


class PollRequest(Strict):
    max: Annotated[int, Field(ge=1, le=MOST)] = 1
    wait: Duration = Field(default=timedelta(0), description="How long to wait for a first message: at most 60 s.")
    lease_for: Duration | None = None
    type: TypeName | None = None
    consumer: Annotated[str, Field(min_length=1, max_length=limits.KEY_LENGTH)] | None = None
    max_attempts: MaxAttempts | None = Field(default=None, description="In place of the queue's; a message's own wins.")
    lowest_first: bool = Field(default=False, description="Now and then, so that nothing starves.")


class SettleRequest(Strict):
    lock_token: LockToken


class NackRequest(SettleRequest):
    error: ErrorText | None = None
    delay: Duration | None = Field(default=None, description="Else the retry policy decides.")
    retry: ConsumerRetryPolicy | None = None


class TouchRequest(SettleRequest):
    extend_seconds: Duration | None = Field(default=None, description="From now; else as long as the lease was.")


class ReleaseRequest(SettleRequest):
    at: Instant | None = None
    delay: Duration | None = Field(default=None, description="Else it is deliverable at once.")


class BuryRequest(SettleRequest):
    error: ErrorText | None = None
    reason: Literal["buried", "undecodable"] = "buried"


class Settle(SettleRequest):
    id: Id


class Nack(SettleRequest):
    id: Id
    error: ErrorText | None = None
    delay: Duration | None = None


class SettleBatch(Strict):
    messages: Annotated[list[Settle], Field(min_length=1, max_length=MOST)]


class NackBatch(Strict):
    messages: Annotated[list[Nack], Field(min_length=1, max_length=MOST)]
    retry: ConsumerRetryPolicy | None = None


class ReleaseBatch(SettleBatch):
    at: Instant | None = None
    delay: Duration | None = None


class TouchBatch(SettleBatch):
    extend_seconds: Duration | None = None


class BuryBatch(SettleBatch):
    error: ErrorText | None = None
    reason: Literal["buried", "undecodable"] = "buried"


class QueueChanges(Strict):
    lease_for: Duration | None = None
    max_attempts: MaxAttempts | None = Field(
        default=None, description="null: a message is tried for as long as it fails."
    )
    retry: RetryPolicy | None = None
    journal: Literal["off", "events", "payloads"] | None = None
    retention_for: Duration | None = None
    target_lag_for: Duration | None = None


class QueueRequest(QueueChanges):
    name: QueueName
    exist_ok: bool = False


class RenameRequest(Strict):
    new_name: QueueName


class PurgeRequest(Strict):
    confirm: QueueName = Field(description="The name of the queue again, since this cannot be undone.")


class ReasonRequest(Strict):
    reason: Annotated[str, Field(max_length=limits.ERROR_LENGTH)] | None = None


class KeyRequest(Strict):
    name: Annotated[str, Field(min_length=1, max_length=limits.TYPE_LENGTH)]
    actions: Annotated[list[Literal["read", "produce", "consume", "admin"]], Field(min_length=1, max_length=4)]
    queues: Annotated[
        list[Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{0,100}\*?$", min_length=1)]],
        Field(min_length=1, max_length=100),
    ] = ["*"]
    expires_for: Duration | None = None
