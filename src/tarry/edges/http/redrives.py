"""Redrive jobs: how far they are, and what may be done about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from tarry.core.keys import Action
from tarry.core.redriving import RedriveState
from tarry.edges.http import contracts, dead_shapes, views
from tarry.edges.http.documented import ADMIN_ERRORS, READ_ERRORS
from tarry.edges.http.ids import storable
from tarry.edges.http.routing import AccessRoute, Scope, access, caller_of, redrive_of
from tarry.edges.http.views import answer

router = APIRouter(prefix="/v1", tags=["redrives"], route_class=AccessRoute)
_ADMIN = access(Action.ADMIN, Scope.REDRIVE)
Job = Annotated[int, Path(ge=1, le=2**63 - 1)]


@router.get(
    "/redrives",
    response_model=dead_shapes.Redrives,
    responses=READ_ERRORS,
    openapi_extra=access(Action.READ, Scope.LISTED),
)
async def list_redrives(
    request: Request,
    queue: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=contracts.MOST)] = 100,
) -> Response:
    """The newest first, of the queues that this key may read."""
    caller, name = caller_of(request), storable(queue, "queue")
    if name is not None:
        caller.require(Action.READ, name)
    found = await request.app.state.broker.store.redrive_jobs(name, limit=limit)
    return answer({"redrives": [views.redrive(job) for job in found if caller.allows(Action.READ, job.queue)]})


@router.get(
    "/redrives/{job}",
    response_model=dead_shapes.Redrive,
    responses=READ_ERRORS,
    openapi_extra=access(Action.READ, Scope.REDRIVE),
)
async def show_redrive(request: Request, job: Job) -> Response:
    """How far it is."""
    return answer(views.redrive(redrive_of(request)))


def _turning(verb: str, state: RedriveState, said: str) -> None:
    async def turn(request: Request, job: Job, body: contracts.ReasonRequest | None = None) -> Response:
        reason = None if body is None or body.reason is None else contracts.clipped(body.reason)
        return answer(views.redrive(await request.app.state.broker.store.turn_redrive(job, state, reason=reason)))

    turn.__doc__ = said
    _post(verb)(turn)


def _post(verb: str, **more: Any) -> Callable[..., Any]:
    return router.post(
        f"/redrives/{{job}}/{verb}",
        name=f"{verb}_redrive",
        response_model=dead_shapes.Redrive,
        responses={**more, **ADMIN_ERRORS},
        openapi_extra=_ADMIN,
    )


_turning("pause", RedriveState.PAUSED, "Stop for a while. Said twice, it changes nothing.")
_turning("resume", RedriveState.RUNNING, "Go on; also with the rest of a job whose canaries died again.")
_turning("cancel", RedriveState.CANCELLED, "End it here. What lives again stays alive, the others stay dead.")


@_post("advance", **{"204": {"description": "No step is due"}})
async def advance(request: Request, job: Job) -> Response:
    """Carry it on by one step, if one is due: for whoever has no sweeper, or is in a hurry."""
    found = await request.app.state.broker.store.advance_redrive(job)
    return Response(status_code=204) if found is None else answer(views.redrive(found))
