"""Messages: offered (`Message`, `Draft`), stored (`StoredMessage`, `DeadLetter`) and leased (`Lease`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Annotated, Generic, Literal, NamedTuple, TypedDict, TypeVar, cast
from uuid import UUID

import msgspec
from msgspec import Meta

from tarry.core import limits
from tarry.core.errors import InvalidInput
from tarry.core.messages.retry import Retry
from tarry.core.messages.states import State

P = TypeVar("P")
Q = TypeVar("Q")

Decode = Callable[[bytes, str | None], P]
"""Payload bytes and content type (None is JSON) to a value; raises `InvalidPayload`."""


BuryReason = Literal["buried", "undecodable"]
"""Why a consumer buries a message: by choice, or because it cannot decode the payload."""

TRACE_HEADERS = ("traceparent", "tracestate")
"""Trace context of the offer. Not compared: an identical offer in another trace changes nothing."""


class ConflictRule(Enum):
    REPLACE = "replace"
    KEEP = "keep"
    EARLIEST = "earliest"
    DEBOUNCE = "debounce"


CONFLICT_CODES = {ConflictRule.REPLACE: 0, ConflictRule.KEEP: 1, ConflictRule.EARLIEST: 2, ConflictRule.DEBOUNCE: 3}
"""The stored numbers, which SQL compares (messages/sql/_conflict.sql)."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Conflict policy: the effect of an offer whose key is live."""

    rule: ConflictRule
    max_wait: timedelta | None = None

    def __post_init__(self) -> None:
        if (self.rule is ConflictRule.DEBOUNCE) != (self.max_wait is not None):
            raise InvalidInput("only debounce has max_wait, and needs it: Conflict.debounce(max_wait)")

    @classmethod
    def replace(cls) -> Conflict:
        """The last offer replaces the live message (the default)."""
        return REPLACE

    @classmethod
    def keep(cls) -> Conflict:
        """The live message stays: offer if absent."""
        return KEEP

    @classmethod
    def earliest(cls) -> Conflict:
        """The offer replaces the live message only if it is due earlier."""
        return EARLIEST

    @classmethod
    def debounce(cls, max_wait: timedelta) -> Conflict:
        """Each offer replaces and postpones the live message, at most until `max_wait` after the first offer."""
        return cls(ConflictRule.DEBOUNCE, limits.check_delay(max_wait, "max_wait"))


REPLACE = Conflict(ConflictRule.REPLACE)
KEEP = Conflict(ConflictRule.KEEP)
EARLIEST = Conflict(ConflictRule.EARLIEST)


class Message(msgspec.Struct, Generic[P], frozen=True, kw_only=True):
    """One message for `offer_many`. Without `at` and `after` it is due now; without `key` it gets a generated one.

    Messages, drafts and leases are structs: creating one takes a fifth of the time of a frozen dataclass."""

    payload: P
    key: str | None = None
    at: datetime | None = None
    after: timedelta | None = None
    priority: int = 0
    type: str | None = None
    headers: Mapping[str, str] | None = None
    lease_for: timedelta | None = None
    max_attempts: int | None = None
    retry: Retry | None = None
    conflict: Conflict = REPLACE


class Draft(msgspec.Struct, frozen=True, gc=False):
    """A validated and encoded message. With `due_at`, `after` is zero; it is counted from the store's clock."""

    key: str
    payload: bytes
    content_type: str | None = None
    due_at: datetime | None = None
    after: timedelta = timedelta(0)
    priority: int = 0
    type: str | None = None
    headers: Mapping[str, str] | None = None
    lease_for: timedelta | None = None
    max_attempts: int | None = None
    retry: Retry | None = None
    conflict: Conflict = REPLACE
    fresh: bool = False
    """The key was just generated, so no conflict is possible."""


class LeaseId(msgspec.Struct, frozen=True, order=True, gc=False):
    """The right to settle one message: its key and the token of its lease.

    Not tracked by the garbage collector, since it contains no references: a batch creates thousands."""

    key: str
    token: UUID


class Failure(NamedTuple):
    """One nack: the lease, the error and the time of the retry: an instant, a delay, or by the retry policy."""

    lease_id: LeaseId
    error: str | None = None
    after: timedelta | None = None
    due_at: datetime | None = None


