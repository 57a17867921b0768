"""What a schedule is to the store: its configuration, where its planning stands, and what was decided about its ticks.

A change of a schedule, whatever it is (install, plan, pause, skip, delete), is a `Ruling`: worked out from what was read,
and applied in one transaction if nothing has changed since. So any number of schedulers need no leader: one of them is
first, and the others find that out.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from tarry.core import limits
from tarry.core.errors import InvalidInput
from tarry.core.messages import KEEP, Draft
from tarry.core.schedules import Periodic, Schedule, Ticks, Timetable

PREFIX_LENGTH = 200
_HASH = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MOMENT = 25
"""Characters of a tick in a key: yyyyMMdd-HHmmss.nnnnnnnnn"""


class Misfire(StrEnum):
    """What becomes of ticks that were missed because no scheduler ran."""

    SKIP = "skip"
    ONCE = "once"
    """The last of them stands for all; the next one that is on time, where there is one."""
    ALL = "all"
    """Each, unless it is older than the catch-up window."""


class Overlap(StrEnum):
    """What becomes of a tick while the message of the one before is still live."""

    ALLOW = "allow"
    SKIP = "skip"


class Verdict(StrEnum):
    PLANNED = "planned"
    SKIPPED = "skipped"
    WITHDRAWN = "withdrawn"
    """Its message was taken back before anybody was given it; the tick may be planned again."""
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
    """A message for one tick, for programs that choose their ticks themselves. The tick `at` names it; with `due_at` it is
    delivered then."""

    payload: Any
    at: datetime
    due_at: datetime | None = None


MADE = frozenset({Verdict.PLANNED, Verdict.TRIGGERED, Verdict.BACKFILLED})
"""Verdicts that made a message."""
FIRED = MADE - {Verdict.TRIGGERED}
"""Verdicts by which an instant of a schedule made its message. No other configuration of the schedule makes it again, also
not when the clock is set back across it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How a schedule behaves around its ticks."""

    misfire: Misfire = Misfire.ONCE
    catch_up_for: timedelta = timedelta(days=1)
    """How old a missed tick may be for `Misfire.ALL` to make up for it."""
    grace_for: timedelta = timedelta(minutes=1)
    """A tick that is planned this late was not missed."""
    overlap: Overlap = Overlap.ALLOW
    jitter_for: timedelta = timedelta(0)
    """Each tick is due up to this much later, by an amount that depends on nothing but prefix and tick."""
    in_advance_for: timedelta = timedelta(0)
    """How far ahead ticks become messages. The next one always does, unless overlaps are skipped."""
    start_at: datetime | None = None
    end_at: datetime | None = None

    def __post_init__(self) -> None:
        for name in ("catch_up_for", "grace_for", "jitter_for", "in_advance_for"):
            limits.check_delay(getattr(self, name), name)
        for name in ("start_at", "end_at"):
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, limits.check_instant(given, name))
        for name, kind in (("misfire", Misfire), ("overlap", Overlap)):
            try:
                object.__setattr__(self, name, kind(getattr(self, name)))
            except ValueError:
                allowed = ", ".join(kind)
                raise InvalidInput(f"{name} is one of {allowed}, not {getattr(self, name)!r:.80}") from None
        if self.start_at is not None and self.end_at is not None and self.end_at < self.start_at:
            raise InvalidInput(f"end_at ({self.end_at.isoformat()}) is before start_at ({self.start_at.isoformat()})")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSpec:
    """The configuration of a schedule. `payload` None: the program that installed it makes the payloads, and nobody else."""

    prefix: str
    schedule: Schedule
    queue: str
    payload: bytes | None
    content_type: str | None = None
    priority: int = 0
    type: str | None = None
    policy: Policy = field(default_factory=Policy)
    source: str = "code"
    """Who looks after it: code, cli, or the name of a file that was applied."""

    def __post_init__(self) -> None:
        check_prefix(self.prefix)
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
        return tick + jitter(self.prefix, tick, self.policy.jitter_for)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleState:
    """A schedule as the store has it."""

    spec: ScheduleSpec
    cursor_at: datetime
    """Every tick up to this instant has been decided."""
    wake_at: datetime | None
    """When it next needs a scheduler; None: never, or it is paused."""
    generation: int = 1
    """Grows with every change of the configuration: whoever plans for an older one has been replaced."""
    revision: int = 0
    """Grows with every ruling."""
    ruled_at: datetime
    """When it was last planned. If that is yet to come, the clock was set back since."""
    installed_at: datetime
    paused_at: datetime | None = None
    paused_reason: str | None = None
    last_live: bool = False
    """Whether the last message that it made is still live. Looked up only where overlaps are skipped."""
    forgotten_until: datetime | None = None
    """The ledger has forgotten ticks of this schedule up to here: they are over, and are not made again."""

    ledger: str = field(default="", compare=False, repr=False)
    """The ledger of this installation, as the store names it."""

    @property
    def prefix(self) -> str:
        return self.spec.prefix

    @property
    def paused(self) -> bool:
        return self.paused_at is not None

    def is_due(self, now: datetime) -> bool:
        """Whether it needs a scheduler: its time has come, or the clock was set back. `cron_due.sql` says the same."""
        return self.wake_at is not None and (self.wake_at <= now or self.ruled_at > now)


@dataclass(frozen=True, slots=True, kw_only=True)
class TickRecord:
    """An entry of the ledger: one tick, or with `until` a run of them that were skipped together."""

    prefix: str
    hash: str
    tick: datetime
    verdict: Verdict
    reason: Reason
    decided_at: datetime
    until: datetime | None = None
    count: int | None = None
    """How many ticks a run has; None if nobody counted that far."""
    queue: str | None = None
    key: str | None = None
    version: int | None = None
    due_at: datetime | None = None
    live: bool = False
    ledger: str = field(default="", compare=False, repr=False)
    """As in `ScheduleState`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TickRuling:
    """What is decided about a tick. With a draft, the verdict makes a message, unless the ledger knows better."""

    hash: str
    tick: datetime
    verdict: Verdict
    reason: Reason
    until: datetime | None = None
    count: int | None = None
    queue: str | None = None
    draft: Draft | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """A change of one schedule, as of `expected`, the revision that was read (None: there was no such schedule)."""

    prefix: str
    expected: int | None
    after: ScheduleState | None
    """As it is to be; None removes it. The ledger stays."""
    ruled_at: datetime
    withdraw: tuple[tuple[str, datetime, Reason], ...] = ()
    """Ticks, by hash, whose messages are taken back if nobody was ever given them."""
    ticks: tuple[TickRuling, ...] = ()
    moves_only: bool = False
    """Nothing of the configuration changes, only how far planning has come: what a scheduler does all day."""

    def by_instant(self, one: TickRuling) -> bool:
        """Whether it makes nothing where another configuration has `FIRED` at that instant. A program that chooses its ticks
        itself means what it says: what it names with another hash is another tick."""
        return one.verdict in FIRED and self.after is not None and not isinstance(self.after.spec.schedule, Ticks)


