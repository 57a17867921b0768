"""Journal bounds that may be stored: flushed, with evidence, and issued only by a primary."""

from typing import Any

from tarry.core.errors import InvalidState
from tarry.core.journal.snapshots import Point, SnapshotBound
from tarry.storage.postgres.statement import Op, Row, Statement, bind, first, only_row

_SOUGHT = 50
"""Running transactions that are searched one by one in the index; with more, the index is read from the oldest on."""


def head() -> Op[tuple[str, SnapshotBound]]:
    """The journal's identity and current position. Once this is committed, all commits before it are on disk."""
    yield from on_primary()
    return (yield from edge().run())


def edge() -> Statement[tuple[str, SnapshotBound]]:
    """The same without a check for a standby, on which it fails: it writes."""
    return bind("journal/bound", lambda rows: (rows[0].journal, _bound(rows[0])))


def on_primary() -> Op[None]:
    """Refuse to read windows of the journal on a standby."""
    server = yield from bind("journal/standby", only_row).run()
    if server.is_standby:
        of = f"of {server.primary}" if server.primary else "in recovery"
        raise InvalidState(
            f"this server is a standby ({of}): its snapshots do not list running transactions, so events would be lost",
            hint="read the journal on the primary; a DSN with several hosts finds it with target_session_attrs=primary",
        )


def rejoin(point: Point | None) -> Statement[SnapshotBound | None]:
    """The bound from which to continue after a failover that lost events before a point; None if no earlier point is
    known."""
    return bind("journal/rejoin", first(_bound), branch=None if point is None else point.branch)


def evidence(edge: SnapshotBound) -> dict[str, Any]:
    """The point of an edge as parameters."""
    point = edge.point
    if point is None:
        return {"branch": None, "lsn": None}
    return {"branch": point.branch, "lsn": f"{point.lsn >> 32:X}/{point.lsn & 0xFFFFFFFF:X}"}


def unseen(snapshot: str, after_xid: int = 0) -> dict[str, Any]:
    """The transactions that a snapshot does not show, as parameters: from `next_xid` on, and those running at its time."""
    oldest, next_xid, listed = snapshot.split(":")
    running = [int(xid) for xid in listed.split(",")] if listed else []
    if len(running) > _SOUGHT:
        next_xid, running = oldest, []
    return {"next_xid": max(int(next_xid), after_xid), "running": [xid for xid in running if xid >= after_xid]}


def _bound(row: Row) -> SnapshotBound:
    return SnapshotBound(row.snapshot, point=Point(row.branch, row.lsn))
