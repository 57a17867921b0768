"""Messages on their way in (`Message`, `Draft`), in the store (`StoredMessage`), and handed over (`Lease`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Generic, Literal, NamedTuple, TypeVar
from uuid import UUID

from tarry.core import limits
from tarry.core.errors import InvalidInput
from tarry.core.retry import Retry
from tarry.core.states import State

P = TypeVar("P")

Decode = Callable[[bytes, str | None], P]
"""Payload bytes and content type (None is JSON) to a value; raises `InvalidPayload`."""


BuryReason = Literal["buried", "undecodable"]
"""Why a holder gives a message up for good: it says so, or cannot read the payload."""

TRACE_HEADERS = ("traceparent", "tracestate")
"""Who offered, for traces. Not part of what is offered: the same message in another trace changes nothing."""


class ConflictRule(Enum):
    REPLACE = "replace"
    KEEP = "keep"
    EARLIEST = "earliest"
    DEBOUNCE = "debounce"


@dataclass(frozen=True, slots=True)
class Conflict:
    """What an offer does when its key is live already."""

    rule: ConflictRule
    max_wait: timedelta | None = None

    def __post_init__(self) -> None:
        if (self.rule is ConflictRule.DEBOUNCE) != (self.max_wait is not None):
            raise InvalidInput("max_wait belongs to debounce, and debounce needs it: Conflict.debounce(max_wait)")

    @classmethod
    def replace(cls) -> Conflict:
        """The last offer wins (the default)."""
        return REPLACE

    @classmethod
    def keep(cls) -> Conflict:
        """The first offer stays: offer if absent."""
        return KEEP

    @classmethod
    def earliest(cls) -> Conflict:
        """The offer replaces the live one only if it is due earlier."""
        return EARLIEST

    @classmethod
    def debounce(cls, max_wait: timedelta) -> Conflict:
        """Each offer replaces the last and pushes it back, but never beyond `max_wait` after the first of the row."""
        return cls(ConflictRule.DEBOUNCE, limits.check_delay(max_wait, "max_wait"))


REPLACE = Conflict(ConflictRule.REPLACE)
KEEP = Conflict(ConflictRule.KEEP)
EARLIEST = Conflict(ConflictRule.EARLIEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Generic[P]):
    """One message for `offer_many`. Without `at` and `after` it is due now; without `key` it gets a fresh one."""

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


class Draft(NamedTuple):
    """A checked and encoded message, as a store takes it. With `due_at`, `delay` is zero; it counts by the store's clock.

    Drafts and leases are tuples: a thousand at a time, they are made in a quarter of the time.
    """

    key: str
    payload: bytes
    content_type: str | None = None
    due_at: datetime | None = None
    delay: timedelta = timedelta(0)
    priority: int = 0
    type: str | None = None
    headers: Mapping[str, str] | None = None
    lease_for: timedelta | None = None
    max_attempts: int | None = None
    retry: Retry | None = None
    conflict: Conflict = REPLACE
    fresh: bool = False
    """The key was generated just now, so nothing can be in its way."""


class Hold(NamedTuple):
    """The right to settle one message: its key and the token of its lease."""

    key: str
    token: UUID


class Failure(NamedTuple):
    """One nack: what is held, why it failed, and when to try again (None: as the retry policy says)."""

    hold: Hold
    error: str | None = None
    delay: timedelta | None = None


class Lease(NamedTuple, Generic[P]):
    """What a poll hands over: a message with the token that settles this version of it, and no other."""

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
    def hold(self) -> Hold:
        return Hold(self.key, self.token)

    @property
    def redelivered(self) -> bool:
        return self.attempt > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage(Generic[P]):
    """A live message as `read` shows it: leases nothing. To act on what was seen, compare its `version`."""

    queue: str
    key: str
    payload: P
    version: int
    state: State
    attempt: int
    priority: int
    due_at: datetime
    created_at: datetime
    lease_until: datetime | None = None
    consumer: str | None = None
    type: str | None = None
    headers: Mapping[str, str] | None = None
    content_type: str | None = None
    max_attempts: int | None = None
    """What counts: its own, else the queue's."""
    last_error: str | None = None
    own_max_attempts: int | None = None
    """What it says for itself, as are the next two; None where it leaves that to the queue."""
    lease_for: timedelta | None = None
    retry: Retry | None = None
    origin: int | None = None
    """The version it was redriven from; that one is dead no longer, but its history is in the timeline of the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter(Generic[P]):
    """A message that ran out of attempts or could not be decoded. `version` names it; keys may repeat."""

    queue: str
    key: str
    payload: P
    version: int
    attempt: int
    priority: int
    due_at: datetime
    died_at: datetime
    reason: str
    error: str | None = None
    type: str | None = None
    headers: Mapping[str, str] | None = None
    content_type: str | None = None
    fingerprint: str | None = None
    """Names what it died of: the same for all that died of the same thing. None until somebody looks at the groups."""
    consumer: str | None = None
    origin: int | None = None
    """The version it was redriven from, if it died before."""


class Place(NamedTuple):
    """Where a message stands among all that are shown in due order."""

    due_at: datetime
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which messages to show: those behind `after`, of a type, of a priority, with keys that begin like this."""

    after: Place | None = None
    type: str | None = None
    priority: int | None = None
    key_prefix: str | None = None

    def admits(self, *, key: str, due_at: datetime, version: int, type: str | None, priority: int) -> bool:
        return (
            (self.after is None or (due_at, version) > self.after)
            and (self.type is None or type == self.type)
            and (self.priority is None or priority == self.priority)
            and (self.key_prefix is None or key.startswith(self.key_prefix))
        )


EVERYTHING = Filter()


class Counted(NamedTuple):
    """How many, at least: counting stops at a limit, so that looking can never hurt the queue."""

    n: int
    capped: bool = False

    def __str__(self) -> str:
        return f"{self.n:,}+" if self.capped else f"{self.n:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    delayed: Counted = field(default=Counted(0))
    ready: Counted = field(default=Counted(0))
    leased: Counted = field(default=Counted(0))
    dead: Counted = field(default=Counted(0))
    lag_for: timedelta = timedelta(0)
    """For how long the oldest message that could be delivered now has been due; nothing if there is none."""
