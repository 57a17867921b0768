"""The history of each lake: the position that it has reached, its valid directories, and how far jobs have read it."""

from collections.abc import Sequence
from dataclasses import asdict

from tarry.core.analytics.history import HistoryHead, HistoryPart, PartKind
from tarry.core.errors import InvalidState
from tarry.storage.postgres.analytics.database import Role
from tarry.storage.postgres.statement import Op, Row, bind, each, first, made, value_or_none


class PostgresHistory(Role):
    def head(self, lake: str) -> HistoryHead | None:
        return self._database.fetch("analytics/history/head", first(made(HistoryHead)), lake=lake)

    def parts(self, lake: str, kind: PartKind) -> list[HistoryPart]:
        def part(row: Row) -> HistoryPart:
            return HistoryPart(kind, row.day, row.run_id, row.rows)

        return self._database.fetch("analytics/history/parts", each(part), lake=lake, kind=kind.value)

    def advance(
        self,
        before: HistoryHead | None,
        after: HistoryHead,
        added: Sequence[HistoryPart],
        merged: Sequence[HistoryPart],
    ) -> None:
        """Move the head and replace parts in one transaction. Raises if another run has moved the head."""

        def op() -> Op[None]:
            run_before = None if before is None else before.run_id
            if not (yield from bind("analytics/history/move", bool, **asdict(after), before=run_before).run()):
                raise InvalidState(
                    f"another run has extended the history of the lake {after.lake} meanwhile; nothing is lost, and it "
                    "continues from there",
                    hint="run one pipeline at a time on a lake",
                )
            yield from bind(
                "analytics/history/parts_swap",
                lake=after.lake,
                run_id=after.run_id,
                kinds=[part.kind.value for part in added],
                days=[part.day for part in added],
                rows=[part.rows for part in added],
                merged_kinds=[part.kind.value for part in merged],
                merged_days=[part.day for part in merged],
                merged_runs=[part.run_id for part in merged],
            ).run()

        self._database.transact(op())

    def processed_run(self, lake: str, job: str) -> int:
        """The last run of the history that this job has processed; 0 if none."""
        return self._database.fetch("analytics/history/processed_run", value_or_none, lake=lake, job=job) or 0

    def mark_processed(self, lake: str, job: str, run_id: int) -> None:
        """Never moves backwards."""
        self._database.write("analytics/history/mark_processed", lake=lake, job=job, run_id=run_id)
