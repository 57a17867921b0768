"""Dead letters, their groups, and redrive jobs."""

from datetime import timedelta
from typing import Annotated, cast
from uuid import uuid4

from msgspec import Meta

from tarry.core import limits
from tarry.core.dead_letters import redrive
from tarry.core.dead_letters.redrive import FASTEST, MOST_CANARIES, SLOWEST, DeadFilter, Where
from tarry.core.messages import model
from tarry.wire.base import (
    MOST,
    At,
    Duration,
    Instant,
    Key,
    MaxAttempts,
    Page,
    QueueName,
    Request,
    RequestId,
    Response,
    TypeName,
    Version,
    same_fields,
)
from tarry.wire.payload import MessageFields

Versions = Annotated[list[Version], Meta(min_length=1, max_length=MOST)]
Fingerprint = Annotated[str, Meta(max_length=100)]
Rate = Annotated[float, Meta(ge=SLOWEST, le=FASTEST)]
Canary = Annotated[int, Meta(ge=0, le=MOST_CANARIES, description="This many first; the rest when those are settled.")]
StopAbove = Annotated[float, Meta(ge=0, lt=1)]
Consumer = Annotated[str, Meta(min_length=1, max_length=limits.KEY_LENGTH)]


class RedriveRequest(Request):
    versions: Annotated[Versions | None, Meta(description="These; else the oldest.")] = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1_000


class StartRedriveRequest(Request):
    """Options of a redrive job. Without a filter it redrives all dead letters of the queue."""

    fingerprint: Annotated[Fingerprint | None, Meta(description="Of a group.")] = None
    type: TypeName | None = None
    key_prefix: Key | None = None
    died_from: Instant | None = None
    died_to: Instant | None = None
    versions: Annotated[list[Version], Meta(max_length=MOST)] | None = None
    rate: Annotated[Rate | None, Meta(description="Messages per second; else as fast as possible.")] = None
    canary: Canary = 0
    jitter: Annotated[Duration | None, Meta(description="Each becomes due at a random time within this.")] = None
    stop_above: Annotated[StopAbove | None, Meta(description="Pause if more than this share died again.")] = None
    max_attempts: Annotated[MaxAttempts | None, Meta(description="Of each; else as before it died.")] = None
    target: Annotated[QueueName | None, Meta(description="Another queue to which they go; else their own.")] = None
    after: Annotated[Duration | None, Meta(description="The first one is redriven this much later.")] = None
    started_by: Annotated[Consumer | None, Meta(description="The consumer that starts it; else the key.")] = None
    request: Annotated[RequestId | None, Meta(description="A request with the same id is the same job.")] = None

    def core(self, started_by: str) -> redrive.RedriveOptions:
        return redrive.RedriveOptions(
            **same_fields(self, redrive.RedriveOptions, "after", "jitter", "started_by", "request"),
            where=DeadFilter.of(cast("Where", same_fields(self, DeadFilter))),
            jitter=self.jitter or timedelta(0),
            after=self.after or timedelta(0),
            started_by=started_by,
            request=self.request or uuid4(),
        )


class DeadLetter(MessageFields, kw_only=True):
    created_at: At
    died_at: At
    reason: str
    error: str | None
    fingerprint: str | None
    consumer: str | None
    origin: Annotated[int | None, Meta(description="The version it was redriven from, if it died before.")]

    def core(self) -> model.DeadLetter[bytes]:
        return self.core_with_content(model.DeadLetter[bytes])


class DeadLetters(Page, kw_only=True):
    dead_letters: list[DeadLetter]


class DeadGroups(Response):
    groups: list[redrive.DeadGroup]


class Redrives(Response):
    redrives: list[Annotated[redrive.RedriveJob, Meta(title="Redrive")]]


class Redriven(Response):
    redriven: int


class Discarded(Response):
    discarded: int
