"""The verbs of dead letters, one statement each: looking at them, by filter and by group, and bringing them back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from tarry.core.fingerprints import READ, pattern
from tarry.core.leading import Leadership
from tarry.core.messages import Counted, DeadLetter
from tarry.core.redriving import (
    WALK,
    Canary,
    DeadFilter,
    DeadGroup,
    DeadPlace,
    Matching,
    Phase,
    RedriveJob,
    RedriveState,
)
from tarry.storage.postgres.arrays import BigintArray, TextArray
from tarry.storage.postgres.statement import Row, Statement, sql
from tarry.storage.postgres.statements import known, possible, storable

LOOKED_THROUGH = 10_000
"""How many dead letters a page for people may walk to find what it shows."""

MOST_GROUPS = 1_000


def dead_letters(
    queue: str, where: DeadFilter, limit: int, before: DeadPlace | None = None
) -> Statement[list[DeadLetter[bytes]]]:
    def decode(rows: list[Row]) -> list[DeadLetter[bytes]]:
        return [
            DeadLetter(
                queue=row[0], key=row[1], payload=row[2], version=row[3], attempt=row[4], priority=row[5],
                due_at=row[6], died_at=row[7], reason=row[8], error=row[9], type=row[10], headers=row[11],
                content_type=row[12], fingerprint=row[13], consumer=row[14], origin=row[15],
            )
            for row in known(queue, rows)
            if row[1] is not None
        ]  # fmt: skip

    rows = storable(limit)
    params = {
        "queue": queue,
        "limit": rows,
        "walk": max(rows, LOOKED_THROUGH),
        "before_at": before and before.died_at,
        "before_version": before and before.version,
        **filtered(where),
    }
    return Statement(sql("dead_letters"), params, decode)


def count(queue: str, where: DeadFilter, limit: int) -> Statement[Matching]:
    """Of at most `limit` letters that were looked at: a filter that fits few of very many gives a lower bound."""
    limit = storable(limit)

    def decode(rows: list[Row]) -> Matching:
        fitting, walked, blocked = known(queue, rows)[0]
        return Matching(Counted(min(fitting, limit), capped=walked > limit), min(blocked, limit))

    return Statement(sql("dead_count"), {"queue": queue, "walk": limit + 1, **filtered(where)}, decode)


def groups(queue: str, limit: int, cap: int) -> Statement[list[DeadGroup]]:
    cap = storable(cap)

    def decode(rows: list[Row]) -> list[DeadGroup]:
        return [
            DeadGroup(
                fingerprint=row[0], reason=row[1], pattern=pattern(row[2]), error=row[2],
                count=Counted(min(row[3], cap), capped=row[3] > cap), first_died_at=row[4], last_died_at=row[5],
                example=row[6], example_key=row[7], types=tuple(sorted(row[8] or ())), fewest_attempts=row[9],
                most_attempts=row[10],
            )
            for row in known(queue, rows)
            if row[0] is not None
        ]  # fmt: skip

    params = {"queue": queue, "limit": storable(limit), "most": MOST_GROUPS, "cap": cap + 1}
    return Statement(sql("dead_groups"), params, decode)


class Unlabelled(NamedTuple):
    version: int
    reason: str
    error: str | None


def unlabelled(queue: str | None, limit: int) -> Statement[list[Unlabelled]]:
    params = {"queue": queue, "limit": limit, "read": READ}
    return Statement(sql("dead_unlabelled"), params, lambda rows: [Unlabelled(*row) for row in rows])


def label(
    versions: Sequence[int], fingerprints: Sequence[str], lead: Leadership | None, now: datetime | None
) -> Statement[int]:
    params = {"versions": BigintArray(versions), "fingerprints": TextArray(fingerprints), **leading(lead, now)}
    return Statement(sql("dead_label"), params, len)


def redrivable(queue: str, limit: int) -> Statement[list[int]]:
    params = {"queue": queue, "limit": storable(limit)}
    return Statement(sql("redrivable"), params, lambda rows: known(queue, rows)[0][0])


def redrive(queue: str, versions: Sequence[int], limit: int, now: datetime | None) -> Statement[int]:
    picked = BigintArray([possible(version) for version in versions])
    params = {"queue": queue, "versions": picked, "limit": storable(limit), "now": now}
    return Statement(sql("redrive"), params, lambda rows: known(queue, rows)[0][0])


def purge_dead(queue: str, where: DeadFilter, now: datetime | None) -> Statement[int]:
    params = {"queue": queue, "now": now, **filtered(where)}
    return Statement(sql("purge_dead"), params, lambda rows: known(queue, rows)[0][0])


def start(
    queue: str,
    where: DeadFilter,
    *,
    rate: float | None,
    canary: int,
    who: str | None,
    request: UUID,
    total: Counted,
    now: datetime | None,
) -> Statement[None]:
    params = {
        "queue": queue, "rate": rate, "canary": canary, "who": who, "request": request, "total": total.n,
        "total_capped": total.capped, "now": now, **filtered(where),
    }  # fmt: skip

    def decode(rows: list[Row]) -> None:
        known(queue, rows)

    return Statement(sql("redrive_start"), params, decode)


def jobs(
    *, job: int | None = None, request: UUID | None = None, queue: str | None = None, limit: int = 1
) -> Statement[list[RedriveJob]]:
    picked = None if job is None else possible(job)
    params = {"job": picked, "request": request, "queue": queue, "limit": storable(limit)}
    return Statement(sql("redrive_jobs"), params, lambda rows: [_job(row) for row in rows])


def due(job: int | None, now: datetime | None) -> Statement[RedriveJob | None]:
    params = {"job": None if job is None else possible(job), "now": now}
    return Statement(sql("redrive_due"), params, lambda rows: _job(rows[0]) if rows else None)


def next_redrive_in(now: datetime | None) -> Statement[timedelta | None]:
    def decode(rows: list[Row]) -> timedelta | None:
        return None if rows[0][0] is None else max(rows[0][0], timedelta(0))

    return Statement(sql("redrive_next"), {"now": now}, decode)


class Stretch(NamedTuple):
    """Where a step of a job goes: these letters, up to this one, and whether that is the end."""

    versions: list[int]
    edge: tuple[datetime, int] | None
    ended: bool


def walk(job: RedriveJob) -> Statement[Stretch]:
    n = job.at_once

    def decode(rows: list[Row]) -> Stretch:
        fitting = [row for row in rows if row[2]]
        if len(fitting) > n:
            *_, last = fitting[:n]
            return Stretch([row[0] for row in fitting[:n]], (last[1], last[0]), ended=False)
        edge = (rows[-1][1], rows[-1][0]) if rows else None
        return Stretch([row[0] for row in fitting], edge, ended=len(rows) < WALK)

    return Statement(sql("redrive_walk"), {"job": job.id, "walk": WALK}, decode)


def step(job: RedriveJob, stretch: Stretch, lead: Leadership | None, now: datetime | None) -> Statement[int | None]:
    """How many live again; None: the step was somebody else's."""
    died_at, version = stretch.edge or (None, None)
    params = {
        "job": job.id, "step": job.step, "versions": BigintArray(stretch.versions), "ended": stretch.ended,
        "edge_died_at": died_at, "edge_version": version, **leading(lead, now),
    }  # fmt: skip
    return Statement(sql("redrive_step"), params, lambda rows: rows[0][0] if rows else None)


