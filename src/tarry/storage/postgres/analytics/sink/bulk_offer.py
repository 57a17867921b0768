"""Bulk offers on PostgreSQL: tasks stage rows by COPY, and one transaction merges them, or one for each task."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from psycopg import Connection

from tarry.core.analytics.bulk_offer import (
    MERGES,
    STAGED_FOR,
    BadRows,
    CommitUnit,
    PartlyStored,
    Rules,
    SinkWrite,
    Staged,
    StagedRow,
    StagingLost,
    Write,
    disjoint_groups,
)
from tarry.core.errors import InvalidState, StoreUnavailable, TarryError
from tarry.core.limits import check_queue_name
from tarry.core.messages.model import CONFLICT_CODES, ConflictRule
from tarry.core.settings import QueueSettings, RetrySettings
from tarry.storage.postgres._sync.runner import drive, transaction
from tarry.storage.postgres.analytics.database import Database
from tarry.storage.postgres.analytics.sink.staging import StagedTotals, copy_rows
from tarry.storage.postgres.arrays import BigintArray, IntArray, TextArray
from tarry.storage.postgres.errors import translated
from tarry.storage.postgres.messages.statements import seconds
from tarry.storage.postgres.queues import statements as queue_statements
from tarry.storage.postgres.statement import Op, Row, Statement, bind, first, made, only_row, value, value_or_none
from tarry.wire.base import same_fields

R = TypeVar("R")

_COUNTS = ("rows", "created", "updated", "superseded")
_sink_write = made(SinkWrite)


class PostgresSink:
    def __init__(self, database: Database, connection_retry: RetrySettings = RetrySettings()) -> None:  # noqa: B008 - frozen
        self._database = database
        self._connection_retry = connection_retry

    def begin(self, write: Write) -> SinkWrite:
        """Register the write; the result shows whether it is already committed."""
        return _sink_write(self._retried(lambda: _begin(write)))

    @contextmanager
    def attempt(self, write: Write, part: int) -> Generator[Staging]:
        with self._database.connection() as conn:
            try:
                yield Staging(conn, write, part)
            except psycopg.Error as error:
                raise translated(error, 1) from error

    def commit(self, write: Write, staged: Sequence[Staged], rules: Rules, *, now: datetime | None = None) -> SinkWrite:
        """Merge the rows of these attempts, all or nothing, or each attempt by itself, at most once per write_id."""
        if rules.commit is CommitUnit.TASK:
            self._merge_tasks(write, staged, rules, now)
        outcome = self._retried(lambda: _merge(write, staged, rules, now))
        # Only cleanup is left: if it fails here, the next write does it.
        with suppress(TarryError, psycopg.Error):
            self._database.transact(_discard(write, None, own=True))
            self.sweep()
        return outcome

    def _merge_tasks(self, write: Write, staged: Sequence[Staged], rules: Rules, now: datetime | None) -> None:
        """Merge each attempt in a transaction of its own, several at the same time. After a failure no other begins."""
        rest = self._retried(lambda: _take_over(write, staged, rules, now))
        with ThreadPoolExecutor(MERGES) as pool:
            merges = {
                pool.submit(self._retried, lambda task=task: _merge_task(write, task, rules, now)): task
                for task in rest
            }
            wait(merges, return_when=FIRST_EXCEPTION)
            pool.shutdown(cancel_futures=True)
        left = [task for merge, task in merges.items() if merge.cancelled() or merge.exception() is not None]
        if left:
            error = next(error for merge in merges if not merge.cancelled() and (error := merge.exception()))
            rows, rows_left = sum(task.rows for task in staged), sum(task.rows for task in left)
            raise PartlyStored(
                f"write {write.write_id!r}: at least {len(staged) - len(left):,} of {len(staged):,} tasks are stored, with "
                f"{rows - rows_left:,} of {rows:,} rows: {error}",
                hint="run the same write again under this write_id, or restart the stream: no row is offered twice",
            ) from error

    def abort(self, write: Write) -> None:
        """Discard the rows staged by this run."""

        def op() -> Op[None]:
            yield from bind("analytics/sink/abort", write_id=write.write_id).run()
            yield from _discard(write, write.run, own=True)

        self._retried(op)

    def outcome(self, write_id: str) -> SinkWrite | None:
        return self._database.fetch("analytics/sink/outcome", first(_sink_write), write_id=write_id)

    def sweep(self, staged_for: timedelta = STAGED_FOR) -> int:
        """Delete leftovers of dead tasks and drivers; returns the number of attempts."""
        return self._database.transact(
            _deleted(bind("analytics/sink/sweep", list[Row], staged_for=staged_for.total_seconds()))
        )

    def _retried(self, make: Callable[[], Op[R]]) -> R:
        """Run a transaction with retries. Each is idempotent: a merge whose response was lost is found committed."""
        failures, started = 0, time.monotonic()
        while True:
            try:
                return self._database.transact(make())
            except StoreUnavailable:
                failures += 1
                pause = self._connection_retry.pause(failures).total_seconds()
                if self._connection_retry.is_over(failures, time.monotonic() - started + pause):
                    raise
                time.sleep(pause)


class Staging:
    """Staging of one attempt. Registers with the first rows: a task without rows writes nothing."""

    def __init__(self, conn: Connection[Any], write: Write, part: int) -> None:
        self._conn = conn
        self._write = write
        self._part = part
        self._attempt: int | None = None
        self._totals = StagedTotals()
        self.committed = False
        """The write was merged before: rows added now would be discarded."""

    def add(self, rows: Iterable[StagedRow]) -> None:
        """Stage rows in one short transaction: nothing stays open while the next rows are computed."""
        if self._attempt is None and not self.committed:
            # In its own transaction: it locks the row of the write, which the other tasks need too.
            with transaction(self._conn):
                self._attempt = drive(self._conn, self._register())
        if self._attempt is not None:
            with transaction(self._conn):
                drive(self._conn, self._copy(self._attempt, rows))

    def _register(self) -> Op[int | None]:
        registered = yield from _begin(self._write)
        self.committed = _sink_write(registered).committed
        if self.committed:
            return None
        return (yield from bind("analytics/sink/attempt", value, write=registered.id, run=self._write.run).run())

    def _copy(self, attempt: int, rows: Iterable[StagedRow]) -> Op[None]:
        if not (yield from bind("analytics/sink/lock_attempt", bool, attempt=attempt).run()):
            raise InvalidState(
                f"write {self._write.write_id!r} was committed, aborted or swept while this task was staging"
            )
        yield from copy_rows(attempt, self._part, rows, self._totals).run()

    def staged(self) -> Staged | None:
        """None if there were no rows."""
        totals = self._totals
        if self._attempt is None or totals.first is None or totals.last is None:
            return None
        counted = same_fields(totals, Staged, "queues")
        return Staged(attempt=self._attempt, part=self._part, queues=frozenset(totals.queues), **counted)


def _merge(write: Write, staged: Sequence[Staged], rules: Rules, now: datetime | None) -> Op[SinkWrite]:
    """Merge in one transaction. A second driver with the same write waits in `begin`, then finds it committed."""
    registered = yield from _begin(write)
    if (earlier := _sink_write(registered)).committed:
        return earlier
    rest, counts = yield from _not_stored(registered.id, write, staged)
    counts += yield from _offer(rest, rules, now)
    kept = {name: counts[name] for name in _COUNTS}
    ignored = kept["rows"] - kept["created"] - kept["updated"] - kept["superseded"]
    of_write = {"id": registered.id, "stream": write.stream, "batch": write.batch}
    row = yield from bind("analytics/sink/finish", only_row, **of_write, **kept, ignored=ignored).run()
    return _sink_write(row)


def _take_over(write: Write, staged: Sequence[Staged], rules: Rules, now: datetime | None) -> Op[list[Staged]]:
    """What is left to be merged task by task. The queues are created before, so that no task waits for another's."""
    registered = yield from _begin(write)
    if _sink_write(registered).committed:
        return []
    rest, _ = yield from _not_stored(registered.id, write, staged)
    yield from _destinations(rest, rules, now)
    return rest


