"""Reading the journal between two snapshots. Nothing here keeps a snapshot open for longer than one statement."""

from collections.abc import Iterator
from datetime import date
from typing import Any

from tarry.core.analytics.manifest import OtherCluster
from tarry.core.errors import InvalidState
from tarry.core.journal.snapshots import (
    BEGINNING,
    ColumnCondition,
    Digest,
    Mark,
    Scan,
    ServerAddress,
    SharedQuery,
    Slice,
    SnapshotBound,
    Window,
)
from tarry.storage.postgres._sync.runner import drive
from tarry.storage.postgres.analytics.database import Role
from tarry.storage.postgres.analytics.windows import arrow, scans
from tarry.storage.postgres.journal import bounds as journal_edges
from tarry.storage.postgres.journal.pruning import day_span
from tarry.storage.postgres.statement import Op, Row, bind, each, made, only_row, value

_FIRST_SEARCH = 1_000
"""Transactions in the first search."""
_FIRST = Mark(0, 0)
_LAST = Mark(2**63 - 1, 2**63 - 1)


class PostgresWindows(Role):
    def system_id(self) -> str:
        return self._database.fetch("analytics/windows/system", value)

    def installation_id(self) -> str:
        return self._database.fetch("analytics/windows/installation", value)

    def edge(self) -> SnapshotBound:
        return self._database.query(journal_edges.head)[1]

    def current_snapshot(self) -> SnapshotBound:
        return self._database.query(_current_snapshot)

    def check(self, edge: SnapshotBound, system_id: str) -> None:
        state = self._database.query(lambda: _checked(edge))
        if state.system_id != system_id:
            raise OtherCluster(
                f"the position belongs to the database cluster {system_id}, and this is {state.system_id}: restored, or "
                "another one",
                hint="transaction ids start again after a restore; start over (startAnew, or another lake)",
            )
        if state.is_lost:
            raise OtherCluster(
                "a standby took over that had not received everything before this position: events that were read may be "
                "lost here, and their transaction ids reused for new events",
                hint="start over (startAnew, or another lake): reading on would silently skip new events",
            )
        if state.is_behind:
            raise OtherCluster(
                "the position lies in the future of this database: it was restored to an earlier time",
                hint="start over (startAnew), or restore the checkpoint of the same time",
            )
        if state.is_pruned and edge != BEGINNING:
            raise InvalidState(
                "the journal was pruned beyond this position: events between would be missed",
                hint="read them from the lake, and start over (startAnew)",
            )

    def has_rows(self, window: Window) -> bool:
        return self._database.fetch("analytics/windows/window_exists", value, **bounds(window))

    def cut(self, window: Window, most_rows: int) -> Window:
        """Search a small range of transactions first, then ranges four times as long until enough rows are found: each search
        sorts its rows, and a long backlog is cut many times."""
        limits = bounds(window)
        span = _FIRST_SEARCH
        while True:
            end_xid = min(limits["end_xid"], limits["first_xid"] + span)
            params = {**limits, "end_xid": end_xid, "rows": most_rows}
            marks = self._database.fetch("analytics/windows/window_cut", each(made(Mark)), **params)
            if len(marks) == 2:
                return Window(window.start, SnapshotBound(window.until, window.since, marks[0], window.end.point))
            if end_xid == limits["end_xid"]:
                return window
            span *= 4

    def can_apply(self, table: str, condition: ColumnCondition) -> bool:
        return scans.can_apply(table, condition)

    def reads(self, scan: Scan, window: Window | None, *, partitions: int | None = None) -> list[SharedQuery]:
        with self._database.connection() as conn:
            if scan.table != "events":
                return scans.table_reads(conn, scan, partitions)
            current = drive(conn, _current_snapshot())  # also of a given window: this refuses a standby
            return scans.event_reads(conn, scan, window or Window(BEGINNING, current), partitions)

    def slices(self, scan: Scan, window: Window | None, *, partitions: int | None = None) -> list[Slice]:
        return [piece for read in self.reads(scan, window, partitions=partitions) for piece in read.slices]

    def tcp_address(self) -> ServerAddress | None:
        """None if the connection uses a Unix socket or certificates."""
        with self._database.connection() as conn:
            info, given = conn.info, conn.info.get_parameters()
            sslmode = given.get("sslmode", "prefer")
            is_certified = bool(given.keys() & {"sslcert", "sslrootcert"}) or sslmode.startswith("verify")
            if info.host.startswith("/") or not info.host or is_certified:
                return None
            return ServerAddress(info.host, info.port, info.dbname, info.user, info.password, sslmode)

    def batches(self, piece: Slice) -> Iterator[Any]:
        return arrow.batches(self._database.dsn, piece)

    def digest(self, window: Window) -> dict[date, Digest]:
        days = self._database.fetch("analytics/windows/window_digest", list[Row], **bounds(window))
        return {row.day: Digest(row.rows, int(row.checksum)) for row in days}

    def day_digest(self, edge: SnapshotBound, day: date) -> tuple[Digest, int]:
        """Digest of a day's events at or before the edge, and the number of rows after it."""
        mark = edge.mark or _FIRST
        before = {"snapshot": edge.snapshot, "base": edge.base, "xid": mark.xid, "id": mark.id}
        row = self._database.fetch("analytics/windows/day_digest", only_row, **before, **day_span(day))
        return Digest(row.rows, int(row.checksum)), row.later_rows


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


def _current_snapshot() -> Op[SnapshotBound]:
    yield from journal_edges.on_primary()
    return SnapshotBound((yield from bind("analytics/windows/snapshot", value).run()))


def _checked(edge: SnapshotBound) -> Op[Row]:
    yield from journal_edges.on_primary()
    params = {"snapshot": edge.snapshot, "base": edge.base, **journal_edges.evidence(edge)}
    return (yield from bind("analytics/windows/check", only_row, **params).run())
