"""Operations on schedules: read, compute a schedule change, compare-and-set, and retry if a concurrent writer was
faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from tarry.core import cron_plan, cron_rulings
from tarry.core.cron import Ruling, ScheduleSpec, ScheduleState, TickRecord, Verdict
from tarry.core.cron_rulings import PayloadOf, PlannedMessage
from tarry.core.errors import InvalidInput, Refused, TarryError, UnknownSchedule
from tarry.handles.asking import Ask, question

_TRIES = 20
"""How many lost races in a row are tolerated before an error."""
_MOST_RECORDS = 100_000
"""Maximum number of ledger entries that a backfill compares with."""
PAGE = 2_000
"""Ledger entries read by one statement: decoding a page blocks an event loop."""
AT_ONCE = 500
"""Maximum number of schedules that a scheduler plans in one transaction."""
MOST_PREVIEWED = 1_000
_MOST_TICKS = 10_000
"""Maximum number of ticks that a scheduler decides in one transaction; their payloads have at most `MOST_BYTES`."""

Make = Callable[["Found"], Ruling | None]


class Found(NamedTuple):
    state: ScheduleState | None
    now: datetime
    waiting: list[TickRecord]


def found(prefix: str, conn: Any) -> Ask[ScheduleState]:
    states = yield from question(lambda store: store.schedules(prefix, conn=conn))
    if not states:
        raise UnknownSchedule(prefix)
    return states[0]


def _now_after(conn: Any) -> Ask[datetime]:
    """The time, asked for after the schedules were read. Asked for before, and delayed, it could be earlier than the last
    decision of another process: that looks like a clock that was set back, and ticks of the last minute would be decided
    again, under a configuration that was not in force then.
    """
    return (yield from question(lambda store: store.now(conn=conn)))


def ruled(prefix: str, make: Make, conn: Any, wanted: ScheduleSpec | None = None) -> Ask[ScheduleState | None]:
    """Apply the change computed by `make` and return the schedule after it; None if it is gone. Without a schedule
    there are no waiting ticks, and if it already equals `wanted` none are withdrawn: in both cases the ledger is not
    read.
    """
    for _ in range(_TRIES):
        states = yield from question(lambda store: store.schedules(prefix, conn=conn))
        state = states[0] if states else None
        waiting: list[TickRecord] = []
        if state is not None and state.spec != wanted:
            waiting = yield from question(lambda store: store.waiting_ticks(prefix, conn=conn))
        now = yield from _now_after(conn)
        ruling = make(Found(state, now, waiting))
        if ruling is None:
            return state
        held = yield from question(lambda store, ruling=ruling: store.rule([ruling], conn=conn))
        if held[0]:
            return ruling.after
    raise Refused(f"schedule {prefix!r} is changed by others all the time; nothing was done", hint="try again")


def known(prefix: str, make: Callable[[ScheduleState, Found], Ruling | None], conn: Any) -> Ask[ScheduleState]:
    """`ruled` for a schedule that must exist."""

    def checked(seen: Found) -> Ruling | None:
        if seen.state is None:
            raise UnknownSchedule(prefix)
        return make(seen.state, seen)

    after = yield from ruled(prefix, checked, conn)
    return after if after is not None else (yield from found(prefix, conn))


def install(spec: ScheduleSpec, payload_of: PayloadOf | None, conn: Any) -> Ask[ScheduleState]:
    after = yield from ruled(
        spec.prefix, lambda seen: cron_rulings.install(seen.state, spec, seen.now, seen.waiting, payload_of), conn, spec
    )
    return after if after is not None else (yield from found(spec.prefix, conn))


def install_ticks(
    spec: ScheduleSpec, messages: Sequence[PlannedMessage], conn: Any, *, again: bool = False
) -> Ask[bool]:
    """`again`: only if this configuration is still installed. Returns whether it is."""
    stands: list[bool] = []

    def make(seen: Found) -> Ruling | None:
        stands[:] = [not again or (seen.state is not None and seen.state.spec == spec)]
        if not stands[0]:
            return None
        return cron_rulings.install_ticks(seen.state, spec, seen.now, seen.waiting, messages)

    yield from ruled(spec.prefix, make, conn, spec)
    return stands[0]


def uninstall(prefix: str, config_hash: str | None, conn: Any) -> Ask[bool]:
    """Whether there was anything to uninstall. If it is gone on a retry, there was: the first response may have been
    lost.
    """
    found_some: list[bool] = []

    def make(seen: Found) -> Ruling | None:
        ruling = cron_rulings.uninstall(seen.state, config_hash, seen.now, seen.waiting)
        found_some.append(ruling is not None)
        return ruling

    yield from ruled(prefix, make, conn)
    return any(found_some)


def pause(prefix: str, reason: str | None, payload_of: PayloadOf | None, conn: Any) -> Ask[ScheduleState]:
    return known(
        prefix, lambda state, seen: cron_rulings.pause(state, seen.now, seen.waiting, reason, payload_of), conn
    )


def resume(prefix: str, payload_of: PayloadOf | None, conn: Any) -> Ask[ScheduleState]:
    return known(prefix, lambda state, seen: cron_rulings.resume(state, seen.now, payload_of), conn)


def skip(prefix: str, conn: Any) -> Ask[datetime]:
    """Skip the next tick and return it."""

    def make(seen: ByHand) -> tuple[Ruling, datetime]:
        skipped = cron_rulings.skip(*seen)
        if skipped is None:
            raise Refused(f"schedule {prefix!r} has no tick ahead that could be skipped")
        return skipped

    return _once(prefix, make, conn)


def trigger(prefix: str, payload_of: PayloadOf | None, conn: Any) -> Ask[datetime]:
    """Fire now and return the tick of this run."""
    return _once(prefix, lambda seen: cron_rulings.trigger(*seen, payload_of), conn)


class ByHand(NamedTuple):
    state: ScheduleState
    now: datetime
    ahead: list[TickRecord]


def _once(prefix: str, make: Callable[[ByHand], tuple[Ruling, datetime]], conn: Any) -> Ask[datetime]:
    """Decide one tick, and no second one if a response was lost: a change that was rejected may have been applied
    earlier by this call. Then the ledger has its tick with the decision time chosen here.
    """
    now = yield from question(lambda store: store.now(conn=conn))
    tried: set[tuple[str, datetime, datetime]] = set()
    for _ in range(_TRIES):
        state = yield from found(prefix, conn)
        ahead = yield from question(lambda store: store.ticks(prefix, since=now, limit=10_000, conn=conn))
        for record in ahead:
            if (record.hash, record.tick, record.decided_at) in tried:
                return record.tick
        ruling, tick = make(ByHand(state, now, ahead))
        if (yield from question(lambda store, ruling=ruling: store.rule([ruling], conn=conn)))[0]:
            return tick
        tried.add((state.spec.hash, tick, now))
    raise Refused(f"schedule {prefix!r} is changed by others all the time; nothing was done", hint="try again")


def missing(prefix: str, since: datetime, until: datetime, conn: Any) -> Ask[list[datetime]]:
    now = yield from question(lambda store: store.now(conn=conn))
    state, records = yield from _recorded(prefix, since, until, conn)
    return cron_rulings.missing(state, since, until, now, records)


def _recorded(prefix: str, since: datetime, until: datetime, conn: Any) -> Ask[tuple[ScheduleState, list[TickRecord]]]:
    state = yield from found(prefix, conn)
    records: dict[tuple[str, datetime, datetime | None], TickRecord] = {}
    while True:
        page = yield from question(
            lambda store, until=until: store.ticks(prefix, since=since, until=until, limit=PAGE, conn=conn)
        )
        known = len(records)
        records |= {(record.hash, record.tick, record.until): record for record in page}
        if len(records) > _MOST_RECORDS:
            raise Refused(
                f"the ledger has more than {_MOST_RECORDS:,} entries of this range",
                hint="ask for it, or fill it in, by parts",
            )
        if len(page) < PAGE or len(records) == known:
            return state, list(records.values())
        until = page[-1].tick  # inclusive: other configurations may have decided the same tick


def backfill(
    prefix: str, since: datetime, until: datetime, payload_of: PayloadOf | None, conn: Any
) -> Ask[list[datetime]]:
    """The ticks that were filled in. As in `_once`, a rejected change may have been applied by an earlier try."""
    now = yield from question(lambda store: store.now(conn=conn))
    tried: set[datetime] = set()
    for _ in range(_TRIES):
        state, records = yield from _recorded(prefix, since, until, conn)
        done = {record.tick for record in records if record.verdict is Verdict.BACKFILLED and record.decided_at == now}
        if tried & done:
            return sorted(done)
        ticks = cron_rulings.missing(state, since, until, now, records)
        if not ticks:
            return []
        ruling = cron_rulings.backfill(state, ticks, now, payload_of)
        if (yield from question(lambda store, ruling=ruling: store.rule([ruling], conn=conn)))[0]:
            return ticks
        tried |= set(ticks)
    raise Refused(f"schedule {prefix!r} is changed by others all the time; nothing was done", hint="try again")


def apply(wanted: Sequence[ScheduleSpec], removed: Iterable[str], conn: Any) -> Ask[None]:
    """Change many schedules, all or none."""
    prefixes = list(removed)
    for _ in range(_TRIES):
        states = {state.prefix: state for state in (yield from question(lambda store: store.schedules(conn=conn)))}
        now = yield from _now_after(conn)
        rulings: list[Ruling] = []
        for spec in wanted:
            state, waiting = states.get(spec.prefix), list[TickRecord]()
            if state is not None and state.spec != spec:
                waiting = yield from question(lambda store, spec=spec: store.waiting_ticks(spec.prefix, conn=conn))
            ruling = cron_rulings.install(state, spec, now, waiting, None)
            rulings += [] if ruling is None else [ruling]
        for prefix in prefixes:
            waiting = yield from question(lambda store, prefix=prefix: store.waiting_ticks(prefix, conn=conn))
            ruling = cron_rulings.uninstall(states.get(prefix), None, now, waiting)
            rulings += [] if ruling is None else [ruling]
        if not rulings or all((yield from question(lambda store, rulings=rulings: store.rule(rulings, conn=conn)))):
            return
    raise Refused("schedules are changed by others all the time; nothing was applied", hint="try again")


@dataclass(frozen=True, slots=True)
class Owned:
    """A schedule whose payloads this program generates, at the generation that it installed."""

    generation: int
    payload_of: PayloadOf


@dataclass(slots=True)
class Ran:
    """The result of one scheduler run."""

    planned: int = 0
    """Upper bound of planned messages: the ledger may have had some of them already."""
    outrun: int = 0
    """Schedules that another scheduler has planned meanwhile, or that another transaction has locked."""
    failed: dict[str, str] = field(default_factory=dict[str, str])
    replaced: list[str] = field(default_factory=list[str])
    """Owned schedules that another process installed in another configuration."""
    more: bool = False
    """There may be more to do immediately."""


def schedule_once(owned: Mapping[str, Owned], limit: int = AT_ONCE) -> Ask[Ran]:
    """Plan what is due. A failure of one schedule does not prevent the others from being planned."""
    ran = Ran()
    due = yield from question(lambda store: store.due_schedules(list(owned), limit=limit))
    now = yield from _now_after(None)
    rulings: list[Ruling] = []
    for state in due:
        own = owned.get(state.prefix) if state.spec.by_code else None
        if own is not None and own.generation != state.generation:
            ran.replaced.append(state.prefix)
            continue
        try:
            ruling = cron_rulings.advance(state, now, None if own is None else own.payload_of)
        except Exception as error:
            # From the program's payload function, or a time zone that is unknown here.
            ran.failed[state.prefix] = f"{type(error).__name__}: {error}"
            continue
        rulings += [] if ruling is None else [ruling]
    ran.more = len(due) == limit
    for group in _grouped(rulings):
        yield from _apply_each(group, ran)
    return ran


def _grouped(rulings: Iterable[Ruling]) -> Iterator[list[Ruling]]:
    """Split rulings into transactions of a bounded size: a payload is stored with each tick."""
    group: list[Ruling] = []
    ticks = size = 0
    for ruling in rulings:
        added = sum(len(one.draft.payload) for one in ruling.ticks if one.draft is not None)
        ticks, size = ticks + len(ruling.ticks), size + added
        if group and (ticks > _MOST_TICKS or size > cron_plan.MOST_BYTES):
            yield group
            group, ticks, size = [], len(ruling.ticks), added
        group.append(ruling)
    if group:
        yield group


def _apply_each(rulings: list[Ruling], ran: Ran) -> Ask[None]:
    try:
        held = yield from question(lambda store: store.rule(rulings, together=False))
    except ConnectionError:
        raise
    except TarryError as error:
        if len(rulings) == 1:
            ran.failed[rulings[0].prefix] = str(error)
            return
        for ruling in rulings:  # one of them failed the batch; apply the others individually
            yield from _apply_each([ruling], ran)
        return
    ran.outrun += held.count(False)
    for ruling, stands in zip(rulings, held, strict=True):
        if stands:
            ran.planned += sum(one.draft is not None for one in ruling.ticks)
            ran.more |= _is_behind(ruling)


def _is_behind(ruling: Ruling) -> bool:
    """Whether it has decided less than there is to decide."""
    wake_at = None if ruling.after is None else ruling.after.wake_at
    return wake_at is not None and wake_at <= ruling.ruled_at


def next_wake_in(owned: Iterable[str]) -> Ask[timedelta | None]:
    return question(lambda store: store.next_wake_in(list(owned)))


def explanation(prefix: str, tick: datetime, conn: Any) -> Ask[tuple[ScheduleState, datetime, list[TickRecord]]]:
    state = yield from found(prefix, conn)
    now = yield from question(lambda store: store.now(conn=conn))
    return state, now, (yield from question(lambda store: store.ticks(prefix, since=tick, until=tick, conn=conn)))


def preview(prefix: str, n: int, conn: Any) -> Ask[list[cron_plan.Fire]]:
    if n > MOST_PREVIEWED:
        raise InvalidInput(f"a preview shows at most {MOST_PREVIEWED:,} ticks, not {n:,}")
    state = yield from found(prefix, conn)
    now = yield from question(lambda store: store.now(conn=conn))
    fires = cron_plan.preview(state, now, n)
    if not fires:
        return fires
    ahead = yield from question(
        lambda store: store.ticks(prefix, since=now, until=fires[-1].tick, limit=10_000, conn=conn)
    )
    return cron_plan.with_verdicts(state, fires, ahead)
