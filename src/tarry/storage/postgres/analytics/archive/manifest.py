"""The manifest: the parts of the journal in each lake, and job runs. Each method is one short transaction."""

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import date, datetime, timedelta
from typing import Any

import msgspec
import psycopg
from psycopg import Connection
from psycopg.types.json import Jsonb

from tarry.core.analytics.manifest import (
    GRACE,
    READABLE,
    ArchivedDay,
    Batch,
    BatchState,
    LakeFile,
    PastRun,
    Run,
    by_day,
    directory_of,
)
from tarry.core.errors import InvalidState, StoreUnavailable
from tarry.core.journal.snapshots import BEGINNING, Digest, SnapshotBound, Window
from tarry.storage.postgres._sync.runner import drive
from tarry.storage.postgres.analytics.database import Database, Role
from tarry.storage.postgres.analytics.operations import last_run, last_runs
from tarry.storage.postgres.statement import Op, Row, bind, each, first, made, only_row, value

_ERROR_LENGTH = 2_000


class PostgresManifest(Role):
    @contextmanager
    def run(self, job: str, *, exclusive: str | None = None, lake: str | None = None) -> Generator[Run]:
        """Record a run of a job. Raises while the lock `exclusive` (None: of the job) is held elsewhere."""
        name = exclusive or job
        with job_lock(self._database, name) as verify_held:
            row = self._database.write("analytics/archive/run_begin", only_row, job=job, lock=name, lake=lake)
            run = Run(**row._asdict(), job=job, verify_held=verify_held)
            try:
                yield run
                verify_held()
            except BaseException as error:
                self._end(run, "failed", f"{type(error).__name__}: {error}"[:_ERROR_LENGTH])
                raise
            self._end(run, "done", None)

    @contextmanager
    def excluding(self, *locks: str) -> Generator[None]:
        """Hold these locks of jobs. Raises while one is held elsewhere."""
        with ExitStack() as stack:
            for name in locks:
                stack.enter_context(job_lock(self._database, name))
            yield

    def last_run(self, job: str, lake: str | None = None) -> PastRun | None:
        """The last completed run; on this lake, if given."""
        return self._database.query(last_run(job, lake).run)

    def last_runs(self, jobs: Sequence[str]) -> list[PastRun]:
        """The last run of each of these jobs on each lake: completed, failed or running."""
        return self._database.query(lambda: last_runs(jobs))

    def batches(
        self,
        lake: str,
        states: frozenset[BatchState] = READABLE,
        *,
        after: int = 0,
        since: datetime | None = None,
    ) -> list[Batch]:
        """The batches in these states after a position in the chain, in order; with `since`, from the first batch that has
        events since then."""
        names = sorted(state.value for state in states)
        params = {"lake": lake, "states": names, "after": after, "since": since}
        return self._database.fetch("analytics/archive/batches", each(batch), **params)

    def head(self, lake: str) -> Batch | None:
        """The last batch of the chain."""
        return self._database.fetch("analytics/archive/head", first(batch), lake=lake)

    def plan(self, lake: str, window: Window, system_id: str, run: int) -> Batch:
        try:
            return self._database.transact(_planned(lake, window, system_id, run))
        except psycopg.errors.UniqueViolation:
            raise overtaken(lake) from None

    def take_over(self, lake: str, run: int) -> Batch | None:
        """Plan the window of a dead run again under a new number; None if there is none."""

        def op() -> Op[Batch | None]:
            abandoned = yield from bind("analytics/archive/abandon", first(batch), lake=lake).run()
            if abandoned is None or abandoned.kind != "archive":
                return None
            return (yield from _planned(lake, abandoned.window, abandoned.system_id, run))

        return self._database.transact(op())

    def abandon_compactions(self, lake: str) -> None:
        """Abandon compactions that a dead run left planned; archive batches are left to the archive job."""
        self._database.write("analytics/retention/abandon_compaction", lake=lake)

    def known_directories(self, lake: str) -> set[str]:
        """Directories that may contain data: of batches that are readable, being written, or were readable recently."""
        return {
            directory_of(row.number) for row in self._database.fetch("analytics/archive/kept", list[Row], lake=lake)
        }

    def complete(
        self,
        planned: Batch,
        files: Sequence[LakeFile],
        *,
        min_at: datetime | None = None,
        max_at: datetime | None = None,
    ) -> Batch:
        """Move a batch from planned to durable. Raises if another run has taken over."""
        days = by_day(files)
        params = {
            "batch": planned.number,
            **file_params(files),
            "day_rows": [digest.rows for digest in days.values()],
            "day_checksums": [digest.checksum for digest in days.values()],
            "min_at": min_at,
            "max_at": max_at,
        }
        completed = self._database.write("analytics/archive/complete", first(batch), **params)
        if completed is None:
            raise overtaken(planned.lake)
        return completed

    def uncleared(self, lake: str, grace: timedelta = GRACE) -> list[Batch]:
        """Abandoned batches, and replaced ones past their grace period, whose files may still exist."""
        return self._database.fetch("analytics/archive/uncleared", each(batch), lake=lake, grace=grace)

    def mark_cleared(self, numbers: Sequence[int]) -> None:
        self._database.write("analytics/archive/cleared", batches=list(numbers))

    def days(self, lake: str) -> list[ArchivedDay]:
        return self._database.fetch("analytics/archive/days", each(made(ArchivedDay)), lake=lake)

    def horizons(self, lake: str) -> dict[int, date]:
        """By queue id: events before this day are not in the lake, because retention has removed them."""
        return self._database.fetch("analytics/archive/horizons", day_by_queue, lake=lake)

    def _end(self, run: Run, state: str, error: str | None) -> None:
        summary = Jsonb(dict(run.summary), dumps=lambda value: json.dumps(value, default=str))
        self._database.write("analytics/archive/run_end", id=run.id, state=state, summary=summary, error=error)


