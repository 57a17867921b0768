"""The manifest: which part of the journal is in which lake, and the runs of jobs."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import date, datetime, timedelta
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from tarry.core.errors import Refused
from tarry.core.pipeline import READABLE, ArchivedDay, Batch, BatchState, LakeFile, PastRun, Run, by_day
from tarry.core.windows import BEGINNING, Digest, Edge, Window
from tarry.storage.postgres.insight_statements import last_run, last_runs
from tarry.storage.postgres.pipeline import alone
from tarry.storage.postgres.pipeline.reach import Reach
from tarry.storage.postgres.statement import Op, Row, Statement, sql

_ERROR_LENGTH = 2_000
GRACE = timedelta(hours=1)
"""How long the files of a replaced batch stay, for readers that read the manifest before the replacement."""


class PostgresManifest:
    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    @contextmanager
    def run(self, job: str, *, alone_at: str | None = None, lake: str | None = None) -> Generator[Run]:
        name = alone_at or job
        with alone.alone_at(self._reach, name) as still_alone, self._noted(job, name, lake, still_alone) as run:
            yield run

    def last_run(self, job: str, lake: str | None = None) -> PastRun | None:
        return self._reach.ask(last_run(job, lake).run)

    def last_runs(self, jobs: Sequence[str]) -> list[PastRun]:
        return self._reach.ask(lambda: last_runs(jobs))

    def batches(self, lake: str, states: frozenset[BatchState] = READABLE) -> list[Batch]:
        params = {"lake": lake, "states": sorted(state.value for state in states)}
        return self._reach.ask(Statement(sql("pipeline_batches"), params, _batches).run)

    def head(self, lake: str) -> Batch | None:
        return self._reach.ask(Statement(sql("pipeline_head"), {"lake": lake}, maybe_batch).run)

    def plan(self, lake: str, window: Window, system_id: str, run: int) -> Batch:
        try:
            return self._reach.tell(_planned(lake, window, system_id, run))
        except psycopg.errors.UniqueViolation:
            raise overtaken(lake) from None

    def take_over(self, lake: str, run: int) -> Batch | None:
        def op() -> Op[Batch | None]:
            left = yield from Statement(sql("pipeline_abandon"), {"lake": lake}, maybe_batch).run()
            if left is None or left.kind != "archive":
                return None
            return (yield from _planned(lake, left.window, left.system_id, run))

        return self._reach.tell(op())

    def abandon_compactions(self, lake: str) -> None:
        """Abandon compactions that a dead run left planned; archive batches are left to the archive job."""
        self._reach.tell(Statement(sql("pipeline_abandon_compaction"), {"lake": lake}, lambda rows: None).run())

    def known_directories(self, lake: str) -> set[str]:
        """Directories that may contain data: of batches that are readable, being written, or were readable recently."""
        known = READABLE | {BatchState.PLANNED, BatchState.REPLACED}
        return {batch.directory for batch in self.batches(lake, known)}

    def complete(
        self, batch: Batch, files: Sequence[LakeFile], *, min_at: datetime | None = None, max_at: datetime | None = None
    ) -> Batch:
        days = by_day(files)
        total = sum(days.values(), Digest())
        params = {
            "batch": batch.number,
            "files": Jsonb([encoded(file) for file in files]),
            "rows": total.rows,
            "checksum": total.checksum,
            "days": list(days),
            "day_rows": [digest.rows for digest in days.values()],
            "day_checksums": [digest.checksum for digest in days.values()],
            "min_at": min_at,
            "max_at": max_at,
        }
        done = self._reach.tell(Statement(sql("pipeline_complete"), params, maybe_batch).run())
        if done is None:
            raise overtaken(batch.lake)
        return done

    def uncleared(self, lake: str) -> list[Batch]:
        params = {"lake": lake, "grace": GRACE}
        return self._reach.ask(Statement(sql("pipeline_uncleared"), params, _batches).run)

    def mark_cleared(self, numbers: Sequence[int]) -> None:
        params = {"batches": list(numbers)}
        self._reach.tell(Statement(sql("pipeline_cleared"), params, lambda rows: None).run())

    def days(self, lake: str) -> list[ArchivedDay]:
        return self._reach.ask(Statement(sql("pipeline_days"), {"lake": lake}, _days).run)

    def horizons(self, lake: str) -> dict[int, date]:
        return self._reach.ask(
            Statement(sql("pipeline_horizons"), {"lake": lake}, lambda rows: {row[0]: row[1] for row in rows}).run
        )

    def days_since(self, lake: str, number: int) -> tuple[set[date], int]:
        params = {"lake": lake, "number": number}
        return self._reach.ask(
            Statement(sql("pipeline_days_since"), params, lambda rows: (set(rows[0][1]), rows[0][0])).run
        )

    @contextmanager
    def _noted(self, job: str, name: str, lake: str | None, still_alone: Callable[[], None]) -> Generator[Run]:
        params = {"job": job, "alone_at": name, "lake": lake}
        begun = self._reach.tell(Statement(sql("pipeline_run_begin"), params, lambda rows: rows[0]).run())
        run = Run(begun[0], job, begun[1], still_alone)
        try:
            yield run
            still_alone()
        except BaseException as error:
            self._end(run, "failed", f"{type(error).__name__}: {error}"[:_ERROR_LENGTH])
            raise
        self._end(run, "done", None)

    def _end(self, run: Run, state: str, error: str | None) -> None:
        params = {"id": run.id, "state": state, "summary": Jsonb(dict(run.summary), dumps=_dumps), "error": error}
        self._reach.tell(Statement(sql("pipeline_run_end"), params, lambda rows: None).run())


def encoded(file: LakeFile) -> dict[str, Any]:
    return {**asdict(file), "day": file.day.isoformat()}


def _planned(lake: str, window: Window, system_id: str, run: int) -> Op[Batch]:
    params = {
        "lake": lake,
        "system_id": system_id,
        "from_edge": Jsonb(window.start.as_json()),
        "to_edge": Jsonb(window.end.as_json()),
        "beginning": Jsonb(BEGINNING.as_json()),
        "run": run,
    }
    planned = yield from Statement(sql("pipeline_plan"), params, maybe_batch).run()
    if planned is None:
        raise overtaken(lake)
    return planned


def overtaken(lake: str) -> Refused:
    return Refused(
        f"another run has written to the lake {lake} meanwhile; nothing is lost, it goes on from there",
        hint="let one archive job at a time work on a lake",
    )


def _dumps(value: object) -> str:
    import json

    return json.dumps(value, default=str)


def batch(row: Row) -> Batch:
    number, lake, kind, place, start, end, system_id, state, files, rows, checksum, min_at, max_at, run = row
    return Batch(
        number=number,
        lake=lake,
        kind=kind,
        place=place,
        start=Edge.from_json(start),
        end=Edge.from_json(end),
        system_id=system_id,
        state=BatchState(state),
        files=tuple(map(_file, files)),
        digest=Digest(rows, int(checksum)),
        min_at=min_at,
        max_at=max_at,
        run=run,
    )


def _file(said: Mapping[str, Any]) -> LakeFile:
    fields: dict[str, Any] = {**said, "day": date.fromisoformat(said["day"])}
    return LakeFile(**fields)


def _batches(rows: list[Row]) -> list[Batch]:
    return [batch(row) for row in rows]


def maybe_batch(rows: list[Row]) -> Batch | None:
    return batch(rows[0]) if rows else None


def _days(rows: list[Row]) -> list[ArchivedDay]:
    return [
        ArchivedDay(
            day=row[0],
            archived=Digest(row[1], int(row[2])),
            pruned=Digest(row[3], int(row[4])),
            retired=Digest(row[5], int(row[6])),
        )
        for row in rows
    ]
