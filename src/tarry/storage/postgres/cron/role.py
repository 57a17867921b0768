"""`CronRole` on PostgreSQL.

Schedule changes are applied in one transaction each, or together. Compare-and-set: a concurrent writer loses and retries.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Any, cast

from tarry.core.cron.model import (
    DueCount,
    Policy,
    ScheduleChange,
    ScheduleSpec,
    ScheduleState,
    TickChange,
    TickRecord,
)
from tarry.core.cron.schedule_types import stored_schedule
from tarry.core.errors import InvalidState
from tarry.core.messages.model import Draft
from tarry.core.messages.outcomes import Outcome
from tarry.storage.postgres.arrays import BigintArray, BooleanArray, IntArray, TextArray, TimestampArray
from tarry.storage.postgres.messages import operations as message_ops
from tarry.storage.postgres.messages.statements import reserve, storable
from tarry.storage.postgres.operation import PostgresOperation, PostgresRole
from tarry.storage.postgres.statement import Op, Row, Statement, bind, each, made, value
from tarry.wire.base import same_fields

FORGET_AT_ONCE = 10_000
Ledgers = dict[str, str]
"""The schedules that a statement has changed, and the names of their ledgers."""
Tick = tuple[str, str, datetime]
"""The identity of a ledger entry: ledger name, hash and tick."""
Offer = Callable[[str, Sequence[Draft]], Op[list[Outcome]]]
"""An offer to a queue, which is created if it is missing and the settings allow it."""


class PostgresCron(PostgresRole):
    def schedules(self, name: str | None = None) -> PostgresOperation[list[ScheduleState]]:
        return self._sql("cron/schedules", each(_state), name=name)

    def due(self, owned: Sequence[str], *, limit: int = 1000) -> PostgresOperation[list[ScheduleState]]:
        return self._sql("cron/due", each(_state), owned=TextArray(owned), limit=limit)

    def next_wake_in(self, owned: Sequence[str]) -> PostgresOperation[timedelta | None]:
        return self._sql("cron/next_wake", value, owned=TextArray(owned))

    def apply_changes(
        self, changes: Sequence[ScheduleChange], *, together: bool = True
    ) -> PostgresOperation[list[bool]]:
        queues = sorted({tick.queue for change in changes for tick in change.ticks if tick.queue is not None})

        def start(own: bool) -> Op[list[bool]]:  # noqa: FBT001
            def offer(queue: str, drafts: Sequence[Draft]) -> Op[list[Outcome]]:
                return self._creating(queue, own, lambda now: message_ops.offer_many(queue, drafts, now), list)

            for queue in queues:  # before any write, because an op that finds a queue missing is restarted
                yield from self._creating(queue, own, lambda now, name=queue: reserve(name, 0, now).run(), bool)
            return (yield from _apply(changes, offer, self._now, together=together))

        return PostgresOperation(start, atomic=True)

    def ticks(
        self, name: str, *, since: datetime | None = None, until: datetime | None = None, limit: int = 100
    ) -> PostgresOperation[list[TickRecord]]:
        rows = {"name": name, "since": since, "until": until, "limit": storable(limit)}
        return self._sql("cron/ticks", each(made(TickRecord)), **rows)

    def waiting_ticks(self, name: str) -> PostgresOperation[list[TickRecord]]:
        return self._sql("cron/undelivered", each(made(TickRecord)), name=name)

    def forget_ticks(self, before: datetime) -> PostgresOperation[int]:
        return self._sql("cron/forget", value, before=before, limit=FORGET_AT_ONCE)

    def due_counts(self, since: datetime, until: datetime, every: timedelta) -> PostgresOperation[list[DueCount]]:
        span = {"since": since, "until": until, "every": every.total_seconds()}
        return self._sql("cron/due_counts", each(made(DueCount)), **span)


def _apply(changes: Sequence[ScheduleChange], offer: Offer, now: datetime | None, *, together: bool) -> Op[list[bool]]:
    """Apply changes in one transaction and return which were applied: not those of schedules that changed since they were
    read. `together`: all or none; otherwise a move of a schedule that another transaction has locked is skipped."""
    nothing = [False] * len(changes)
    if together and (len(changes) > 1 or any(change.moves_only for change in changes)):
        names = TextArray([change.name for change in changes])
        locked = yield from bind("cron/lock", list[Row], names=names).run()
        revisions = {row.name: row.revision for row in locked}
        if any(revisions.get(change.name) != change.expected for change in changes):
            return nothing
    ledgers = yield from _store(changes)
    if not ledgers:
        return nothing
    if together and len(ledgers) < len(changes):
        # A row that does not exist yet could not be locked. This error rolls the transaction back.
        raise InvalidState("another process installed one of these schedules at the same moment", hint="try again")
    stored = [change for change in changes if change.name in ledgers]
    if any(change.withdraw for change in stored):
        yield from _withdraw(stored, ledgers, now).run()
    decided = [(change, tick_change) for change in stored for tick_change in change.ticks]
    if decided:
        entered = yield from _enter(decided, ledgers)
        planned: dict[str, list[tuple[str, Tick, Draft]]] = defaultdict(list)
        for change, tick_change in decided:
            tick = (ledgers[change.name], tick_change.hash, tick_change.tick)
            if tick_change.draft is not None and tick_change.queue is not None and tick in entered:
                planned[tick_change.queue].append((change.name, tick, tick_change.draft))
        for queue in sorted(planned):
            yield from _offer(queue, planned[queue], offer, now)
    return [change.name in ledgers for change in changes]


def _store(changes: Sequence[ScheduleChange]) -> Op[Ledgers]:
    """Store the new states of schedules that still have the expected revision; returns their ledgers."""
    moves = [(change, change.after) for change in changes if change.moves_only and change.after is not None]
    installs = [(change, change.after) for change in changes if not change.moves_only and change.after is not None]
    removals = [change for change in changes if not change.moves_only and change.after is None]
    ledgers: Ledgers = {}
    if moves:
        moved = {
            "cursors": TimestampArray([after.cursor_at for _, after in moves]),
            "wakes": TimestampArray([after.wake_at for _, after in moves]),
            "decided": TimestampArray([after.decided_at for _, after in moves]),
        }
        ledgers |= yield from bind("cron/advance", _ledgers, **_expected([move for move, _ in moves]), **moved).run()
    if installs:
        rows = json.dumps([_row(after) for _, after in installs], default=_as_text)
        expected = {change.name: change.expected for change, _ in installs if change.expected is not None}
        store = bind("cron/store", each(attrgetter("name")), rows=rows, expected=json.dumps(expected))
        if installed := (yield from store.run()):
            ledgers |= yield from bind("cron/adopt_ledger", _ledgers, names=TextArray(installed)).run()
    if removals:
        ledgers |= yield from bind("cron/remove", _ledgers, **_expected(removals)).run()
    return ledgers


def _expected(changes: Sequence[ScheduleChange]) -> dict[str, Any]:
    return {
        "names": TextArray([change.name for change in changes]),
        "expected": BigintArray([change.expected or 0 for change in changes]),
    }


def _ledgers(rows: list[Row]) -> Ledgers:
    return {row.name: row.ledger for row in rows}


def _withdraw(changes: Sequence[ScheduleChange], ledgers: Ledgers, now: datetime | None) -> Statement[int]:
    withdrawals = [
        (change.name, *withdrawal, change.decided_at) for change in changes for withdrawal in change.withdraw
    ]
    return bind(
        "cron/withdraw",
        len,
        names=TextArray([name for name, *_ in withdrawals]),
        ledgers=TextArray([ledgers[name] for name, *_ in withdrawals]),
        hashes=TextArray([config_hash for _, config_hash, *_ in withdrawals]),
        ticks=TimestampArray([tick for _, _, tick, _, _ in withdrawals]),
        reasons=TextArray([reason for _, _, _, reason, _ in withdrawals]),
        decided=TimestampArray([at for *_, at in withdrawals]),
        now=now,
    )


def _enter(decided: Sequence[tuple[ScheduleChange, TickChange]], ledgers: Ledgers) -> Op[set[Tick]]:
    """Enter ticks and return those that the ledger accepted. Past ticks may have been deleted from the ledger before, which a
    second statement checks; future ticks do not need it."""
    entered = yield from enter_ticks(decided, ledgers).run()
    past = {
        (ledgers[change.name], tick_change.hash, tick_change.tick): change.by_instant(tick_change)
        for change, tick_change in decided
        if tick_change.draft and tick_change.tick <= change.decided_at
    }
    doubtful = {tick: by_instant for tick, by_instant in past.items() if entered.get(tick)}
    forgotten = (yield from remove_forgotten(doubtful).run()) if doubtful else set[Tick]()
    return entered.keys() - forgotten


def enter_ticks(decided: Sequence[tuple[ScheduleChange, TickChange]], ledgers: Ledgers) -> Statement[dict[Tick, bool]]:
    """The entered ticks, and whether each was new to the ledger."""
    params = {
        "ledgers": TextArray([ledgers[change.name] for change, _ in decided]),
        "hashes": TextArray([tick.hash for _, tick in decided]),
        "ticks": TimestampArray([tick.tick for _, tick in decided]),
        "untils": TimestampArray([tick.until for _, tick in decided]),
        "counts": IntArray([tick.count for _, tick in decided]),
        "verdicts": TextArray([tick.verdict for _, tick in decided]),
        "reasons": TextArray([tick.reason for _, tick in decided]),
        "decided": TimestampArray([change.decided_at for change, _ in decided]),
        "due_ats": TimestampArray([None if tick.draft is None else tick.draft.due_at for _, tick in decided]),
        "by_instant": BooleanArray([change.by_instant(tick) for change, tick in decided]),
    }
    return bind("cron/enter_ticks", lambda rows: {_tick(row): row.is_new for row in rows}, **params)


def remove_forgotten(doubtful: Mapping[Tick, bool]) -> Statement[set[Tick]]:
    """Remove ticks that were deleted before. `doubtful`: ticks, and whether each counts by its instant."""
    ledgers, ticks = _columns(doubtful)
    by_instant = BooleanArray(list(doubtful.values()))
    return bind(
        "cron/remove_forgotten", lambda rows: {*map(_tick, rows)}, ledgers=ledgers, **ticks, by_instant=by_instant
    )


def _columns(ticks: Iterable[Tick]) -> tuple[TextArray, dict[str, Any]]:
    """The ledger names; hashes and ticks."""
    ledgers, hashes, instants = zip(*ticks, strict=True)
    return TextArray(ledgers), {"hashes": TextArray(hashes), "ticks": TimestampArray(instants)}


def _tick(row: Row) -> Tick:
    return row.ledger, row.hash, row.tick


def _offer(queue: str, planned: Sequence[tuple[str, Tick, Draft]], offer: Offer, now: datetime | None) -> Op[None]:
    outcomes = yield from offer(queue, [draft for _, _, draft in planned])
    # If another message has the key, the ledger names no message.
    created = [
        (name, tick, draft.key)
        for (name, tick, draft), outcome in zip(planned, outcomes, strict=True)
        if outcome is Outcome.CREATED
    ]
    if created:
        names, keys = TextArray([name for name, _, _ in created]), TextArray([key for _, _, key in created])
        ledgers, ticks = _columns(tick for _, tick, _ in created)
        about = {"queue": queue, "names": names, "ledgers": ledgers, "keys": keys, "now": now}
        yield from bind("cron/link_messages", value, **about, **ticks).run()


def _row(state: ScheduleState) -> dict[str, Any]:
    """The columns of a schedule; the statement ignores those that the database decides."""
    spec, schedule = state.spec, state.spec.schedule
    times = {"hash": spec.hash, "kind": schedule.kind, "text": schedule.text, "zone": schedule.zone}
    config = same_fields(spec, ScheduleSpec, "schedule", "policy") | same_fields(spec.policy, Policy)
    return times | config | same_fields(state, ScheduleState, "spec")


def _as_text(value: object) -> str:
    """The PostgreSQL text form of a value that JSON does not support."""
    match value:
        case bytes():
            return "\\x" + value.hex()
        case timedelta():
            return f"{value // timedelta(microseconds=1)} microseconds"
        case _:
            return cast("datetime", value).isoformat()


def _state(row: Row) -> ScheduleState:
    schedule = stored_schedule(row.kind, row.text, row.zone, row.hash)
    policy = _policy(tuple(same_fields(row, Policy).items()))
    spec = ScheduleSpec(schedule=schedule, policy=policy, **same_fields(row, ScheduleSpec))
    return ScheduleState(spec=spec, **same_fields(row, ScheduleState))


@lru_cache(maxsize=256)
def _policy(columns: tuple[tuple[str, Any], ...]) -> Policy:
    """Cached, because most schedules share a policy and its validation takes half of the time to read a schedule."""
    return Policy(**dict(columns))
