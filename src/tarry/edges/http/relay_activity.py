"""Relay's routes for what happened: the log, the life of a message, anomalies, consumers, and the stream of it all.

The log is the journal, and is not cleared; anomalies and consumers are what the pipeline worked out.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tarry.core.anomalies import Severity
from tarry.core.errors import InvalidInput, UnknownQueue
from tarry.core.events import Event, EventKind
from tarry.core.insights import Asked
from tarry.core.keys import Action
from tarry.edges.http import relay_views as views
from tarry.edges.http.events import wanted
from tarry.edges.http.ids import MessageId, storable
from tarry.edges.http.pages import slices
from tarry.edges.http.relay import QueueName, Text
from tarry.edges.http.routing import BY_COOKIE, AccessRoute, Scope, access, caller_of, message_of
from tarry.edges.http.streaming import EventStream, ServerSentEvents, told, written
from tarry.edges.http.views import answer
from tarry.services.streams import Form

router = APIRouter(prefix="/api/queue", route_class=AccessRoute, include_in_schema=False)
_LISTED = access(Action.READ, Scope.LISTED)
_LOOKS = 20
"""Pages of the journal that one request goes through."""
_UPDATES = {
    EventKind.OFFERED: ("enqueue", "queued"),
    EventKind.CRON_PLANNED: ("enqueue", "queued"),
    EventKind.LEASED: ("dequeue", "processing"),
    EventKind.ACKED: ("acknowledge", "acknowledged"),
    EventKind.NACKED: ("requeue", "queued"),
    EventKind.RELEASED: ("requeue", "queued"),
    EventKind.EXPIRED: ("requeue", "queued"),
    EventKind.REDRIVEN: ("requeue", "queued"),
    EventKind.BURIED: ("move_to_dlq", "dead"),
    EventKind.DROPPED: ("delete", "queued"),
    EventKind.CRON_REPLACED: ("delete", "queued"),
    EventKind.PURGED: ("delete", "dead"),
}
"""What Relay's stream calls it, and where the message is then. The rest is an update."""

Id = Annotated[str | None, Query(max_length=1_300)]
Seconds = Annotated[float | None, Query(ge=0, le=253_402_300_799, description="Since 1970.")]
Limit = Annotated[int, Query(ge=1, le=1_000)]
Offset = Annotated[int, Query(ge=0, le=10_000)]


