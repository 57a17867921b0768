"""Journal reads for Relay's routes: events newest first, and finished messages built from them."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from tarry.core.analytics.port import AnalyticsQuery
from tarry.core.journal.events import Event, EventKind
from tarry.edges.http.relay import wire
from tarry.edges.http.routing import BrokerRequest

OFFERS = (EventKind.OFFERED, EventKind.UPDATED, EventKind.EDITED)
_PAGES = 20
"""Journal pages that one request reads."""


async def journal_pages(
    request: BrokerRequest, selection: AnalyticsQuery, kinds: Sequence[EventKind], consumer: str | None = None
) -> AsyncIterator[Sequence[Event]]:
    """Pages of `selection.limit` events, newest first."""
    for _ in range(_PAGES if kinds else 0):
        page = await request.run(request.store.analytics.events(selection, kinds=kinds, consumer=consumer))
        yield page.rows
        if page.next is None:
            return
        selection = replace(selection, after=page.next)


async def finished_messages(
    request: BrokerRequest, selection: AnalyticsQuery, query: wire.BrowseQuery, most: int
) -> list[dict[str, Any]]:
    """Matching acked messages, newest first, at most `most` and from the newest pages of the journal.

    Type and payload come from the offer event, if these pages contain it.
    """
    acked, offers = list[Event](), dict[int | None, Event]()
    async for events in journal_pages(request, selection, (EventKind.ACKED, *OFFERS)):
        for event in events:
            if event.kind is EventKind.ACKED:
                acked.append(event)
            else:
                offers.setdefault(event.version, event)
        if not query.is_filtered and len(acked) >= most and all(event.version in offers for event in acked[:most]):
            break
    shown = [wire.finished(event, offers.get(event.version)) for event in acked]
    return [message for message in shown if query.admits_finished(message)]
