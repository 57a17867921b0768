"""Reading the journal between two snapshots. Nothing here keeps a snapshot open for longer than one statement."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from tarry.core.errors import Refused
from tarry.core.pipeline import OtherCluster
from tarry.core.windows import BEGINNING, Condition, Digest, Edge, Mark, Picture, Scan, Slice, Window
from tarry.storage.postgres import journal_edges
from tarry.storage.postgres.drive import drive
from tarry.storage.postgres.pipeline import arrow, pictures, scans
from tarry.storage.postgres.pipeline.reach import Reach
from tarry.storage.postgres.statement import Op, Row, Statement, sql

_FIRST_LOOK = 1_000
"""Transactions in the first search."""
_FIRST = Mark(0, 0)
_LAST = Mark(2**63 - 1, 2**63 - 1)


class PostgresWindows:
    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    def system_id(self) -> str:
        return self._reach.ask(Statement(sql("pipeline_system"), {}, _first_text).run)

    def edge(self) -> Edge:
        return self._reach.ask(journal_edges.head)[1]

    def glance(self) -> Edge:
        return self._reach.ask(_glance)

    def check(self, edge: Edge, system_id: str) -> None:
        here, is_behind, is_lost, is_pruned = self._reach.ask(lambda: _checked(edge))
        if here != system_id:
            raise OtherCluster(
                f"the position belongs to the database cluster {system_id}, and this is {here}: restored, or another one",
                hint="transaction numbers start again after a restore; start anew (startAnew, or another lake)",
            )
        if is_lost:
            raise OtherCluster(
                "a standby took over that had not received everything before this position: events that were read may be "
                "lost here, and their transaction numbers given to new events",
                hint="start anew (startAnew, or another lake): reading on would leave out new events without a trace",
            )
        if is_behind:
            raise OtherCluster(
                "the position lies in the future of this database: it was restored to an earlier time",
                hint="start anew (startAnew), or restore the checkpoint of the same time",
            )
        if is_pruned and edge != BEGINNING:
            raise Refused(
                "the journal was pruned beyond this position: events between would be missed",
                hint="read them from the lake, and start anew (startAnew)",
            )

    def has_rows(self, window: Window) -> bool:
        return self._reach.ask(
            Statement(sql("pipeline_window_exists"), bounds(window), lambda rows: bool(rows[0][0])).run
        )

    def cut(self, window: Window, most_rows: int) -> Window:
        """Searches a small range of transactions first and four times as many if too few rows were found: each search
        sorts its rows, and a long backlog is cut many times.
        """
        limits = bounds(window)
        span = _FIRST_LOOK
        while True:
            end_xid = min(limits["end_xid"], limits["first_xid"] + span)
            params = {**limits, "end_xid": end_xid, "most": most_rows}
            found = self._reach.ask(Statement(sql("pipeline_window_cut"), params, lambda rows: rows).run)
            if len(found) == 2:
                return Window(window.start, Edge(window.until, window.since, Mark(*found[0]), window.end.point))
            if end_xid == limits["end_xid"]:
                return window
            span *= 4

    def can_apply(self, table: str, condition: Condition) -> bool:
        return scans.can_apply(table, condition)

    def slices(self, scan: Scan, window: Window | None, *, partitions: int | None = None) -> list[Slice]:
        if scan.table != "events":
            with self._reach.connection() as conn:
                return scans.table_slices(conn, scan, partitions)
        with self._reach.connection() as conn:
            here = drive(conn, _glance())
            window = Window(BEGINNING, here) if window is None else window
            return scans.event_slices(conn, scan, window, partitions)

    def batches(self, piece: Slice) -> Iterator[Any]:
        return arrow.batches(self._reach.dsn, piece)

    def digest(self, window: Window) -> dict[date, Digest]:
        return self._reach.ask(
            Statement(
                sql("pipeline_window_digest"),
                bounds(window),
                lambda rows: {day: Digest(n, int(total)) for day, n, total in rows},
            ).run
        )

    def day_digest(self, edge: Edge, day: date) -> tuple[Digest, int]:
        """Digest of a day's events at or before the edge, and the number of rows after it."""
        return self._reach.ask(
            Statement(
                sql("pipeline_day_digest"),
                day_params(edge, day),
                lambda rows: (Digest(rows[0][0], int(rows[0][1])), rows[0][2]),
            ).run
        )

    def picture(self, edge: Edge) -> Picture:
        return pictures.picture(self._reach, edge)


def bounds(window: Window) -> dict[str, Any]:
    """A window as parameters. The range of transactions is for the index; the snapshots decide."""
    after, upto = window.after or _FIRST, window.upto or _LAST
    return {
        "since": window.since,
        "until": window.until,
        "first_xid": max(int(window.since.split(":")[0]), after.xid),
        "end_xid": min(int(window.until.split(":")[1]), upto.xid + 1),
        "after_xid": after.xid,
        "after_id": after.id,
        "upto_xid": upto.xid,
        "upto_id": upto.id,
    }


def day_params(edge: Edge, day: date) -> dict[str, Any]:
    from_at = datetime.combine(day, time(), UTC)
    mark = edge.mark or _FIRST
    return {
        "snapshot": edge.snapshot,
        "base": edge.base,
        "xid": mark.xid,
        "id": mark.id,
        "from_at": from_at,
        "to_at": from_at + timedelta(days=1),
    }


def _glance() -> Op[Edge]:
    yield from journal_edges.on_primary()
    return Edge((yield from Statement(sql("pipeline_snapshot"), {}, _first_text).run()))


def _checked(edge: Edge) -> Op[Row]:
    yield from journal_edges.on_primary()
    params = {"snapshot": edge.snapshot, "base": edge.base, **journal_edges.evidence(edge)}
    return (yield from Statement(sql("pipeline_check"), params, lambda rows: rows[0]).run())


def _first_text(rows: list[Row]) -> str:
    return str(rows[0][0])
