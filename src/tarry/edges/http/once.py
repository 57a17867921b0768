"""Requests with an Idempotency-Key: carried out once, however often and to whichever broker they are sent."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request
from starlette.responses import Response

from tarry.core.messages import Draft
from tarry.core.once import Answered, Once
from tarry.core.outcomes import Outcome
from tarry.core.ports import AsyncStore
from tarry.edges.http.problems import Problem
from tarry.edges.http.routing import caller_of

HEADER = "Idempotency-Key"
REPLAYED = "Idempotent-Replayed"
_KEY = re.compile(r"[\x21-\x7e]{1,200}")

ONCE: dict[str, Any] = {
    "parameters": [
        {
            "name": HEADER,
            "in": "header",
            "required": False,
            "description": "Drawn by you for each request, and the same when you send it again: it is carried out once.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]{1,200}$"},
        }
    ]
}
"""For `openapi_extra` of a route that heeds it."""


async def asked_once(request: Request) -> Once | None:
    """None without the header, and then nothing of this costs anything."""
    given = request.headers.getlist(HEADER)
    if not given:
        return None
    if len(given) > 1 or not _KEY.fullmatch(given[0]):
        raise Problem(
            422, "invalid", f"{HEADER}: 1 to 200 visible ASCII characters, once", hint="draw a UUID for each request"
        )
    said = hashlib.sha256()
    route: Any = request.scope["route"]
    places = (f"{name}={value}" for name, value in sorted(request.path_params.items()))
    for part in (request.method, route.path_format, *places, request.url.query):
        said.update(f"{part}\n".encode())
    said.update(await request.body())
    key = caller_of(request).key
    return Once("" if key is None else key.id, given[0], said.digest())


async def once(request: Request, do: Callable[[Any], Awaitable[Response]]) -> Response:
    """`do` is given a connection for `conn=`: what it does and its answer are stored together, or not at all."""
    asked = await asked_once(request)
    if asked is None:
        return await do(None)

    async def answered(conn: Any) -> Answered:
        return _kept(await do(conn))

    return _said(await request.app.state.broker.store.once(asked, answered))


async def offer_once(request: Request, queue: str, draft: Draft, show: Callable[[Outcome], Response]) -> Response:
    """`once` for a single offer, which shares a commit with those of other clients."""
    store: AsyncStore = request.app.state.broker.store
    asked = await asked_once(request)
    if asked is None:
        return show(await store.offer(queue, draft))
    return _said(await store.offer_once(queue, draft, asked, lambda outcome: _kept(show(outcome))))


def _kept(response: Response) -> Answered:
    return Answered(response.status_code, bytes(response.body))


def _said(answered: Answered | None) -> Response:
    if answered is None:
        raise Problem(
            422,
            "idempotency_key_reused",
            f"this {HEADER} was used for another request",
            hint="draw another key for another request; send the same request, byte for byte, to hear its answer again",
        )
    headers = {REPLAYED: "true"} if answered.replayed else None
    return Response(answered.body, answered.status, headers, "application/json")
