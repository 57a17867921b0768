"""Queues: settings and message counts."""

from typing import Annotated, Any, Literal, Self

from msgspec import UNSET, Meta, UnsetType

from tarry.core import limits
from tarry.core.errors import InvalidInput
from tarry.core.journal.events import JournalLevel
from tarry.core.messages import model
from tarry.core.settings import QueueInfo, QueueSettings
from tarry.wire import base
from tarry.wire.base import At, Duration, MaxAttempts, Page, QueueName, Request, Response, data_of, same_fields

_NULLABLE = ("max_attempts", "max_depth", "description", "handler_max_attempts")


class QueueChanges(Request):
    lease_for: Duration | UnsetType | None = UNSET
    max_attempts: Annotated[
        MaxAttempts | UnsetType | None, Meta(description="null: a message is tried for as long as it fails.")
    ] = UNSET
    retry: base.RetryRequest | UnsetType | None = UNSET
    journal: Literal["off", "events", "payloads"] | UnsetType | None = UNSET
    retention_for: Duration | UnsetType | None = UNSET
    target_lag_for: Duration | UnsetType | None = UNSET
    max_depth: Annotated[
        Annotated[int, Meta(ge=1, le=limits.MAX_DEPTH)] | UnsetType | None,
        Meta(description="Live messages from which on offers of new keys are refused with 429. null: no limit."),
    ] = UNSET
    description: Annotated[str, Meta(min_length=1, max_length=limits.DESCRIPTION_LENGTH)] | UnsetType | None = UNSET
    handler_max_attempts: Annotated[
        MaxAttempts | UnsetType | None, Meta(description="Recorded by workers: the limit of their handlers.")
    ] = UNSET

    def changes(self) -> dict[str, Any]:
        """The settings named in the request."""
        changes = {name: value for name, value in same_fields(self, QueueChanges).items() if value is not UNSET}
        for name, value in changes.items():
            if value is None and name not in _NULLABLE:
                raise InvalidInput(f"{name} cannot be null: omit it to keep it as it is")
        if isinstance(self.journal, str):
            changes["journal"] = JournalLevel(self.journal)
        if isinstance(self.retry, base.RetryRequest):
            changes["retry"] = self.retry.core()
        return changes

    @classmethod
    def of(cls, settings: QueueSettings, only: frozenset[str] | None = None, /, **fields: Any) -> Self:
        """A request with all settings, or with those named in `only`."""
        named = same_fields(settings, QueueChanges)
        named |= {"retry": base.RetryRequest.of_core(settings.retry), "journal": settings.journal.value}
        return cls(**{name: value for name, value in named.items() if only is None or name in only}, **fields)


class QueueRequest(QueueChanges, kw_only=True):
    name: QueueName
    exist_ok: bool = False


class RenameRequest(Request):
    new_name: QueueName


class PurgeRequest(Request):
    confirm: Annotated[QueueName, Meta(description="The name of the queue again, since this cannot be undone.")]


class ReasonRequest(Request):
    reason: Annotated[str, Meta(max_length=limits.ERROR_LENGTH)] | None = None


class RetryPolicy(Response):
    initial_for: float
    factor: float
    cap_for: float
    jitter: float


class Queue(Response):
    name: str
    created_at: At
    updated_at: At
    paused: bool
    paused_at: At | None
    paused_reason: str | None
    lease_for: Annotated[float, Meta(description="Seconds, as all durations in responses.")]
    max_attempts: int | None
    retry: RetryPolicy
    journal: str
    retention_for: float
    target_lag_for: float
    max_depth: int | None
    description: str | None
    handler_max_attempts: int | None

    @classmethod
    def of(cls, value: QueueInfo, /, **fields: Any) -> Self:
        return super().of(value, **data_of(value.settings), **fields)

    def core(self) -> QueueInfo:
        return self.as_core(QueueInfo, settings=self.as_core(QueueSettings))


class CountedQueue(Queue):
    counts: model.Counts

    @classmethod
    def of_counted(cls, info: QueueInfo, counts: model.Counts) -> Self:
        return cls.of(info, counts=data_of(counts))


class Queues(Page, kw_only=True):
    queues: list[CountedQueue]


class Purged(Response):
    purged: int


class Deleted(Response):
    queue: str
    deleted: bool
