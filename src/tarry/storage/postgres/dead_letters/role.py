"""`DeadLettersRole` on PostgreSQL.

Operations of several statements need no transaction. Each step of a redrive job is one statement that names the step, so a
process that stops in between blocks no other process, and nothing is repeated when the job continues.
"""

import builtins
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

import msgspec

from tarry.core.dead_letters.fingerprints import READ, fingerprint, pattern
from tarry.core.dead_letters.redrive import (
    EVERY_LETTER,
    LOOK_AGAIN_FOR,
    WALK,
    Canary,
    DeadFilter,
    DeadGroup,
    DeadPosition,
    Matching,
    RedriveJob,
    RedriveOptions,
    RedrivePhase,
    RedriveState,
    judged,
    may_turn,
)
from tarry.core.errors import InvalidState, UnknownQueue, UnknownRedrive
from tarry.core.maintenance.leadership import Leadership
from tarry.core.messages.model import Counted, DeadLetter
from tarry.storage.postgres.arrays import BigintArray, TextArray
from tarry.storage.postgres.messages.statements import known, known_value, possible, storable
from tarry.storage.postgres.operation import PostgresOperation, PostgresRole, fenced, in_known_queue, operation
from tarry.storage.postgres.statement import Op, Row, Statement, bind, each, first, made, value
from tarry.wire.base import same_fields

R = TypeVar("R")

MOST_COUNTED = 100_000
"""Dead letters that a new redrive job counts."""
LABELS = 1_000
"""Fingerprints written by one statement."""
_ROUNDS = 10
"""Statements in which one reader writes fingerprints. The rest is left to the sweeper and the next reader."""
LOOKED_THROUGH = 10_000
"""Dead letters that a listing may scan for one page."""
MOST_GROUPS = 1_000


class PostgresDeadLetters(PostgresRole):
    @operation()
    def list(
        self, queue: str, *, where: DeadFilter = EVERY_LETTER, limit: int = 100, before: DeadPosition | None = None
    ) -> Op[builtins.list[DeadLetter[bytes]]]:
        return self._labelled(queue, where, dead_letters(queue, where, limit, before))

    @operation()
    def groups(self, queue: str, *, limit: int = 100, cap: int = 10_000) -> Op[builtins.list[DeadGroup]]:
        return self._labelled(queue, None, groups(queue, limit, cap))

    @operation()
    def count(self, queue: str, *, where: DeadFilter = EVERY_LETTER, limit: int = 10_000) -> Op[Matching]:
        return self._labelled(queue, where, count(queue, where, limit))

    @operation(atomic=True)
    def discard(self, queue: str, *, where: DeadFilter = EVERY_LETTER) -> Op[int]:
        discard = bind("dead_letters/discard", known_value(queue), queue=queue, now=self._now, **_filtered(where))
        return self._labelled(queue, where, discard)

    def _labelled(self, queue: str, where: DeadFilter | None, statement: Statement[R]) -> Op[R]:
        """Store missing fingerprints if the filter needs them (None: always), then run the statement."""
        if where is None or where.fingerprint is not None:
            for _ in range(_ROUNDS):
                if (yield from _label(queue, LABELS, None, self._now)) < LABELS:
                    break
        return (yield from statement.run())

    def redrive(
        self, queue: str, *, versions: Sequence[int] | None = None, limit: int = 1000
    ) -> PostgresOperation[int]:
        chosen, decode, about = versions, known_value(queue), {"queue": queue, "limit": storable(limit)}

        def steps() -> Op[int]:
            nonlocal chosen
            if chosen is None:  # chosen once: a retry after a lost reply must not redrive other letters
                chosen = yield from bind("dead_letters/redrivable", decode, **about).run()
            picked = _version_array(chosen)
            return (yield from bind("dead_letters/redrive", decode, **about, versions=picked, now=self._now).run())

        return PostgresOperation(lambda own: in_known_queue(steps))

    @operation()
    def start_redrive(self, queue: str, options: RedriveOptions) -> Op[RedriveJob]:
        counted = count(queue, options.where, MOST_COUNTED)
        total = (yield from self._labelled(queue, options.where, counted)).letters
        yield from begin_redrive(queue, options, total, self._now).run()
        return (yield from _jobs(request=options.request).run())[0]

    def redrive_job(self, job: int) -> PostgresOperation[RedriveJob | None]:
        return self._statement(lambda now: _job(job))

    def redrive_jobs(
        self, queue: str | None = None, *, limit: int = 100
    ) -> PostgresOperation[builtins.list[RedriveJob]]:
        return self._statement(lambda now: _jobs(queue=queue, limit=limit))

    @operation()
    def turn_redrive(self, job: int, state: RedriveState, *, reason: str | None = None) -> Op[RedriveJob]:
        change = _set_state(job, from_states=may_turn(state), state=state, reason=reason, now=self._now)
        turned = yield from change.run()
        current = yield from _job(job).run()
        if current is None:
            raise UnknownRedrive(job)
        if not turned and current.state is not state:
            raise InvalidState(f"redrive job {job} is {current.state}: it cannot become {state}")
        return current

    @operation()
    def advance_redrive(self, job: int | None = None, *, leadership: Leadership | None = None) -> Op[RedriveJob | None]:
        now = self._now
        due = yield from bind("dead_letters/redrive_due", first(_redrive_job), job=possible(job), now=now).run()
        if due is None:
            return None
        moved: int | None = 0
        change = partial(
            _set_state,
            due.id,
            from_states=(RedriveState.RUNNING,),
            step=due.step,
            leadership=leadership,
            now=now,
        )
        if due.gone_queue is not None:
            yield from change(state=RedriveState.FAILED, reason=f"the queue {due.gone_queue} was deleted").run()
        elif (reason := due.stop_reason) is not None:
            yield from change(state=RedriveState.PAUSED, reason=reason, lifts_stop=True).run()
        elif due.phase is RedrivePhase.VERDICT:
            verdict = judged((yield from bind("dead_letters/redrive_canaries", each(made(Canary)), job=due.id).run()))
            rest_for = LOOK_AGAIN_FOR if verdict.state is None else timedelta(0)
            yield from change(state=verdict.state, phase=verdict.phase, reason=verdict.reason, rest_for=rest_for).run()
        else:
            stretch = yield from walk(due).run()
            died_at, version = stretch.edge or (None, None)
            moved = yield from bind(  # None: another process has executed the step
                "dead_letters/redrive_step", first(attrgetter("redriven")), job=due.id, step=due.step,
                versions=BigintArray(stretch.versions), ended=stretch.ended, edge_died_at=died_at, edge_version=version,
                **fenced(leadership), now=now,
            ).run()  # fmt: skip
        current = yield from _job(due.id).run()
        return None if current is None else replace(current, moved=moved or 0)

    def next_redrive_in(self) -> PostgresOperation[timedelta | None]:
        return self._sql("dead_letters/redrive_next", value)

    @operation()
    def label(self, *, limit: int = 1000, leadership: Leadership | None = None) -> Op[int]:
        return _label(None, limit, leadership, self._now)


