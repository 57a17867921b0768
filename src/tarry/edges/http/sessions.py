"""Signing in from a browser, for live events alone: an EventSource cannot send a header, and a key is never in a URL."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from tarry.core.keys import Action
from tarry.core.sessions import Session
from tarry.edges.http import answers
from tarry.edges.http.documented import READ_ERRORS
from tarry.edges.http.gate import SESSION
from tarry.edges.http.origins import hostname, is_loopback
from tarry.edges.http.routing import BY_COOKIE, AccessRoute, Scope, access, caller_of
from tarry.edges.http.views import answer
from tarry.edges.times import exact

GOOD_FOR = timedelta(hours=12)

router = APIRouter(prefix="/v1", tags=["events"], route_class=AccessRoute)


@router.post(
    "/session",
    response_model=answers.Session,
    responses=READ_ERRORS,
    openapi_extra=access(Action.READ, Scope.LISTED),
)
async def sign_in(request: Request) -> Response:
    """A cookie for pages of this site, good for live events and for nothing else; it ends with the key, or after 12 hours."""
    key = caller_of(request).key
    if key is None:
        return answer({"until": None})  # where nobody needs a key, no page does
    now = await request.app.state.broker.store.now()
    session = Session.of(key, min(now + GOOD_FOR, key.expires_at or now + GOOD_FOR))
    response = answer({"until": exact(session.until)})
    max_age = max(0, int((session.until - now).total_seconds()))
    response.set_cookie(SESSION, str(session), max_age=max_age, **_kept(request))
    return response


@router.delete(
    "/session",
    status_code=204,
    response_class=Response,
    responses=READ_ERRORS,
    openapi_extra=access(Action.READ, Scope.LISTED) | BY_COOKIE,
)
async def sign_out(request: Request) -> Response:
    """The browser forgets the cookie. To end what it may have been copied to, revoke the key."""
    response = Response(status_code=204)
    response.delete_cookie(SESSION, **_kept(request))
    return response


def _kept(request: Request) -> dict[str, Any]:
    """Not for scripts, not for other sites, and beyond this machine not without TLS."""
    host = hostname(request.headers.get("host", ""))
    path = f"{request.scope.get('root_path', '').rstrip('/')}/"
    return {"path": path, "secure": not is_loopback(host), "httponly": True, "samesite": "strict"}
