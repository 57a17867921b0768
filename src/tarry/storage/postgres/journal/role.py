"""`JournalRole` on PostgreSQL. A tail reads windows between snapshots, one statement each."""

from collections.abc import Sequence
from typing import NamedTuple

from tarry.core.journal.events import KINDS, Event
from tarry.core.journal.positions import EventPage, GapReason, Position
from tarry.core.journal.snapshots import Mark, Point, SnapshotBound
from tarry.storage.postgres.journal import bounds
from tarry.storage.postgres.journal.statements import event, prefer_bitmap_scans, timeline
from tarry.storage.postgres.messages.statements import storable
from tarry.storage.postgres.operation import PostgresOperation, PostgresRole, in_known_queue
from tarry.storage.postgres.statement import Op, Row, Statement, sql

_FIRST = Mark(0, 0)


class PostgresJournal(PostgresRole):
    def timeline(
        self, queue: str, key: str, *, limit: int = 1000, before: int | None = None
    ) -> PostgresOperation[list[Event]]:
        def steps(own: bool) -> Op[list[Event]]:  # noqa: FBT001
            if own:
                yield from prefer_bitmap_scans().run()  # for the store's own transaction
            return (yield from timeline(queue, key, limit, before).run())

        return PostgresOperation(lambda own: in_known_queue(lambda: steps(own)), atomic=True)

    def tail(
        self, after: str | None, *, until: str | None = None, limit: int = 1_000, most: int = 20_000
    ) -> PostgresOperation[EventPage]:
        return PostgresOperation(lambda own: _tail(after, until, limit, most), atomic=True)


class _Window(NamedTuple):
    """A window, or the first `limit` events of its rest."""

    bounds: Row
    """Columns of the window itself: `until`, `journal`, and reasons why it cannot be read, such as a `gap`."""
    events: tuple[tuple[Mark, Event | None], ...]
    """None for an event of a kind that only a newer version writes, during a rolling deploy. Skipped."""


def _tail(after: str | None, until: str | None, limit: int, most: int) -> Op[EventPage]:
    """Read the next page in a separate transaction."""
    if after is None:
        return EventPage(position=(yield from _head()))
    position, end = Position.parse(after), None if until is None else Position.parse(until)
    if position is None or (until is not None and (end is None or end.edge.mark is not None)):
        return (yield from _gap(GapReason.UNKNOWN))
    edge = position.edge
    # In the middle of a window, its rest comes first: a closed window can be read at any time.
    closed = edge.closed if edge.mark is not None else None if end is None else end.edge
    yield from prefer_bitmap_scans().run()
    window, events = yield from _window(edge, closed, max(1, limit), most).run()
    if window.is_standby:
        yield from bounds.on_primary()
    if window.journal != position.journal:
        return (yield from _gap(GapReason.UNKNOWN))
    if window.is_lost:
        return (yield from _after_failover(position))
    if window.gap is not None:
        return (yield from _gap(GapReason(window.gap)))
    if not events and edge.mark is None:
        # The old position is equivalent to a new one, and need not be flushed.
        return EventPage(position=after)
    point = None if closed is None else closed.point
    if point is None:
        # Taken after the window was read, so it is after all of its events.
        point = (yield from bounds.edge().run())[1].point
    return _page(position, window.until, events, point, limit=max(1, limit))


def _page(
    position: Position, until: str, window: Sequence[tuple[Mark, Event | None]], point: Point | None, *, limit: int
) -> EventPage:
    edge = position.edge
    since = edge.base or edge.snapshot

    def at(mark: Mark) -> str:
        return str(Position(position.journal, SnapshotBound(until, since, mark, point)))

    events = tuple((at(mark), event) for mark, event in window if event is not None)
    if len(window) == limit:
        return EventPage(events=events, position=at(window[-1][0]), complete=False)
    reached = str(Position(position.journal, SnapshotBound(until, point=point)))
    return EventPage(events=events, position=reached, complete=edge.mark is None)


def _gap(gap: GapReason) -> Op[EventPage]:
    return EventPage(position=(yield from _head()), gap=gap)


def _after_failover(position: Position) -> Op[EventPage]:
    """All events since the failover are after the newest point of the old timeline that this server has."""
    edge = yield from bounds.rejoin(position.edge.point).run()
    if edge is None:
        return (yield from _gap(GapReason.FAILOVER))
    return EventPage(position=str(Position(position.journal, edge)), complete=False, gap=GapReason.FAILOVER)


def _head() -> Op[str]:
    return str(Position(*(yield from bounds.head())))


def _window(edge: SnapshotBound, until: SnapshotBound | None, limit: int, most: int) -> Statement[_Window]:
    since, after = edge.base or edge.snapshot, edge.mark or _FIRST
    params = {
        "since": since,
        "until": None if until is None else until.snapshot,
        "known": edge.snapshot,
        **bounds.evidence(edge),
        **bounds.unseen(since, after.xid),
        "after_xid": after.xid,
        "after_id": after.id,
        "limit": storable(limit),
        "most": storable(most),
    }
    return Statement(sql("journal/tail"), params, _decoded)


def _decoded(rows: list[Row]) -> _Window:
    events = ((Mark(row.xid, row.id), event(row) if row.kind in KINDS else None) for row in rows if row.id is not None)
    return _Window(rows[0], tuple(events))
