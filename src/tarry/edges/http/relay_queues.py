"""Relay's routes for looking, cleaning up and managing queues, on the same services."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tarry.core.errors import Refused, TarryError, UnknownQueue
from tarry.core.events import Event
from tarry.core.keys import Action
from tarry.core.messages import EVERYTHING, Filter, Place
from tarry.core.outcomes import Edited
from tarry.core.redriving import DeadFilter
from tarry.core.settings import QueueSettings
from tarry.core.states import State
from tarry.edges.http import relay_contracts as asked
from tarry.edges.http import relay_views as views
from tarry.edges.http.ids import MessageId, storable
from tarry.edges.http.problems import Problem
from tarry.edges.http.relay import QueueName, Text
from tarry.edges.http.routing import AccessRoute, Scope, access, caller_of, message_of
from tarry.edges.http.views import answer
from tarry.handles.content import Content

router = APIRouter(prefix="/api", route_class=AccessRoute, include_in_schema=False)
_ADMIN = access(Action.ADMIN)
_READ = access(Action.READ)
_LISTED = access(Action.READ, Scope.LISTED)
_PAGED = 10_000
"""As deep as pages go: /v1 has a place to go on from instead of numbers."""
_STATES = {"main": (State.READY, State.DELAYED), "processing": (State.LEASED,)}
_KNOWN = {"page", "limit", "filterType", "filterPriority", "queueName"}


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
    queues, caller = request.app.state.broker.app.queues, caller_of(request)
    main = processing = dead = 0
    for info in await queues.list():
        if caller.allows(Action.READ, info.name):
            found = await queues.counts(info.name)
            main += found.delayed.n + found.ready.n
            processing += found.leased.n
            dead += found.dead.n
    return answer(
        {
            "main_queue_size": main,
            "processing_size": processing,
            "processing_queue_size": processing,
            "dead_letter_size": dead,
            "dead_letter_queue_size": dead,
        }
    )


@router.get("/queue/activity/message/{id}", openapi_extra=access(Action.READ, Scope.MESSAGE))
async def activity(request: Request, id: str) -> Response:
    """The life of a message, oldest first; an empty list if there is none."""
    name, key = message_of(request)
    events: list[Event] = []
    with suppress(UnknownQueue):
        events = await request.app.state.broker.store.timeline(name, key)
    return answer({"message_id": id, "history": [views.event(id, one) for one in events]})


@router.get("/queue/{queueType}/messages", openapi_extra=access(Action.READ, Scope.BODY))
async def browse(
    request: Request,
    queueType: str,  # noqa: N803 - as Relay writes it
    queueName: QueueName = asked.DEFAULT,  # noqa: N803
    page: Annotated[int, Query(ge=1)] = 1,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    filterType: Text = None,  # noqa: N803
    filterPriority: Annotated[int | None, Query(ge=0, le=9)] = None,  # noqa: N803
) -> Response:
    """What waits (`main`), is being worked on (`processing`), or is `dead`, a page at a time."""
    caller_of(request).require(Action.READ, queueName)
    if unknown := request.query_params.keys() - _KNOWN:
        raise Problem(422, "invalid", f"{', '.join(sorted(unknown))[:200]}: not here", hint="see /openapi.json")
    if page * limit > _PAGED:
        raise Problem(422, "invalid", f"pages end after {_PAGED:,} messages", hint="GET /v1/queues/{queue}/messages")
    broker, type = request.app.state.broker, storable(filterType, "filterType")
    await broker.app.queues.get(queueName)
    counts = await broker.app.queues.counts(queueName)
    shown: list[dict[str, Any]] = []
    if queueType == "dead":
        letters = await broker.store.dead_letters(queueName, where=DeadFilter(type=type), limit=page * limit)
        shown, total = [views.dead_letter(one) for one in letters], counts.dead.n
    elif queueType in _STATES:
        wanted = Filter(type=type, priority=filterPriority)
        for state in _STATES[queueType]:
            found = await broker.store.messages(queueName, state=state, limit=page * limit, filter=wanted)
            shown += [views.message(one) for one in found]
        total = counts.leased.n if queueType == "processing" else counts.ready.n + counts.delayed.n
    else:
        raise Problem(
            422,
            "invalid",
            "queueType is main, processing or dead: what is finished is in the journal",
            hint="GET /v1/messages/{id}/timeline",
        )
    rows = shown[(page - 1) * limit : page * limit]
    if type is not None or filterPriority is not None:
        total = len(shown)
    more = page * limit < total
    pages = {"total": total, "page": page, "limit": limit, "totalPages": -(-total // limit), "hasMore": more}
    return answer({"messages": rows, "pagination": pages})


@router.put("/queue/message/{id}", openapi_extra=access(Action.PRODUCE, Scope.MESSAGE))
async def edit(request: Request, id: str, body: asked.Edit) -> Response:
    """What waits; 409 for what somebody works on, 404 if it is not there or nothing is to be changed."""
    name, key = message_of(request)
    changes: dict[str, Any] = {field: getattr(body, field) for field in body.model_fields_set}
    if not changes:
        raise views.problem(404, "gone", "NOT_FOUND", "nothing is to be changed: give type, payload or priority")
    if "payload" in changes:
        changes["payload"] = Content.of_value(body.payload)
    queue = request.app.state.broker.queue(name)
    outcome = await queue.edit(key, **changes)
    if outcome is Edited.LEASED:
        raise views.problem(409, "leased", "LOCKED", "somebody works on this message, so it was left as it is")
    found = await queue.read(key)
    if found is None:
        raise views.not_found()
    return answer({"success": True, "data": views.message(found)})


@router.delete("/queue/message/{id}", openapi_extra=access(Action.PRODUCE, Scope.MESSAGE))
async def delete(request: Request, id: str, queueType: asked.Place = "main") -> Response:  # noqa: N803
    name, key = message_of(request)
    return answer({"success": await _deleted(request, MessageId(name, key), queueType)})


@router.post("/queue/messages/delete", openapi_extra=access(Action.PRODUCE, Scope.BODY))
async def delete_batch(request: Request, body: asked.Ids, queueType: asked.Place = "main") -> Response:  # noqa: N803
    ids = [found for id in body.messageIds if (found := MessageId.parse(id)) is not None]
    for name in {found.queue for found in ids}:
        caller_of(request).require(Action.PRODUCE, name)
    deleted = sum([await _deleted(request, found, queueType) for found in ids])
    return answer({"success": True, "deletedCount": deleted, "message": f"{deleted} messages deleted"})


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
async def purge_queue(request: Request, queue: str, body: asked.Purge) -> Response:
    broker = request.app.state.broker
    await broker.app.queues.get(queue)
    deleted = 0
    if body.status == "all":
        deleted += await broker.store.drop_all(queue)
    elif body.status != "dead":
        for state in _STATES["main" if body.status == "queued" else "processing"]:
            deleted += await _drop_each(broker.store, queue, state)
    if body.status in ("dead", "all"):
        deleted += await broker.store.purge_dead(queue)
    return answer({"message": f"{deleted} messages removed", "deleted_count": deleted})


async def _deleted(request: Request, id: MessageId, place: str) -> bool:
    store = request.app.state.broker.store
    try:
        if place != "dead":
            return await store.drop(id.queue, id.key, unless_leased=place == "main")
        caller_of(request).require(Action.ADMIN, id.queue)
        found = await store.dead_letters(id.queue, where=DeadFilter(key_prefix=id.key), limit=1_000)
        versions = tuple(one.version for one in found if one.key == id.key)
        return bool(versions) and bool(await store.purge_dead(id.queue, where=DeadFilter(versions=versions)))
    except UnknownQueue:
        return False


async def _drop_each(store: Any, queue: str, state: State) -> int:
    """Those that are in this state. Nothing is taken from a worker who got it meanwhile."""
    dropped, after = 0, EVERYTHING
    while found := await store.messages(queue, state=state, limit=1_000, filter=after):
        for one in found:
            dropped += await store.drop(queue, one.key, version=one.version, unless_leased=state is not State.LEASED)
        after = Filter(after=Place(found[-1].due_at, found[-1].version))
    return dropped


def _changes(body: asked.QueueChanges) -> dict[str, Any]:
    changes = {"lease_for": body.ack_timeout_seconds, "max_attempts": body.max_attempts}
    return {name: value for name, value in changes.items() if value is not None}
