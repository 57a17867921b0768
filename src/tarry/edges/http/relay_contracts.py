"""Requests as Relay's clients write them: its names, seconds as numbers, and what is not known ignored."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field

from tarry.core import limits
from tarry.edges.http.contracts import MaxAttempts, Priority, QueueName, TypeName
from tarry.handles.content import Content

DEFAULT = "default"
"""The queue that is always there in Relay."""
MOST = 100
_NOBODY = UUID(int=0)


def _seconds(value: object) -> timedelta | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value <= 43_200:
        raise ValueError("a number of seconds between 1 and 43,200 (12 hours)")
    return timedelta(seconds=value)


def _token(value: object) -> UUID:
    """Any text may be sent as a token. One that we cannot have given is like one that is no longer the lease."""
    if not isinstance(value, str):
        raise ValueError("send the lock_token that came with the message")
    try:
        return UUID(value)
    except ValueError:
        return _NOBODY


Seconds = Annotated[timedelta | None, BeforeValidator(_seconds)]
Token = Annotated[UUID, BeforeValidator(_token)]
Id = Annotated[str, Field(min_length=1, max_length=1300)]
Consumer = Annotated[str, Field(min_length=1, max_length=limits.KEY_LENGTH)]
ErrorText = Annotated[str, Field(max_length=100_000)]
Place = Literal["main", "processing", "dead"]
Anywhere = Literal["main", "processing", "dead", "acknowledged", "archived"]


class Relayed(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class Enqueue(Relayed):
    type: TypeName
    payload: Any = None
    priority: Priority = 0
    ackTimeout: Seconds = None  # noqa: N815 - as Relay writes it
    maxAttempts: MaxAttempts | None = None  # noqa: N815
    queue: QueueName = DEFAULT

    def content(self) -> Content:
        return Content.of_value(self.payload)


class Imported(Enqueue):
    """As an enqueue writes it, or as an export has it."""

    type: TypeName = "default"
    payload: Any = Field(default_factory=dict[str, Any])
    payload_base64: str | None = None
    ackTimeout: Seconds = Field(  # noqa: N815
        default=None, validation_alias=AliasChoices("ackTimeout", "custom_ack_timeout", "ack_timeout_seconds")
    )
    maxAttempts: MaxAttempts | None = Field(  # noqa: N815
        default=None, validation_alias=AliasChoices("maxAttempts", "custom_max_attempts", "max_attempts")
    )
    queue: QueueName = Field(default=DEFAULT, validation_alias=AliasChoices("queue", "queue_name"))

    def content(self) -> Content:
        if self.payload_base64 is None:
            return super().content()
        return Content.of_base64(self.payload_base64, "application/octet-stream")


class Ack(Relayed):
    id: Id
    lock_token: Token


class AckBatch(Relayed):
    acks: Annotated[list[Ack], Field(min_length=1, max_length=MOST)]


class Nack(Relayed):
    lock_token: Token
    errorReason: ErrorText | None = None  # noqa: N815
    error: ErrorText | None = Field(default=None, description="What Relay's documents call errorReason.")


class NackOne(Relayed):
    id: Id
    lock_token: Token
    error: ErrorText | None = None


class NackBatch(Relayed):
    nacks: Annotated[list[NackOne], Field(min_length=1, max_length=MOST)]


class Touch(Relayed):
    lock_token: Token
    extend_seconds: Seconds = None


class Edit(Relayed):
    type: TypeName | None = None
    payload: Any = None
    priority: Priority = 0


class Ids(Relayed):
    messageIds: Annotated[list[Id], Field(min_length=1, max_length=1_000)]  # noqa: N815


class Moved(Relayed):
    """A message as it is shown; only its id counts."""

    id: Id


class Move(Relayed):
    messages: Annotated[list[Id | Moved], Field(min_length=1, max_length=1_000)]
    fromQueue: Anywhere  # noqa: N815
    toQueue: Anywhere  # noqa: N815
    errorReason: Annotated[str, Field(max_length=2_000)] | None = None  # noqa: N815


class QueueChanges(Relayed):
    ack_timeout_seconds: Seconds = None
    max_attempts: MaxAttempts | None = None


class NewQueue(QueueChanges):
    name: QueueName
    queue_type: Literal["standard"] = "standard"


class Purge(Relayed):
    status: Literal["queued", "processing", "dead", "acknowledged", "archived", "all"] = "all"


class Rename(Relayed):
    newName: QueueName  # noqa: N815