def check_prefix(prefix: object) -> str:
    return limits.check_text(prefix, "a prefix", PREFIX_LENGTH)


def check_hash(config_hash: object) -> str:
    if not isinstance(config_hash, str) or not _HASH.fullmatch(config_hash):
        raise InvalidInput(f"a config hash is 1 to 64 of the characters A-Z a-z 0-9 _ . -, not {config_hash!r:.120}")
    return config_hash


def tick_key(prefix: str, config_hash: str, tick: datetime) -> str:
    """`{prefix}/{hash}/{tick}`. Nobody takes it apart: prefix, hash and tick are columns. One that would be too long for
    a key has the end of its prefix replaced by a digest; it is as long as no prefix that fits can be."""
    room = limits.KEY_LENGTH - len(config_hash) - _MOMENT - 2
    if len(prefix) >= room:
        digest = hashlib.md5(prefix.encode(), usedforsecurity=False).hexdigest()
        prefix = f"{prefix[: room - len(digest) - 1]}~{digest}"
    at = tick.astimezone(UTC)
    return f"{prefix}/{config_hash}/{at:%Y%m%d-%H%M%S}.{at.microsecond:06d}000"


def jitter(prefix: str, tick: datetime, most: timedelta) -> timedelta:
    """The same in every process and at every try."""
    if not most:
        return most
    said = f"{prefix}\x00{tick.astimezone(UTC).isoformat()}"
    share = int.from_bytes(hashlib.md5(said.encode(), usedforsecurity=False).digest()[:8]) / 2**64
    return timedelta(milliseconds=int(share * (most / timedelta(milliseconds=1))))


def draft_of(
    spec: ScheduleSpec, tick: datetime, payload: bytes, content_type: str | None, due_at: datetime | None = None
) -> Draft:
    return Draft(
        key=tick_key(spec.prefix, spec.hash, tick),
        payload=payload,
        content_type=content_type,
        due_at=spec.due_at(tick) if due_at is None else due_at,
        priority=spec.priority,
        type=spec.type,
        headers=headers(spec.prefix, tick),
        conflict=KEEP,
    )


def headers(prefix: str, tick: datetime) -> Mapping[str, str]:
    """So that whoever handles the message knows which tick it is for."""
    return {"tarry-schedule": prefix, "tarry-tick": tick.astimezone(UTC).isoformat()}


def describe(schedule: Schedule) -> str:
    """In a few words, for people."""
    if isinstance(schedule, Periodic):
        return f"every {schedule.every}"
    return f"{schedule.text} {schedule.zone}" if schedule.zone else schedule.text
