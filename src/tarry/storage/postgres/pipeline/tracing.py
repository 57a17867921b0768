"""The trace position of each lake, and its valid trace directories."""

from __future__ import annotations

from collections.abc import Sequence

from tarry.core.errors import Refused
from tarry.core.tracing import PartKind, TraceHead, TracePart
from tarry.storage.postgres.pipeline.reach import Reach
from tarry.storage.postgres.statement import Op, Row, Statement, sql


class PostgresTracing:
    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    def head(self, lake: str) -> TraceHead | None:
        return self._reach.ask(Statement(sql("pipeline_trace_head"), {"lake": lake}, _maybe_head).run)

    def parts(self, lake: str, kind: PartKind) -> list[TracePart]:
        params = {"lake": lake, "kind": kind.value}
        return self._reach.ask(Statement(sql("pipeline_trace_parts"), params, _parts).run)

    def advance(
        self, before: TraceHead | None, after: TraceHead, added: Sequence[TracePart], merged: Sequence[TracePart]
    ) -> None:
        def op() -> Op[None]:
            move = {
                "lake": after.lake,
                "place": after.place,
                "snapshot": after.snapshot,
                "system_id": after.system_id,
                "run_id": after.run_id,
                "before": None if before is None else before.run_id,
            }
            if not (yield from Statement(sql("pipeline_trace_move"), move, bool).run()):
                raise Refused(
                    f"another run has traced the lake {after.lake} meanwhile; nothing is lost, it goes on from there",
                    hint="let one pipeline at a time work on a lake",
                )
            swap = {
                "lake": after.lake,
                "run_id": after.run_id,
                "kinds": [part.kind.value for part in added],
                "days": [part.day for part in added],
                "rows": [part.rows for part in added],
                "merged_kinds": [part.kind.value for part in merged],
                "merged_days": [part.day for part in merged],
                "merged_runs": [part.run_id for part in merged],
            }
            yield from Statement(sql("pipeline_trace_parts_swap"), swap, lambda rows: None).run()

        self._reach.tell(op())

    def seen(self, lake: str, job: str) -> int:
        params = {"lake": lake, "job": job}
        return self._reach.ask(
            Statement(sql("pipeline_trace_seen"), params, lambda rows: rows[0][0] if rows else 0).run
        )

    def see(self, lake: str, job: str, run_id: int) -> None:
        params = {"lake": lake, "job": job, "run_id": run_id}
        self._reach.ask(Statement(sql("pipeline_trace_see"), params, lambda rows: None).run)


def _maybe_head(rows: list[Row]) -> TraceHead | None:
    if not rows:
        return None
    lake, place, snapshot, system_id, run_id = rows[0]
    return TraceHead(lake=lake, place=place, snapshot=snapshot, system_id=system_id, run_id=run_id)


def _parts(rows: list[Row]) -> list[TracePart]:
    return [TracePart(PartKind(kind), day, run_id, n) for kind, day, run_id, n in rows]
