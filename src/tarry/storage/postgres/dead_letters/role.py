"""`DeadLettersRole` on PostgreSQL. `operations` has what takes more than one statement."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID

from tarry.core.dead_letters.redrive import (
    EVERY_LETTER,
    DeadFilter,
    DeadGroup,
    DeadPlace,
    Matching,
    RedriveJob,
    RedriveState,
)
from tarry.core.maintenance.leadership import Leadership
from tarry.core.messages.model import DeadLetter
from tarry.storage.postgres.dead_letters import operations as ops
from tarry.storage.postgres.dead_letters import statements
from tarry.storage.postgres.messages.statements import known_value, storable
from tarry.storage.postgres.operation import PostgresOperation, PostgresRole, in_known_queue
from tarry.storage.postgres.statement import Op, Row, Statement, bind, value

R = TypeVar("R")

MOST_COUNTED = 100_000
"""Dead letters that a new redrive job counts."""


class PostgresDeadLetters(PostgresRole):
    def list(
        self, queue: str, *, where: DeadFilter = EVERY_LETTER, limit: int = 100, before: DeadPlace | None = None
    ) -> PostgresOperation[builtins.list[DeadLetter[bytes]]]:
        return self._labelled(queue, where, lambda now: statements.dead_letters(queue, where, limit, before))

    def groups(self, queue: str, *, limit: int = 100, cap: int = 10_000) -> PostgresOperation[builtins.list[DeadGroup]]:
        return self._labelled(queue, None, lambda now: statements.groups(queue, limit, cap))

    def count(
        self, queue: str, *, where: DeadFilter = EVERY_LETTER, limit: int = 10_000
    ) -> PostgresOperation[Matching]:
        return self._labelled(queue, where, lambda now: statements.count(queue, where, limit))

    def discard(self, queue: str, *, where: DeadFilter = EVERY_LETTER) -> PostgresOperation[int]:
        def discard(now: datetime | None) -> Statement[int]:
            decode, filtered = known_value(queue), statements.filtered(where)
            return bind("dead_letters/discard", decode, queue=queue, now=now, **filtered)

        return self._labelled(queue, where, discard, atomic=True)

    def _labelled(
        self,
        queue: str,
        where: DeadFilter | None,
        make: Callable[[datetime | None], Statement[R]],
        *,
        atomic: bool = False,
    ) -> PostgresOperation[R]:
        """A statement that needs the fingerprints of the queue's dead letters: for a group of them, or (None) for all."""

        def steps(now: datetime | None) -> Op[R]:
            if where is None or where.fingerprint is not None:
                yield from ops.label_queue(queue, now)
            return (yield from make(now).run())

        return self._in_queue(steps, atomic=atomic)

    def redrive(
        self, queue: str, *, versions: Sequence[int] | None = None, limit: int = 1000
    ) -> PostgresOperation[int]:
        chosen, decode, about = versions, known_value(queue), {"queue": queue, "limit": storable(limit)}

        def steps(now: datetime | None) -> Op[int]:
            nonlocal chosen
            if chosen is None:  # once: a second try, after a lost reply, must not redrive others
                chosen = yield from bind("dead_letters/redrivable", decode, **about).run()
            picked = statements.version_array(chosen)
            return (yield from bind("dead_letters/redrive", decode, **about, versions=picked, now=now).run())

        return self._in_queue(steps)

    def start_redrive(
        self, queue: str, *, where: DeadFilter, rate: float | None, canary: int, started_by: str | None, request: UUID
    ) -> PostgresOperation[RedriveJob]:
        count = self.count(queue, where=where, limit=MOST_COUNTED)

        def start(own: bool) -> Op[RedriveJob]:  # noqa: FBT001
            total = (yield from count.start(own)).letters
            params = {"queue": queue, "rate": rate, "canary": canary, "started_by": started_by, "request": request}
            yield from statements.start(where, params, total, self._clock.pinned()).run()
            return (yield from statements.jobs(request=request).run())[0]

        return PostgresOperation(lambda own: in_known_queue(lambda: start(own)))

    def redrive_job(self, job: int) -> PostgresOperation[RedriveJob | None]:
        return self._statement(lambda now: statements.job(job))

    def redrive_jobs(
        self, queue: str | None = None, *, limit: int = 100
    ) -> PostgresOperation[builtins.list[RedriveJob]]:
        return self._statement(lambda now: statements.jobs(queue=queue, limit=limit))

    def turn_redrive(
        self, job: int, state: RedriveState, *, reason: str | None = None
    ) -> PostgresOperation[RedriveJob]:
        return self._steps(lambda now: ops.turn_redrive(job, state, reason, now))

    def advance_redrive(
        self, job: int | None = None, *, lead: Leadership | None = None
    ) -> PostgresOperation[RedriveJob | None]:
        return self._steps(lambda now: ops.advance_redrive(job, lead, now))

    def next_redrive_in(self) -> PostgresOperation[timedelta | None]:
        def decode(rows: builtins.list[Row]) -> timedelta | None:
            wait_for = value(rows)
            return None if wait_for is None else max(wait_for, timedelta(0))

        return self._sql("dead_letters/redrive_next", decode)

    def label(self, *, limit: int = 1000, lead: Leadership | None = None) -> PostgresOperation[int]:
        return self._steps(lambda now: ops.label(None, limit, lead, now))
