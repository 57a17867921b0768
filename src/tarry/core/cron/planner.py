"""What a scheduler does about a schedule at an instant. Scheduler, preview and explain are this code, and no other."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from itertools import chain, islice

from tarry.core.cron import FIRED, Misfire, Overlap, Policy, Reason, ScheduleState, TickRecord, Verdict
from tarry.core.schedules import Timetable

MOST_AT_ONCE = 1_000
"""Decisions in one plan; what is left over follows at once, in the next."""
MOST_BYTES = 16 * 1024 * 1024
"""Payload bytes of the messages of one plan: a payload is stored with each of them."""
MOST_COUNTED = 1_000
"""So far the ticks of a skipped run are counted."""


@dataclass(frozen=True, slots=True)
class Decided:
    """One tick, or with `until` a run of ticks that are skipped together."""

    tick: datetime
    verdict: Verdict
    reason: Reason
    until: datetime | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    decided: tuple[Decided, ...]
    cursor_at: datetime
    wake_at: datetime | None
    """Not later than `now` if there is more to decide at once."""


def fitting(payload: bytes | None, most: int) -> int:
    """How many messages with this payload one transaction makes, at most `most`."""
    return max(1, min(most, MOST_BYTES // max(1, len(payload or b""))))


def plan(state: ScheduleState, now: datetime, most: int | None = None) -> Plan:
    """Decide what was missed, then what lies ahead; `most` decisions, if it is given."""
    policy, timetable = state.spec.policy, state.spec.timetable
    most = fitting(state.spec.payload, MOST_AT_ONCE) if most is None else most
    if state.paused:
        return Plan(decided=(), cursor_at=state.cursor_at, wake_at=None)
    cursor = _rewound(state, now)
    decided = _missed(timetable, policy, cursor, now, most, last_live=state.last_live)
    if decided:
        cursor = max(cursor, decided[-1].until or decided[-1].tick)
    if len(decided) >= most:
        return Plan(decided=tuple(decided), cursor_at=cursor, wake_at=now)
    if policy.overlap is Overlap.SKIP:
        # Whether the one before is still live can only be said when the time has come.
        return Plan(decided=tuple(decided), cursor_at=max(cursor, now), wake_at=timetable.next_after(max(cursor, now)))
    for tick in timetable.after(max(cursor, now)):
        if (cursor > now and tick > now + policy.in_advance_for) or len(decided) >= most:
            return Plan(decided=tuple(decided), cursor_at=cursor, wake_at=_wake(cursor, tick, policy))
        decided.append(Decided(tick, Verdict.PLANNED, Reason.ON_TIME))
        cursor = tick
    return Plan(decided=tuple(decided), cursor_at=cursor, wake_at=None)


def _wake(cursor: datetime, following: datetime, policy: Policy) -> datetime:
    """When the last planned tick has come, there must be another one; and when one comes within the horizon."""
    return min(cursor, following - policy.in_advance_for) if policy.in_advance_for else cursor


def _rewound(state: ScheduleState, now: datetime) -> datetime:
    """The cursor, unless the clock has been set back: it was planned at an hour that is yet to come, or further ahead than
    planning ever goes. Then everything that lies ahead or is still on time is looked at again. What was made before is in
    the ledger, and stays."""
    cursor, policy = state.cursor_at, state.spec.policy
    if state.ruled_at <= now and cursor <= now + policy.in_advance_for:
        return cursor
    first = state.spec.timetable.next_after(now)
    return cursor if first is not None and cursor <= first else min(cursor, now - policy.grace_for)


def _missed(
    timetable: Timetable, policy: Policy, cursor: datetime, now: datetime, most: int, *, last_live: bool
) -> list[Decided]:
    """The ticks in (cursor, now]: those within the grace are on time, the others are misfires."""
    if cursor >= now:
        return []
    on_time = timetable.between(max(cursor, now - policy.grace_for), now, most)
    old_until = now - policy.grace_for
    decided = (
        _misfires(timetable, policy, cursor, old_until, most, followed=bool(on_time)) if cursor < old_until else []
    )
    room = most - len(decided)
    decided += [Decided(tick, Verdict.PLANNED, Reason.ON_TIME) for tick in on_time[: max(room, 0)]]
    return _without_overlap(decided, last_live=last_live) if policy.overlap is Overlap.SKIP else decided


def _misfires(
    timetable: Timetable,
    policy: Policy,
    cursor: datetime,
    until: datetime,
    most: int,
    *,
    followed: bool,
) -> list[Decided]:
    """The ticks in (cursor, until]. `followed`: there is one on time, which stands for them where one is enough."""
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
    """The ticks in (after, until] as skipped: one by one if they are few, else in one entry."""
    if until <= after:
        return []
    found = timetable.between(after, until, MOST_COUNTED + 1)
    if not found:
        return []
    if len(found) <= _FEW:
        return [Decided(tick, Verdict.SKIPPED, reason) for tick in found]
    many = len(found) > MOST_COUNTED
    last = timetable.last_until(until, after) if many else found[-1]
    return [Decided(found[0], Verdict.SKIPPED, reason, until=last, count=None if many else len(found))]


_FEW = 20


def _without_overlap(decided: Iterable[Decided], *, last_live: bool) -> list[Decided]:
    """At most one message at a time: the last of those that would be made, and only if none is live."""
    found = list(decided)
    made = [one for one in found if one.verdict is Verdict.PLANNED]
    chosen = None if last_live or not made else made[-1]
    return [
        one
        if one.verdict is not Verdict.PLANNED or one is chosen
        else Decided(one.tick, Verdict.SKIPPED, Reason.OVERLAP)
        for one in found
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fire:
    """One firing that lies ahead."""

    tick: datetime
    due_at: datetime
    verdict: Verdict | None = None
    """What the ledger says already; None: nothing yet."""


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


def load_ahead(states: Iterable[ScheduleState], now: datetime, until: datetime) -> Iterator[tuple[str, datetime, int]]:
    """What schedules will add before `until` to what is planned already: queue, minute, and how many come due in it."""
    last = until - timedelta(microseconds=1)

    @cache  # of many schedules most have the times of some other
    def counts(timetable: Timetable) -> list[tuple[datetime, int]]:
        return list(timetable.per_minute(now, last))

    @cache
    def ticks(timetable: Timetable) -> list[datetime]:
        return list(timetable.after(now, last))

    for state in states:
        if state.paused:
            continue
        timetable, cursor = state.spec.timetable, state.cursor_at
        if state.spec.policy.jitter_for:
            left = islice(ticks(timetable), bisect_right(ticks(timetable), cursor), None)
            found = Counter(_minute(state.spec.due_at(tick)) for tick in left).items()
        elif cursor > now:
            begun, ahead = _minute(cursor), counts(timetable)
            rest = islice(ahead, bisect_right(ahead, begun, key=lambda one: one[0]), None)
            found = chain(timetable.per_minute(cursor, min(last, begun + _LAST_OF_MINUTE)), rest)
        else:
            found = counts(timetable)
        for minute, count in found:
            yield state.spec.queue, minute, count


def _minute(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


_LAST_OF_MINUTE = timedelta(minutes=1) - timedelta(microseconds=1)
