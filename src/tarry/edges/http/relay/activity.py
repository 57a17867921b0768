"""Relay's routes for the activity log, message history, anomalies, consumers and live events.

The activity log is the journal, which cannot be cleared. Anomalies and consumer statistics come from the data pipeline.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from tarry.core.analytics.anomalies import Severity
from tarry.core.analytics.port import AnalyticsQuery
from tarry.core.errors import UnknownQueue
from tarry.core.journal.events import Event, EventKind
from tarry.core.security.api_keys import Action
from tarry.edges.http.pages import slices, timeline
from tarry.edges.http.relay import wire
from tarry.edges.http.relay.journal import OFFERS, journal_pages
from tarry.edges.http.routes.analytics import analytics_query
from tarry.edges.http.routes.events import event_filter
from tarry.edges.http.routing import BY_COOKIE, AccessRoute, BrokerRequest, Scope, access, respond
from tarry.edges.http.sse import EventStream, ServerSentEvents, gap_text, server_sent
from tarry.services.live_events.stream import EventFormat
from tarry.wire.ids import MessageId, storable

router = APIRouter(prefix="/api/queue", route_class=AccessRoute, include_in_schema=False)
_LISTED = access(Action.READ, Scope.LISTED)
_HISTORY_LIMIT = 11_001  # events up to the last page
_ANOMALY_LIMIT = 11_000
_CONSUMER_HOURS = 10_000


@router.get("/activity", openapi_extra=_LISTED)
async def activity(request: BrokerRequest, query: Annotated[wire.ActivityQuery, Query()]) -> Response:
    """Events, newest first. `total` is a lower bound: it exceeds the events up to this page if there are more."""
    consumer, events, end = storable(query.consumer_id, "consumer_id"), list[Event](), query.offset + query.limit
    selection = _selection(request, query, min(1_000, end + 1))
    kinds = [kind for kind in EventKind if query.action in (None, wire.words(kind)[0])]
    with suppress(UnknownQueue):
        if query.message_id is None:
            async for page in journal_pages(request, selection, kinds, consumer):
                events += page
                if len(events) > end:
                    break
        elif (id := MessageId.parse(query.message_id)) is not None:
            request.caller.require(Action.READ, id.queue)
            events = [
                event
                for event in await _history(request, id)
                if event.kind in kinds
                and consumer in (None, event.consumer)
                and selection.covers(event.queue, event.at)
            ]
    events = events[: end + 1]
    more = end < len(events)
    pages = {"total": len(events), "limit": query.limit, "offset": query.offset, "has_more": more, "hasMore": more}
    logs = await _shown(request, selection, events[query.offset : end])
    return respond({"logs": logs, "total": len(events), "pagination": pages})


@router.get("/activity/message/{id}", openapi_extra=_LISTED)
async def history(request: BrokerRequest, id: str) -> Response:
    """Events of a message, oldest first; an empty list if it never existed."""
    events: list[Event] = []
    if (message := MessageId.parse(id)) is not None:
        request.caller.require(Action.READ, message.queue)
        with suppress(UnknownQueue):
            events = await _history(request, message)
    shown = await _shown(request, _selection(request, wire.LogQuery(), 1_000), events)
    return respond({"message_id": id, "history": shown[::-1]})


async def _shown(request: BrokerRequest, selection: AnalyticsQuery, events: Sequence[Event]) -> list[dict[str, Any]]:
    """Events in Relay's form. Only offers have the type: older ones are read until every event has its offer."""
    offers = defaultdict[tuple[str, str | None], list[tuple[int, str | None]]](list)

    def offer_of(event: Event) -> tuple[int, str | None] | None:
        """Version and type of its own offer, or of that from which it was redriven."""
        known = offers.get((event.queue, event.key), ())
        return next((offer for offer in known if offer[0] <= (event.version or 0)), None)

    def add(page: Sequence[Event]) -> bool:
        """Add the offers of a page, newest first. Returns whether every event has its offer."""
        for offer in page:
            if offer.kind in OFFERS and offer.version is not None:
                offers[offer.queue, offer.key].append((offer.version, (offer.detail or {}).get("type")))
        return all(event.version is None or offer_of(event) is not None for event in events)

    if not add(events):
        selection = replace(selection, since=None, after=None, limit=1_000)
        async for page in journal_pages(request, selection, OFFERS):
            if add(page):
                break
    return [wire.event(event, (offer_of(event) or (0, None))[1]) for event in events]


