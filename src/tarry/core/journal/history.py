"""The history of one key as spans of time: when it waited, when a consumer worked on it, and how each attempt ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from tarry.core.journal.events import Event
from tarry.core.journal.events import EventKind as K
from tarry.core.journal.replay import BEGINS, CHANGES, ENDS, NEUTRAL


class Phase(StrEnum):
    DELAYED = "delayed"
    READY = "ready"
    WORK = "work"
    ABSENT = "absent"
    """Between the end of a message and the next one with its key."""


class SpanOfTime(NamedTuple):
    phase: Phase
    since: datetime
    until: datetime
    attempt: int
    """Index in `History.attempts` of the attempt that this span is, or precedes."""

    @property
    def lasted(self) -> timedelta:
        return self.until - self.since


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    number: int
    consumer: str | None
    leased_at: datetime
    ended_at: datetime | None
    """None while it is running."""
    outcome: str
    """The kind of the event that ended it; `running` if none did."""
    error: str | None = None
    extended: int = 0
    """How many times its lease was extended."""
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    attempts: Sequence[Attempt]
    spans: Sequence[SpanOfTime]

    def total(self, phase: Phase) -> timedelta:
        return sum((span.lasted for span in self.spans if span.phase is phase), timedelta(0))


def history(events: Sequence[Event], now: datetime) -> History:
    """`events`: of one key, oldest first, possibly without their beginning."""
    attempts: list[Attempt] = []
    spans: list[SpanOfTime] = []
    last: Event | None = None
    running: Event | None = None
    extended = 0
    for event in events:
        if event.kind in NEUTRAL:
            continue
        if last is not None:
            spans += _between(last, event.at, len(attempts))
        if event.kind is K.TOUCHED and running is not None:
            extended += 1
        elif running is not None:
            attempts.append(_attempt(running, event, extended))
            running = None
        if event.kind is K.LEASED:
            running, extended = event, 0
        last = event
    lapsed_at = None if last is None or running is None else last.lease_until
    if lapsed_at is not None and lapsed_at > now:
        lapsed_at = None
    if last is not None and last.kind not in ENDS and now > last.at:
        spans += _between(last, lapsed_at or now, len(attempts))
    if running is not None:
        attempts.append(_attempt(running, None, extended, lapsed_at))
    if lapsed_at is not None:
        spans.append(SpanOfTime(Phase.READY, lapsed_at, now, len(attempts)))
    return History(attempts=attempts, spans=[span for span in spans if span.lasted > timedelta(0)])


def _attempt(leased: Event, end: Event | None, extended: int, lapsed_at: datetime | None = None) -> Attempt:
    """`lapsed_at`: when its lease ran out, which no event records yet."""
    outcome = end.kind.value if end is not None else "running" if lapsed_at is None else K.EXPIRED.value
    return Attempt(
        number=leased.attempt or 0,
        consumer=leased.consumer,
        leased_at=leased.at,
        ended_at=lapsed_at if end is None else end.at,
        outcome=outcome,
        error=None if end is None else end.error,
        extended=extended,
        version=leased.version,
    )


def _between(last: Event, until: datetime, attempt: int) -> list[SpanOfTime]:
    """The spans of a key between one event and the next."""
    since = last.at
    if last.kind in ENDS:
        return [SpanOfTime(Phase.ABSENT, since, until, attempt)]
    if last.kind in (K.LEASED, K.TOUCHED):
        return [SpanOfTime(Phase.WORK, since, until, attempt)]
    due_at = min(max(last.due_at or since, since), until) if last.kind in BEGINS | CHANGES else since
    return [SpanOfTime(Phase.DELAYED, since, due_at, attempt), SpanOfTime(Phase.READY, due_at, until, attempt)]
