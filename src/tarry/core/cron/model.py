"""Stored schedules: the configuration, the planning progress, and the tick ledger.

Every change of a schedule (install, plan, pause, skip, delete) is a `ScheduleChange`: computed from the state that was
read, and applied in one transaction by compare-and-set. Several schedulers therefore need no leader: a concurrent writer
loses and retries."""

import hashlib
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from tarry.core import limits
from tarry.core.cron.schedule_types import Periodic, Schedule, Ticks, Timetable
from tarry.core.durations import length
from tarry.core.errors import InvalidInput
from tarry.core.messages.model import KEEP, Draft

NAME_LENGTH = 200
_HASH = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MOMENT = 25
"""Length of a tick in a key: yyyyMMdd-HHmmss.nnnnnnnnn"""


class Misfire(StrEnum):
    """Policy for ticks that were missed because no scheduler ran."""

    SKIP = "skip"
    ONCE = "once"
    """One tick fires for all missed ones: the next tick that is on time, otherwise the last missed tick."""
    ALL = "all"
    """All fire, except those older than the catch-up window."""


class Overlap(StrEnum):
    """Policy for a tick while the message of the tick before is still live."""

    ALLOW = "allow"
    SKIP = "skip"


class Verdict(StrEnum):
    PLANNED = "planned"
    SKIPPED = "skipped"
    WITHDRAWN = "withdrawn"
    """Its message was removed before it was delivered; the tick may be planned again."""
    TRIGGERED = "triggered"
    BACKFILLED = "backfilled"


class Reason(StrEnum):
    """Why a tick got its verdict."""

    ON_TIME = "on_time"
    LATE = "late"
    MISFIRE = "misfire"
    COALESCED = "coalesced"
    OVERLAP = "overlap"
    PAUSED = "paused"
    BY_HAND = "by_hand"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True)
class CronMessage:
    """A message for one tick, for programs that choose their own ticks. The tick `at` is part of its key; `due_at`, if
    given, is when it is delivered."""

    payload: Any
    at: datetime
    due_at: datetime | None = None