@router.delete("/activity/clear", openapi_extra=access(Action.ADMIN, Scope.ALL))
async def clear(request: BrokerRequest) -> Response:
    detail = "the activity log is the journal: queues keep it for `retention_for`"
    raise wire.problem(405, "method_not_allowed", "NOT_CLEARED", detail)


@router.get("/activity/anomalies", openapi_extra=_LISTED)
async def anomalies(request: BrokerRequest, query: Annotated[wire.AnomalyQuery, Query()]) -> Response:
    """Anomalies, newest first. The summary counts the first 11,000."""
    page = await request.run(
        request.store.analytics.anomalies(
            _selection(request, query, _ANOMALY_LIMIT), detector=storable(query.type, "type"), severity=query.severity
        )
    )
    by_severity = Counter(anomaly.severity for anomaly in page.rows)
    summary = {
        "total": len(page.rows),
        "by_type": dict(Counter(anomaly.detector for anomaly in page.rows)),
        "by_severity": {level.value: by_severity[level] for level in Severity},
    }
    shown = [wire.anomaly(anomaly) for anomaly in page.rows[query.offset : query.offset + query.limit]]
    return respond({"anomalies": shown, "summary": summary})


@router.get("/activity/consumers", openapi_extra=_LISTED)
async def consumers(request: BrokerRequest, query: Annotated[wire.ConsumersQuery, Query()]) -> Response:
    """Leases per consumer as of the last pipeline run, with `last_dequeue` rounded down to the hour.

    Before the first run, the last 20,000 leases of the journal are counted.
    """
    consumer_id, selection = query.consumer_id, _selection(request, wire.LogQuery(), _CONSUMER_HOURS)
    page = await request.run(request.store.analytics.hours(selection, consumer=storable(consumer_id, "consumer_id")))
    stats = defaultdict[str, dict[str, int]](lambda: {"dequeue_count": 0, "last_dequeue": 0})

    def add(consumer: str, leased: int, at: datetime) -> None:
        known = stats[consumer]
        known["dequeue_count"] += leased
        known["last_dequeue"] = max(known["last_dequeue"], int(at.timestamp()))

    for row in page.rows:
        add(row.consumer, row.leased, row.hour)
    if page.run is not None:
        return respond({"stats": stats})
    async for events in journal_pages(request, replace(selection, limit=1_000), [EventKind.LEASED], consumer_id):
        for event in events:
            add(event.consumer or "unknown", 1, event.at)
    warning = "of the last 20,000 deliveries: the data pipeline has not run (tarry pipeline run)"
    return respond({"stats": stats, "warning": warning})


@router.get("/events", response_class=ServerSentEvents, openapi_extra=_LISTED | BY_COOKIE)
async def events(request: BrokerRequest) -> Response:
    """`queue-update` for every event of the queues that this key may read, with ids; resumes after `Last-Event-ID`."""
    caller, last = request.caller, request.headers.get("last-event-id")
    return EventStream(request.broker, caller, event_filter(caller, None, None), after=last, format=RELAY)


def _update(position: str, event: Event) -> bytes:
    """A live event without its payload: many clients receive it, and it is kept in buffers."""
    _, type, status = wire.words(event.kind)
    is_new = type == "enqueue"  # without the message, Relay's page has to reload its list
    ids = [] if event.key is None else [str(MessageId(event.queue, event.key))]
    update = {
        "type": type,
        "queue": event.queue,
        "timestamp": round(event.at.timestamp() * 1000),
        "payload": {"status": status, "count": 1, "ids": ids, "messages": [], "force_refresh": is_new or not ids},
    }
    return server_sent(position, "queue-update", update)


RELAY = EventFormat(_update, gap_text)


async def _history(request: BrokerRequest, id: MessageId) -> list[Event]:
    """The last events of a message, newest first, without payloads: Relay does not show them."""
    pages = slices(*timeline(request.store, id.queue, id.key), limit=_HISTORY_LIMIT)
    return [replace(event, payload=None) async for page in pages for event in page]


def _selection(request: BrokerRequest, query: wire.LogQuery, limit: int) -> AnalyticsQuery:
    since, until = (
        None if since_1970_s is None else datetime.fromtimestamp(since_1970_s, UTC)
        for since_1970_s in (query.start_time, query.end_time)
    )
    return analytics_query(request, query.queue_name, since=since, until=until, limit=limit)