class Lease(msgspec.Struct, Generic[P], frozen=True):
    """A leased message, with the token that settles this version of it."""

    key: str
    payload: P
    version: int
    token: UUID
    attempt: int
    priority: int
    due_at: datetime
    lease_until: datetime
    leased_at: datetime
    type: str | None = None
    headers: Mapping[str, str] | None = None
    content_type: str | None = None

    @property
    def lease_id(self) -> LeaseId:
        return LeaseId(self.key, self.token)

    @property
    def redelivered(self) -> bool:
        return self.attempt > 1

    def decoded(self, payload: Q) -> Lease[Q]:
        """The same lease with a decoded payload."""
        return cast("Lease[Q]", msgspec.structs.replace(self, payload=payload))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptMessage(Generic[P]):
    """The fields of both live messages and dead letters."""

    queue: str
    key: str
    payload: P
    version: int
    attempt: int
    priority: int
    due_at: datetime
    created_at: datetime
    consumer: str | None = None
    type: str | None = None
    headers: Mapping[str, str] | None = None
    content_type: str | None = None
    origin: int | None = None
    """The version of the dead letter it was redriven from; its history is in the timeline of the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage(KeptMessage[P]):
    """A live message as `read` returns it, without a lease. Operations on it compare its `version`."""

    state: State
    leased_at: datetime | None = None
    lease_until: datetime | None = None
    max_attempts: int | None = None
    """The effective limit: the message's own, else the queue's."""
    last_error: str | None = None
    own_max_attempts: int | None = None
    """The message's own setting, like the next two; None: the queue's applies."""
    lease_for: timedelta | None = None
    retry: Retry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter(KeptMessage[P]):
    """A message that was buried, ran out of attempts or could not be decoded. Identified by `version`; keys may repeat."""

    died_at: datetime
    reason: str
    error: str | None = None
    fingerprint: str | None = None
    """Equal for similar errors. None until the groups of dead letters are computed."""


class MessagePosition(NamedTuple):
    """The position of a message in due order, for paging."""

    due_at: datetime
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A filter of live messages; `after` is the position where the page before ended."""

    after: MessagePosition | None = None
    type: str | None = None
    priority: int | None = None
    key_prefix: str | None = None
    payloads: bool = True
    """False: payloads are not read, and empty. A broker's HTTP API ignores it."""


EVERYTHING = Filter()


class PollArguments(TypedDict, total=False):
    """Options of a poll that a caller may give."""

    type: str | None
    lease_for: timedelta | None
    max_attempts: int | None
    """Overrides the queue's, but not a message's own."""
    lowest_first: bool
    """Start with the lowest priority: used now and then, it keeps a flood of important messages from starving the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PollOptions:
    """`PollArguments`, validated, and the name of the consumer."""

    type: str | None = None
    lease_for: timedelta | None = None
    consumer: str | None = None
    max_attempts: int | None = None
    lowest_first: bool = False

    def __post_init__(self) -> None:
        limits.check_type(self.type)
        limits.check_max_attempts(self.max_attempts)
        if self.lease_for is not None:
            limits.check_lease_for(self.lease_for)


DEFAULT_POLL = PollOptions()


_LAG = "For how long the oldest deliverable message has been due; zero if there is none."


@dataclass(frozen=True, slots=True, order=True)
class Counted:
    """A count that stops at a limit, so that counting never slows the queue down; `capped`: there are at least `n`."""

    n: int
    capped: Annotated[bool, Meta(description="There are more: counting stops at a limit.")] = False

    @classmethod
    def up_to(cls, limit: int, n: int) -> Counted:
        return cls(min(n, max(limit, 0)), capped=n > limit)

    def __str__(self) -> str:
        return f"{self.n:,}+" if self.capped else f"{self.n:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    delayed: Counted = field(default=Counted(0))
    ready: Counted = field(default=Counted(0))
    leased: Counted = field(default=Counted(0))
    dead: Counted = field(default=Counted(0))
    lag_for: Annotated[timedelta, Meta(extra_json_schema={"type": "number", "description": _LAG})] = timedelta(0)
