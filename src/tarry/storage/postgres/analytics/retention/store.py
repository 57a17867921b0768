"""Compaction, pruning and retention of journal and lake. Each method is one transaction."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import date
from types import MappingProxyType

import psycopg
from psycopg.types.json import Jsonb

from tarry.core.analytics.manifest import Batch, BatchState, ForgottenKey, LakeFile, LakeHead, by_day
from tarry.core.errors import InvalidState
from tarry.core.journal.snapshots import Digest, SnapshotBound
from tarry.storage.postgres.analytics.archive.manifest import batch, day_by_queue, file_params, job_lock, overtaken
from tarry.storage.postgres.analytics.database import Role
from tarry.storage.postgres.journal import pruning
from tarry.storage.postgres.statement import Op, Row, bind, each, only_row, value


class PostgresRetention(Role):
    def plan_compaction(self, parts: Sequence[Batch], run: int) -> Batch:
        first, last = parts[0], parts[-1]
        try:
            (planned,) = self._database.write(
                "analytics/retention/plan_compaction",
                each(batch),
                lake=first.lake,
                position=last.position,
                system_id=last.system_id,
                from_edge=Jsonb(first.start.as_json()),
                to_edge=Jsonb(last.end.as_json()),
                run=run,
            )
        except psycopg.errors.UniqueViolation:
            raise InvalidState(
                f"an archive batch of {first.lake} is not finished", hint="run first: tarry pipeline archive"
            ) from None
        return planned

    def replace(
        self,
        compaction: Batch,
        parts: Sequence[Batch],
        files: Sequence[LakeFile],
        retired: Mapping[date, Digest] = MappingProxyType({}),
    ) -> Batch:
        """Atomically make the compaction readable instead of its parts. Raises if one of them is gone. `retired`: digests of
        the rows that only the parts have, by day."""
        is_pruned = all(part.state is BatchState.PRUNED for part in parts)
        params = {
            "batch": compaction.number,
            "parts": [part.number for part in parts],
            "state": (BatchState.PRUNED if is_pruned else BatchState.DURABLE).value,
            **file_params(files),
            "min_at": min((part.min_at for part in parts if part.min_at is not None), default=None),
            "max_at": max((part.max_at for part in parts if part.max_at is not None), default=None),
        }

        def op() -> Op[Batch]:
            replaced = yield from bind("analytics/retention/replaced", len, **params).run()
            completed = yield from bind("analytics/retention/compacted", each(batch), **params).run()
            if not completed or replaced != len(parts):
                raise overtaken(compaction.lake)
            for day, digest in retired.items():
                yield from bind("analytics/retention/retire_day", lake=compaction.lake, day=day, **asdict(digest)).run()
            return completed[0]

        return self._database.transact(op())

    def lakes(self) -> list[LakeHead]:
        return self._database.query(pruning.lakes().run)

    def abandon(self, lake: str) -> bool:
        """Forget a lake, whose files stay; False if there is none. Raises while a job runs on it."""
        with job_lock(self._database, f"lake {lake}"):
            jobs: list[Row] = self._database.fetch("analytics/retention/running_on", list, lake=lake)
            if jobs:
                names = ", ".join(row.job for row in jobs)
                raise InvalidState(
                    f"a job runs on the lake {lake}: {names}", hint="wait until it has finished, or stop it"
                )
            return self._database.write("analytics/retention/abandon_lake", value, lake=lake) > 0

    def journal_days(self) -> dict[date, bool]:
        """The days before today that are in the journal, and whether each has its own partition."""
        return self._database.fetch("analytics/retention/journal_days", dict[date, bool])

    def is_rolled_up(self, day: date) -> bool:
        return self._database.query(pruning.is_rolled_up(day).run)

    def drop_day(self, day: date, rows: int) -> bool:
        """Drop a partition with exactly this many rows. False if it has others now, or is locked."""
        try:
            return self._database.write("analytics/retention/drop_day", value, day=day, rows=rows) is not None
        except InvalidState:
            return False

    def drop_overflow(self, day: date, edges: Sequence[SnapshotBound]) -> int:
        """Delete rows of a day without a partition that lie before all of these edges, in chunks."""
        return self._database.query(lambda: pruning.drop_overflow(day, edges))

    def mark_pruned(self) -> None:
        self._database.write("analytics/retention/mark_pruned")

    def first_days(self) -> dict[int, date]:
        """By queue id: the first day of history to keep."""
        return self._database.fetch("analytics/retention/first_days", day_by_queue)

    def retire(self, lake: str, taken: Mapping[Batch, Sequence[LakeFile]], horizons: Mapping[int, date]) -> None:
        """Remove these files from the manifest: later reads do not see them, and they may be deleted."""

        def op() -> Op[None]:
            for old, files in taken.items():
                paths = {file.path for file in files}
                kept = [file for file in old.files if file.path not in paths]
                retire = bind("analytics/retention/retire_files", bool, batch=old.number, **file_params(kept))
                if not (yield from retire.run()):
                    raise overtaken(lake)
            retired = [file for files in taken.values() for file in files]
            for day, digest in by_day(retired).items():
                yield from bind("analytics/retention/retire_day", lake=lake, day=day, **asdict(digest)).run()
            for queue, before in horizons.items():
                yield from bind("analytics/retention/retire_horizon", lake=lake, queue=queue, before=before).run()

        self._database.transact(op())

    def forget(self, queue_id: int, key: str) -> ForgottenKey:
        """Delete the archived events of a key from the journal, unless it is live or dead, and the anomalies about it."""

        def op() -> Op[ForgottenKey]:
            heads = yield from pruning.lakes().run()
            edges = pruning.edge_params([head.edge for head in heads])
            forget = bind("analytics/retention/forget", only_row, queue=queue_id, key=key, **edges)
            return ForgottenKey(**(yield from forget.run())._asdict())

        return self._database.transact(op())

    def begin_lake(self, lake: str) -> None:
        """Record that the history of a new lake is incomplete if the journal was pruned before."""
        self._database.write("analytics/retention/late_lake", lake=lake)
