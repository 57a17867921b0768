"""API keys and the audit."""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from tarry.api.api_keys import drawn
from tarry.core.security.api_keys import Action, ApiKey
from tarry.edges.formats import exact
from tarry.edges.http.pages import bounded
from tarry.edges.http.problems import Problem
from tarry.edges.http.queries import Before, Limit
from tarry.edges.http.routing import AccessRoute, BrokerRequest, Scope, Sent, audit_also, needs, respond
from tarry.wire import keys as wire
from tarry.wire.base import data_of
from tarry.wire.openapi import value_model

router = APIRouter(prefix="/v1", tags=["keys"], route_class=AccessRoute)
_ADMIN = needs(Action.ADMIN, Scope.ALL)
_ISSUED = value_model(ApiKey, "IssuedKey", key=Annotated[str, Field(description="Shown this once.")])
_READ = needs(Action.ADMIN, Scope.ALL, conflicts=False)


@router.post("/keys", status_code=201, response_model=_ISSUED, **_ADMIN)
async def create_key(request: BrokerRequest, body: Sent[wire.KeyRequest]) -> Response:
    """Create a key with at most the rights and the lifetime of the calling key. Its text is shown only once."""
    broker, caller = request.broker, request.caller
    for action in body.actions:
        if not caller.may(Action(action)):
            raise Problem(403, "forbidden", f"this key may not {action}, and so cannot make one that may")
    ends = None if caller.key is None else caller.key.expires_at
    if ends is not None and (body.expires_for is None or body.expires_for > ends - await broker.now()):
        detail = f"this key expires at {exact(ends)}, and so cannot make one that expires later or never"
        raise Problem(403, "forbidden", detail, hint="give a shorter expires_for")
    text, drawn_key = drawn(body.name, body.actions, body.queues, body.expires_for, ends)
    key = await broker.store.run(broker.store.security.add_key(drawn_key, expires_for=body.expires_for))
    audit_also(request, created_key=key.id)
    broker.authenticator.forget()
    return respond({**data_of(key), "key": str(text)}, 201)


@router.get("/keys", response_model=wire.Keys, **_READ)
async def list_keys(request: BrokerRequest) -> Response:
    """All keys, including revoked ones, without their text."""
    return respond(wire.Keys(keys=data_of(await request.broker.app.keys.list())))


@router.delete("/keys/{key_id}", response_model=value_model(ApiKey, "Key"), **_ADMIN)
async def revoke_key(request: BrokerRequest, key_id: str) -> Response:
    """Revoke a key. This broker rejects it immediately, any other within two seconds. Its waiting polls get nothing."""
    revoked = await request.broker.app.keys.revoke(key_id) if key_id.isalnum() else None
    if revoked is None:
        raise Problem(404, "unknown_key", "there is no key with this id", hint="see: GET /v1/keys")
    request.broker.authenticator.forget()
    return respond(data_of(revoked))


@router.get("/audit", response_model=wire.Audit, **_READ)
async def audit(request: BrokerRequest, limit: Limit = 100, before: Before = None) -> Response:
    """Admin changes and rejected requests, newest first. A page ends early at 8 MiB. A row without a status got no
    response."""

    async def read(before: int | None, n: int) -> list[dict[str, Any]]:
        return data_of(await request.run(request.store.security.audits(limit=n, before=before)))

    rows, last = await bounded(
        read,
        lambda row: row["id"],
        start=before,
        limit=limit,
        most_bytes=request.broker.settings.page_bytes,
        size_of=lambda row: len(msgspec.json.encode(row)),
    )
    return respond({"audit": rows, "next": last})
