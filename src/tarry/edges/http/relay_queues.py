"""Relay's routes for queues, and for the health and the size of it all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from tarry.core.errors import Refused, TarryError
from tarry.core.keys import Action
from tarry.core.settings import QueueSettings
from tarry.edges.http import relay_contracts as asked
from tarry.edges.http import relay_views as views
from tarry.edges.http.relay_looking import STATES, counted, readable
from tarry.edges.http.relay_moving import purged
from tarry.edges.http.routing import AccessRoute, Scope, access, caller_of
from tarry.edges.http.views import answer

router = APIRouter(prefix="/api", route_class=AccessRoute, include_in_schema=False)
_ADMIN = access(Action.ADMIN)
_READ = access(Action.READ)
_LISTED = access(Action.READ, Scope.LISTED)


@router.get("/health")
async def health(request: Request) -> Response:
    try:
        await request.app.state.broker.store.now()
    except TarryError:
        return answer({"status": "ERROR", "details": "the database cannot be used"}, 500)
    return answer({"status": "OK", "details": {}})


@router.get("/queue/config", openapi_extra=_LISTED)
async def config() -> Response:
    made = QueueSettings.for_http()
    return answer({"ack_timeout_seconds": round(made.lease_for.total_seconds()), "max_attempts": made.max_attempts})


@router.get("/queue/metrics", openapi_extra=_LISTED)
async def metrics(request: Request) -> Response:
    """Of the queues that this key may read; each counted up to 10,000."""
    found = await counted(request, await readable(request))
    names = {"main": ("queued", "main_queue_size"), "processing": ("processing", "processing_size", "processing_queue_size"),
             "dead": ("dead", "dead_letter_size", "dead_letter_queue_size")}  # fmt: skip
    return answer({name: found[place] for place, several in names.items() for name in several})


@router.post("/queues", openapi_extra=access(Action.ADMIN, Scope.BODY))
async def create_queue(request: Request, body: asked.NewQueue) -> Response:
    caller_of(request).require(Action.ADMIN, body.name)
    queues = request.app.state.broker.app.queues
    info = await queues.create(body.name, replace(QueueSettings.for_http(), **_changes(body)))
    return answer({"message": "Queue created", "queue": views.queue(info)}, 201)


@router.get("/queues", openapi_extra=_LISTED)
async def list_queues(request: Request) -> Response:
    queues, caller = request.app.state.broker.app.queues, caller_of(request)
    infos = [info for info in await queues.list() if caller.allows(Action.READ, info.name)]
    shown = [views.queue(info, await queues.counts(info.name, limit=1_000)) for info in infos]
    return answer({"queues": shown, "total": len(shown)})


@router.get("/queues/{queue}", openapi_extra=_READ)
async def show_queue(request: Request, queue: str) -> Response:
    queues = request.app.state.broker.app.queues
    return answer(views.queue(await queues.get(queue), await queues.counts(queue)))


@router.patch("/queues/{queue}", openapi_extra=_ADMIN)
async def edit_queue(request: Request, queue: str, body: asked.QueueChanges) -> Response:
    info = await request.app.state.broker.app.queues.edit(queue, **_changes(body))
    return answer({"message": "Queue updated", "queue": views.queue(info)})


@router.delete("/queues/{queue}", openapi_extra=_ADMIN)
async def delete_queue(request: Request, queue: str, force: bool = False) -> Response:  # noqa: FBT001, FBT002 - of the query
    """400 while it has messages, unless forced."""
    try:
        await request.app.state.broker.app.queues.delete(queue, force=force)
    except Refused as error:
        raise views.problem(400, "refused", "NOT_EMPTY", str(error)) from error
    return answer({"message": "Queue deleted"})


@router.post("/queues/{queue}/rename", openapi_extra=_ADMIN)
async def rename_queue(request: Request, queue: str, body: asked.Rename) -> Response:
    caller_of(request).require(Action.ADMIN, body.newName)
    info = await request.app.state.broker.app.queues.rename(queue, body.newName)
    return answer({"message": "Queue renamed", "queue": views.queue(info)})


@router.post("/queues/{queue}/purge", openapi_extra=_ADMIN)
async def purge_queue(request: Request, queue: str, body: asked.Purge | None = None) -> Response:
    """What is finished is no message any more, so of that nothing is removed."""
    store, status = request.app.state.broker.store, (body or asked.Purge()).status
    await request.app.state.broker.app.queues.get(queue)
    if status == "all":
        deleted = await store.drop_all(queue) + await store.purge_dead(queue)
    else:
        place = {"queued": "main"}.get(status, status)
        deleted = await purged(request, queue, place) if place in STATES else 0
    return answer({"message": f"Purged {deleted} messages from queue '{queue}'", "deleted_count": deleted})


def _changes(body: asked.QueueChanges) -> dict[str, Any]:
    changes = {"lease_for": body.ack_timeout_seconds, "max_attempts": body.max_attempts}
    return {name: value for name, value in changes.items() if value is not None}
