"""Live events: what happens, as it happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tarry.core.events import Event, EventKind
from tarry.core.keys import Action
from tarry.edges.http import contracts
from tarry.edges.http.documented import READ_ERRORS
from tarry.edges.http.gate import Caller
from tarry.edges.http.routing import BY_COOKIE, AccessRoute, Scope, access, caller_of
from tarry.edges.http.streaming import MEDIA_TYPE, EventStream, ServerSentEvents

router = APIRouter(prefix="/v1", tags=["events"], route_class=AccessRoute)

_EVENT = {
    "type": "object",
    "description": "One event of the stream",
    "required": ["event", "id", "data"],
    "properties": {name: {"type": "string"} for name in ("event", "id", "data")},
}
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events: `event` is the kind, `id` the position, `data` the event as JSON",
        "content": {MEDIA_TYPE: {"schema": _EVENT}},
    }
}


@router.get(
    "/events",
    response_class=ServerSentEvents,
    responses={**_STREAM, **READ_ERRORS},
    openapi_extra=access(Action.READ, Scope.LISTED) | BY_COOKIE,
)
async def events(
    request: Request,
    queue: Annotated[
        list[contracts.QueueName] | None, Query(max_length=100, description="Of these; else of all that may be read.")
    ] = None,
    kind: Annotated[list[EventKind] | None, Query(max_length=100, description="Of these kinds; else of all.")] = None,
    after: Annotated[
        str | None, Query(max_length=20_000, description="An `id` to go on from, as `Last-Event-ID`, which wins.")
    ] = None,
) -> Response:
    """Every event of the journal from now on, or from `Last-Event-ID` on; without payloads. An event named `gap` says that
    some are missing, and why."""
    caller = caller_of(request)
    for name in queue or ():
        caller.require(Action.READ, name)
    last = request.headers.get("last-event-id") or after
    return EventStream(request.app.state.broker, caller, wanted(caller, queue, kind), after=last)


def wanted(caller: Caller, queues: list[str] | None, kinds: list[EventKind] | None) -> Callable[[Event], bool]:
    """Asked for every event and every stream, so it asks no more than it must."""
    names, of_kinds = frozenset(queues or ()), frozenset(kinds or EventKind)
    if names:
        return lambda event: event.queue in names and event.kind in of_kinds
    key = caller.key
    if key is None or "*" in key.queues:
        return (lambda event: event.kind in of_kinds) if kinds else (lambda event: True)
    return lambda event: event.kind in of_kinds and key.covers(event.queue)
