"""Statements of schedules and their ledgers."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from typing import Any, cast

from tarry.core.cron.model import (
    Policy,
    Reason,
    ScheduleChange,
    ScheduleSpec,
    ScheduleState,
    TickChange,
    TickRecord,
    Verdict,
)
from tarry.core.cron.schedule_types import stored_schedule
from tarry.storage.postgres.arrays import BigintArray, BooleanArray, IntArray, TextArray, TimestampArray
from tarry.storage.postgres.statement import Row, Statement, bind, each, value

Ledgers = dict[str, str]
"""Schedules that a statement has changed, and the names of their ledgers."""
Tick = tuple[str, str, datetime]
"""Name of a ledger, hash and tick: what entries are compared by."""


def lock(names: Sequence[str]) -> Statement[dict[str, int]]:
    return bind("cron/lock", lambda rows: {row.name: row.revision for row in rows}, names=TextArray(names))


def store(changes: Sequence[ScheduleChange]) -> Statement[list[str]]:
    rows = [_row(change.after) for change in changes if change.after is not None]
    expected = {change.name: change.expected for change in changes if change.expected is not None}
    texts = {"rows": json.dumps(rows, default=_as_text), "expected": json.dumps(expected)}
    return bind("cron/store", each(attrgetter("name")), **texts)


def adopt_ledger(names: Sequence[str]) -> Statement[Ledgers]:
    """The ledgers of schedules that were just installed."""
    return bind("cron/adopt_ledger", _ledgers, names=TextArray(names))


def advance(changes: Sequence[ScheduleChange]) -> Statement[Ledgers]:
    moved = [change for change in changes if change.after is not None]
    states = [change.after for change in moved if change.after is not None]
    return bind(
        "cron/advance",
        _ledgers,
        **_expected(moved),
        cursors=TimestampArray([after.cursor_at for after in states]),
        wakes=TimestampArray([after.wake_at for after in states]),
        decided=TimestampArray([after.decided_at for after in states]),
    )


def remove(changes: Sequence[ScheduleChange]) -> Statement[Ledgers]:
    return bind("cron/remove", _ledgers, **_expected(changes))


def _expected(changes: Sequence[ScheduleChange]) -> dict[str, Any]:
    return {
        "names": TextArray([change.name for change in changes]),
        "expected": BigintArray([change.expected or 0 for change in changes]),
    }


def withdraw(changes: Sequence[ScheduleChange], ledgers: Ledgers, now: datetime | None) -> Statement[int]:
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


def enter_ticks(decided: Sequence[tuple[ScheduleChange, TickChange]], ledgers: Ledgers) -> Statement[dict[Tick, bool]]:
    """The ticks that were entered, and whether each was new to the ledger."""
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
    """`doubtful`: ticks, and whether each counts by its instant."""
    ledgers, ticks = _columns(doubtful)
    by_instant = BooleanArray(list(doubtful.values()))
    return bind(
        "cron/remove_forgotten", lambda rows: {*map(_tick, rows)}, ledgers=ledgers, **ticks, by_instant=by_instant
    )


def _columns(ticks: Iterable[Tick]) -> tuple[TextArray, dict[str, Any]]:
    """Names of ledgers; hashes and ticks."""
    ledgers, hashes, instants = zip(*ticks, strict=True)
    return TextArray(ledgers), {"hashes": TextArray(hashes), "ticks": TimestampArray(instants)}


def _tick(row: Row) -> Tick:
    return row.ledger, row.hash, row.tick


def link_messages(queue: str, made: Sequence[tuple[str, Tick, str]], now: datetime | None) -> Statement[int]:
    """Each tick with the key of its message."""
    names, keys = TextArray([name for name, _, _ in made]), TextArray([key for _, _, key in made])
    ledgers, ticks = _columns(tick for _, tick, _ in made)
    about = {"queue": queue, "names": names, "ledgers": ledgers, "keys": keys, "now": now}
    return bind("cron/link_messages", value, **about, **ticks)


def forget(before: datetime, limit: int) -> Statement[int]:
    return bind("cron/forget", value, before=before, limit=limit)


_SCHEDULE = ("kind", "text", "zone")
_POLICY = tuple(field.name for field in fields(Policy))
_SPEC = ("name", "queue", "payload", "content_type", "priority", "type", "source")
_STATE = ("generation", "cursor_at", "wake_at", "decided_at", "installed_at", "paused_at", "paused_reason")
_STATE_READ = ("revision", "last_live", "forgotten_until", "ledger")
"""Columns that the database decides."""


def _row(state: ScheduleState) -> dict[str, Any]:
    spec = state.spec
    sources = ((spec, ("hash", *_SPEC)), (spec.schedule, _SCHEDULE), (spec.policy, _POLICY), (state, _STATE))
    return {name: getattr(source, name) for source, names in sources for name in names}


def _as_text(value: object) -> str:
    """A value that JSON has not, as PostgreSQL reads it."""
    match value:
        case bytes():
            return "\\x" + value.hex()
        case timedelta():
            return f"{value // timedelta(microseconds=1)} microseconds"
        case _:
            return cast("datetime", value).isoformat()


def state(row: Row) -> ScheduleState:
    def columns(names: Iterable[str]) -> dict[str, Any]:
        return {name: getattr(row, name) for name in names}

    schedule = stored_schedule(row.kind, row.text, row.zone, row.hash)
    policy = _policy(tuple(columns(_POLICY).items()))
    spec = ScheduleSpec(schedule=schedule, policy=policy, **columns(_SPEC))
    return ScheduleState(spec=spec, **columns(_STATE + _STATE_READ))


@lru_cache(maxsize=256)
def _policy(columns: tuple[tuple[str, Any], ...]) -> Policy:
    """Most schedules have the same one, and it checks its values: half of the time to read a schedule."""
    return Policy(**dict(columns))


def record(row: Row) -> TickRecord:
    return TickRecord(**row._asdict() | {"verdict": Verdict(row.verdict), "reason": Reason(row.reason)})


def _ledgers(rows: list[Row]) -> Ledgers:
    return {row.name: row.ledger for row in rows}
