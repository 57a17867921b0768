"""Compaction, pruning and retention of journal and lake. Each method is one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta

import psycopg
from psycopg.types.json import Jsonb

from tarry.core.errors import Refused
from tarry.core.pipeline import Batch, BatchState, LakeFile, LakeHead, by_day
from tarry.core.windows import Digest, Edge
from tarry.storage.postgres.pipeline.manifest import batch, encoded, maybe_batch, overtaken
from tarry.storage.postgres.pipeline.reach import Reach
from tarry.storage.postgres.statement import Op, Row, Statement, sql

_OVERFLOW_ROWS = 5_000
"""Rows per delete: a short transaction with few row locks."""


class PostgresHousekeeping:
    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    def plan_compaction(self, parts: Sequence[Batch], run: int) -> Batch:
        first, last = parts[0], parts[-1]
        params = {
            "lake": first.lake,
            "place": last.place,
            "system_id": last.system_id,
            "from_edge": Jsonb(first.start.as_json()),
            "to_edge": Jsonb(last.end.as_json()),
            "run": run,
        }
        try:
            return self._reach.tell(
                Statement(sql("pipeline_plan_compaction"), params, lambda rows: batch(rows[0])).run()
            )
        except psycopg.errors.UniqueViolation:
            raise Refused(
                f"an archive batch of {first.lake} is not finished", hint="run first: tarry pipeline archive"
            ) from None

    def replace(self, compaction: Batch, parts: Sequence[Batch], files: Sequence[LakeFile]) -> Batch:
        def op() -> Op[Batch]:
            numbers = [part.number for part in parts]
            params = {"batch": compaction.number, "parts": numbers}
            replaced = yield from Statement(
                sql("pipeline_replaced"), params, lambda rows: {row[0] for row in rows}
            ).run()
            done = yield from Statement(
                sql("pipeline_compacted"), _compacted(compaction, parts, files), maybe_batch
            ).run()
            if done is None or replaced != set(numbers):
                raise overtaken(compaction.lake)
            return done

        return self._reach.tell(op())

    def lakes(self) -> list[LakeHead]:
        return self._reach.ask(Statement(sql("pipeline_lakes"), {}, _heads).run)

    def journal_days(self) -> dict[date, bool]:
        """The days before today that are in the journal, and whether each has its own partition."""

        def decoded(rows: list[Row]) -> dict[date, bool]:
            days: dict[date, bool] = {}
            for day, is_partition in rows:
                days[day] = days.get(day, False) or is_partition
            return days

        return self._reach.ask(Statement(sql("pipeline_journal_days"), {}, decoded).run)

    def drop_day(self, day: date, rows: int) -> bool:
        """False if rows were added since the count, or the partition is locked; then it stays unchanged."""
        try:
            return self._reach.tell(
                Statement(
                    sql("pipeline_drop_day"), {"day": day, "rows": rows}, lambda found: found[0][0] is not None
                ).run()
            )
        except Refused:
            return False

    def drop_overflow(self, day: date, edges: Sequence[Edge]) -> int:
        """Delete rows of a day without a partition that lie before all of these edges, in chunks."""
        from_at = datetime.combine(day, time(), UTC)
        params = {
            "day": day,
            "from_at": from_at,
            "to_at": from_at + timedelta(days=1),
            "snapshots": [edge.snapshot for edge in edges],
            "bases": [edge.base for edge in edges],
            "xids": [edge.mark.xid if edge.mark else None for edge in edges],
            "ids": [edge.mark.id if edge.mark else None for edge in edges],
            "limit": _OVERFLOW_ROWS,
        }
        total = 0
        while True:
            gone = self._reach.tell(
                Statement(sql("pipeline_drop_overflow"), params, lambda rows: int(rows[0][0])).run()
            )
            total += gone
            if gone < _OVERFLOW_ROWS:
                return total

    def mark_pruned(self) -> None:
        self._reach.tell(Statement(sql("pipeline_mark_pruned"), {}, lambda rows: None).run())

    def retention(self) -> dict[int, date]:
        """By queue id: the first day of history to keep."""
        return self._reach.ask(
            Statement(sql("pipeline_retention"), {}, lambda rows: {row[0]: row[1] for row in rows}).run
        )

    def retire(self, lake: str, taken: Mapping[Batch, Sequence[LakeFile]], horizons: Mapping[int, date]) -> None:
        """Remove these files from the manifest; later reads do not see them."""

        def op() -> Op[None]:
            for one, files in taken.items():
                paths = {file.path for file in files}
                kept = [file for file in one.files if file.path not in paths]
                total = sum((file.digest for file in kept), Digest())
                params = {
                    "batch": one.number,
                    "files": Jsonb([encoded(file) for file in kept]),
                    "rows": total.rows,
                    "checksum": total.checksum,
                }
                if not (yield from Statement(sql("pipeline_retire_files"), params, bool).run()):
                    raise overtaken(lake)
            gone = [file for files in taken.values() for file in files]
            for day, digest in by_day(gone).items():
                params = {"lake": lake, "day": day, "rows": digest.rows, "checksum": digest.checksum}
                yield from Statement(sql("pipeline_retire_day"), params, lambda rows: None).run()
            for queue, before in horizons.items():
                params = {"lake": lake, "queue": queue, "before": before}
                yield from Statement(sql("pipeline_retire_horizon"), params, lambda rows: None).run()

        self._reach.tell(op())

    def begin_lake(self, lake: str) -> None:
        """Record that the history of a new lake is incomplete if the journal was pruned before."""
        self._reach.tell(Statement(sql("pipeline_late_lake"), {"lake": lake}, lambda rows: None).run())


def _compacted(compaction: Batch, parts: Sequence[Batch], files: Sequence[LakeFile]) -> dict[str, object]:
    total = sum((file.digest for file in files), Digest())
    is_pruned = all(part.state is BatchState.PRUNED for part in parts)
    return {
        "batch": compaction.number,
        "state": (BatchState.PRUNED if is_pruned else BatchState.DURABLE).value,
        "files": Jsonb([encoded(file) for file in files]),
        "rows": total.rows,
        "checksum": total.checksum,
        "days": list(by_day(files)),
        "min_at": min((part.min_at for part in parts if part.min_at is not None), default=None),
        "max_at": max((part.max_at for part in parts if part.max_at is not None), default=None),
    }


def _heads(rows: list[Row]) -> list[LakeHead]:
    return [LakeHead(lake, Edge.from_json(edge), system_id) for lake, edge, system_id in rows]
