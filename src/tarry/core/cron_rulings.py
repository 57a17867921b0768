"""Every change of a schedule, worked out from what was read. Nothing here asks what time it is, or touches a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tarry.core.cron import (
    FIRED,
    MADE,
    Reason,
    Ruling,
    ScheduleSpec,
    ScheduleState,
    TickRecord,
    TickRuling,
    Verdict,
    draft_of,
    headers,
    tick_key,
)
from tarry.core.cron_plan import MOST_BYTES, Decided, Plan, fitting, plan, skipped_run
from tarry.core.errors import Refused
from tarry.core.messages import KEEP, Draft
from tarry.core.schedules import BEGIN, Ticks, Unreadable

Encoded = tuple[bytes, str | None]
"""A payload and its content type."""
PayloadOf = Callable[[datetime], Encoded]
"""Makes the payload of a tick; only the program that installed the schedule can."""

MOST_BACKFILLED = 10_000
MOST_REPLACED = 10_000
"""Ticks of the past that are decided when a schedule is replaced or paused while planning is behind."""
_US = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMessage:
    """One message of a tick that a program chose itself. With `due_at` it is delivered then, and named by its tick."""

    tick: datetime
    payload: Encoded
    due_at: datetime


def advance(state: ScheduleState, now: datetime, payload_of: PayloadOf | None) -> Ruling | None:
    """What a scheduler does; None if there is nothing to do."""
    if isinstance(state.spec.schedule, Unreadable):
        raise Refused(f"schedule {state.prefix!r} cannot be read here: {state.spec.schedule.error}")
    found = plan(state, now)
    after = replace(state, cursor_at=found.cursor_at, wake_at=found.wake_at, ruled_at=now)
    if not found.decided and state.ruled_at <= now and replace(after, ruled_at=state.ruled_at) == state:
        return None
    ticks = _made(state.spec, found.decided, payload_of)
    return Ruling(prefix=state.prefix, expected=state.revision, after=after, ruled_at=now, ticks=ticks, moves_only=True)


def install(
    found: ScheduleState | None,
    spec: ScheduleSpec,
    now: datetime,
    waiting: Sequence[TickRecord],
    payload_of: PayloadOf | None,
) -> Ruling | None:
    """A schedule as it is to be from now on. What nobody was given yet of an older configuration is taken back with it; of
    that, what has come and is a tick of the new one as well is made again, as the new one says. The same holds for ticks that
    have come and were not decided yet: the result is that of a scheduler that had run just before."""
    if found is not None and found.spec == spec:
        return advance(found, now, payload_of)
    same = found is not None and found.spec.hash == spec.hash
    state = ScheduleState(
        spec=spec,
        # Ticks of another hash begin now; those of the same go on, and what was planned ahead is planned again.
        cursor_at=min(found.cursor_at, now) if found is not None and same else now,
        wake_at=None,
        generation=1 if found is None else found.generation + 1,
        ruled_at=now,
        installed_at=now if found is None else found.installed_at,
        paused_at=None if found is None else found.paused_at,
        paused_reason=None if found is None else found.paused_reason,
        last_live=found is not None and found.last_live,
    )
    remade = [record for record in waiting if record.tick <= now and _goes_on(record, spec)]
    planned = plan(state, now)
    return Ruling(
        prefix=spec.prefix,
        expected=None if found is None else found.revision,
        after=replace(state, cursor_at=planned.cursor_at, wake_at=planned.wake_at),
        ruled_at=now,
        withdraw=_withdrawn(waiting, Reason.REPLACED),
        ticks=_each_once(
            *_remade(spec, remade, payload_of),
            *_overdue(found, spec, now, payload_of),
            *_made(spec, planned.decided, payload_of),
        ),
    )


def _overdue(
    found: ScheduleState | None, spec: ScheduleSpec, now: datetime, payload_of: PayloadOf | None
) -> tuple[TickRuling, ...]:
    """The ticks that a replaced configuration had still to decide. Its policy decides which make a message; the new
    configuration makes it, if it has the tick too. Without this they would have neither message nor ledger entry."""
    if found is None or found.spec.hash == spec.hash:
        return ()
    old = found.spec
    if found.paused:
        return _made(old, skipped_run(old.timetable, found.cursor_at, now, Reason.PAUSED), None)
    planned = plan(found, now, fitting(spec.payload, MOST_REPLACED))
    past = [one for one in planned.decided if (one.until or one.tick) <= now]
    if planned.cursor_at < now:
        past += skipped_run(old.timetable, planned.cursor_at, now, Reason.REPLACED)
    made = [one for one in past if one.verdict in MADE and spec.timetable.has(one.tick)]
    left = [one if one.verdict not in MADE else _withdrawn_tick(one) for one in past if one not in made]
    return (*_made(spec, made, payload_of), *_made(old, left, None))


def _withdrawn_tick(one: Decided) -> Decided:
    return replace(one, verdict=Verdict.WITHDRAWN, reason=Reason.REPLACED)


def _each_once(*ticks: TickRuling) -> tuple[TickRuling, ...]:
    """A clock that was set back brings a tick up again that waits: the first ruling about it counts."""
    single: dict[object, TickRuling] = {}
    for one in ticks:
        single.setdefault((one.hash, one.tick, one.until), one)
    return tuple(single.values())


def _goes_on(record: TickRecord, spec: ScheduleSpec) -> bool:
    return record.hash == spec.hash or (record.verdict in FIRED and spec.timetable.has(record.tick))


def install_ticks(
    found: ScheduleState | None,
    spec: ScheduleSpec,
    now: datetime,
    waiting: Sequence[TickRecord],
    messages: Iterable[PlannedMessage],
) -> Ruling | None:
    """Ticks that a program chose itself; those of another hash that nobody was given yet are taken back."""
    same = found is not None and found.spec == spec
    ticks = tuple(
        TickRuling(
            hash=spec.hash,
            tick=message.tick,
            verdict=Verdict.PLANNED,
            reason=Reason.ON_TIME,
            queue=spec.queue,
            draft=_draft(spec, message),
        )
        for message in {message.tick: message for message in messages}.values()
    )
    old = [record for record in waiting if record.hash != spec.hash]
    if same and not ticks and not old:
        return None
    return Ruling(
        prefix=spec.prefix,
        expected=None if found is None else found.revision,
        after=ScheduleState(
            spec=spec,
            cursor_at=now,
            wake_at=None,
            generation=1 if found is None else found.generation + (not same),
            ruled_at=now,
            installed_at=now if found is None else found.installed_at,
        ),
        ruled_at=now,
        withdraw=_withdrawn(old, Reason.REPLACED),
        ticks=_each_once(*ticks, *_overdue(found, spec, now, None)),
    )


def uninstall(
    found: ScheduleState | None, config_hash: str | None, now: datetime, waiting: Sequence[TickRecord]
) -> Ruling | None:
    """Take back what nobody was given yet (of one hash, or all), and forget the configuration if it has that hash."""
    if found is None:
        return None
    gone = [record for record in waiting if config_hash is None or record.hash == config_hash]
    removed = config_hash is None or found.spec.hash == config_hash
    if not gone and not removed:
        return None
    return Ruling(
        prefix=found.prefix,
        expected=found.revision,
        after=None if removed else found,
        ruled_at=now,
        withdraw=_withdrawn(gone, Reason.REPLACED),
        moves_only=not removed,
    )


def pause(
    found: ScheduleState, now: datetime, waiting: Sequence[TickRecord], reason: str | None, payload_of: PayloadOf | None
) -> Ruling | None:
    """From now on nothing fires. What fired before and waits for a consumer is left to it."""
    if found.paused:
        return None
    # An operator cannot make the payloads of a program's schedule: what is undecided then counts as part of the pause.
    able = found.spec.payload is not None or payload_of is not None
    planned = plan(found, now, fitting(found.spec.payload, MOST_REPLACED)) if able else None
    past = [] if planned is None else [one for one in planned.decided if (one.until or one.tick) <= now]
    ahead = [record for record in waiting if record.tick > now and record.verdict is Verdict.PLANNED]
    return Ruling(
        prefix=found.prefix,
        expected=found.revision,
        after=replace(
            found,
            # What could not be decided is part of the pause, too.
            cursor_at=min(found.cursor_at if planned is None else planned.cursor_at, now),
            wake_at=None,
            ruled_at=now,
            paused_at=now,
            paused_reason=reason,
        ),
        ruled_at=now,
        withdraw=_withdrawn(ahead, Reason.PAUSED),
        ticks=_made(found.spec, past, payload_of),
    )


def resume(found: ScheduleState, now: datetime, payload_of: PayloadOf | None) -> Ruling | None:
    """Go on with the next tick. Those of the pause are skipped, and the ledger says why."""
    if not found.paused:
        return None
    skipped = skipped_run(found.spec.timetable, found.cursor_at, now, Reason.PAUSED)
    state = replace(found, cursor_at=max(found.cursor_at, now), paused_at=None, paused_reason=None, ruled_at=now)
    if found.spec.payload is None and payload_of is None:
        planned = Plan(decided=(), cursor_at=state.cursor_at, wake_at=now)  # its program goes on with it
    else:
        planned = plan(state, now)
    return Ruling(
        prefix=found.prefix,
        expected=found.revision,
        after=replace(state, cursor_at=planned.cursor_at, wake_at=planned.wake_at),
        ruled_at=now,
        ticks=_made(found.spec, (*skipped, *planned.decided), payload_of),
    )


def skip(found: ScheduleState, now: datetime, ahead: Sequence[TickRecord]) -> tuple[Ruling, datetime] | None:
    """Skip the next tick that is to fire; None if there is none."""
    over = {record.tick for record in ahead if _is_over(record, found.spec)}
    tick = next((tick for tick in found.spec.timetable.after(now) if tick not in over), None)
    if tick is None:
        return None
    one = TickRuling(hash=found.spec.hash, tick=tick, verdict=Verdict.SKIPPED, reason=Reason.BY_HAND)
    ruling = Ruling(
        prefix=found.prefix,
        expected=found.revision,
        after=found,  # with its `ruled_at`: a scheduler is still to see that the clock was set back
        ruled_at=now,
        withdraw=((found.spec.hash, tick, Reason.BY_HAND),),
        ticks=(one,),
        moves_only=True,
    )
    return ruling, tick


def _is_over(record: TickRecord, spec: ScheduleSpec) -> bool:
    """Skipped already; or it has fired, and the clock was set back across it."""
    if record.verdict is Verdict.SKIPPED:
        return record.hash == spec.hash
    return record.verdict in FIRED and not record.live


def trigger(
    found: ScheduleState, now: datetime, taken: Iterable[TickRecord], payload_of: PayloadOf | None
) -> tuple[Ruling, datetime]:
    """One run now, beside the schedule. Its tick is this instant, or the next one that is not taken."""
    ticks, tick = {record.tick for record in taken}, now
    while tick in ticks or found.spec.timetable.has(tick):
        tick += _US
    return _by_hand(found, now, [tick], Verdict.TRIGGERED, now, payload_of), tick


def missing(
    found: ScheduleState, since: datetime, until: datetime, now: datetime, records: Iterable[TickRecord]
) -> list[datetime]:
    """The ticks in [since, until) that have come and made no message: what a backfill would fill in."""
    forgotten = found.forgotten_until
    if forgotten is not None and since <= forgotten:
        raise Refused(
            f"the ledger has forgotten which ticks of {found.prefix!r} made a message up to {forgotten.isoformat()}",
            hint="begin after that, so that nothing runs twice; for what is older, offer messages of your own",
        )
    made = {record.tick for record in records if record.verdict in FIRED}
    before, last = max(since, BEGIN) - _US, min(max(until, BEGIN) - _US, now)
    ticks = found.spec.timetable.between(before, last, MOST_BACKFILLED + len(made) + 1)
    left = [tick for tick in ticks if tick not in made]
    if len(left) > MOST_BACKFILLED:
        raise Refused(f"this range has more than {MOST_BACKFILLED:,} ticks to fill in", hint="fill it in by parts")
    return left


def check_backfilled(found: ScheduleState, ticks: Sequence[datetime]) -> Sequence[datetime]:
    """Refused if the payload, which is stored with each of them, would be too much for one transaction."""
    if len(ticks) > (most := fitting(found.spec.payload, MOST_BACKFILLED)):
        raise Refused(
            f"{len(ticks):,} messages of this schedule have more than {MOST_BYTES >> 20} MiB of payloads; {most:,} have not",
            hint="fill the range in by parts",
        )
    return ticks


def backfill(found: ScheduleState, ticks: Sequence[datetime], now: datetime, payload_of: PayloadOf | None) -> Ruling:
    return _by_hand(found, now, check_backfilled(found, ticks), Verdict.BACKFILLED, None, payload_of)


def _by_hand(
    found: ScheduleState,
    now: datetime,
    ticks: Iterable[datetime],
    verdict: Verdict,
    due_at: datetime | None,
    payload_of: PayloadOf | None,
) -> Ruling:
    spec = found.spec
    return Ruling(
        prefix=found.prefix,
        expected=found.revision,
        after=found,  # as in `skip`
        ruled_at=now,
        ticks=tuple(
            TickRuling(
                hash=spec.hash,
                tick=tick,
                verdict=verdict,
                reason=Reason.BY_HAND,
                queue=spec.queue,
                draft=draft_of(spec, tick, *_payload(spec, tick, payload_of), due_at=due_at),
            )
            for tick in ticks
        ),
        moves_only=True,
    )


def _withdrawn(records: Iterable[TickRecord], reason: Reason) -> tuple[tuple[str, datetime, Reason], ...]:
    return tuple((record.hash, record.tick, reason) for record in records)


def _made(spec: ScheduleSpec, decided: Iterable[Decided], payload_of: PayloadOf | None) -> tuple[TickRuling, ...]:
    return tuple(
        TickRuling(
            hash=spec.hash,
            tick=one.tick,
            verdict=one.verdict,
            reason=one.reason,
            until=one.until,
            count=one.count,
            queue=spec.queue if one.verdict in MADE else None,
            draft=draft_of(spec, one.tick, *_payload(spec, one.tick, payload_of)) if one.verdict in MADE else None,
        )
        for one in decided
    )


def _remade(spec: ScheduleSpec, records: Iterable[TickRecord], payload_of: PayloadOf | None) -> tuple[TickRuling, ...]:
    return tuple(
        TickRuling(
            hash=spec.hash,
            tick=record.tick,
            verdict=record.verdict,
            reason=record.reason,
            queue=spec.queue,
            draft=draft_of(spec, record.tick, *_payload(spec, record.tick, payload_of), due_at=record.due_at),
        )
        for record in records
    )


def _payload(spec: ScheduleSpec, tick: datetime, payload_of: PayloadOf | None) -> Encoded:
    if spec.payload is not None:
        return spec.payload, spec.content_type
    if payload_of is None or isinstance(spec.schedule, Ticks):
        raise Refused(
            f"the payloads of schedule {spec.prefix!r} are made by the program that installed it",
            hint="do this in that program, or install the schedule with a payload instead of a function",
        )
    return payload_of(tick)


def _draft(spec: ScheduleSpec, message: PlannedMessage) -> Draft:
    payload, content_type = message.payload
    return Draft(
        key=tick_key(spec.prefix, spec.hash, message.tick),
        payload=payload,
        content_type=content_type,
        due_at=message.due_at,
        priority=spec.priority,
        type=spec.type,
        headers=headers(spec.prefix, message.tick),
        conflict=KEEP,
    )