def _merge_task(write: Write, task: Staged, rules: Rules, now: datetime | None) -> Op[None]:
    """Merge one attempt, once: a repetition waits for the lock, then finds it stored."""
    if (yield from bind("analytics/sink/lock_task", value_or_none, attempt=task.attempt).run()):
        return
    yield from _check_staged(write, [task])
    counts = yield from _offer([task], rules, now)
    kept = {name: counts[name] for name in _COUNTS}
    yield from bind("analytics/sink/store_task", attempt=task.attempt, part=task.part, **kept).run()


def _not_stored(id: int, write: Write, staged: Sequence[Staged]) -> Op[tuple[list[Staged], Counter[str]]]:
    """The tasks that are not stored, and the outcome of the others. No other driver can store any from now on: its attempts
    are deleted."""
    yield from _discard(write, write.run, own=False)
    attempts, parts = BigintArray([task.attempt for task in staged]), IntArray([task.part for task in staged])
    stored = yield from bind("analytics/sink/stored_tasks", list[Row], write=id, attempts=attempts, parts=parts).run()
    merged = {row.id for row in stored}
    yield from _check_staged(write, [task for task in staged if task.attempt not in merged])
    if other := sorted(row.part for row in stored if not row.same):
        raise InvalidState(
            f"write {write.write_id!r} has stored {len(stored):,} tasks before, and {len(other):,} of them have other rows "
            f"now, as task {other[0]}; nothing more was stored",
            hint="repeat it with the same rows in the same partitions (repartition(n, key) determines them); under another "
            "write_id everything is offered again",
        )
    counts = Counter({name: sum(getattr(row, name) for row in stored) for name in _COUNTS})
    done = {row.part for row in stored}
    return [task for task in staged if task.part not in done], counts


