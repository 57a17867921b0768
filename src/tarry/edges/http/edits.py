"""Messages changed by hand: edited, rescheduled, cancelled. What somebody works on is left alone unless it is forced."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tarry.core.keys import Action
from tarry.core.outcomes import Edited
from tarry.edges.http import answers, contracts
from tarry.edges.http.documented import SETTLE_ERRORS
from tarry.edges.http.messages import content_of
from tarry.edges.http.problems import Problem, message_gone
from tarry.edges.http.routing import AccessRoute, Scope, access, message_of
from tarry.edges.http.views import answer

router = APIRouter(prefix="/v1", tags=["messages"], route_class=AccessRoute)
_PRODUCE = access(Action.PRODUCE, Scope.MESSAGE)
Version = Annotated[int | None, Query(ge=1, le=2**63 - 1, description="Only if it is still this one.")]
Force = Annotated[bool, Query(description="Also if somebody works on it: their lease is then void.")]


@router.patch("/messages/{id}", response_model=answers.Edited, responses=SETTLE_ERRORS, openapi_extra=_PRODUCE)
async def edit(
    request: Request, id: str, body: contracts.EditRequest, *, version: Version = None, force: Force = False
) -> Response:
    """Change what is named of a live message; the rest stays, and attempts go on counting."""
    queue, key = message_of(request)
    broker = request.app.state.broker
    await broker.app.queues.get(queue)
    outcome = await broker.queue(queue).edit(key, version=version, force=force, **_changes(body))
    if outcome in (Edited.UPDATED, Edited.IGNORED):
        return answer({"id": id, "key": key, "outcome": outcome.value})
    raise _PROBLEMS[outcome]()


@router.delete("/messages/{id}", response_model=answers.Dropped, responses=SETTLE_ERRORS, openapi_extra=_PRODUCE)
async def cancel(request: Request, id: str, *, version: Version = None, force: Force = False) -> Response:
    """Remove a live message."""
    queue, key = message_of(request)
    broker = request.app.state.broker
    await broker.app.queues.get(queue)
    if await broker.store.drop(queue, key, version=version, unless_leased=not force):
        return answer({"dropped": 1})
    found = await broker.store.read(queue, key)
    if found is None:
        raise message_gone()
    raise _changed() if version not in (None, found.version) else _leased()


def _changes(body: contracts.EditRequest) -> dict[str, Any]:
    """As the library says it."""
    given = body.model_fields_set
    same = given & {"at", "priority", "type", "headers", "max_attempts", "lease_for"}
    changes: dict[str, Any] = {name: getattr(body, name) for name in same}
    if given & {"payload", "payload_base64"}:
        changes["payload"] = content_of(body)
    if body.delay is not None:
        changes["after"] = body.delay
    if "retry" in given:
        changes["retry"] = None if body.retry is None else body.retry.retry()
    return changes


def _leased() -> Problem:
    return Problem(
        409,
        "leased",
        "somebody works on this message, so it was left as it is",
        hint="wait for them, or take it from them: ?force=true",
    )


def _changed() -> Problem:
    return Problem(409, "changed", "it is no longer this version", hint="look at it again: GET /v1/messages/{id}")


_PROBLEMS = {Edited.LEASED: _leased, Edited.CHANGED: _changed, Edited.GONE: message_gone}
