"""The statements of the sink, one function each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from tarry.core.messages import ConflictRule
from tarry.core.sinking import Rules, SinkWrite, Staged, Write, WriteState
from tarry.storage.postgres.arrays import BigintArray, IntArray, TextArray
from tarry.storage.postgres.statement import Row, Statement, sql

_CONFLICTS = {
    ConflictRule.REPLACE: 0,
    ConflictRule.KEEP: 1,
    ConflictRule.EARLIEST: 2,
    ConflictRule.DEBOUNCE: 3,
}


class Registered(NamedTuple):
    id: int
    write: SinkWrite


class Counted(NamedTuple):
    """The staged rows of one attempt."""

    rows: int
    size: int


class Destination(NamedTuple):
    """A queue that receives rows."""

    name: str
    id: int
    journal: str


@dataclass(frozen=True, slots=True)
class Reserved:
    """The time of the merge, and a version for each row: row n (from 1) in range k has bases[k] + n."""

    now: datetime
    starts: Sequence[int]
    bases: Sequence[int]


class Merged(NamedTuple):
    chosen: int
    created: int
    updated: int


def begin(write: Write) -> Statement[Registered]:
    params = {"write_id": write.write_id, "stream": write.stream, "batch": write.batch}
    return Statement(sql("pipeline_sink_begin"), params, lambda rows: _registered(rows[0]))


def outcome(write_id: str) -> Statement[SinkWrite | None]:
    return Statement(
        sql("pipeline_sink_outcome"),
        {"write_id": write_id},
        lambda rows: _registered(rows[0]).write if rows else None,
    )


def attempt(write: int, run: UUID) -> Statement[int]:
    return Statement(sql("pipeline_sink_attempt"), {"write": write, "run": run}, lambda rows: rows[0][0])


def hold(attempt: int) -> Statement[bool]:
    return Statement(sql("pipeline_sink_hold"), {"attempt": attempt}, bool)


def tune() -> Statement[None]:
    return Statement(sql("pipeline_sink_tune"), {}, lambda rows: None)


def lock() -> Statement[None]:
    return Statement(sql("pipeline_sink_lock"), {}, lambda rows: None)


def staged(attempts: Sequence[int]) -> Statement[Mapping[int, Counted]]:
    return Statement(
        sql("pipeline_sink_staged"),
        {"attempts": BigintArray(attempts)},
        lambda rows: {id: Counted(n, size) for id, n, size in rows},
    )


def destinations(names: Sequence[str]) -> Statement[list[Destination]]:
    return Statement(
        sql("pipeline_sink_queues"), {"names": TextArray(names)}, lambda rows: [Destination(*row) for row in rows]
    )


def reserve(n: int, now: datetime | None) -> Statement[Reserved]:
    return Statement(sql("pipeline_sink_reserve"), {"n": n, "now": now}, lambda rows: Reserved(*rows[0]))


def merge(
    group: Sequence[Staged],
    offsets: Sequence[int],
    destinations: Sequence[Destination],
    reserved: Reserved,
    rules: Rules,
) -> Statement[Merged]:
    """`offsets`: the number of rows before those of each part."""
    max_wait = rules.conflict.max_wait
    params = {
        "attempts": BigintArray([each.attempt for each in group]),
        "offsets": BigintArray(offsets),
        "queues": TextArray([each.name for each in destinations]),
        "queue_ids": IntArray([each.id for each in destinations]),
        "telling": IntArray([each.id for each in destinations if each.journal == "payloads"]),
        "silent": IntArray([each.id for each in destinations if each.journal == "off"]),
        "starts": BigintArray(reserved.starts),
        "bases": BigintArray(reserved.bases),
        "now": reserved.now,
        "conflict": _CONFLICTS[rules.conflict.rule],
        "max_wait": None if max_wait is None else max_wait.total_seconds(),
    }
    return Statement(sql("pipeline_sink_merge"), params, lambda rows: Merged(*rows[0][:3]))


def outdone(group: Sequence[Staged], now: datetime) -> Statement[int]:
    params = {"attempts": BigintArray([each.attempt for each in group]), "now": now}
    return Statement(sql("pipeline_sink_outdone"), params, lambda rows: rows[0][0])


def finish(id: int, write: Write, counts: Mapping[str, int]) -> Statement[SinkWrite]:
    params = {"id": id, "stream": write.stream, "batch": write.batch, **counts}
    return Statement(sql("pipeline_sink_finish"), params, lambda rows: _registered(rows[0]).write)


def abort(write_id: str) -> Statement[None]:
    return Statement(sql("pipeline_sink_abort"), {"write_id": write_id}, lambda rows: None)


def discard(write_id: str, run: UUID | None) -> Statement[int]:
    return Statement(sql("pipeline_sink_discard"), {"write_id": write_id, "run": run}, lambda rows: rows[0][0])


def sweep(staged_for: timedelta) -> Statement[int]:
    return Statement(sql("pipeline_sink_sweep"), {"staged_for": staged_for.total_seconds()}, lambda rows: rows[0][0])


def _registered(row: Row) -> Registered:
    id, write_id, state, rows, created, updated, ignored, superseded, committed_at = row
    write = SinkWrite(
        write_id=write_id,
        state=WriteState(state),
        rows=rows,
        created=created,
        updated=updated,
        ignored=ignored,
        superseded=superseded,
        committed_at=committed_at,
    )
    return Registered(id, write)
