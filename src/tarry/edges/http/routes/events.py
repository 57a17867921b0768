"""Live events from the journal, and browser sessions for them.

A session is needed because a browser's EventSource cannot send a header, and a key must not be in a URL.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from tarry.core.journal.events import Event, EventKind
from tarry.core.security.api_keys import Action
from tarry.core.security.browser_sessions import Session
from tarry.edges.formats import exact
from tarry.edges.http.auth import SESSION, Caller
from tarry.edges.http.origins import hostname, is_loopback
from tarry.edges.http.queries import QueueName
from tarry.edges.http.routing import BY_COOKIE, AccessRoute, BrokerRequest, Scope, needs, respond
from tarry.edges.http.sse import MEDIA_TYPE, EventStream, ServerSentEvents
from tarry.wire import keys

router = APIRouter(prefix="/v1", tags=["events"], route_class=AccessRoute)

_SESSION_FOR = timedelta(hours=12)
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
    "/events", response_class=ServerSentEvents, **needs(Action.READ, Scope.LISTED, BY_COOKIE, responses=_STREAM)
)
async def events(
    request: BrokerRequest,
    queue: Annotated[
        list[QueueName] | None,
        Query(max_length=100, description="Only these queues; by default all that the key may read."),
    ] = None,
    kind: Annotated[
        list[EventKind] | None, Query(max_length=100, description="Only these kinds; by default all.")
    ] = None,
    after: Annotated[
        str | None, Query(max_length=20_000, description="An `id` to continue from; `Last-Event-ID` takes precedence.")
    ] = None,
) -> Response:
    """Every journal event from now on, or after `Last-Event-ID`, without payloads. An event named `gap` means that some
    events are missing, and has the reason."""
    for name in queue or ():
        request.caller.require(Action.READ, name)
    last = request.headers.get("last-event-id") or after
    return EventStream(request.broker, request.caller, event_filter(request.caller, queue, kind), after=last)


def event_filter(caller: Caller, queues: list[str] | None, kinds: list[EventKind] | None) -> Callable[[Event], bool]:
    """A filter that is called for every event of every stream, and therefore checks as little as possible."""
    names, of_kinds = frozenset(queues or ()), frozenset(kinds or EventKind)
    if names:
        return lambda event: event.queue in names and event.kind in of_kinds
    key = caller.key
    if key is None or "*" in key.queues:
        return (lambda event: event.kind in of_kinds) if kinds else (lambda event: True)
    return lambda event: event.kind in of_kinds and key.covers(event.queue)


@router.post("/session", response_model=keys.Session, **needs(Action.READ, Scope.LISTED))
async def sign_in(request: BrokerRequest) -> Response:
    """Set a cookie for pages of this site that is valid only for live events. It expires with the key, or after 12 hours."""
    key = request.caller.key
    if key is None:
        return respond(keys.Session(until=None))  # a broker without keys needs no session
    now = await request.broker.now()
    session = Session.of(key, min(now + _SESSION_FOR, key.expires_at or now + _SESSION_FOR))
    response = respond(keys.Session(until=exact(session.until)))
    max_age = max(0, int((session.until - now).total_seconds()))
    response.set_cookie(SESSION, str(session), max_age=max_age, **_cookie(request))
    return response


@router.delete("/session", status_code=204, response_class=Response, **needs(Action.READ, Scope.LISTED, BY_COOKIE))
async def sign_out(request: BrokerRequest) -> Response:
    """Delete the cookie. A copy of it is valid until it expires, or until the key is revoked."""
    response = Response(status_code=204)
    response.delete_cookie(SESSION, **_cookie(request))
    return response


def _cookie(request: BrokerRequest) -> dict[str, Any]:
    """Cookie attributes: hidden from scripts and other sites, and beyond this machine only over TLS."""
    host = hostname(request.headers.get("host", ""))
    path = f"{request.scope.get('root_path', '').rstrip('/')}/"
    return {"path": path, "secure": not is_loopback(host), "httponly": True, "samesite": "strict"}
