"""Filters and groups of dead letters, and the redrive job: its state, its next step, and its stop condition."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, ClassVar, NamedTuple, TypedDict
from uuid import UUID

from msgspec import Meta

from tarry.core import limits
from tarry.core.dead_letters.fingerprints import LENGTH, headline, pattern
from tarry.core.errors import InvalidInput
from tarry.core.messages.model import Counted, DeadLetter

WALK = 5_000
"""Maximum number of dead letters that one step scans: a selective filter must not make a step long."""
BATCH = 500
"""Maximum number of messages that one step redrives."""
TURN_FOR = timedelta(milliseconds=200)
"""Time covered by one step of a job with a rate: small steps give consumers a steady stream."""
LOOK_AGAIN_FOR = timedelta(seconds=1)
"""Interval between checks of the canaries while their outcome is open."""
FASTEST = 1_000_000.0
SLOWEST = 1 / 86_400
"""One per day: a slower rate is probably a mistake, and would put the next step in the far future."""
MOST_CANARIES = 1_000
LEAST_JUDGED = 10
"""Messages that a job redrives before their share of failures can stop it."""
_JITTER = "Each message becomes due at a random time within these seconds."
_SKIPPED = "Still dead, because their keys were live, or their rows were locked at that moment."
_FINGERPRINT = re.compile(f"[0-9a-f]{{{LENGTH}}}")


class Where(TypedDict, total=False):
    """A filter of dead letters; absent fields do not restrict."""

    fingerprint: str | None
    type: str | None
    died_from: datetime | None
    died_to: datetime | None
    key_prefix: str | None
    versions: Sequence[int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadFilter:
    """`Where`, validated. `died_from` is inclusive, `died_to` exclusive; a prefix is plain text, not a pattern."""

    fingerprint: str | None = None
    type: str | None = None
    died_from: datetime | None = None
    died_to: datetime | None = None
    key_prefix: str | None = None
    versions: tuple[int, ...] | None = None

    @classmethod
    def of(cls, where: Where) -> DeadFilter:
        unknown = where.keys() - Where.__annotations__.keys()
        if unknown:
            raise InvalidInput(
                f"unknown filter of dead letters: {', '.join(sorted(unknown))}; "
                f"allowed are {', '.join(sorted(Where.__annotations__))}"
            )
        versions = limits.check_versions(where.get("versions"))
        died_from, died_to = where.get("died_from"), where.get("died_to")
        prefix = where.get("key_prefix")
        return cls(
            fingerprint=check_fingerprint(where.get("fingerprint")),
            type=limits.check_type(where.get("type")),
            died_from=None if died_from is None else limits.check_instant(died_from, "died_from"),
            died_to=None if died_to is None else limits.check_instant(died_to, "died_to"),
            key_prefix=None if prefix is None else limits.check_key(prefix),
            versions=None if versions is None else tuple(versions),
        )

    def fits(self, fingerprint: str, type: str | None, died_at: datetime, key: str, version: int) -> bool:
        """The SQL filter of dead letters, for stores without SQL."""
        return (
            self.fingerprint in (None, fingerprint)
            and self.type in (None, type)
            and (self.died_from is None or died_at >= self.died_from)
            and (self.died_to is None or died_at < self.died_to)
            and (self.key_prefix is None or key.startswith(self.key_prefix))
            and (self.versions is None or version in self.versions)
        )


EVERY_LETTER = DeadFilter()


class DeadPosition(NamedTuple):
    """The position of a dead letter in a list, which begins with the newest."""

    died_at: datetime
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadGroup:
    """Dead letters with the same fingerprint. Types and attempts are taken from the newest of them."""

    fingerprint: str
    reason: str
    pattern: Annotated[str, Meta(description="The error without its particulars.")]
    count: Counted
    first_died_at: datetime
    last_died_at: datetime
    example: Annotated[int, Meta(description="The version of the newest one.")]
    example_key: str
    error: str | None
    types: tuple[str, ...] = ()
    fewest_attempts: int = 0
    most_attempts: int = 0

    @classmethod
    def of(cls, letters: Sequence[DeadLetter[Any]], cap: int) -> DeadGroup:
        """The group of these letters, the newest first; counted up to `cap`."""
        newest = letters[0]
        return cls(
            fingerprint=newest.fingerprint or "",
            reason=newest.reason,
            pattern=pattern(newest.error),
            error=newest.error,
            count=Counted.up_to(cap, len(letters)),
            first_died_at=letters[-1].died_at,
            last_died_at=newest.died_at,
            example=newest.version,
            example_key=newest.key,
            types=tuple(sorted({letter.type for letter in letters if letter.type is not None})),
            fewest_attempts=min(letter.attempt for letter in letters),
            most_attempts=max(letter.attempt for letter in letters),
        )


def groups_of(letters: Iterable[DeadLetter[Any]], limit: int, cap: int) -> list[DeadGroup]:
    """Letters, the newest first, by fingerprint; the group with the latest death comes first. For stores without SQL."""
    by_fingerprint: dict[str | None, list[DeadLetter[Any]]] = {}
    for letter in letters:
        by_fingerprint.setdefault(letter.fingerprint, []).append(letter)
    groups = [DeadGroup.of(same, cap) for same in by_fingerprint.values()]
    return sorted(groups, key=lambda group: (group.last_died_at, group.example), reverse=True)[: max(limit, 0)]


@dataclass(frozen=True, slots=True)
class Matching:
    """How many dead letters match a filter."""

    letters: Counted
    blocked: Annotated[int, Meta(description="Those whose key is live again: they would stay dead.")]


class RedriveOutcome(NamedTuple):
    """How many redriven messages of a job are dead again, and how many are still live. The others succeeded."""

    died_again: Counted
    live: Counted


class RedriveState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    DONE = "done"
    FAILED = "failed"


ENDED = frozenset({RedriveState.CANCELLED, RedriveState.DONE, RedriveState.FAILED})


_BEFORE = {
    RedriveState.PAUSED: (RedriveState.RUNNING,),
    RedriveState.RUNNING: (RedriveState.PAUSED,),
    RedriveState.CANCELLED: (RedriveState.RUNNING, RedriveState.PAUSED),
}


def may_turn(state: RedriveState) -> tuple[RedriveState, ...]:
    """The states from which a user may move a job to this one."""
    return _BEFORE.get(state, ())


class RedrivePhase(StrEnum):
    CANARY = "canary"
    """The canaries are being redriven."""
    VERDICT = "verdict"
    """The canaries are live; their outcome decides."""
    REST = "rest"


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveJob:
    id: int
    queue: str
    where: DeadFilter
    state: RedriveState
    phase: RedrivePhase
    total: Annotated[Counted, Meta(description="Matches when it began.")]
    created_at: datetime
    updated_at: datetime
    next_at: datetime
    """When the next step is due."""
    rate: Annotated[float | None, Meta(description="Messages per second; else unlimited.")] = None
    canary: int = 0
    jitter: Annotated[timedelta, Meta(extra_json_schema={"type": "number", "description": _JITTER})] = timedelta(0)
    stop_above: Annotated[float | None, Meta(description="Pauses if more than this share died again.")] = None
    max_attempts: Annotated[int | None, Meta(description="Of each redriven message; else as before it died.")] = None
    died_again: Annotated[int, Meta(description="Counted while there is such a limit.")] = 0
    target: Annotated[str | None, Meta(description="The queue to which they go, if it is not their own.")] = None
    reason: Annotated[str | None, Meta(description="Why it is paused, cancelled or failed.")] = None
    started_by: str | None = None
    redriven: int = 0
    skipped: Annotated[int, Meta(description=_SKIPPED)] = 0
    canaries: tuple[int, ...] = ()
    canary_keys: tuple[str, ...] = ()
    step: int = 0
    moved: Annotated[int, Meta(description="Messages redriven by the last step; not a property of the job.")] = 0
    ended_at: datetime | None = None
    gone_queue: str | None = field(default=None, repr=False)
    """The queue or the target, if it was deleted."""
    also_shown: ClassVar = ("share",)

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def share(self) -> Annotated[float, Meta(description="Progress, from 0 to 1.")]:
        """Relative to the matches when the job began."""
        if self.state is RedriveState.DONE:
            return 1.0
        return min(1.0, (self.redriven + self.skipped) / self.total.n) if self.total.n else 0.0

    @property
    def at_once(self) -> int:
        """Maximum number of messages of the next step."""
        if self.phase is RedrivePhase.CANARY:
            return max(1, self.canary - len(self.canaries))
        if self.rate is None:
            return BATCH
        return max(1, min(BATCH, math.floor(self.rate * TURN_FOR.total_seconds())))

    @property
    def stop_reason(self) -> str | None:
        """Why the job stops itself; None unless too many messages died again."""
        allowed, redriven = self.stop_above, self.redriven
        if allowed is None or redriven < LEAST_JUDGED or self.died_again <= allowed * redriven:
            return None
        return (
            f"{self.died_again:,} of {redriven:,} redriven messages died again, more than {allowed * 100:g} %; "
            "resumed, it continues without this limit"
        )

    def rest_for(self, moved: int) -> timedelta:
        """The pause after this many messages that keeps the rate."""
        return timedelta(0) if self.rate is None else timedelta(seconds=moved / self.rate)

    def changed(self, now: datetime, *, wait_for: timedelta = timedelta(0), **fields: Any) -> RedriveJob:
        """The job after a change, with its next step due after `wait_for`. Like the methods below, for stores without SQL."""
        job = replace(self, step=self.step + 1, updated_at=now, next_at=now + wait_for, **fields)
        return replace(job, ended_at=now if job.ended else None)

    def decided(self, now: datetime, verdict: CanaryVerdict) -> RedriveJob:
        if verdict.state is None:
            return self.changed(now, wait_for=LOOK_AGAIN_FOR)
        return self.changed(now, **verdict._asdict())

    def stopped(self, now: datetime, reason: str) -> RedriveJob:
        """The job paused because too many messages died again. Resuming it lifts the limit: the user has seen the reason."""
        return self.changed(now, state=RedriveState.PAUSED, reason=reason, stop_above=None)

    def stepped(
        self, now: datetime, revived: Sequence[tuple[int, str]], chosen: int, *, ended: bool, died_again: int = 0
    ) -> RedriveJob:
        """The job after a step, with the number of chosen letters and the redriven ones by version and key. `ended`: no
        letters are left. `died_again`: since the previous step."""
        canaries, keys, phase = self.canaries, self.canary_keys, self.phase
        if phase is RedrivePhase.CANARY:
            canaries += tuple(version for version, _ in revived)
            keys += tuple(key for _, key in revived)
            if ended or len(canaries) >= self.canary:
                phase = RedrivePhase.VERDICT
        is_done = ended and (self.phase is RedrivePhase.REST or not canaries)
        return self.changed(
            now,
            wait_for=self.rest_for(len(revived)),
            state=RedriveState.DONE if is_done else self.state,
            reason=None,
            phase=phase,
            redriven=self.redriven + len(revived),
            skipped=self.skipped + chosen - len(revived),
            canaries=canaries,
            canary_keys=keys,
            died_again=self.died_again + died_again,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveOptions:
    """How a job is started."""

    where: DeadFilter = EVERY_LETTER
    rate: float | None = None
    canary: int = 0
    jitter: timedelta = timedelta(0)
    stop_above: float | None = None
    max_attempts: int | None = None
    target: str | None = None
    after: timedelta = timedelta(0)
    """The first step is due this much later."""
    started_by: str | None = None
    request: UUID
    """Identifies the job: the same request again returns the same job."""

    def begin(self, id: int, queue: str, total: Counted, now: datetime) -> RedriveJob:
        return RedriveJob(
            id=id,
            queue=queue,
            state=RedriveState.RUNNING,
            phase=RedrivePhase.CANARY if self.canary else RedrivePhase.REST,
            total=total,
            created_at=now,
            updated_at=now,
            next_at=now + self.after,
            target=None if self.target == queue else self.target,
            **{name: getattr(self, name) for name in _KEPT_OPTIONS},
        )


_KEPT_OPTIONS = ("where", "rate", "canary", "jitter", "stop_above", "max_attempts", "started_by")


class Canary(NamedTuple):
    """The outcome of one canary: still live, dead again, or neither, which is success."""

    key: str
    live: bool
    dead: bool
    error: str | None = None


class CanaryVerdict(NamedTuple):
    """The verdict on the canaries. `state` None: not decided yet."""

    state: RedriveState | None
    phase: RedrivePhase
    reason: str | None = None


def judged(canaries: Sequence[Canary]) -> CanaryVerdict:
    """Canaries pass together, once none is live any more. One that died again stops the job."""
    dead = [canary for canary in canaries if canary.dead]
    if dead:
        line = headline(dead[0].error)[:200] or "no error was given"
        why = f"{len(dead)} of {len(canaries)} canaries died again, {dead[0].key} of: {line}"
        # A user that resumes it has seen the reason and wants the rest redriven anyway.
        return CanaryVerdict(RedriveState.PAUSED, RedrivePhase.REST, why)
    if any(canary.live for canary in canaries):
        return CanaryVerdict(None, RedrivePhase.VERDICT)
    return CanaryVerdict(RedriveState.RUNNING, RedrivePhase.REST)


def check_fingerprint(fingerprint: object) -> str | None:
    if fingerprint is None:
        return None
    if not isinstance(fingerprint, str) or not _FINGERPRINT.fullmatch(fingerprint):
        wrong = f"a fingerprint has {LENGTH} of the characters 0-9 and a-f, not {fingerprint!r:.120}"
        raise InvalidInput(wrong, hint="see: tarry dlq groups")
    return fingerprint


def check_rate(rate: object) -> float | None:
    if rate is None:
        return None
    if not isinstance(rate, (int, float)) or isinstance(rate, bool) or not SLOWEST <= rate <= FASTEST:
        raise InvalidInput(f"rate must be messages per second, from 1 per day to {FASTEST:,.0f}, not {rate!r:.120}")
    return float(rate)


def check_canary(canary: object) -> int:
    count = limits.check_count(canary, "canary")
    if not 0 <= count <= MOST_CANARIES:
        raise InvalidInput(f"canary must be from 0 to {MOST_CANARIES:,}, not {count:,}")
    return count


def check_stop_above(share: object) -> float | None:
    if share is None:
        return None
    if not isinstance(share, (int, float)) or isinstance(share, bool) or not 0 <= share < 1:
        raise InvalidInput(f"stop_above must be a share from 0 to below 1, such as 0.2 for 20 %, not {share!r:.120}")
    return float(share)
