"""The newest journal events: ranges of transactions are read backwards from the last one, each longer than the one before.

The journal has no index by time, which would slow down writes. Its index event_find finds a range of transactions directly,
so the cost of reading the last minutes does not depend on the length of the journal. Times grow with transaction ids, except
for a few seconds: the transactions of a past window are found by bisection between those that the rollups name.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from tarry.core.analytics.port import AnalyticsPage, AnalyticsQuery
from tarry.core.errors import InvalidInput
from tarry.core.journal.events import Event, EventKind
from tarry.storage.postgres.analytics.operations import MAX_ROWS, limited, queue_id, visible
from tarry.storage.postgres.journal.statements import event, prefer_bitmap_scans
from tarry.storage.postgres.statement import Op, Row, bind, value

FIRST = 4
"""Transactions in the first range. A transaction may have one event or a thousand."""
WIDER = 4
ENOUGH = 20_000
"""Approximate number of events that one call scans; its result then has the position to continue from."""
STEP = 4_000
"""Approximate number of events that one statement scans."""
_BEHIND_ALL = 2**63 - 1
_SLACK = timedelta(seconds=5)
"""Maximum difference between the times of events of neighbouring transactions."""
_CLOSE = timedelta(seconds=30)


class _Position(NamedTuple):
    """The event before which the next page continues."""

    xid: int
    id: int


def look_back(
    query: AnalyticsQuery, *, kinds: Iterable[EventKind] | None = None, consumer: str | None = None
) -> Op[AnalyticsPage[Event]]:
    """The newest matching events, in a separate transaction."""
    limited(query.limit)
    position = None if query.after is None else _parsed(query.after)
    params = {
        **visible(query.patterns),
        "queue_id": (yield from queue_id(query.queue)),
        "consumer": consumer,
        "kinds": [kind.value for kind in kinds or EventKind],
        "since": query.since,
        "until": query.until,
    }
    sought = query.until if position is None else None
    bounds: list[Row] = []
    if sought is not None:
        bounds = yield from bind(
            "journal/bounds_at", list[Row], at=sought, queue_id=params["queue_id"], slack=_SLACK
        ).run()
    yield from prefer_bitmap_scans().run()
    last, until_id = position or _Position((yield from bind("journal/head", value).run()), _BEHIND_ALL)
    if sought is not None and bounds and bounds[0].until_xid:
        last, sought = (yield from _sought(sought, bounds[0].after_xid or 0, bounds[0].until_xid)), None
    events: list[tuple[_Position, Event]] = []
    looked, width = 0, FIRST
    limit = MAX_ROWS if query.limit is None else query.limit
    while last > 0 and len(events) < limit and looked < ENOUGH:
        first = max(0, last - width)
        most = 2 * STEP if width else None
        part = {"from_xid": first, "to_xid": last, "until_id": until_id, "limit": limit - len(events), "most": most}
        scanned = yield from bind("journal/recent", list[Row], **params, **part).run()
        if most is not None and scanned[0].looked > most:
            width = min(width - 1, (scanned[0].reached - first + 1) * STEP // most)
            continue
        events += [(_Position(row.xid, row.id), event(row)) for row in scanned if row.id is not None]
        if not scanned[0].looked:
            last, until_id, width = (yield from _skipped(first - 1)), _BEHIND_ALL, FIRST
            continue
        looked += scanned[0].looked
        # Limit the range by the events that may still be scanned, at the same number of events per transaction.
        affordable = (last - first + 1) * min(STEP, ENOUGH - looked) // scanned[0].looked
        last, until_id, width = first - 1, _BEHIND_ALL, max(1, min(width * WIDER, affordable))
        if query.since is not None and scanned[0].newest and scanned[0].newest < query.since - _SLACK:
            last = 0  # the rest is older
        elif looked >= STEP and sought is not None and not events:
            last, sought, looked, width = (yield from _sought(sought, 0, last)), None, 0, FIRST
    rows = [event for _, event in events]
    if limit and len(events) == limit:
        return AnalyticsPage(rows=rows, next=_shown(events[-1][0]))
    return AnalyticsPage(rows=rows, next=None if last <= 0 else _shown(_Position(last, _BEHIND_ALL)))


def _skipped(last: int) -> Op[int]:
    """A transaction at or shortly before which the last events are; later ones have none, since rollups and other programs
    use transactions too."""
    known: int | None = yield from bind("journal/last_rolled_up", value).run()
    if known is not None and known < last and not (yield from _probed(known + 1, last)):
        return known
    width = FIRST
    while last > 0 and not (yield from _probed(max(0, last - width), last)):
        last, width = last - width - 1, width * WIDER
    first = max(0, last - width)
    while last - first > FIRST:
        middle = (first + last) // 2
        if (yield from _probed(middle, last)):
            first = middle
        else:
            last = middle - 1
    return last


def _probed(first: int, last: int) -> Op[list[Row]]:
    return bind("journal/probe", list[Row], from_xid=first, to_xid=last).run()


def _sought(until: datetime, low: int, high: int) -> Op[int]:
    """A transaction shortly after the last events before `until`, found by bisection between two transactions."""
    while high - low > FIRST:
        middle = (low + high) // 2
        probed = yield from _probed(middle, high)
        if probed and probed[0].at < until + _SLACK:
            low = max(middle, min(high, probed[0].xid))
        else:
            high = middle
            if probed and probed[0].at < until + _CLOSE:
                break
    return high


def _shown(position: _Position) -> str:
    return f"{position.xid}-{position.id}"


def _parsed(text: str) -> _Position:
    xid, dash, id = text.partition("-")
    if not (dash and all(part.isascii() and part.isdigit() and len(part) < 20 for part in (xid, id))):
        raise InvalidInput("after: this is not the `next` of a page")
    return _Position(min(int(xid), _BEHIND_ALL), min(int(id), _BEHIND_ALL))
