"""Bulk offers on PostgreSQL: tasks stage by COPY, one transaction merges."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, TypeVar

import psycopg
from psycopg import Connection

from tarry.core.errors import Refused, StoreUnavailable, TarryError
from tarry.core.limits import check_queue_name
from tarry.core.messages import ConflictRule
from tarry.core.settings import Patience, QueueSettings
from tarry.core.sinking import (
    STAGED_FOR,
    BadRows,
    Rules,
    SinkWrite,
    Staged,
    StagedRow,
    StagingLost,
    Write,
    disjoint_groups,
)
from tarry.storage.postgres import queue_statements
from tarry.storage.postgres.arrays import teach
from tarry.storage.postgres.drive import drive, transaction
from tarry.storage.postgres.faults import translated
from tarry.storage.postgres.pipeline import sink_statements as say
from tarry.storage.postgres.pipeline.reach import LOCK_LIMIT, Reach
from tarry.storage.postgres.pipeline.staging import Tally, copy_rows
from tarry.storage.postgres.statement import Op

R = TypeVar("R")


class PostgresSinking:
    def __init__(self, reach: Reach, patience: Patience = Patience()) -> None:  # noqa: B008 - frozen
        self._reach = reach
        self._patience = patience

    def begin(self, write: Write) -> SinkWrite:
        return self._again(lambda: say.begin(write).run()).write

    @contextmanager
    def attempt(self, write: Write, part: int) -> Generator[PostgresStaging]:
        with self._reach.connection() as conn:
            try:
                yield PostgresStaging(conn, write, part)
            except psycopg.Error as error:
                raise translated(error, 1) from error

    def commit(self, write: Write, staged: Sequence[Staged], rules: Rules, *, now: datetime | None = None) -> SinkWrite:
        done = self._again(lambda: _merge(write, staged, rules, now))
        # Only cleanup is left: if it fails here, the next write does it.
        with suppress(TarryError, psycopg.Error):
            self._reach.tell(say.discard(write.write_id, None).run())
            self.sweep()
        return done

    def abort(self, write: Write) -> None:
        def forget() -> Op[int]:
            yield from say.abort(write.write_id).run()
            return (yield from say.discard(write.write_id, write.run).run())

        self._again(forget)

    def outcome(self, write_id: str) -> SinkWrite | None:
        return self._reach.ask(lambda: say.outcome(write_id).run())

    def sweep(self, staged_for: timedelta = STAGED_FOR) -> int:
        return self._reach.tell(say.sweep(staged_for).run())

    def _again(self, make: Callable[[], Op[R]]) -> R:
        """Run a transaction with retries. Each is idempotent: a merge whose response was lost is found committed."""
        failures, started = 0, time.monotonic()
        while True:
            try:
                return self._tell(make())
            except StoreUnavailable:
                failures += 1
                pause = self._patience.pause(failures).total_seconds()
                spent = time.monotonic() - started + pause
                if failures > self._patience.retries or spent > self._patience.total_for.total_seconds():
                    raise
                time.sleep(pause)

    def _tell(self, op: Op[R]) -> R:
        try:
            with self._reach.connection() as conn:
                teach(conn.adapters)
                with transaction(conn):
                    conn.execute(LOCK_LIMIT)
                    return drive(conn, op)
        except psycopg.Error as error:
            raise translated(error, 1) from error


class PostgresStaging:
    """Staging of one attempt. Registers with the first rows: a task without rows writes nothing."""

    def __init__(self, conn: Connection[Any], write: Write, part: int) -> None:
        self._conn = conn
        self._write = write
        self._part = part
        self._attempt: int | None = None
        self._tally = Tally()
        self.committed = False

    def add(self, rows: Iterable[StagedRow]) -> None:
        if self._attempt is None and not self.committed:
            # In its own transaction: it locks the row of the write, which the other tasks need too.
            with transaction(self._conn):
                self._attempt = drive(self._conn, self._register())
        if self._attempt is not None:
            with transaction(self._conn):
                drive(self._conn, self._copy(self._attempt, rows))

    def _register(self) -> Op[int | None]:
        found = yield from say.begin(self._write).run()
        self.committed = found.write.committed
        return None if self.committed else (yield from say.attempt(found.id, self._write.run).run())

    def _copy(self, attempt: int, rows: Iterable[StagedRow]) -> Op[None]:
        if not (yield from say.hold(attempt).run()):
            raise Refused(f"write {self._write.write_id!r} was committed, aborted or swept while this task was staging")
        yield from copy_rows(attempt, self._part, rows, self._tally).run()

    def staged(self) -> Staged | None:
        tally = self._tally
        if self._attempt is None or tally.first is None or tally.last is None:
            return None
        return Staged(
            attempt=self._attempt,
            part=self._part,
            rows=tally.rows,
            size=tally.size,
            queues=frozenset(tally.queues),
            first=tally.first,
            last=tally.last,
        )


def _merge(write: Write, staged: Sequence[Staged], rules: Rules, now: datetime | None) -> Op[SinkWrite]:
    """Merge in one transaction. A second driver with the same write waits in `begin`, then finds it committed."""
    found = yield from say.begin(write).run()
    if found.write.committed:
        return found.write
    yield from say.tune().run()
    yield from _check_staged(write, staged)
    yield from say.lock().run()
    destinations = yield from _destinations(staged, rules, now)
    rows = sum(each.rows for each in staged)
    reserved = yield from say.reserve(rows, now).run()
    offsets = _offsets(staged)
    chosen = created = updated = outdone = 0
    for group in disjoint_groups(staged):
        merged = yield from say.merge(group, offsets, destinations, reserved, rules).run()
        chosen, created, updated = chosen + merged.chosen, created + merged.created, updated + merged.updated
        if rules.conflict.rule is ConflictRule.EARLIEST:
            outdone += yield from say.outdone(group, reserved.now).run()
    superseded = _superseded(rules.conflict.rule, rows - chosen, outdone)
    counts = {"rows": rows, "created": created, "updated": updated, "superseded": superseded}
    return (yield from say.finish(found.id, write, {**counts, "ignored": rows - created - updated - superseded}).run())


def _superseded(rule: ConflictRule, unchosen: int, outdone: int) -> int:
    """Of the rows that were not chosen among rows of the same key, the number that lost to a later row."""
    if rule is ConflictRule.KEEP:
        return 0
    return outdone if rule is ConflictRule.EARLIEST else unchosen


def _check_staged(write: Write, staged: Sequence[Staged]) -> Op[None]:
    there = yield from say.staged([each.attempt for each in staged]).run()
    short = [each for each in staged if there.get(each.attempt) != (each.rows, each.size)]
    if short:
        wanted = sum(each.rows for each in short)
        found = sum(there[each.attempt].rows for each in short if each.attempt in there)
        raise StagingLost(
            f"write {write.write_id!r}: {len(short):,} of {len(staged):,} tasks had staged {wanted:,} rows, and {found:,} of "
            "them are there; nothing was merged",
            hint="the database crashed in between, which empties the staging table, or the rows waited for more than a day: "
            "run the write again under the same write_id",
        )


def _destinations(staged: Sequence[Staged], rules: Rules, now: datetime | None) -> Op[list[say.Destination]]:
    names = sorted(frozenset[str]().union(*(each.queues for each in staged)))
    found = yield from say.destinations(names).run()
    missing = sorted(set(names) - {each.name for each in found})
    if not missing:
        return found
    if not rules.create_queues:
        raise BadRows(
            f"{len(missing):,} of the {len(names):,} queues that rows go to are not there, and nothing was stored: "
            + ", ".join(missing[:5]),
            hint="create them, or let the write do it: option create_queues=true",
        )
    for name in missing:
        yield from queue_statements.create(check_queue_name(name), QueueSettings(), now).run()
    return (yield from say.destinations(names).run())


def _offsets(staged: Sequence[Staged]) -> list[int]:
    """The number of rows of the data frame before each part, so that versions follow its order."""
    rows = {each.part: each.rows for each in staged}
    offsets: list[int] = []
    before = 0
    for part in range(max(rows, default=-1) + 1):
        offsets.append(before)
        before += rows.get(part, 0)
    return offsets