def _label(queue: str | None, limit: int, leadership: Leadership | None, now: datetime | None) -> Op[int]:
    """Store the missing fingerprints of dead letters and return their number."""
    letters = yield from bind(
        "dead_letters/without_fingerprint", list[Row], queue=queue, limit=min(limit, LABELS), read=READ
    ).run()
    if not letters:
        return 0
    letters.sort()
    names = [fingerprint(letter.reason, letter.error) for letter in letters]
    versions = BigintArray([letter.version for letter in letters])
    about = {"versions": versions, "fingerprints": TextArray(names), **fenced(leadership), "now": now}
    return (yield from bind("dead_letters/set_fingerprints", len, **about).run())


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
        **_filtered(where),
    )


def count(queue: str, where: DeadFilter, limit: int) -> Statement[Matching]:
    """Count matches among the first `limit` letters. For a filter that matches few of many letters this is a lower bound."""
    params = {"queue": queue, "walk": storable(limit) + 1, **_filtered(where)}
    return bind("dead_letters/count", lambda rows: made(Matching)(known(queue, rows)[0]), **params)


def groups(queue: str, limit: int, cap: int) -> Statement[list[DeadGroup]]:
    def decode(rows: list[Row]) -> list[DeadGroup]:
        groups = [row._asdict() for row in known(queue, rows) if row.fingerprint is not None]
        return msgspec.convert([group | {"pattern": pattern(group["error"])} for group in groups], list[DeadGroup])

    limits = {"limit": storable(limit), "most": MOST_GROUPS, "cap": storable(cap) + 1}
    return bind("dead_letters/groups", decode, queue=queue, **limits)


def begin_redrive(queue: str, options: RedriveOptions, total: Counted, now: datetime | None) -> Statement[None]:
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
        **_filtered(options.where),
    )


def _jobs(*, request: UUID | None = None, queue: str | None = None, limit: int = 1) -> Statement[list[RedriveJob]]:
    limit = storable(limit)
    return bind("dead_letters/redrive_jobs", each(_redrive_job), job=None, request=request, queue=queue, limit=limit)


def _job(job: int) -> Statement[RedriveJob | None]:
    return bind("dead_letters/redrive_jobs", first(_redrive_job), job=possible(job), request=None, queue=None, limit=1)


class _Stretch(NamedTuple):
    """The letters of one step of a job, its new cursor, and whether it is the last step."""

    versions: list[int]
    edge: tuple[datetime, int] | None
    ended: bool


def walk(job: RedriveJob) -> Statement[_Stretch]:
    n = job.at_once

    def decode(rows: list[Row]) -> _Stretch:
        fitting = [row for row in rows if row.fits]
        is_full = len(fitting) > n
        last = fitting[n - 1] if is_full else rows[-1] if rows else None
        edge = None if last is None else (last.died_at, last.version)
        return _Stretch([row.version for row in fitting[:n]], edge, ended=not is_full and len(rows) < WALK)

    return bind("dead_letters/redrive_walk", decode, job=job.id, walk=WALK)


def _set_state(
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


def _filtered(where: DeadFilter) -> dict[str, Any]:
    return asdict(where) | {"versions": None if where.versions is None else _version_array(where.versions)}


def _version_array(versions: Sequence[int]) -> BigintArray:
    return BigintArray([possible(version) or 0 for version in versions])


def _redrive_job(row: Row) -> RedriveJob:
    columns, total = row._asdict(), {"n": row.total, "capped": row.total_capped}
    return msgspec.convert({**columns, "where": columns, "total": total}, RedriveJob)