def file_params(files: Sequence[LakeFile]) -> dict[str, Any]:
    """The files of a batch with their totals, as parameters of a statement."""
    total = sum((file.digest for file in files), Digest())
    return {
        "files": Jsonb(msgspec.to_builtins(files)),
        "rows": total.rows,
        "checksum": total.checksum,
        "days": list(by_day(files)),
    }


def day_by_queue(rows: list[Row]) -> dict[int, date]:
    return {row.queue_id: row.day for row in rows}


def overtaken(lake: str) -> InvalidState:
    return InvalidState(
        f"another run has written to the lake {lake}; nothing is lost, and the next run continues from there",
        hint="run one archive job at a time on a lake",
    )


def _planned(lake: str, window: Window, system_id: str, run: int) -> Op[Batch]:
    planned = yield from bind(
        "analytics/archive/plan",
        first(batch),
        lake=lake,
        system_id=system_id,
        from_edge=Jsonb(window.start.as_json()),
        to_edge=Jsonb(window.end.as_json()),
        beginning=Jsonb(BEGINNING.as_json()),
        run=run,
    ).run()
    if planned is None:
        raise overtaken(lake)
    return planned


def batch(row: Row) -> Batch:
    bounds = {"start": SnapshotBound.from_json(row.from_edge), "end": SnapshotBound.from_json(row.to_edge)}
    return msgspec.convert(row._asdict() | bounds, Batch)


@contextmanager
def job_lock(database: Database, name: str) -> Generator[Callable[[], None]]:
    """Hold the lock `name`; raises if another process holds it. Yields a check that raises once the lock may be lost.

    The lock belongs to an open transaction, not to a session, so it works through a pooler in transaction mode.
    """
    with database.connection() as conn:
        conn.execute("begin")
        try:
            drive(conn, bind("analytics/lock_without_end").run())
            if not _locked(conn, name):
                raise InvalidState(f"another run of {name} is under way", hint="wait until it has finished, or stop it")
            yield lambda: _check(conn, name)
        finally:
            # If the connection is lost, so is the lock; the check has already raised the reason.
            with suppress(psycopg.Error):
                conn.rollback()


def _locked(conn: Connection[Any], name: str) -> bool:
    locked = drive(conn, bind("analytics/lock", value, name=name).run())
    # In an open transaction the portal of the last parameterized statement stays open and keeps a snapshot, which would
    # delay vacuum for the duration of the job. A statement by the simple protocol closes it.
    conn.execute("select", prepare=False)
    return locked


def _check(conn: Connection[Any], name: str) -> None:
    try:
        _locked(conn, name)  # the lock is reentrant for its holder
    except psycopg.Error as error:
        raise StoreUnavailable(
            f"the lock of {name} was lost with its connection, so another run may have been active as well: {error}",
            hint="run it again: completed work is kept. If it recurs, find what closes connections: a pooler's timeout for "
            "idle transactions, a firewall, an administrator",
        ) from error
