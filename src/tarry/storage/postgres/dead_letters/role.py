"""`DeadLettersRole` on PostgreSQL.

What takes more than one statement needs no transaction around it. Each step of a redrive job is one statement that names the
step, so a process that stops in the middle blocks no other one, and repeats nothing when it continues.
"""

import builtins
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import TypeVar

from tarry.core.dead_letters.fingerprints import READ, fingerprint
from tarry.core.dead_letters.redrive import (
    EVERY_LETTER,
    LOOK_AGAIN_FOR,
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
from tarry.core.errors import InvalidState, UnknownRedrive
from tarry.core.maintenance.leadership import Leadership
from tarry.core.messages.model import DeadLetter
from tarry.storage.postgres.arrays import BigintArray, TextArray
from tarry.storage.postgres.dead_letters import statements
from tarry.storage.postgres.messages.statements import known_value, possible, storable
from tarry.storage.postgres.operation import PostgresOperation, PostgresRole, in_known_queue, operation
from tarry.storage.postgres.statement import Op, Row, Statement, bind, each, first, made, value

R = TypeVar("R")

MOST_COUNTED = 100_000
"""Dead letters that a new redrive job counts."""
LABELS = 1_000
"""Fingerprints written by one statement."""
_ROUNDS = 10
"""How often in a row a reader writes fingerprints. The rest is left to the sweeper, and to the next reader."""


class PostgresDeadLetters(PostgresRole):
    @operation()
    def list(
        self, queue: str, *, where: DeadFilter = EVERY_LETTER, limit: int = 100, before: DeadPosition | None = None
    ) -> Op[builtins.list[DeadLetter[bytes]]]:
        return self._labelled(queue, where, statements.dead_letters(queue, where, limit, before))

    @operation()
    def groups(self, queue: str, *, limit: int = 100, cap: int = 10_000) -> Op[builtins.list[DeadGroup]]:
        return self._labelled(queue, None, statements.groups(queue, limit, cap))

    @operation()
    def count(self, queue: str, *, where: DeadFilter = EVERY_LETTER, limit: int = 10_000) -> Op[Matching]:
        return self._labelled(queue, where, statements.count(queue, where, limit))

    @operation(atomic=True)
    def discard(self, queue: str, *, where: DeadFilter = EVERY_LETTER) -> Op[int]:
        discard = bind(
            "dead_letters/discard", known_value(queue), queue=queue, now=self._now, **statements.filtered(where)
        )
        return self._labelled(queue, where, discard)

    def _labelled(self, queue: str, where: DeadFilter | None, statement: Statement[R]) -> Op[R]:
        """A statement that needs the fingerprints of the queue's dead letters: for a group of them, or (None) for all."""
        if where is None or where.fingerprint is not None:
            for _ in range(_ROUNDS):
                if (yield from label(queue, LABELS, None, self._now)) < LABELS:
                    break
        return (yield from statement.run())

    def redrive(
        self, queue: str, *, versions: Sequence[int] | None = None, limit: int = 1000
    ) -> PostgresOperation[int]:
        chosen, decode, about = versions, known_value(queue), {"queue": queue, "limit": storable(limit)}

        def steps() -> Op[int]:
            nonlocal chosen
            if chosen is None:  # once: a second try, after a lost reply, must not redrive others
                chosen = yield from bind("dead_letters/redrivable", decode, **about).run()
            picked = statements.version_array(chosen)
            return (yield from bind("dead_letters/redrive", decode, **about, versions=picked, now=self._now).run())

        return PostgresOperation(lambda own: in_known_queue(steps))

    @operation()
    def start_redrive(self, queue: str, options: RedriveOptions) -> Op[RedriveJob]:
        count = statements.count(queue, options.where, MOST_COUNTED)
        total = (yield from self._labelled(queue, options.where, count)).letters
        yield from statements.start(queue, options, total, self._now).run()
        return (yield from statements.jobs(request=options.request).run())[0]

    def redrive_job(self, job: int) -> PostgresOperation[RedriveJob | None]:
        return self._statement(lambda now: statements.job(job))

    def redrive_jobs(
        self, queue: str | None = None, *, limit: int = 100
    ) -> PostgresOperation[builtins.list[RedriveJob]]:
        return self._statement(lambda now: statements.jobs(queue=queue, limit=limit))

    @operation()
    def turn_redrive(self, job: int, state: RedriveState, *, reason: str | None = None) -> Op[RedriveJob]:
        turned = yield from statements.set_state(
            job, from_states=may_turn(state), state=state, reason=reason, now=self._now
        ).run()
        current = yield from statements.job(job).run()
        if current is None:
            raise UnknownRedrive(job)
        if not turned and current.state is not state:
            raise InvalidState(f"redrive job {job} is {current.state}: it cannot become {state}")
        return current

    @operation()
    def advance_redrive(self, job: int | None = None, *, leadership: Leadership | None = None) -> Op[RedriveJob | None]:
        now = self._now
        due = yield from bind(
            "dead_letters/redrive_due", first(statements.redrive_job), job=possible(job), now=now
        ).run()
        if due is None:
            return None
        moved: int | None = 0
        change = partial(
            statements.set_state,
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
            stretch = yield from statements.walk(due).run()
            died_at, version = stretch.edge or (None, None)
            moved = yield from bind(  # None: another process has done the step
                "dead_letters/redrive_step", first(attrgetter("redriven")), job=due.id, step=due.step,
                versions=BigintArray(stretch.versions), ended=stretch.ended, edge_died_at=died_at, edge_version=version,
                **statements.fenced(leadership), now=now,
            ).run()  # fmt: skip
        current = yield from statements.job(due.id).run()
        return None if current is None else replace(current, moved=moved or 0)

    def next_redrive_in(self) -> PostgresOperation[timedelta | None]:
        def decode(rows: builtins.list[Row]) -> timedelta | None:
            wait_for = value(rows)
            return None if wait_for is None else max(wait_for, timedelta(0))

        return self._sql("dead_letters/redrive_next", decode)

    @operation()
    def label(self, *, limit: int = 1000, leadership: Leadership | None = None) -> Op[int]:
        return label(None, limit, leadership, self._now)


def label(queue: str | None, limit: int, leadership: Leadership | None, now: datetime | None) -> Op[int]:
    """Give fingerprints to dead letters that have none, and return how many got one."""
    letters = yield from bind(
        "dead_letters/without_fingerprint", list[Row], queue=queue, limit=min(limit, LABELS), read=READ
    ).run()
    if not letters:
        return 0
    letters.sort()
    names = [fingerprint(letter.reason, letter.error) for letter in letters]
    versions = BigintArray([letter.version for letter in letters])
    about = {"versions": versions, "fingerprints": TextArray(names), **statements.fenced(leadership), "now": now}
    return (yield from bind("dead_letters/set_fingerprints", len, **about).run())