def _offer(staged: Sequence[Staged], rules: Rules, now: datetime | None) -> Op[Counter[str]]:
    """Offer the rows of these attempts."""
    yield from bind("analytics/sink/tune").run()
    yield from bind("analytics/sink/lock").run()
    destinations = yield from _destinations(staged, rules, now)
    rows = sum(task.rows for task in staged)
    # The time of the merge, and a version for each row: row n (from 1) in range k has bases[k] + n.
    reserved = yield from bind("analytics/sink/reserve", only_row, n=rows, now=now).run()
    params = {
        "offsets": BigintArray(_offsets(staged)),
        "queues": TextArray([queue.name for queue in destinations]),
        "queue_ids": IntArray([queue.id for queue in destinations]),
        "payloads": IntArray([queue.id for queue in destinations if queue.journal == "payloads"]),
        "off": IntArray([queue.id for queue in destinations if queue.journal == "off"]),
        "starts": BigintArray(reserved.starts or ()),
        "bases": BigintArray(reserved.bases or ()),
        "now": reserved.now,
        "conflict": CONFLICT_CODES[rules.conflict.rule],
        "max_wait": seconds(rules.conflict.max_wait),
    }
    rule = rules.conflict.rule
    counts = Counter(rows=rows)
    for group in disjoint_groups(staged):
        attempts = BigintArray([task.attempt for task in group])
        merged = yield from bind("analytics/sink/merge", only_row, attempts=attempts, **params).run()
        counts += Counter(chosen=merged.chosen, created=merged.created, updated=merged.updated)
        if rule is ConflictRule.EARLIEST:
            superseded = bind("analytics/sink/superseded", value, attempts=attempts, now=reserved.now)
            counts["superseded"] += yield from superseded.run()
    if rule in (ConflictRule.REPLACE, ConflictRule.DEBOUNCE):
        # Of the rows with the same key the last one was chosen: the others lost to a later row.
        counts["superseded"] = rows - counts["chosen"]
    return counts


def _discard(write: Write, run: UUID | None, *, own: bool) -> Op[int]:
    return _deleted(bind("analytics/sink/discard", list[Row], write_id=write.write_id, run=run, own=own))


def _deleted(deletion: Statement[list[Row]]) -> Op[int]:
    """Delete attempts and their rows; the number of attempts."""
    attempts = [row.id for row in (yield from deletion.run())]
    yield from bind("analytics/sink/empty", attempts=BigintArray(attempts)).run()
    return len(attempts)


def _begin(write: Write) -> Op[Row]:
    """The row of the write: the fields of `SinkWrite`, and its id."""
    params = {"write_id": write.write_id, "stream": write.stream, "batch": write.batch}
    return (yield from bind("analytics/sink/begin", only_row, **params).run())


def _check_staged(write: Write, staged: Sequence[Staged]) -> Op[None]:
    attempts = BigintArray([task.attempt for task in staged])
    counted = yield from bind("analytics/sink/staged", list[Row], attempts=attempts).run()
    stored = {row.id: (row.rows, row.size) for row in counted}
    short = [task for task in staged if stored.get(task.attempt) != (task.rows, task.size)]
    if short:
        expected = sum(task.rows for task in short)
        remaining = sum(stored[task.attempt][0] for task in short if task.attempt in stored)
        raise StagingLost(
            f"write {write.write_id!r}: {len(short):,} of {len(staged):,} tasks had staged {expected:,} rows, and "
            f"{remaining:,} of them are left; they were not offered",
            hint="the database crashed in between, which empties the staging table, or another driver took the write over, "
            "or the rows waited for more than a day: run the write again under the same write_id",
        )


def _destinations(staged: Sequence[Staged], rules: Rules, now: datetime | None) -> Op[list[Row]]:
    """The queues of the rows: name, id, journal."""
    names = sorted(frozenset[str]().union(*(task.queues for task in staged)))
    queues = bind("analytics/sink/queues", list[Row], names=TextArray(names))
    destinations = yield from queues.run()
    missing = sorted(set(names) - {queue.name for queue in destinations})
    if not missing:
        return destinations
    if not rules.create_queues:
        raise BadRows(
            f"{len(missing):,} of the {len(names):,} queues of these rows do not exist, and nothing was stored: "
            + ", ".join(missing[:5]),
            hint="create them, or set the option create_queues=true",
        )
    for name in missing:
        yield from queue_statements.create(check_queue_name(name), QueueSettings(), now).run()
    return (yield from queues.run())


def _offsets(staged: Sequence[Staged]) -> list[int]:
    """The number of rows of the data frame before each part, so that versions follow its order."""
    rows = {task.part: task.rows for task in staged}
    return list(accumulate((rows.get(part, 0) for part in range(max(rows))), initial=0)) if rows else []
