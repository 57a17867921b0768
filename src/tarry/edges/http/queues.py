"""Queues: create, look, change, pause, delete."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tarry.core.events import JournalLevel
from tarry.core.keys import Action
from tarry.core.settings import QueueSettings
from tarry.edges.http import answers, contracts, views
from tarry.edges.http.documented import ADMIN_ERRORS, READ_ERRORS
from tarry.edges.http.once import ONCE, once
from tarry.edges.http.problems import Problem
from tarry.edges.http.routing import AccessRoute, Scope, access, caller_of
from tarry.edges.http.views import answer

router = APIRouter(prefix="/v1", tags=["queues"], route_class=AccessRoute)
NAME = r"^[A-Za-z0-9._-]{1,100}$"
_ADMIN = access(Action.ADMIN)
_READ = access(Action.READ)


@router.post(
    "/queues",
    status_code=201,
    response_model=answers.Queue,
    responses={200: {"model": answers.Queue}, **ADMIN_ERRORS},
    openapi_extra=access(Action.ADMIN, Scope.BODY) | ONCE,
)
async def create_queue(request: Request, body: contracts.QueueRequest) -> Response:
    """Create a queue. With `exist_ok`, one that is there is left as it is (200)."""
    caller_of(request).require(Action.ADMIN, body.name)
    queues = request.app.state.broker.app.queues
    settings = _changed(QueueSettings.for_http(), body)
    if body.exist_ok:
        before = {info.name for info in await queues.list()}
        info = await queues.create(body.name, settings, exist_ok=True)
        return answer(views.queue(info), 200 if body.name in before else 201)

    async def create(conn: Any) -> Response:
        return answer(views.queue(await queues.create(body.name, settings, conn=conn)), 201)

    return await once(request, create)


@router.get(
    "/queues",
    response_model=answers.Queues,
    responses=READ_ERRORS,
    openapi_extra=access(Action.READ, Scope.LISTED),
)
async def list_queues(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=contracts.MOST)] = 100,
    after: Annotated[str | None, Query(pattern=NAME, description="`next` of the page before.")] = None,
) -> Response:
    """The queues that this key may read, by name, with counts that stop at 1,000."""
    queues, caller = request.app.state.broker.app.queues, caller_of(request)
    infos = [
        info
        for info in await queues.list()
        if caller.allows(Action.READ, info.name) and (after is None or info.name > after)
    ]
    page = infos[:limit]
    shown = [
        {**views.queue(info), "counts": views.counts(await queues.counts(info.name, limit=1_000))} for info in page
    ]
    return answer({"queues": shown, "next": page[-1].name if len(infos) > limit else None})


@router.get("/queues/{queue}", response_model=answers.CountedQueue, responses=READ_ERRORS, openapi_extra=_READ)
async def show_queue(
    request: Request, queue: str, count_to: Annotated[int, Query(ge=0, le=1_000_000)] = 10_000
) -> Response:
    """Settings and counts. Counting stops at `count_to`."""
    queues = request.app.state.broker.app.queues
    info = await queues.get(queue)
    return answer({**views.queue(info), "counts": views.counts(await queues.counts(queue, limit=count_to))})


@router.patch("/queues/{queue}", response_model=answers.Queue, responses=ADMIN_ERRORS, openapi_extra=_ADMIN)
async def edit_queue(request: Request, queue: str, body: contracts.QueueChanges) -> Response:
    """Change the settings named; the others stay."""
    queues = request.app.state.broker.app.queues
    return answer(views.queue(await queues.edit(queue, **_changes(body))))


@router.delete("/queues/{queue}", response_model=answers.Deleted, responses=ADMIN_ERRORS, openapi_extra=_ADMIN)
async def delete_queue(request: Request, queue: str, force: bool = False) -> Response:  # noqa: FBT001, FBT002 - of the query
    """Refused (409) while it has messages, dead letters included, unless forced."""
    await request.app.state.broker.app.queues.delete(queue, force=force)
    return answer({"queue": queue, "deleted": True})


@router.post("/queues/{queue}/pause", response_model=answers.Queue, responses=ADMIN_ERRORS, openapi_extra=_ADMIN)
async def pause_queue(request: Request, queue: str, body: contracts.ReasonRequest | None = None) -> Response:
    """Stop deliveries. Offers are still taken, and what is leased may be finished."""
    info = await request.app.state.broker.app.queues.pause(queue, reason=None if body is None else body.reason)
    return answer(views.queue(info))


@router.post("/queues/{queue}/resume", response_model=answers.Queue, responses=ADMIN_ERRORS, openapi_extra=_ADMIN)
async def resume_queue(request: Request, queue: str) -> Response:
    """Deliver again."""
    return answer(views.queue(await request.app.state.broker.app.queues.resume(queue)))


@router.post(
    "/queues/{queue}/rename", response_model=answers.Queue, responses=ADMIN_ERRORS, openapi_extra=_ADMIN | ONCE
)
async def rename_queue(request: Request, queue: str, body: contracts.RenameRequest) -> Response:
    """Messages and history go with it. The key must be for the new name, too."""
    caller_of(request).require(Action.ADMIN, body.new_name)

    async def rename(conn: Any) -> Response:
        return answer(views.queue(await request.app.state.broker.app.queues.rename(queue, body.new_name, conn=conn)))

    return await once(request, rename)


@router.post(
    "/queues/{queue}/purge", response_model=answers.Dropped, responses=ADMIN_ERRORS, openapi_extra=_ADMIN | ONCE
)
async def purge_queue(request: Request, queue: str, body: contracts.PurgeRequest) -> Response:
    """Remove every live message: delayed, ready and leased. Dead letters stay."""
    if body.confirm != queue:
        raise Problem(409, "refused", "the confirmation is not the name of the queue; nothing was removed")
    broker = request.app.state.broker
    await broker.app.queues.get(queue)

    async def drop_all(conn: Any) -> Response:
        return answer({"dropped": await broker.store.drop_all(queue, conn=conn)})

    return await once(request, drop_all)


def _changes(body: contracts.QueueChanges) -> dict[str, Any]:
    """What the request names, `null` included: for max_attempts that is a setting, for the others it is none."""
    changes: dict[str, Any] = {}
    for name in body.model_fields_set & {field.name for field in fields(QueueSettings)}:
        value = getattr(body, name)
        if value is None and name != "max_attempts":
            raise Problem(422, "invalid", f"{name} cannot be null: leave it away to keep it as it is")
        changes[name] = value
    if "journal" in changes:
        changes["journal"] = JournalLevel(changes["journal"])
    if "retry" in changes:
        changes["retry"] = changes["retry"].retry()
    return changes


def _changed(settings: QueueSettings, body: contracts.QueueChanges) -> QueueSettings:
    return replace(settings, **_changes(body))
