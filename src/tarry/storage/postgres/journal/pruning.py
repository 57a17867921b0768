"""Journal retention: drop whole days that no queue retains and that are in the rollups and in every lake."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from tarry.core.analytics.manifest import LakeHead
from tarry.core.journal.snapshots import SnapshotBound
from tarry.core.maintenance.sweeping import PrunedDay
from tarry.core.settings import QueueSettings
from tarry.storage.postgres.statement import Op, Row, Statement, bind, each, only_row, value

_OVERFLOW_ROWS = 5_000
"""Rows per delete: a short transaction with few row locks."""


def prune(*, archived: bool, limit: int) -> Op[list[PrunedDay]]:
    """Prune days, each in its own transaction. Concurrent processes and any order give the same result."""
    default = QueueSettings().retention_for
    days = yield from bind("journal/expired_days", list[Row], default=default).run()
    if days and days[0].has_lake and not archived:
        return []
    pruned: list[PrunedDay] = []
    for day in days[:limit]:
        pruned.append((yield from _pruned(day)))  # noqa: PERF401 - a comprehension cannot yield
    return pruned


def waiting() -> Op[tuple[int, dict[str, datetime | None]]]:
    """The number of days that no queue retains, and the lakes with the time of their last archived batch."""
    days = yield from bind("journal/expired_days", list[Row], default=QueueSettings().retention_for).run()
    lakes = yield from bind("journal/lakes", list[Row]).run()
    return len({row.day for row in days}), {
        row.lake: row.archived_at and row.archived_at.astimezone(UTC) for row in lakes
    }


def _pruned(day: Row) -> Op[PrunedDay]:
    if not day.may:
        return PrunedDay(day.day, why="this role does not own the journal")
    if not (yield from is_rolled_up(day.day).run()):
        return PrunedDay(day.day, why="its events are not all in the rollups yet")
    expected: int | None = None
    edges: list[SnapshotBound] = []
    if day.has_lake:
        account = yield from bind("journal/unarchived", only_row, day=day.day, **day_span(day.day)).run()
        if account.lakes:
            return PrunedDay(day.day, why=f"not archived in full in {', '.join(account.lakes)}: tarry pipeline archive")
        expected, edges = account.rows, [head.edge for head in (yield from lakes().run())]
    if not day.is_partition:
        return PrunedDay(day.day, (yield from drop_overflow(day.day, edges)))
    rows = yield from bind("analytics/retention/drop_day", value, day=day.day, rows=expected).run()
    return PrunedDay(day.day, rows) if rows is not None else PrunedDay(day.day, why="it is being read or written")


def is_rolled_up(day: date) -> Statement[bool]:
    return bind("journal/is_rolled_up", value, **day_span(day))


def lakes() -> Statement[list[LakeHead]]:
    def head(row: Row) -> LakeHead:
        return LakeHead(row.lake, SnapshotBound.from_json(row.to_edge), row.system_id)

    return bind("analytics/retention/lakes", each(head))


def drop_overflow(day: date, edges: Sequence[SnapshotBound]) -> Op[int]:
    """Delete rows of a day without a partition that are before all of these edges, in chunks."""
    params = {"day": day, **day_span(day), **edge_params(edges), "limit": _OVERFLOW_ROWS}
    total = 0
    while True:
        deleted = yield from bind("analytics/retention/drop_overflow", value, **params).run()
        total += deleted
        if deleted < _OVERFLOW_ROWS:
            return total


def edge_params(edges: Sequence[SnapshotBound]) -> dict[str, Any]:
    return {
        "snapshots": [edge.snapshot for edge in edges],
        "bases": [edge.base for edge in edges],
        "xids": [edge.mark.xid if edge.mark else None for edge in edges],
        "ids": [edge.mark.id if edge.mark else None for edge in edges],
    }


def day_span(day: date) -> dict[str, Any]:
    from_at = datetime.combine(day, time(), UTC)
    return {"from_at": from_at, "to_at": from_at + timedelta(days=1)}
