"""Looking back in the journal of PostgreSQL: stretches of transactions, from the last one on, each longer than the last.

The journal has no index in the order of time, and needs none to be written fast. What it has (event_find) finds a stretch of
transactions at once, so that looking at the last minutes costs the same however long the journal is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from tarry.core.errors import InvalidInput
from tarry.core.events import Event, EventKind
from tarry.core.insights import Asked, InsightPage
from tarry.storage.postgres.insight_statements import limited, queue_id
from tarry.storage.postgres.statement import Op, Row, Statement, sql
from tarry.storage.postgres.statements import by_bitmaps

FIRST = 16
"""Transactions of the first stretch: each may have a thousand events, or one."""
WIDER = 4
ENOUGH = 50_000
"""Events that one look goes through, give or take a stretch: then it says where to go on."""
_BEHIND_ALL = 2**63 - 1


class _Place(NamedTuple):
    """Where to go on: before this event."""

    xid: int
    id: int


class _Stretch(NamedTuple):
    looked: int
    events: list[tuple[_Place, Event]]


def look_back(
    asked: Asked, visible: Mapping[str, Any], kinds: Iterable[EventKind] | None, consumer: str | None
) -> Op[InsightPage[Event]]:
    """In a transaction of its own."""
    place = None if asked.after is None else _parsed(asked.after)
    params = {
        "names": None,
        "beginnings": None,
        **visible,
        "queue_id": (yield from queue_id(asked.queue)),
        "consumer": consumer,
        "kinds": [kind.value for kind in kinds or EventKind],
        "since": asked.since,
        "until": asked.until,
    }
    yield from by_bitmaps().run()
    last, until_id = place or _Place((yield from _head().run()), _BEHIND_ALL)
    found: list[tuple[_Place, Event]] = []
    looked, width, limit = 0, FIRST, limited(asked.limit)
    while last > 0 and len(found) < limit and looked < ENOUGH:
        first = max(0, last - width)
        stretch = yield from _stretch(first, last, until_id, limit - len(found), params).run()
        found += stretch.events
        looked += stretch.looked
        last, until_id, width = first - 1, _BEHIND_ALL, width * WIDER
    rows = [event for _, event in found]
    if limit and len(found) == limit:
        return InsightPage(rows=rows, next=_shown(found[-1][0]))
    return InsightPage(rows=rows, next=None if last <= 0 else _shown(_Place(last, _BEHIND_ALL)))


def _head() -> Statement[int]:
    return Statement(sql("activity_head"), {}, lambda rows: rows[0][0])


def _stretch(first: int, last: int, until_id: int, limit: int, params: Mapping[str, Any]) -> Statement[_Stretch]:
    more = {"from_xid": first, "to_xid": last, "until_id": until_id, "limit": limit}
    return Statement(sql("activity"), {**params, **more}, _read)


def _read(rows: list[Row]) -> _Stretch:
    return _Stretch(rows[0][0], [(_Place(row[1], row[2]), _event(row)) for row in rows if row[2] is not None])


def _event(row: Row) -> Event:
    return Event(
        id=row[2], kind=EventKind(row[3]), at=row[4], queue=row[5], key=row[6], version=row[7], attempt=row[8],
        priority=row[9], due_at=row[10], leased_at=row[11], lease_until=row[12], consumer=row[13], size=row[14],
        payload_hash=row[15], error=row[16], detail=row[17],
    )  # fmt: skip


def _shown(place: _Place) -> str:
    return f"{place.xid}-{place.id}"


def _parsed(text: str) -> _Place:
    xid, dash, id = text.partition("-")
    if not (dash and all(one.isascii() and one.isdigit() and len(one) < 20 for one in (xid, id))):
        raise InvalidInput("after: this is not the `next` of a page")
    return _Place(min(int(xid), _BEHIND_ALL), min(int(id), _BEHIND_ALL))