@router.get("/activity", openapi_extra=_LISTED)
async def activity(
    request: Request,
    message_id: Id = None,
    consumer_id: Text = None,
    action: Text = None,
    queue_name: QueueName | None = None,
    start_time: Seconds = None,
    end_time: Seconds = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """The newest first. `total` counts as far as was looked: one more than shown means that there are more."""
    asked = _asked(request, queue_name, start_time, end_time)
    kinds = [kind for kind in EventKind if action in (None, views.action(kind))]
    consumer, found = storable(consumer_id, "consumer_id"), list[Event]()
    if message_id is None:
        with suppress(UnknownQueue):
            found = await _looked_back(request, asked, kinds, consumer, offset + limit + 1)
    elif (id := MessageId.parse(message_id)) is not None:
        caller_of(request).require(Action.READ, id.queue)
        with suppress(UnknownQueue):
            found = [
                one
                for one in await _life(request, id, offset + limit + 1)
                if one.kind in kinds and consumer in (None, one.consumer) and asked.covers(one.queue, one.at)
            ]
    logs, total = [views.event(one) for one in found[offset : offset + limit]], len(found)
    more = offset + limit < total
    pages = {"total": total, "limit": limit, "offset": offset, "has_more": more, "hasMore": more}
    return answer({"logs": logs, "total": total, "pagination": pages})


@router.get("/activity/message/{id}", openapi_extra=access(Action.READ, Scope.MESSAGE))
async def history(request: Request, id: str) -> Response:
    """The life of a message, oldest first; an empty list if there is none."""
    events: list[Event] = []
    with suppress(UnknownQueue):
        events = await _life(request, message_of(request), 1_000)
    return answer({"message_id": id, "history": [views.event(one) for one in reversed(events)]})


@router.get("/activity/anomalies", openapi_extra=_LISTED)
async def anomalies(
    request: Request,
    severity: Severity | None = None,
    type: Text = None,
    queue_name: QueueName | None = None,
    start_time: Seconds = None,
    end_time: Seconds = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> Response:
    """What the detectors found, the newest first. The summary is of the first 11,000."""
    asked = _asked(request, queue_name, start_time, end_time, 11_000)
    page = await request.app.state.broker.store.insights.anomalies(
        asked, detector=storable(type, "type"), severity=severity
    )
    by_severity = Counter(one.severity.value for one in page.rows)
    summary = {
        "total": len(page.rows),
        "by_type": dict(Counter(one.detector for one in page.rows)),
        "by_severity": {one.value: by_severity[one.value] for one in Severity},
    }
    shown = [views.anomaly(one) for one in page.rows[offset : offset + limit]]
    return answer({"anomalies": shown, "summary": summary})


@router.get("/activity/consumers", openapi_extra=_LISTED)
async def consumers(request: Request, consumer_id: Text = None) -> Response:
    """What each leased, as far as the pipeline has looked; the last time is the hour in which it was."""
    page = await request.app.state.broker.store.insights.hours(_asked(request, None, None, None, 10_000))
    stats: dict[str, dict[str, Any]] = {}
    for row in page.rows:
        if consumer_id in (None, row.consumer):
            known = stats.setdefault(row.consumer, {"dequeue_count": 0, "last_dequeue": 0})
            known["dequeue_count"] += row.leased
            known["last_dequeue"] = max(known["last_dequeue"], views.seconds(row.hour) or 0)
    warning = {} if page.run is not None else {"warning": "the data pipeline has not run: tarry pipeline run"}
    return answer({"stats": stats, **warning})


@router.get("/events", response_class=ServerSentEvents, openapi_extra=_LISTED | BY_COOKIE)
async def events(request: Request) -> Response:
    """`queue-update` for every event of the queues that this key may read; with ids, and gone on from `Last-Event-ID`."""
    caller, last = caller_of(request), request.headers.get("last-event-id")
    return EventStream(request.app.state.broker, caller, wanted(caller, None, None), after=last, form=RELAY)


def _shown(position: str, event: Event) -> bytes:
    """Without the message itself: it goes to many, and is kept in buffers. Who needs it asks for it."""
    type, status = _UPDATES.get(event.kind, ("update", "queued"))
    ids = [] if event.key is None else [str(MessageId(event.queue, event.key))]
    said = {
        "type": type,
        "queue": event.queue,
        "timestamp": round(event.at.timestamp() * 1000),
        "payload": {"status": status, "count": 1, "ids": ids, "messages": [], "force_refresh": event.key is None},
    }
    return written(position, "queue-update", said)


RELAY = Form(_shown, told)


async def _life(request: Request, id: MessageId, most: int) -> list[Event]:
    """The last events of a message, the newest first. Relay shows no payloads, so none are kept between slices."""

    async def read(before: int | None, n: int) -> list[Event]:
        return (await request.app.state.broker.store.timeline(id.queue, id.key, limit=n, before=before))[::-1]

    return [replace(one, payload=None) async for some in slices(read, lambda one: one.id, limit=most) for one in some]


async def _looked_back(
    request: Request, asked: Asked, kinds: list[EventKind], consumer: str | None, most: int
) -> list[Event]:
    insights, found = request.app.state.broker.store.insights, list[Event]()
    after: str | None = None
    for _ in range(_LOOKS if kinds else 0):
        page = await insights.activity(
            Asked(
                queue=asked.queue, patterns=asked.patterns, since=asked.since, until=asked.until, after=after,
                limit=most - len(found),
            ),
            kinds=kinds,
            consumer=consumer,
        )  # fmt: skip
        found += page.rows
        after = page.next
        if after is None or len(found) >= most:
            break
    return found


def _asked(
    request: Request, queue: str | None, start_s: float | None, end_s: float | None, limit: int = 1_000
) -> Asked:
    caller = caller_of(request)
    if queue is not None:
        caller.require(Action.READ, queue)
    patterns = None if caller.key is None else caller.key.queues
    return Asked(queue=queue, patterns=patterns, since=_at(start_s), until=_at(end_s), limit=limit)


def _at(since_1970_s: float | None) -> datetime | None:
    try:
        return None if since_1970_s is None else datetime.fromtimestamp(since_1970_s, UTC)
    except (OverflowError, ValueError, OSError):
        raise InvalidInput("times are seconds since 1970") from None
