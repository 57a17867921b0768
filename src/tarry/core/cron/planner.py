"""Planning of a schedule at an instant, for the scheduler, `preview` and `explain`."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache, lru_cache
from itertools import chain, islice
from typing import Annotated

from msgspec import Meta

from tarry.core.cron.model import (
    FIRED,
    Decided,
    Misfire,
    Overlap,
    Policy,
    Reason,
    ScheduleSpec,
    ScheduleState,
    TickRecord,
    Verdict,
)
from tarry.core.cron.schedule_types import BEGIN, Timetable
from tarry.core.durations import floored

MOST_AT_ONCE = 1_000
"""Maximum number of decisions in one plan; the next plan follows immediately."""
MOST_BYTES = 16 * 1024 * 1024
"""Maximum total payload bytes of one plan."""
MOST_COUNTED = 1_000
"""Maximum number of ticks counted in a skipped range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    decided: tuple[Decided, ...]
    cursor_at: datetime
    wake_at: datetime | None
    """Not later than `now` if more decisions are due immediately."""


def fitting(payload: bytes | None, most: int) -> int:
    """How many messages with this payload one transaction may create, at most `most`."""
    return max(1, min(most, MOST_BYTES // max(1, len(payload or b""))))


def plan(state: ScheduleState, now: datetime, most: int | None = None) -> Plan:
    """Decide missed ticks, then coming ones; at most `most` decisions."""
    policy, timetable = state.spec.policy, state.spec.timetable
    most = fitting(state.spec.payload, MOST_AT_ONCE) if most is None else most
    if state.paused:
        return Plan(decided=(), cursor_at=state.cursor_at, wake_at=None)
    cursor = _rewound(state, now)
    decided = _missed(state.spec, cursor, now, most, last_live=state.last_live)
    if decided:
        cursor = max(cursor, decided[-1].until or decided[-1].tick)
    if len(decided) >= most:
        return Plan(decided=tuple(decided), cursor_at=cursor, wake_at=now)
    if policy.overlap is Overlap.SKIP:
        # Whether the message before is still live is known only when the tick has come.
        return Plan(decided=tuple(decided), cursor_at=max(cursor, now), wake_at=timetable.next_after(max(cursor, now)))
    for tick in timetable.after(max(cursor, now)):
        if (cursor > now and tick > now + policy.in_advance_for) or len(decided) >= most:
            return Plan(decided=tuple(decided), cursor_at=cursor, wake_at=_wake(cursor, tick, policy))
        decided.append(Decided(tick, Verdict.PLANNED, Reason.ON_TIME))
        cursor = tick
    return Plan(decided=tuple(decided), cursor_at=cursor, wake_at=None)


def _wake(cursor: datetime, next_tick: datetime, policy: Policy) -> datetime:
    """When to plan again: at the last planned tick, or when the following tick enters the planning horizon."""
    return min(cursor, next_tick - policy.in_advance_for) if policy.in_advance_for else cursor


def _rewound(state: ScheduleState, now: datetime) -> datetime:
    """The cursor, or an earlier one if the clock was set back: then `decided_at` or the cursor lies in the future.

    All ticks ahead or within the grace period are then planned again; the ledger prevents a second firing."""
    cursor, policy = state.cursor_at, state.spec.policy
    if state.decided_at <= now and cursor <= now + policy.in_advance_for:
        return cursor
    first = state.spec.timetable.next_after(now)
    return cursor if first is not None and cursor <= first else min(cursor, now - policy.grace_for)


def _missed(spec: ScheduleSpec, cursor: datetime, now: datetime, most: int, *, last_live: bool) -> list[Decided]:
    """Decide the ticks in (cursor, now]: those within the grace period are on time, the others are misfires."""
    if cursor >= now:
        return []
    old_until = now - spec.policy.grace_for
    on_time = spec.timetable.between(max(cursor, old_until), now, most)
    decided = _misfires(spec, cursor, old_until, most, followed=bool(on_time)) if cursor < old_until else []
    on_time = on_time[: max(most - len(decided), 0)]
    decided += [Decided(tick, Verdict.PLANNED, Reason.ON_TIME) for tick in on_time]
    return _without_overlap(decided, last_live=last_live) if spec.policy.overlap is Overlap.SKIP else decided


def _misfires(spec: ScheduleSpec, cursor: datetime, until: datetime, most: int, *, followed: bool) -> list[Decided]:
    """Decide the ticks in (cursor, until]. `followed`: a tick on time follows, which fires for them with `Misfire.ONCE`."""
    policy, timetable = spec.policy, spec.timetable
    match policy.misfire:
        case Misfire.ALL:
            since = max(cursor, until + policy.grace_for - policy.catch_up_for)
            late = timetable.between(since, until, most) if since < until else []
            skipped = skipped_run(timetable, cursor, min(since, until), Reason.MISFIRE)
            return [*skipped, *(Decided(tick, Verdict.PLANNED, Reason.LATE) for tick in late)]
        case Misfire.SKIP:
            return skipped_run(timetable, cursor, until, Reason.MISFIRE)
        case Misfire.ONCE:
            last = None if followed else timetable.last_until(until, cursor)
            if last is None:
                return skipped_run(timetable, cursor, until, Reason.COALESCED)
            before = skipped_run(timetable, cursor, last - timedelta(microseconds=1), Reason.COALESCED)
            return [*before, Decided(last, Verdict.PLANNED, Reason.LATE)]


def skipped_run(timetable: Timetable, after: datetime, until: datetime, reason: Reason) -> list[Decided]:
    """The ticks in (after, until] as skipped: one decision each if they are few, else one for the range."""
    if until <= after:
        return []
    ticks = timetable.between(after, until, MOST_COUNTED + 1)
    if len(ticks) <= _FEW:
        return [Decided(tick, Verdict.SKIPPED, reason) for tick in ticks]
    many = len(ticks) > MOST_COUNTED
    last = timetable.last_until(until, after) if many else ticks[-1]
    return [Decided(ticks[0], Verdict.SKIPPED, reason, until=last, count=None if many else len(ticks))]


_FEW = 20


def _without_overlap(decided: Iterable[Decided], *, last_live: bool) -> list[Decided]:
    """At most one message at a time: keep the last planned tick, and only if no message is live."""
    decisions = list(decided)
    planned = [decision for decision in decisions if decision.verdict is Verdict.PLANNED]
    kept = None if last_live or not planned else planned[-1]
    return [
        decision
        if decision.verdict is not Verdict.PLANNED or decision is kept
        else Decided(decision.tick, Verdict.SKIPPED, Reason.OVERLAP)
        for decision in decisions
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fire:
    """A coming tick."""

    tick: datetime
    due_at: datetime
    verdict: Annotated[Verdict | None, Meta(description="The verdict in the ledger, if there is one.")] = None


def preview(state: ScheduleState, now: datetime, n: int) -> list[Fire]:
    """The next `n` ticks after now, as the scheduler will plan them."""
    ticks = islice(state.spec.timetable.after(now), max(n, 0))
    return [Fire(tick=tick, due_at=state.spec.due_at(tick)) for tick in ticks]


def with_verdicts(state: ScheduleState, fires: Iterable[Fire], ahead: Iterable[TickRecord]) -> list[Fire]:
    own = state.spec.hash
    known = {
        record.tick: record.verdict
        for record in sorted(ahead, key=lambda record: record.verdict in FIRED)
        if not record.until and (record.hash == own or record.verdict in FIRED)
    }
    return [replace(fire, verdict=known.get(fire.tick)) for fire in fires]


def load_ahead(
    states: Iterable[ScheduleState],
    now: datetime,
    until: datetime,
    every: timedelta = timedelta(minutes=1),
    origin: datetime = BEGIN,
) -> Iterator[tuple[str, datetime, int]]:
    """Messages that schedules will add before `until`, beyond those already planned: queue, start of the minute, number.
    With `every` an hour: the start of the hour, counted from `origin`."""
    last = until - timedelta(microseconds=1)
    origin = BEGIN + (origin - BEGIN) % every
    begun_until = min(last, floored(now, every, origin) + every - timedelta(microseconds=1))
    later = _later_slices if (last - now) / every <= _KEPT_SLICES else _later_slices.__wrapped__

    @cache  # many schedules share their timetable
    def counts(timetable: Timetable) -> list[tuple[datetime, int]]:
        begun = timetable.per_slice(now, begun_until, every, origin)
        return [*begun, *later(timetable, begun_until, last, every, origin)]

    @cache
    def ticks(timetable: Timetable) -> list[datetime]:
        return list(timetable.after(now, last))

    for state in states:
        if state.paused:
            continue
        timetable, cursor = state.spec.timetable, state.cursor_at
        if state.spec.policy.jitter_for:
            left = islice(ticks(timetable), bisect_right(ticks(timetable), cursor), None)
            slices = Counter(floored(state.spec.due_at(tick), every, origin) for tick in left).items()
        elif cursor > now:
            begun, ahead = floored(cursor, every, origin), counts(timetable)
            rest = islice(ahead, bisect_right(ahead, begun, key=lambda start_and_count: start_and_count[0]), None)
            end = min(last, begun + every - timedelta(microseconds=1))
            slices = chain(timetable.per_slice(cursor, end, every, origin), rest)
        else:
            slices = counts(timetable)
        for start, count in slices:
            yield state.spec.queue, start, count


_KEPT_SLICES = 2_000


@lru_cache(maxsize=128)
def _later_slices(
    timetable: Timetable, after: datetime, until: datetime, every: timedelta, origin: datetime
) -> tuple[tuple[datetime, int], ...]:
    """Cached: calendars are read repeatedly, and future slices do not change until the current one has passed."""
    return tuple(timetable.per_slice(after, until, every, origin))
