"""Statements of dead letters: listing, grouping, discarding and redriving them."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from tarry.core.dead_letters.fingerprints import pattern
from tarry.core.dead_letters.redrive import (
    EVERY_LETTER,
    WALK,
    DeadFilter,
    DeadGroup,
    DeadPosition,
    Matching,
    RedriveJob,
    RedriveOptions,
    RedrivePhase,
    RedriveState,
)
from tarry.core.errors import UnknownQueue
from tarry.core.maintenance.leadership import Leadership
from tarry.core.messages.model import Counted, DeadLetter
from tarry.storage.postgres.arrays import BigintArray, TextArray
from tarry.storage.postgres.messages.statements import known, possible, storable
from tarry.storage.postgres.statement import Row, Statement, bind, each, first
from tarry.wire.base import same_fields

LOOKED_THROUGH = 10_000
"""Dead letters that a listing may scan for one page."""

MOST_GROUPS = 1_000


def dead_letters(
    queue: str, where: DeadFilter, limit: int, before: DeadPosition | None = None
) -> Statement[list[DeadLetter[bytes]]]:
    def decode(rows: list[Row]) -> list[DeadLetter[bytes]]:
        return [DeadLetter(**row._asdict()) for row in known(queue, rows) if row.key is not None]

    rows = storable(limit)
    return bind(
        "dead_letters/dead_letters",
        decode,
        queue=queue,
        limit=rows,
        walk=max(rows, LOOKED_THROUGH),
        before_at=before and before.died_at,
        before_version=before and before.version,
        **filtered(where),
    )


def count(queue: str, where: DeadFilter, limit: int) -> Statement[Matching]:
    """Counts among the first `limit` letters: a filter that matches few of very many gives a lower bound."""
    limit = storable(limit)

    def decode(rows: list[Row]) -> Matching:
        row = known(queue, rows)[0]
        return Matching(Counted(min(row.fitting, limit), capped=row.walked > limit), min(row.blocked, limit))

    return bind("dead_letters/count", decode, queue=queue, walk=limit + 1, **filtered(where))


def groups(queue: str, limit: int, cap: int) -> Statement[list[DeadGroup]]:
    cap = storable(cap)

    def decode(rows: list[Row]) -> list[DeadGroup]:
        return [group(row) for row in known(queue, rows) if row.fingerprint is not None]

    def group(row: Row) -> DeadGroup:
        count = Counted.up_to(cap, row.count)
        types = tuple(sorted(row.types or ()))
        return DeadGroup(**row._asdict() | {"pattern": pattern(row.error), "count": count, "types": types})

    return bind("dead_letters/groups", decode, queue=queue, limit=storable(limit), most=MOST_GROUPS, cap=cap + 1)


def start(queue: str, options: RedriveOptions, total: Counted, now: datetime | None) -> Statement[None]:
    def decode(rows: list[Row]) -> None:
        if known(queue, rows)[0].target is None and options.target is not None:
            raise UnknownQueue(options.target)

    return bind(
        "dead_letters/redrive_start",
        decode,
        queue=queue,
        total=total.n,
        total_capped=total.capped,
        now=now,
        **same_fields(options, RedriveOptions, "where"),
        **filtered(options.where),
    )


def jobs(*, request: UUID | None = None, queue: str | None = None, limit: int = 1) -> Statement[list[RedriveJob]]:
    limit = storable(limit)
    return bind("dead_letters/redrive_jobs", each(redrive_job), job=None, request=request, queue=queue, limit=limit)


def job(job: int) -> Statement[RedriveJob | None]:
    return bind("dead_letters/redrive_jobs", first(redrive_job), job=possible(job), request=None, queue=None, limit=1)


class Stretch(NamedTuple):
    """The letters of one step of a job, its new cursor, and whether that is the end."""

    versions: list[int]
    edge: tuple[datetime, int] | None
    ended: bool


def walk(job: RedriveJob) -> Statement[Stretch]:
    n = job.at_once

    def decode(rows: list[Row]) -> Stretch:
        fitting = [row for row in rows if row.fits]
        is_full = len(fitting) > n
        last = fitting[n - 1] if is_full else rows[-1] if rows else None
        edge = None if last is None else (last.died_at, last.version)
        return Stretch([row.version for row in fitting[:n]], edge, ended=not is_full and len(rows) < WALK)

    return bind("dead_letters/redrive_walk", decode, job=job.id, walk=WALK)


def set_state(
    job: int,
    *,
    from_states: Sequence[RedriveState],
    now: datetime | None,
    state: RedriveState | None = None,
    phase: RedrivePhase | None = None,
    reason: str | None = None,
    step: int | None = None,
    rest_for: timedelta = timedelta(0),
    lifts_stop: bool = False,
    leadership: Leadership | None = None,
) -> Statement[bool]:
    return bind(
        "dead_letters/redrive_set_state", bool, job=possible(job), state=state, phase=phase, reason=reason, step=step,
        rest_for=rest_for.total_seconds(), from_states=TextArray([s.value for s in from_states]), now=now,
        lifts_stop=lifts_stop,
        **fenced(leadership),
    )  # fmt: skip


def fenced(leadership: Leadership | None) -> dict[str, Any]:
    """The parameters of the fencing check; without a leader it is skipped."""
    return {"leader": leadership and leadership.name, "fence": leadership and leadership.fence}


def filtered(where: DeadFilter) -> dict[str, Any]:
    return asdict(where) | {"versions": None if where.versions is None else version_array(where.versions)}


def version_array(versions: Sequence[int]) -> BigintArray:
    return BigintArray([possible(version) or 0 for version in versions])


def redrive_job(row: Row) -> RedriveJob:
    columns = row._asdict()
    del columns["total_capped"]
    where: dict[str, Any] = {name: columns.pop(name) for name in EVERY_LETTER.__slots__}
    where["versions"] = None if row.versions is None else tuple(row.versions)
    decoded = {
        "state": RedriveState(row.state), "phase": RedrivePhase(row.phase), "total": Counted(row.total, row.total_capped),
        "canaries": tuple(row.canaries), "canary_keys": tuple(row.canary_keys),
    }  # fmt: skip
    return RedriveJob(where=DeadFilter(**where), **columns | decoded)
