"""Requests with an Idempotency-Key: carried out once, however often they are sent, and to any broker."""

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response

from tarry.core.messages.model import Draft
from tarry.core.messages.outcomes import Outcome
from tarry.core.security.idempotency import IdempotencyKey, StoredResponse
from tarry.edges.http.problems import Problem
from tarry.edges.http.routing import BrokerRequest
from tarry.wire.base import Response as WireResponse

R = TypeVar("R")

HEADER = "Idempotency-Key"
REPLAYED = "Idempotent-Replayed"
_KEY = re.compile(r"[\x21-\x7e]{1,200}")

IDEMPOTENT: dict[str, Any] = {
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
"""For `openapi_extra` of a route that honours the header."""


async def idempotency_key(request: BrokerRequest) -> IdempotencyKey | None:
    """The key with a digest of the request. None without the header."""
    values = request.headers.getlist(HEADER)
    if not values:
        return None
    if len(values) > 1 or not _KEY.fullmatch(values[0]):
        detail = f"{HEADER} must be 1 to 200 visible ASCII characters, sent once"
        raise Problem(422, "invalid", detail, hint="generate a UUID for each request")
    digest = hashlib.sha256()
    route: Any = request.scope["route"]
    path = (f"{name}={value}" for name, value in sorted(request.path_params.items()))
    for part in (request.method, route.path_format, *path, request.scope["query_string"].decode("latin-1")):
        digest.update(f"{part}\n".encode())
    digest.update(await request.body())
    key = request.caller.key
    return IdempotencyKey("" if key is None else key.id, values[0], digest.digest())


async def run_idempotent(
    request: BrokerRequest,
    do: Callable[[Any], Awaitable[R]],
    show: Callable[[R], WireResponse | Mapping[str, Any]],
    status: int = 200,
) -> Response:
    """Run `do` with a connection for `conn=`: its changes and its response are stored together, or neither is."""

    async def stored(conn: Any) -> StoredResponse:
        return response_to_store(show(await do(conn)), status)

    key = await idempotency_key(request)
    if key is None:
        return _response(await stored(None))
    return _response(await request.store.run_idempotent(key, stored))


async def offer_idempotent(
    request: BrokerRequest, queue: str, draft: Draft, show: Callable[[Outcome], StoredResponse]
) -> Response:
    """`run_idempotent` for a single offer, which shares a commit with offers of other clients."""
    store, key = request.store, await idempotency_key(request)
    if key is None:
        return _response(show(await store.run(store.messages.offer(queue, draft))))
    return _response(await store.run(store.security.offer_idempotent(queue, draft, key, show)))


def response_to_store(body: WireResponse | Mapping[str, Any], status: int) -> StoredResponse:
    return StoredResponse(status, msgspec.json.encode(body))


def _response(stored: StoredResponse | None) -> Response:
    if stored is None:
        hint = "use a new key for a new request; repeat a request byte for byte to get its response again"
        raise Problem(422, "idempotency_key_reused", f"this {HEADER} was used for another request", hint=hint)
    headers = {REPLAYED: "true"} if stored.replayed else None
    return Response(stored.body, stored.status, headers, "application/json")
