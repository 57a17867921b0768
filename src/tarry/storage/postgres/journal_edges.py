"""Edges of the journal that may be remembered: flushed, with evidence, and given out by a primary only."""

from __future__ import annotations

from typing import Any

from tarry.core.errors import Refused
from tarry.core.windows import Edge, Point
from tarry.storage.postgres.statement import Op, Row, Statement, sql


def head() -> Op[tuple[str, Edge]]:
    """Which journal this is, and where it is now. When this is committed, what was committed before is on disk."""
    yield from on_primary()
    return (yield from edge().run())


def edge() -> Statement[tuple[str, Edge]]:
    """On a primary only: it writes."""
    return Statement(sql("journal_edge"), {}, _edge)


def on_primary() -> Op[None]:
    """Refuse to read windows of the journal on a standby."""
    is_standby, primary = yield from Statement(sql("journal_standby"), {}, lambda rows: rows[0]).run()
    if is_standby:
        raise standby(primary)


def standby(primary: str | None) -> Refused:
    of = f"of {primary}" if primary else "in recovery"
    return Refused(
        f"this server is a standby ({of}): its snapshots do not list running transactions, so events would be lost",
        hint="read the journal on the primary; a DSN with several hosts finds it with target_session_attrs=primary",
    )


def rejoin(point: Point | None) -> Statement[Edge | None]:
    """Where to go on after a failover that lost what was before a point; None: nothing of an earlier timeline is known."""
    params = {"branch": None if point is None else point.branch}
    return Statement(sql("journal_rejoin"), params, lambda rows: _known(*rows[0]) if rows else None)


def evidence(edge: Edge) -> dict[str, Any]:
    """The point of an edge as parameters."""
    point = edge.point
    if point is None:
        return {"branch": None, "lsn": None}
    return {"branch": point.branch, "lsn": f"{point.lsn >> 32:X}/{point.lsn & 0xFFFFFFFF:X}"}


def _edge(rows: list[Row]) -> tuple[str, Edge]:
    snapshot, journal, branch, lsn, _ = rows[0]
    return journal, _known(snapshot, branch, lsn)


def _known(snapshot: str, branch: int, lsn: int) -> Edge:
    return Edge(snapshot, point=Point(branch, lsn))
