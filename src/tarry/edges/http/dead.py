"""Dead letters: look, deliver again, give up."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tarry.core.keys import Action
from tarry.edges.http import answers, contracts, views
from tarry.edges.http.documented import ADMIN_ERRORS, READ_ERRORS
from tarry.edges.http.routing import AccessRoute, access
from tarry.edges.http.views import answer

router = APIRouter(prefix="/v1", tags=["dead letters"], route_class=AccessRoute)


@router.get(
    "/queues/{queue}/dead",
    response_model=answers.DeadLetters,
    responses=READ_ERRORS,
    openapi_extra=access(Action.READ),
)
async def list_dead(request: Request, queue: str, limit: Annotated[int, Query(ge=1, le=10_000)] = 100) -> Response:
    """The newest first."""
    broker = request.app.state.broker
    await broker.app.queues.get(queue)
    found = await broker.store.dead_letters(queue, limit=limit)
    return answer({"dead_letters": [views.dead_letter(one) for one in found]})


@router.post(
    "/queues/{queue}/dead:redrive",
    response_model=answers.Redriven,
    responses=ADMIN_ERRORS,
    openapi_extra=access(Action.ADMIN),
)
async def redrive(request: Request, queue: str, body: contracts.RedriveRequest | None = None) -> Response:
    """Deliver them again, from the first attempt: those named, or the oldest. One whose key is live again stays dead."""
    broker, asked = request.app.state.broker, body or contracts.RedriveRequest()
    await broker.app.queues.get(queue)
    return answer({"redriven": await broker.store.redrive(queue, versions=asked.versions, limit=asked.limit)})


@router.delete(
    "/queues/{queue}/dead", response_model=answers.Purged, responses=ADMIN_ERRORS, openapi_extra=access(Action.ADMIN)
)
async def purge_dead(request: Request, queue: str) -> Response:
    """Give up every dead letter of a queue. It cannot be undone."""
    broker = request.app.state.broker
    await broker.app.queues.get(queue)
    return answer({"purged": await broker.store.purge_dead(queue)})
