"""The verbs of schedules, one statement each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from tarry.core.cron import (
    Misfire,
    Overlap,
    Policy,
    Reason,
    Ruling,
    ScheduleSpec,
    ScheduleState,
    TickRecord,
    TickRuling,
    Verdict,
)
from tarry.core.schedules import stored_schedule
from tarry.core.scheduling import DueCount
from tarry.storage.postgres.arrays import BigintArray, BooleanArray, IntArray, TextArray, TimestampArray
from tarry.storage.postgres.statement import Row, Statement, sql

Ledgers = dict[str, str]
"""Schedules that a statement has changed, by prefix, and the names of their ledgers."""
Tick = tuple[str, str, datetime]
"""Name of a ledger, hash and tick: what entries are compared by."""


def schedules(prefix: str | None) -> Statement[list[ScheduleState]]:
    return Statement(sql("cron_schedules"), {"prefix": prefix}, _states)


def due(owned: Sequence[str], limit: int, now: datetime | None) -> Statement[list[ScheduleState]]:
    return Statement(sql("cron_due"), {"owned": TextArray(owned), "limit": limit, "now": now}, _states)


def next_wake(owned: Sequence[str], now: datetime | None) -> Statement[timedelta | None]:
    params = {"owned": TextArray(owned), "now": now}
    return Statement(sql("cron_next_wake"), params, lambda rows: rows[0][0])


def lock(prefixes: Sequence[str]) -> Statement[dict[str, int]]:
    return Statement(sql("cron_lock"), {"prefixes": TextArray(prefixes)}, lambda rows: {row[0]: row[1] for row in rows})


def put(rulings: Sequence[Ruling]) -> Statement[list[str]]:
    rows = [_row(ruling.after) for ruling in rulings if ruling.after is not None]
    expected = {ruling.prefix: ruling.expected for ruling in rulings if ruling.expected is not None}
    params = {"rows": json.dumps(rows), "expected": json.dumps(expected)}
    return Statement(sql("cron_put"), params, lambda rows: [row[0] for row in rows])


def adopt(prefixes: Sequence[str]) -> Statement[Ledgers]:
    """The ledgers of schedules that were just installed."""
    return Statement(sql("cron_adopt"), {"prefixes": TextArray(prefixes)}, _ledgers)


def move(rulings: Sequence[Ruling]) -> Statement[Ledgers]:
    moved = [(ruling, ruling.after) for ruling in rulings if ruling.after is not None]
    params = {
        "prefixes": TextArray([ruling.prefix for ruling, _ in moved]),
        "expected": BigintArray([ruling.expected or 0 for ruling, _ in moved]),
        "cursors": TimestampArray([after.cursor_at for _, after in moved]),
        "wakes": TimestampArray([after.wake_at for _, after in moved]),
        "ruled": TimestampArray([after.ruled_at for _, after in moved]),
    }
    return Statement(sql("cron_move"), params, _ledgers)


def remove(rulings: Sequence[Ruling]) -> Statement[Ledgers]:
    params = {
        "prefixes": TextArray([ruling.prefix for ruling in rulings]),
        "expected": BigintArray([ruling.expected or 0 for ruling in rulings]),
    }
    return Statement(sql("cron_remove"), params, _ledgers)


def withdraw(rulings: Sequence[Ruling], ledgers: Ledgers, now: datetime | None) -> Statement[int]:
    asked = [(ruling.prefix, *one, ruling.ruled_at) for ruling in rulings for one in ruling.withdraw]
    params = {
        "prefixes": TextArray([prefix for prefix, *_ in asked]),
        "ledgers": TextArray([ledgers[prefix] for prefix, *_ in asked]),
        "hashes": TextArray([config_hash for _, config_hash, *_ in asked]),
        "ticks": TimestampArray([tick for _, _, tick, _, _ in asked]),
        "reasons": TextArray([reason for _, _, _, reason, _ in asked]),
        "decided": TimestampArray([at for *_, at in asked]),
        "now": now,
    }
    return Statement(sql("cron_withdraw"), params, len)


def ledger(decided: Sequence[tuple[Ruling, TickRuling]], ledgers: Ledgers) -> Statement[dict[Tick, bool]]:
    """The ticks that were entered, and of each whether the ledger did not know it."""
    params = {
        "prefixes": TextArray([ledgers[ruling.prefix] for ruling, _ in decided]),
        "hashes": TextArray([one.hash for _, one in decided]),
        "ticks": TimestampArray([one.tick for _, one in decided]),
        "untils": TimestampArray([one.until for _, one in decided]),
        "counts": IntArray([one.count for _, one in decided]),
        "verdicts": TextArray([one.verdict for _, one in decided]),
        "reasons": TextArray([one.reason for _, one in decided]),
        "decided": TimestampArray([ruling.ruled_at for ruling, _ in decided]),
        "due_ats": TimestampArray([None if one.draft is None else one.draft.due_at for _, one in decided]),
        "by_instant": BooleanArray([ruling.by_instant(one) for ruling, one in decided]),
    }
    return Statement(sql("cron_ledger"), params, lambda rows: {(row[0], row[1], row[2]): row[3] for row in rows})


def unmake(doubtful: Mapping[Tick, bool]) -> Statement[set[Tick]]:
    """Ticks, and of each whether it counts by its instant."""
    params = {
        "prefixes": TextArray([tick[0] for tick in doubtful]),
        "hashes": TextArray([tick[1] for tick in doubtful]),
        "ticks": TimestampArray([tick[2] for tick in doubtful]),
        "by_instant": BooleanArray(list(doubtful.values())),
    }
    return Statement(sql("cron_unmake"), params, lambda rows: {(row[0], row[1], row[2]) for row in rows})


def note(queue: str, made: Sequence[tuple[str, Tick, str]], now: datetime | None) -> Statement[int]:
    """Each tick with the key of its message."""
    params = {
        "queue": queue,
        "prefixes": TextArray([prefix for prefix, _, _ in made]),
        "ledgers": TextArray([tick[0] for _, tick, _ in made]),
        "hashes": TextArray([tick[1] for _, tick, _ in made]),
        "ticks": TimestampArray([tick[2] for _, tick, _ in made]),
        "keys": TextArray([key for _, _, key in made]),
        "now": now,
    }
    return Statement(sql("cron_note"), params, lambda rows: rows[0][0])


def ticks(prefix: str, since: datetime | None, until: datetime | None, limit: int) -> Statement[list[TickRecord]]:
    params = {"prefix": prefix, "since": since, "until": until, "limit": max(0, min(limit, 2**31 - 2))}
    return Statement(sql("cron_ticks"), params, _records)


def waiting(prefix: str) -> Statement[list[TickRecord]]:
    return Statement(sql("cron_waiting"), {"prefix": prefix}, _records)


def forget(before: datetime, limit: int) -> Statement[int]:
    return Statement(sql("cron_forget"), {"before": before, "limit": limit}, lambda rows: rows[0][0])


def due_counts(since: datetime, until: datetime, every: timedelta) -> Statement[list[DueCount]]:
    params = {"since": since, "until": until, "every": every.total_seconds()}
    return Statement(sql("due_counts"), params, lambda rows: [DueCount(*row) for row in rows])


def _row(state: ScheduleState) -> dict[str, Any]:
    spec, policy = state.spec, state.spec.policy
    return {
        "prefix": spec.prefix,
        "hash": spec.hash,
        "kind": spec.schedule.kind,
        "text": spec.schedule.text,
        "zone": spec.schedule.zone,
        "queue": spec.queue,
        "payload": None if spec.payload is None else "\\x" + spec.payload.hex(),
        "content_type": spec.content_type,
        "priority": spec.priority,
        "type": spec.type,
        "misfire": policy.misfire.value,
        "catch_up_for": _interval(policy.catch_up_for),
        "grace_for": _interval(policy.grace_for),
        "overlap": policy.overlap.value,
        "jitter_for": _interval(policy.jitter_for),
        "in_advance_for": _interval(policy.in_advance_for),
        "start_at": _instant(policy.start_at),
        "end_at": _instant(policy.end_at),
        "source": spec.source,
        "generation": state.generation,
        "cursor_at": _instant(state.cursor_at),
        "wake_at": _instant(state.wake_at),
        "ruled_at": _instant(state.ruled_at),
        "installed_at": _instant(state.installed_at),
        "paused_at": _instant(state.paused_at),
        "paused_reason": state.paused_reason,
    }


def _interval(span: timedelta) -> str:
    return f"{span // timedelta(microseconds=1)} microseconds"


def _instant(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def _states(rows: list[Row]) -> list[ScheduleState]:
    return [_state(row) for row in rows]


def _state(row: Row) -> ScheduleState:
    (prefix, config_hash, kind, text, zone, queue, payload, content_type, priority, type_name, misfire, catch_up, grace,
     overlap, jitter, in_advance, start_at, end_at, source, *state) = row  # fmt: skip
    spec = ScheduleSpec(
        prefix=prefix,
        schedule=stored_schedule(kind, text, zone, config_hash),
        queue=queue,
        payload=payload,
        content_type=content_type,
        priority=priority,
        type=type_name,
        policy=Policy(
            misfire=Misfire(misfire),
            catch_up_for=timedelta(seconds=catch_up),
            grace_for=timedelta(seconds=grace),
            overlap=Overlap(overlap),
            jitter_for=timedelta(seconds=jitter),
            in_advance_for=timedelta(seconds=in_advance),
            start_at=start_at,
            end_at=end_at,
        ),
        source=source,
    )
    (
        generation,
        revision,
        cursor_at,
        wake_at,
        ruled_at,
        installed_at,
        paused_at,
        reason,
        last_live,
        forgotten,
        ledger,
    ) = state
    return ScheduleState(
        spec=spec, generation=generation, revision=revision, cursor_at=cursor_at, wake_at=wake_at, ruled_at=ruled_at,
        installed_at=installed_at, paused_at=paused_at, paused_reason=reason, last_live=last_live,
        forgotten_until=forgotten, ledger=ledger,
    )  # fmt: skip


def _records(rows: list[Row]) -> list[TickRecord]:
    return [
        TickRecord(
            prefix=row[0], hash=row[1], tick=row[2], verdict=Verdict(row[3]), reason=Reason(row[4]), decided_at=row[5],
            until=row[6], count=row[7], queue=row[8], key=row[9], version=row[10], due_at=row[11], live=row[12],
            ledger=row[14],
        )
        for row in rows
    ]  # fmt: skip


def _ledgers(rows: list[Row]) -> Ledgers:
    return {row[0]: row[1] for row in rows}
