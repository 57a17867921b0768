"""Following the journal of PostgreSQL: windows between snapshots, one statement each."""

from __future__ import annotations

from dataclasses import dataclass

from tarry.core.events import KINDS, Event, EventKind
from tarry.core.following import EventPage, Gap, Position
from tarry.core.windows import Edge, Mark
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
    is_flushed: bool
    events: tuple[tuple[Mark, Event | None], ...]
    """None: of a kind that a newer Tarry has written, while it is rolled out. Nobody can want it here."""


def follow(after: str | None, until: str | None, limit: int, most: int) -> Op[EventPage]:
    """In a transaction of its own."""
    if after is None:
        return EventPage(position=str((yield from _head())))
    asked, end = Position.parse(after), None if until is None else Position.parse(until)
    if asked is None or (until is not None and (end is None or end.edge.mark is not None)):
        return (yield from _lost(Gap.UNKNOWN))
    edge = asked.edge
    # In the middle of a window, the rest of it comes first: it is closed, so it can be read at any time.
    closed = edge.snapshot if edge.mark is not None else None if end is None else end.edge.snapshot
    yield from by_bitmaps().run()
    found = yield from _window(edge, closed, max(1, limit), most).run()
    if found.journal != asked.journal or found.is_ahead:
        return (yield from _lost(Gap.UNKNOWN))
    if found.is_pruned:
        return (yield from _lost(Gap.PRUNED))
    if found.is_too_far:
        return (yield from _lost(Gap.TOO_FAR))
    if found.events and not found.is_flushed:
        yield from _head()
    return _page(asked, found, limit=max(1, limit))


def _page(asked: Position, found: _Found, *, limit: int) -> EventPage:
    edge = asked.edge
    since = edge.base or edge.snapshot

    def place(mark: Mark) -> str:
        return str(Position(asked.journal, Edge(found.until, since, mark)))

    events = tuple((place(mark), event) for mark, event in found.events if event is not None)
    if len(found.events) == limit:
        return EventPage(events=events, position=place(found.events[-1][0]), complete=False)
    if not found.events and edge.mark is None:
        # The old position says as much as a new one would, and need not be on disk.
        return EventPage(position=str(asked))
    reached = str(Position(asked.journal, Edge(found.until)))
    return EventPage(events=events, position=reached, complete=edge.mark is None)


def _lost(gap: Gap) -> Op[EventPage]:
    return EventPage(position=str((yield from _head())), gap=gap)


def _head() -> Op[Position]:
    """When this is committed, what was committed before is on disk."""
    return (yield from Statement(sql("follow_head"), {}, lambda rows: Position(rows[0][1], Edge(rows[0][0]))).run())


def _window(edge: Edge, until: str | None, limit: int, most: int) -> Statement[_Found]:
    since, after = edge.base or edge.snapshot, edge.mark or _FIRST
    oldest, following, listed = since.split(":")
    running = [int(xid) for xid in listed.split(",")] if listed else []
    if len(running) > _SOUGHT:
        following, running = oldest, []
    params = {
        "since": since,
        "until": until,
        "known": edge.snapshot,
        "next_xid": max(int(following), after.xid),
        "running": [xid for xid in running if xid >= after.xid],
        "after_xid": after.xid,
        "after_id": after.id,
        "limit": storable(limit),
        "most": storable(most),
    }
    return Statement(sql("follow"), params, _found)


def _found(rows: list[Row]) -> _Found:
    until, journal, ahead, pruned, too_far, flushed, *_ = rows[0]
    events = tuple((Mark(row[6], row[7]), _event(row)) for row in rows if row[7] is not None)
    return _Found(until, journal, ahead, pruned, too_far, flushed, events)


def _event(row: Row) -> Event | None:
    if row[8] not in KINDS:
        return None
    return Event(
        id=row[7], kind=EventKind(row[8]), at=row[9], queue=row[10], key=row[11], version=row[12], attempt=row[13],
        priority=row[14], due_at=row[15], leased_at=row[16], lease_until=row[17], consumer=row[18], size=row[19],
        payload_hash=row[20], error=row[21], detail=row[22],
    )  # fmt: skip