MADE = frozenset({Verdict.PLANNED, Verdict.TRIGGERED, Verdict.BACKFILLED})
"""Verdicts that create a message."""
FIRED = MADE - {Verdict.TRIGGERED}
"""Verdicts by which a regular tick created its message. The tick does not fire again, neither for another configuration
of the schedule nor after the clock was set back across it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a schedule handles late, overlapping and early ticks."""

    misfire: Misfire = Misfire.ONCE
    catch_up_for: timedelta = timedelta(days=1)
    """How old a missed tick may be to fire with `Misfire.ALL`."""
    grace_for: timedelta = timedelta(minutes=1)
    """A tick that is planned at most this late counts as on time."""
    overlap: Overlap = Overlap.ALLOW
    jitter_for: timedelta = timedelta(0)
    """Each tick is due up to this much later, by an amount that depends only on the name of the schedule and the tick."""
    in_advance_for: timedelta = timedelta(0)
    """How far ahead messages are created. The next tick always has one, unless overlaps are skipped."""
    start_at: datetime | None = None
    end_at: datetime | None = None

    def __post_init__(self) -> None:
        for name in ("catch_up_for", "grace_for", "jitter_for", "in_advance_for"):
            limits.check_delay(getattr(self, name), name)
        for name in ("start_at", "end_at"):
            if (instant := getattr(self, name)) is not None:
                object.__setattr__(self, name, limits.check_instant(instant, name))
        for name, kind in (("misfire", Misfire), ("overlap", Overlap)):
            try:
                object.__setattr__(self, name, kind(getattr(self, name)))
            except ValueError:
                allowed = ", ".join(kind)
                raise InvalidInput(f"{name} must be one of {allowed}, not {getattr(self, name)!r:.80}") from None
        if self.start_at is not None and self.end_at is not None and self.end_at < self.start_at:
            raise InvalidInput(f"end_at ({self.end_at.isoformat()}) is before start_at ({self.start_at.isoformat()})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSpec:
    """The configuration of a schedule. `payload` None: only the program that installed it can create the payloads."""

    name: str
    schedule: Schedule
    queue: str
    payload: bytes | None
    content_type: str | None = None
    priority: int = 0
    type: str | None = None
    policy: Policy = field(default_factory=Policy)
    source: str = "code"
    """Where it is defined: code, cli, or the name of a file that was applied."""

    def __post_init__(self) -> None:
        check_schedule_name(self.name)
        limits.check_queue_name(self.queue)
        limits.check_priority(self.priority)
        limits.check_type(self.type)
        if self.policy.overlap is Overlap.SKIP and self.policy.in_advance_for:
            raise InvalidInput("a tick that may be skipped for an overlap cannot be planned in advance")

    @property
    def hash(self) -> str:
        return self.schedule.config_hash

    @property
    def timetable(self) -> Timetable:
        return Timetable(self.schedule, self.policy.start_at, self.policy.end_at)

    @property
    def by_code(self) -> bool:
        return self.payload is None

    def due_at(self, tick: datetime) -> datetime:
        return tick + jitter(self.name, tick, self.policy.jitter_for)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleState:
    """A stored schedule."""

    spec: ScheduleSpec
    cursor_at: datetime
    """Every tick up to this instant has been decided."""
    wake_at: datetime | None
    """When a scheduler must plan it next. None: never, or not while it is paused."""
    generation: int = 1
    """Grows with every change of the configuration: a plan for an older generation is void."""
    revision: int = 0
    """Grows with every change."""
    decided_at: datetime
    """When it was last planned. If that is in the future, the clock was set back since."""
    installed_at: datetime
    paused_at: datetime | None = None
    paused_reason: str | None = None
    last_live: bool = False
    """Whether the last message that it created is still live. Read only if overlaps are skipped."""
    forgotten_until: datetime | None = None
    """Ledger entries up to here were deleted: those ticks do not fire again."""

    ledger: str = field(default="", compare=False, repr=False)
    """The store's id of this installation's ledger."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def paused(self) -> bool:
        return self.paused_at is not None

    def is_due(self, now: datetime) -> bool:
        """Whether a scheduler must plan it: it is due, or the clock was set back. `due.sql` has the same condition."""
        return self.wake_at is not None and (self.wake_at <= now or self.decided_at > now)


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision about one tick, or with `until` about a range of ticks that are skipped together."""

    tick: datetime
    verdict: Verdict
    reason: Reason
    until: Annotated[datetime | None, Meta(description="The last of a run of ticks that were skipped together.")] = None
    count: int | None = None
    """Number of ticks in a range; None if there are more than are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TickRecord(Decided):
    """An entry of the ledger."""

    name: str
    hash: str
    decided_at: datetime
    queue: str | None = None
    key: str | None = None
    version: int | None = None
    due_at: datetime | None = None
    live: bool = False
    ledger: str = field(default="", compare=False, repr=False)
    """As in `ScheduleState`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TickChange(Decided):
    """A new ledger entry. Its draft becomes a message, unless the ledger shows that the tick has fired."""

    hash: str
    queue: str | None = None
    draft: Draft | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleChange:
    """A change of one schedule at revision `expected`, which was read before (None: the schedule did not exist)."""

    name: str
    expected: int | None
    after: ScheduleState | None
    """The new state; None deletes the schedule. The ledger stays."""
    decided_at: datetime
    withdraw: tuple[tuple[str, datetime, Reason], ...] = ()
    """Ticks, by hash, whose messages are removed if they were never delivered."""
    ticks: tuple[TickChange, ...] = ()
    moves_only: bool = False
    """Only the planning progress changes, not the configuration: the usual change by a scheduler."""

    def by_instant(self, tick_change: TickChange) -> bool:
        """Whether the tick is suppressed if another configuration has `FIRED` at that instant. If a program chooses its own
        ticks, a tick with another hash is a different tick."""
        return (
            tick_change.verdict in FIRED and self.after is not None and not isinstance(self.after.spec.schedule, Ticks)
        )


def check_schedule_name(name: object) -> str:
    return limits.check_text(name, "the name of a schedule", NAME_LENGTH)


def check_hash(config_hash: object) -> str:
    if not isinstance(config_hash, str) or not _HASH.fullmatch(config_hash):
        raise InvalidInput(
            f"a config hash must be 1 to 64 of the characters A-Z a-z 0-9 _ . -, not {config_hash!r:.120}"
        )
    return config_hash


def tick_key(name: str, config_hash: str, tick: datetime) -> str:
    """`{name}/{hash}/{tick}`. Never parsed: name, hash and tick are columns. If it would be too long for a key, a digest
    replaces the end of the name; no name that fits is as long as the result."""
    longest = limits.KEY_LENGTH - len(config_hash) - _MOMENT - 2
    if len(name) >= longest:
        digest = hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()
        name = f"{name[: longest - len(digest) - 1]}~{digest}"
    at = tick.astimezone(UTC)
    return f"{name}/{config_hash}/{at:%Y%m%d-%H%M%S}.{at.microsecond:06d}000"


def jitter(name: str, tick: datetime, most: timedelta) -> timedelta:
    """A delay up to `most`: the same in every process and at every attempt."""
    if not most:
        return most
    seed = f"{name}\x00{tick.astimezone(UTC).isoformat()}"
    share = int.from_bytes(hashlib.md5(seed.encode(), usedforsecurity=False).digest()[:8]) / 2**64
    return timedelta(milliseconds=int(share * (most / timedelta(milliseconds=1))))


def draft_of(
    spec: ScheduleSpec, tick: datetime, payload: bytes, content_type: str | None, due_at: datetime | None = None
) -> Draft:
    return Draft(
        key=tick_key(spec.name, spec.hash, tick),
        payload=payload,
        content_type=content_type,
        due_at=spec.due_at(tick) if due_at is None else due_at,
        priority=spec.priority,
        type=spec.type,
        headers={"tarry-schedule": spec.name, "tarry-tick": tick.astimezone(UTC).isoformat()},
        conflict=KEEP,
    )


def times(schedule: Schedule) -> str:
    """The expression, the hours or the period, for display."""
    return f"every {length(schedule.every)}" if isinstance(schedule, Periodic) else schedule.text


def describe(schedule: Schedule) -> str:
    return f"{times(schedule)} {schedule.zone}" if schedule.zone else times(schedule)


class DueCount(NamedTuple):
    """How many live messages of a queue come due in one slice of time."""

    queue: str
    start_at: datetime
    messages: int
    retries: int