def canaries(job: RedriveJob) -> Statement[list[Canary]]:
    return Statement(sql("redrive_canaries"), {"job": job.id}, lambda rows: [Canary(*row) for row in rows])


def turn(
    job: int,
    *,
    from_states: Sequence[RedriveState],
    now: datetime | None,
    state: RedriveState | None = None,
    phase: Phase | None = None,
    reason: str | None = None,
    step: int | None = None,
    rest_for: timedelta = timedelta(0),
    lead: Leadership | None = None,
) -> Statement[bool]:
    params = {
        "job": possible(job), "state": state, "phase": phase, "reason": reason, "step": step,
        "rest_for": rest_for.total_seconds(), "from_states": TextArray([s.value for s in from_states]),
        **leading(lead, now),
    }  # fmt: skip
    return Statement(sql("redrive_turn"), params, bool)


def leading(lead: Leadership | None, now: datetime | None) -> dict[str, Any]:
    """What a write of a leader says of itself; without a leader it is anybody's."""
    return {"leader": lead and lead.name, "fence": lead and lead.fence, "now": now}


def filtered(where: DeadFilter) -> dict[str, Any]:
    return {
        "fingerprint": where.fingerprint,
        "type": where.type,
        "died_from": where.died_from,
        "died_to": where.died_to,
        "key_prefix": where.key_prefix,
        "versions": None if where.versions is None else BigintArray([possible(v) for v in where.versions]),
    }


def _job(row: Row) -> RedriveJob:
    return RedriveJob(
        id=row[0], queue=row[1],
        where=DeadFilter(
            fingerprint=row[2], type=row[3], died_from=row[4], died_to=row[5], key_prefix=row[6],
            versions=None if row[7] is None else tuple(row[7]),
        ),
        state=RedriveState(row[8]), phase=Phase(row[9]), total=Counted(row[10], row[11]), created_at=row[12],
        updated_at=row[13], next_at=row[14], rate=row[15], canary=row[16], reason=row[17], who=row[18],
        redriven=row[19], skipped=row[20], canaries=tuple(row[21]), canary_keys=tuple(row[22]), step=row[23],
        ended_at=row[24], queue_is_gone=row[25],
    )  # fmt: skip
