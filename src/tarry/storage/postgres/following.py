"""Following the journal of PostgreSQL: windows between snapshots, one statement each."""

from __future__ import annotations

from dataclasses import dataclass

from tarry.core.events import KINDS, Event, EventKind
from tarry.core.following import EventPage, Gap, Position
from tarry.core.windows import Edge, Mark, Point
from tarry.storage.postgres import journal_edges
from tarry.storage.postgres.statement import Op, Row, Statement, sql
from tarry.storage.postgres.statements import by_bitmaps, storable

_FIRST = Mark(0, 0)
_SOUGHT = 50
"""Transactions that are sought one by one in the index; where more were under way, it is read from the oldest on."""


@dataclass(frozen=True, slots=True)
class _Found:
    """One window, or the first `limit` events of the rest of it."""

    until: str
    journal: str
    is_ahead: bool
    is_pruned: bool
    is_too_far: bool
    is_lost: bool
    is_standby: bool
    events: tuple[tuple[Mark, Event | None], ...]
    """None: of a kind that a newer Tarry has written, while it is rolled out. Nobody can want it here."""


def follow(after: str | None, until: str | None, limit: int, most: int) -> Op[EventPage]:
    """In a transaction of its own."""
    if after is None:
        return EventPage(position=(yield from _head()))
    asked, end = Position.parse(after), None if until is None else Position.parse(until)
    if asked is None or (until is not None and (end is None or end.edge.mark is not None)):
        return (yield from _gap(Gap.UNKNOWN))
    edge = asked.edge
    # In the middle of a window, the rest of it comes first: it is closed, so it can be read at any time.
    closed = edge.closed if edge.mark is not None else None if end is None else end.edge
    yield from by_bitmaps().run()
    found = yield from _window(edge, closed, max(1, limit), most).run()
    if found.is_standby:
        yield from journal_edges.on_primary()
    if found.journal != asked.journal:
        return (yield from _gap(Gap.UNKNOWN))
    if found.is_lost:
        return (yield from _after_failover(asked))
    if found.is_ahead:
        return (yield from _gap(Gap.UNKNOWN))
    if found.is_pruned:
        return (yield from _gap(Gap.PRUNED))
    if found.is_too_far:
        return (yield from _gap(Gap.TOO_FAR))
    if not found.events and edge.mark is None:
        # The old position says as much as a new one would, and need not be on disk.
        return EventPage(position=after)
    point = None if closed is None else closed.point
    if point is None:
        # Taken after the window was read, so it lies behind everything in it.
        point = (yield from journal_edges.edge().run())[1].point
    return _page(asked, found, point, limit=max(1, limit))


def _page(asked: Position, found: _Found, point: Point | None, *, limit: int) -> EventPage:
    edge = asked.edge
    since = edge.base or edge.snapshot

    def place(mark: Mark) -> str:
        return str(Position(asked.journal, Edge(found.until, since, mark, point)))

    events = tuple((place(mark), event) for mark, event in found.events if event is not None)
    if len(found.events) == limit:
        return EventPage(events=events, position=place(found.events[-1][0]), complete=False)
    reached = str(Position(asked.journal, Edge(found.until, point=point)))
    return EventPage(events=events, position=reached, complete=edge.mark is None)


def _gap(gap: Gap) -> Op[EventPage]:
    return EventPage(position=(yield from _head()), gap=gap)


def _after_failover(asked: Position) -> Op[EventPage]:
    """Everything that is new since the failover lies after the newest point of the old timeline that this server has."""
    edge = yield from journal_edges.rejoin(asked.edge.point).run()
    if edge is None:
        return (yield from _gap(Gap.FAILOVER))
    return EventPage(position=str(Position(asked.journal, edge)), complete=False, gap=Gap.FAILOVER)


def _head() -> Op[str]:
    return str(Position(*(yield from journal_edges.head())))


def _window(edge: Edge, until: Edge | None, limit: int, most: int) -> Statement[_Found]:
    since, after = edge.base or edge.snapshot, edge.mark or _FIRST
    oldest, following, listed = since.split(":")
    running = [int(xid) for xid in listed.split(",")] if listed else []
    if len(running) > _SOUGHT:
        following, running = oldest, []
    params = {
        "since": since,
        "until": None if until is None else until.snapshot,
        "known": edge.snapshot,
        **journal_edges.evidence(edge),
        "next_xid": max(int(following), after.xid),
        "running": [xid for xid in running if xid >= after.xid],
        "after_xid": after.xid,
        "after_id": after.id,
        "limit": storable(limit),
        "most": storable(most),
    }
    return Statement(sql("follow"), params, _found)


def _found(rows: list[Row]) -> _Found:
    until, journal, ahead, pruned, too_far, lost, standby, *_ = rows[0]
    events = tuple((Mark(row[7], row[8]), _event(row)) for row in rows if row[8] is not None)
    return _Found(until, journal, ahead, pruned, too_far, lost, standby, events)


def _event(row: Row) -> Event | None:
    if row[9] not in KINDS:
        return None
    return Event(
        id=row[8], kind=EventKind(row[9]), at=row[10], queue=row[11], key=row[12], version=row[13], attempt=row[14],
        priority=row[15], due_at=row[16], leased_at=row[17], lease_until=row[18], consumer=row[19], size=row[20],
        payload_hash=row[21], error=row[22], detail=row[23],
    )  # fmt: skip
