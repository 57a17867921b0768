"""API keys and the audit."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tarry.core.keys import Action, IssuedKey
from tarry.edges.http import answers, contracts, views
from tarry.edges.http.documented import ADMIN_ERRORS, READ_ERRORS
from tarry.edges.http.problems import Problem
from tarry.edges.http.routing import AccessRoute, Scope, access, audit_also, caller_of
from tarry.edges.http.views import answer
from tarry.edges.times import exact
from tarry.handles.keys import drawn

router = APIRouter(prefix="/v1", tags=["keys"], route_class=AccessRoute)
_ADMIN = access(Action.ADMIN, Scope.ALL)


@router.post("/keys", status_code=201, response_model=answers.IssuedKey, responses=ADMIN_ERRORS, openapi_extra=_ADMIN)
async def create_key(request: Request, body: contracts.KeyRequest) -> Response:
    """Make a key that may no more than the key that makes it, and ends no later. Its text is shown this once."""
    broker, caller = request.app.state.broker, caller_of(request)
    for action in body.actions:
        if not caller.may(Action(action)):
            raise Problem(403, "forbidden", f"this key may not {action}, and so cannot make one that may")
    ends = None if caller.key is None else caller.key.expires_at
    if ends is not None and (body.expires_for is None or body.expires_for > ends - await broker.store.now()):
        detail = f"this key expires at {exact(ends)}, and so cannot make one that expires later or never"
        raise Problem(403, "forbidden", detail, hint="give a shorter expires_for")
    text, drawn_key = drawn(body.name, body.actions, body.queues, body.expires_for, ends)
    issued = IssuedKey(await broker.store.add_key(drawn_key, expires_for=body.expires_for), str(text))
    audit_also(request, created_key=issued.key.id)
    broker.gate.forget()
    return answer({**views.key(issued.key), "key": issued.text}, 201)


@router.get("/keys", response_model=answers.Keys, responses=READ_ERRORS, openapi_extra=_ADMIN)
async def list_keys(request: Request) -> Response:
    """All keys, revoked ones too; never their text."""
    return answer({"keys": [views.key(key) for key in await request.app.state.broker.app.keys.list()]})


@router.delete("/keys/{key_id}", response_model=answers.Key, responses=ADMIN_ERRORS, openapi_extra=_ADMIN)
async def revoke_key(request: Request, key_id: str) -> Response:
    """Refused from now on by this broker, and within two seconds by any other. Polls that wait get nothing any more."""
    broker = request.app.state.broker
    revoked = await broker.app.keys.revoke(key_id) if key_id.isalnum() else None
    if revoked is None:
        raise Problem(404, "unknown_key", "there is no key of this id", hint="see: GET /v1/keys")
    broker.gate.forget()
    return answer(views.key(revoked))


@router.get("/audit", response_model=answers.Audit, responses=READ_ERRORS, openapi_extra=_ADMIN)
async def audit(request: Request, limit: Annotated[int, Query(ge=1, le=contracts.MOST)] = 100) -> Response:
    """Who changed what and who was refused, the newest first. A row without a status was not answered."""
    rows = await request.app.state.broker.store.audits(limit=limit)
    return answer({"audit": [views.audited(row) for row in rows]})
