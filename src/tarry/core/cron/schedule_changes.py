"""Computation of schedule changes from the state that was read, without a clock or a store."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from tarry.core.cron.model import (
    FIRED,
    MADE,
    Decided,
    Reason,
    ScheduleChange,
    ScheduleSpec,
    ScheduleState,
    TickChange,
    TickRecord,
    Verdict,
    draft_of,
)
from tarry.core.cron.planner import MOST_BYTES, Plan, fitting, plan, skipped_run
from tarry.core.cron.schedule_types import BEGIN, Ticks, Unreadable
from tarry.core.errors import InvalidState, UnknownSchedule

Encoded = tuple[bytes, str | None]
"""A payload and its content type."""
PayloadOf = Callable[[datetime], Encoded]
"""Creates the payload of a tick; only the program that installed the schedule can."""

MOST_BACKFILLED = 10_000
MOST_REPLACED = 10_000
"""Limit of overdue ticks that are decided when a schedule is replaced or paused."""
_US = timedelta(microseconds=1)


class Current(NamedTuple):
    """The values from which the change of a schedule is computed."""

    name: str
    state: ScheduleState | None
    now: datetime
    records: Sequence[TickRecord]
    """The ledger entries that the change depends on: those of undelivered messages, or of a time range."""

    @property
    def existing(self) -> ScheduleState:
        return existing(self.state, self.name)


def existing(state: ScheduleState | None, name: str) -> ScheduleState:
    if state is None:
        raise UnknownSchedule(name)
    return state


def advance(state: ScheduleState, now: datetime, payload_of: PayloadOf | None) -> ScheduleChange | None:
    """The change that a scheduler makes; None if there is nothing to do."""
    if isinstance(state.spec.schedule, Unreadable):
        raise InvalidState(f"schedule {state.name!r} cannot be read here: {state.spec.schedule.error}")
    planned = plan(state, now)
    after = replace(state, cursor_at=planned.cursor_at, wake_at=planned.wake_at, decided_at=now)
    if not planned.decided and state.decided_at <= now and replace(after, decided_at=state.decided_at) == state:
        return None
    return _change(state, after, now, ticks=_tick_changes(state.spec, planned.decided, payload_of), moves_only=True)


def install(seen: Current, spec: ScheduleSpec, payload_of: PayloadOf | None) -> ScheduleChange | None:
    """Install or replace a schedule. Undelivered messages of the old configuration are withdrawn; a message whose tick has
    passed and also belongs to the new configuration is created again by the new one. The same holds for passed ticks that are
    not decided yet: the result is as if a scheduler had run just before."""
    current, now = seen.state, seen.now
    if current is not None and current.spec == spec:
        return advance(current, now, payload_of)
    same = current is not None and current.spec.hash == spec.hash
    state = ScheduleState(
        spec=spec,
        # Ticks of another hash begin now; those of the same hash continue, and coming ones are planned again.
        cursor_at=min(current.cursor_at, now) if current is not None and same else now,
        wake_at=None,
        generation=1 if current is None else current.generation + 1,
        decided_at=now,
        installed_at=now if current is None else current.installed_at,
        paused_at=None if current is None else current.paused_at,
        paused_reason=None if current is None else current.paused_reason,
        last_live=current is not None and current.last_live,
    )
    remade = [record for record in seen.records if record.tick <= now and _continues(record, spec)]
    planned = plan(state, now)
    return _change(
        current,
        replace(state, cursor_at=planned.cursor_at, wake_at=planned.wake_at),
        now,
        withdraw=_withdrawn(seen.records, Reason.REPLACED),
        ticks=_each_once(
            *(_tick_change(spec, each, _payload(spec, each.tick, payload_of), each.due_at) for each in remade),
            *_overdue(current, spec, now, payload_of),
            *_tick_changes(spec, planned.decided, payload_of),
        ),
    )


def _overdue(
    current: ScheduleState | None, spec: ScheduleSpec, now: datetime, payload_of: PayloadOf | None
) -> tuple[TickChange, ...]:
    """Decisions on the overdue ticks of a replaced configuration, which would otherwise have neither message nor ledger
    entry. The old policy decides which of them fire; the new configuration creates the message, if it has the tick too."""
    if current is None or current.spec.hash == spec.hash:
        return ()
    old = current.spec
    if current.paused:
        return _tick_changes(old, skipped_run(old.timetable, current.cursor_at, now, Reason.PAUSED), None)
    planned = plan(current, now, fitting(spec.payload, MOST_REPLACED))
    past = _until(planned, now)
    if planned.cursor_at < now:
        past += skipped_run(old.timetable, planned.cursor_at, now, Reason.REPLACED)
    fired = [decision for decision in past if decision.verdict in MADE and spec.timetable.has(decision.tick)]
    rest = [
        replace(decision, verdict=Verdict.WITHDRAWN, reason=Reason.REPLACED) if decision.verdict in MADE else decision
        for decision in past
        if decision not in fired
    ]
    return (*_tick_changes(spec, fired, payload_of), *_tick_changes(old, rest, None))


def _until(planned: Plan, now: datetime) -> list[Decided]:
    return [decision for decision in planned.decided if (decision.until or decision.tick) <= now]


def _each_once(*ticks: TickChange) -> tuple[TickChange, ...]:
    """Keep the first decision on each tick: ticks repeat after the clock was set back."""
    unique: dict[object, TickChange] = {}
    for change in ticks:
        unique.setdefault((change.hash, change.tick, change.until), change)
    return tuple(unique.values())


def _continues(record: TickRecord, spec: ScheduleSpec) -> bool:
    return record.hash == spec.hash or (record.verdict in FIRED and spec.timetable.has(record.tick))


def install_ticks(seen: Current, spec: ScheduleSpec, chosen: Iterable[TickChange]) -> ScheduleChange | None:
    """Install ticks chosen by a program; undelivered messages of another hash are withdrawn."""
    current, now = seen.state, seen.now
    same = current is not None and current.spec == spec
    ticks = {change.tick: change for change in chosen}.values()
    old = [record for record in seen.records if record.hash != spec.hash]
    if same and not ticks and not old:
        return None
    after = ScheduleState(
        spec=spec,
        cursor_at=now,
        wake_at=None,
        generation=1 if current is None else current.generation + (not same),
        decided_at=now,
        installed_at=now if current is None else current.installed_at,
    )
    changes = _each_once(*ticks, *_overdue(current, spec, now, None))
    return _change(current, after, now, withdraw=_withdrawn(old, Reason.REPLACED), ticks=changes)


def uninstall(seen: Current, config_hash: str | None) -> ScheduleChange | None:
    """Withdraw undelivered messages (of one hash, or all), and delete the configuration if it has that hash."""
    if (current := seen.state) is None:
        return None
    withdrawn = [record for record in seen.records if config_hash is None or record.hash == config_hash]
    removed = config_hash is None or current.spec.hash == config_hash
    if not withdrawn and not removed:
        return None
    after = None if removed else current
    return _change(current, after, seen.now, withdraw=_withdrawn(withdrawn, Reason.REPLACED), moves_only=not removed)


def pause(seen: Current, reason: str | None, payload_of: PayloadOf | None) -> ScheduleChange | None:
    """Pause a schedule. Messages of ticks that have passed stay deliverable."""
    current, now = seen.existing, seen.now
    if current.paused:
        return None
    # An operator cannot create the payloads of a program's schedule: undecided ticks then belong to the pause.
    has_payloads = current.spec.payload is not None or payload_of is not None
    planned = plan(current, now, fitting(current.spec.payload, MOST_REPLACED)) if has_payloads else None
    past = [] if planned is None else _until(planned, now)
    ahead = [record for record in seen.records if record.tick > now and record.verdict is Verdict.PLANNED]
    cursor_at = min(current.cursor_at if planned is None else planned.cursor_at, now)
    after = replace(current, cursor_at=cursor_at, wake_at=None, decided_at=now, paused_at=now, paused_reason=reason)
    ticks = _tick_changes(current.spec, past, payload_of)
    return _change(current, after, now, withdraw=_withdrawn(ahead, Reason.PAUSED), ticks=ticks)


def resume(seen: Current, payload_of: PayloadOf | None) -> ScheduleChange | None:
    """Resume with the next tick. The ticks of the pause are skipped, with that reason in the ledger."""
    current, now = seen.existing, seen.now
    if not current.paused:
        return None
    skipped = skipped_run(current.spec.timetable, current.cursor_at, now, Reason.PAUSED)
    state = replace(current, cursor_at=max(current.cursor_at, now), paused_at=None, paused_reason=None, decided_at=now)
    if current.spec.payload is None and payload_of is None:
        planned = Plan(decided=(), cursor_at=state.cursor_at, wake_at=now)  # the program that installed it plans it
    else:
        planned = plan(state, now)
    after = replace(state, cursor_at=planned.cursor_at, wake_at=planned.wake_at)
    return _change(current, after, now, ticks=_tick_changes(current.spec, (*skipped, *planned.decided), payload_of))


def skip(seen: Current) -> tuple[ScheduleChange, list[datetime]]:
    """Skip the next tick that would fire."""
    current = seen.existing
    over = {record.tick for record in seen.records if _is_over(record, current.spec)}
    tick = next((tick for tick in current.spec.timetable.after(seen.now) if tick not in over), None)
    if tick is None:
        raise InvalidState(f"schedule {current.name!r} has no tick ahead that could be skipped")
    skipped = TickChange(hash=current.spec.hash, tick=tick, verdict=Verdict.SKIPPED, reason=Reason.BY_HAND)
    withdraw = ((current.spec.hash, tick, Reason.BY_HAND),)
    # The state keeps its `decided_at`: a scheduler must still detect that the clock was set back.
    return _change(current, current, seen.now, withdraw=withdraw, ticks=[skipped], moves_only=True), [tick]


def _is_over(record: TickRecord, spec: ScheduleSpec) -> bool:
    """Whether the tick was skipped, or has fired before the clock was set back across it."""
    if record.verdict is Verdict.SKIPPED:
        return record.hash == spec.hash
    return record.verdict in FIRED and not record.live


def trigger(seen: Current, payload_of: PayloadOf | None) -> tuple[ScheduleChange, list[datetime]]:
    """Fire once now, outside the timetable. The tick is this instant, or the next instant without a ledger entry."""
    taken, tick, timetable = {record.tick for record in seen.records}, seen.now, seen.existing.spec.timetable
    while tick in taken or timetable.has(tick):
        tick += _US
    return _by_hand(seen, [tick], Verdict.TRIGGERED, seen.now, payload_of), [tick]


def missing(seen: Current, span: tuple[datetime, datetime]) -> list[datetime]:
    """The past ticks in [since, until) that did not fire, for a backfill."""
    current = seen.existing
    (since, until), forgotten = span, current.forgotten_until
    if forgotten is not None and since <= forgotten:
        raise InvalidState(
            f"the ledger of {current.name!r} was deleted up to {forgotten.isoformat()}: which ticks fired is unknown",
            hint="start after that, so that no tick fires twice; for older ticks, offer the messages yourself",
        )
    fired = {record.tick for record in seen.records if record.verdict in FIRED}
    before, last = max(since, BEGIN) - _US, min(max(until, BEGIN) - _US, seen.now)
    ticks = current.spec.timetable.between(before, last, MOST_BACKFILLED + len(fired) + 1)
    unfired = [tick for tick in ticks if tick not in fired]
    if len(unfired) > MOST_BACKFILLED:
        raise InvalidState(f"this range has more than {MOST_BACKFILLED:,} ticks to backfill", hint="use smaller ranges")
    return unfired


def backfill(
    seen: Current, span: tuple[datetime, datetime], payload_of: PayloadOf | None
) -> tuple[ScheduleChange, list[datetime]]:
    """Fire the missing ticks of a span. The total payload size limits the messages of one transaction."""
    ticks = missing(seen, span)
    if len(ticks) > (most := fitting(seen.existing.spec.payload, MOST_BACKFILLED)):
        raise InvalidState(
            f"{len(ticks):,} messages have more than {MOST_BYTES >> 20} MiB of payloads; at most {most:,} are allowed",
            hint="use smaller ranges",
        )
    return _by_hand(seen, ticks, Verdict.BACKFILLED, None, payload_of), ticks


def _by_hand(
    seen: Current, ticks: Iterable[datetime], verdict: Verdict, due_at: datetime | None, payload_of: PayloadOf | None
) -> ScheduleChange:
    current, spec = seen.existing, seen.existing.spec
    made = [
        _tick_change(spec, Decided(tick, verdict, Reason.BY_HAND), _payload(spec, tick, payload_of), due_at)
        for tick in ticks
    ]
    return _change(current, current, seen.now, ticks=made, moves_only=True)  # the state as in `skip`


def _change(
    current: ScheduleState | None,
    after: ScheduleState | None,
    now: datetime,
    *,
    withdraw: tuple[tuple[str, datetime, Reason], ...] = (),
    ticks: Iterable[TickChange] = (),
    moves_only: bool = False,
) -> ScheduleChange:
    """The change from the current state (None: not installed) to the state after it (None: deleted)."""
    return ScheduleChange(
        name=current.name if current is not None else after.name if after is not None else "",
        expected=None if current is None else current.revision,
        after=after,
        decided_at=now,
        withdraw=withdraw,
        ticks=tuple(ticks),
        moves_only=moves_only,
    )


def _tick_change(
    spec: ScheduleSpec, decision: Decided, payload: Encoded | None = None, due_at: datetime | None = None
) -> TickChange:
    """A decision; with a payload it creates a message."""
    return TickChange(
        hash=spec.hash,
        tick=decision.tick,
        verdict=decision.verdict,
        reason=decision.reason,
        until=decision.until,
        count=decision.count,
        queue=None if payload is None else spec.queue,
        draft=None if payload is None else draft_of(spec, decision.tick, *payload, due_at=due_at),
    )


def chosen_tick(spec: ScheduleSpec, tick: datetime, payload: Encoded, due_at: datetime) -> TickChange:
    """A tick chosen by a program: the key of its message contains the tick, and it is delivered at `due_at`."""
    return _tick_change(spec, Decided(tick, Verdict.PLANNED, Reason.ON_TIME), payload, due_at)


def _withdrawn(records: Iterable[TickRecord], reason: Reason) -> tuple[tuple[str, datetime, Reason], ...]:
    return tuple((record.hash, record.tick, reason) for record in records)


def _tick_changes(
    spec: ScheduleSpec, decided: Iterable[Decided], payload_of: PayloadOf | None
) -> tuple[TickChange, ...]:
    return tuple(
        _tick_change(spec, each, _payload(spec, each.tick, payload_of) if each.verdict in MADE else None)
        for each in decided
    )


def _payload(spec: ScheduleSpec, tick: datetime, payload_of: PayloadOf | None) -> Encoded:
    if spec.payload is not None:
        return spec.payload, spec.content_type
    if payload_of is None or isinstance(spec.schedule, Ticks):
        raise InvalidState(
            f"only the program that installed schedule {spec.name!r} can create its payloads",
            hint="do this in that program, or install the schedule with a payload instead of a function",
        )
    return payload_of(tick)
