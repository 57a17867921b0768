"""Relay's routes for changing messages by hand: edit, delete, move, clear, import."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, cast

import pydantic_core
from fastapi import APIRouter, Request
from pydantic import TypeAdapter, ValidationError
from starlette.responses import Response

from tarry.core.errors import UnknownQueue
from tarry.core.keys import Action
from tarry.core.outcomes import Edited
from tarry.core.redriving import DeadFilter
from tarry.core.states import State
from tarry.edges.http import relay_contracts as asked
from tarry.edges.http import relay_views as views
from tarry.edges.http.forms import BadForm, file_of
from tarry.edges.http.ids import MessageId
from tarry.edges.http.pacing import Pace
from tarry.edges.http.problems import Problem
from tarry.edges.http.relay import enqueued
from tarry.edges.http.relay_looking import STATES, dead_pages, pages, placed, readable
from tarry.edges.http.routing import AccessRoute, Scope, access, audited, caller_of, message_of
from tarry.edges.http.views import answer
from tarry.handles.content import Content

router = APIRouter(prefix="/api/queue", route_class=AccessRoute, include_in_schema=False)
_ONE = access(Action.PRODUCE, Scope.MESSAGE)
_ALL = access(Action.ADMIN, Scope.ALL)
Way = Callable[[Request, MessageId, str | None], Awaitable[bool]]
_IMPORTED = TypeAdapter(asked.Imported)
IMPORTED_AT_ONCE = 10_000
"""Messages that one import may have: it is stored as a whole."""


@router.put("/message/{id}", openapi_extra=_ONE)
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


@router.delete("/message/{id}", openapi_extra=_ONE)
async def delete(request: Request, id: str, queueType: asked.Place = "main") -> Response:  # noqa: N803 - as Relay writes it
    found = message_of(request)

    async def remove() -> Response:
        return answer({"success": bool(await _if_known(lambda: _removed(request, found, queueType)))})

    if queueType != "dead":
        return await remove()
    caller_of(request).require(Action.ADMIN, found.queue)
    return await audited(request, found.queue, remove)


@router.post("/messages/delete", openapi_extra=access(Action.PRODUCE, Scope.BODY))
async def delete_batch(request: Request, body: asked.Ids, queueType: asked.Place = "main") -> Response:  # noqa: N803
    ids = _parsed(request, body.messageIds, Action.ADMIN if queueType == "dead" else Action.PRODUCE)

    async def remove() -> Response:
        deleted = sum([await _if_known(lambda id=id: _removed(request, id, queueType)) for id in ids])
        return answer({"success": True, "deletedCount": deleted, "message": f"{deleted} messages deleted"})

    return await audited(request, None, remove)


@router.post("/move", openapi_extra=access(Action.ADMIN, Scope.BODY))
async def move(request: Request, body: asked.Move) -> Response:
    """From where they are said to be: what is elsewhere by now stays there, and does not count as moved."""
    way = _WAYS.get((body.fromQueue, body.toQueue))
    if way is None:
        raise Problem(
            422,
            "invalid",
            f"messages are not moved from {body.fromQueue} to {body.toQueue} here",
            hint="only a worker can have a message in processing: GET /api/queue/message",
        )
    ids = _parsed(request, [one if isinstance(one, str) else one.id for one in body.messages], Action.ADMIN)
    moved = sum([await _if_known(lambda id=id, way=way: way(request, id, body.errorReason)) for id in ids])
    return answer({"message": f"{moved} messages moved successfully", "movedCount": moved})


@router.delete("/clear", openapi_extra=_ALL)
async def clear_all(request: Request) -> Response:
    """Every message of every queue, dead letters included. Queues, schedules and the journal stay."""
    for place in STATES:
        await _cleared(request, place)
    return answer({"message": "All queues cleared successfully"})


@router.delete("/{queueType}/clear", openapi_extra=_ALL)
async def clear(request: Request, queueType: str) -> Response:  # noqa: N803
    """What is in this place, in every queue; what is finished is no message any more, so there is nothing to clear."""
    if queueType not in ("acknowledged", "archived"):
        await _cleared(request, placed(queueType))
    shown = {"success": True, "queueType": queueType, "message": f"{queueType} queue cleared successfully"}
    return answer(shown)


@router.post("/import", openapi_extra=access(Action.PRODUCE, Scope.BODY))
async def import_messages(request: Request) -> Response:
    """A file of JSON, one message or a list of them, in a form (`file`) or as the body. One that is bad spoils all."""
    try:
        said: Any = pydantic_core.from_json(await _file(request), allow_inf_nan=False)
    except ValueError:
        raise views.problem(400, "not_json", "INVALID_JSON", "the file is not JSON") from None
    messages = await _messages(cast("list[Any]", said) if isinstance(said, list) else [said])
    said = {"message": f"Imported {len(messages)} messages successfully", "count": len(messages)}
    return await enqueued(request, messages, lambda ids: answer(said))


async def purged(request: Request, queue: str, place: str) -> int:
    """Those that are in this place now. Nothing is taken from a worker that leased it meanwhile; a key that ends stops it."""
    broker = request.app.state.broker
    store = broker.store
    await broker.gate.require_valid(caller_of(request))
    if place == "dead":
        return await store.purge_dead(queue)
    dropped = 0
    async for page in pages(store, queue, place):
        await broker.gate.require_valid(caller_of(request))
        for one in page:
            dropped += await store.drop(queue, one.key, version=one.version, unless_leased=place == "main")
    return dropped


async def _cleared(request: Request, place: str) -> None:
    for name in await readable(request, Action.ADMIN):
        await _if_known(lambda name=name: purged(request, name, place))


def _parsed(request: Request, ids: Sequence[str], action: Action) -> list[MessageId]:
    """Those that are ids at all, once. Nothing is done unless the caller may do it to all of them."""
    found = [one for one in dict.fromkeys(map(MessageId.parse, ids)) if one is not None]
    for name in {one.queue for one in found}:
        caller_of(request).require(action, name)
    return found


async def _if_known(do: Callable[[], Awaitable[int]]) -> int:
    try:
        return await do()
    except UnknownQueue:
        return False


async def _removed(request: Request, id: MessageId, place: str) -> bool:
    store = request.app.state.broker.store
    if place != "dead":
        return await store.drop(id.queue, id.key, unless_leased=place == "main")
    versions = await _dead_versions(store, id)
    return bool(versions) and bool(await store.purge_dead(id.queue, where=DeadFilter(versions=versions)))


async def _dead_versions(store: Any, id: MessageId) -> tuple[int, ...]:
    found = dead_pages(store, id.queue, DeadFilter(key_prefix=id.key))
    return tuple([one.version async for page in found for one in page if one.key == id.key])


async def _revived(request: Request, id: MessageId, reason: str | None) -> bool:
    """The last one that died under this key, with its attempts to come; those before it stay dead."""
    store = request.app.state.broker.store
    versions = await _dead_versions(store, id)
    return bool(versions) and bool(await store.redrive(id.queue, versions=versions[:1], limit=1))


async def _taken_back(request: Request, id: MessageId, reason: str | None) -> bool:
    """From the worker, whose lock is lost; its attempt does not count. Due a moment before it was: an edit that changes
    nothing would leave the lock, and so it keeps its place among the others."""
    queue = request.app.state.broker.queue(id.queue)
    found = await queue.read(id.key)
    if found is None or found.state is not State.LEASED:
        return False
    earlier = found.due_at - timedelta(microseconds=1)
    outcome = await queue.edit(id.key, at=earlier, version=found.version, force=True)
    return outcome is Edited.UPDATED


async def _given_up(request: Request, id: MessageId, reason: str | None) -> bool:
    return await request.app.state.broker.store.give_up(id.queue, id.key, error=reason) is Edited.UPDATED


async def _taken_and_given_up(request: Request, id: MessageId, reason: str | None) -> bool:
    store = request.app.state.broker.store
    found = await store.read(id.queue, id.key)
    if found is None or found.state is not State.LEASED:
        return False
    outcome = await store.give_up(id.queue, id.key, error=reason, version=found.version, force=True)
    return outcome is Edited.UPDATED


def _finished(place: str) -> Way:
    async def finish(request: Request, id: MessageId, reason: str | None) -> bool:
        found = await request.app.state.broker.store.read(id.queue, id.key)
        if place == "processing" and (found is None or found.state is not State.LEASED):
            return False
        return await _removed(request, id, place)

    return finish


_WAYS: dict[tuple[str, str], Way] = {
    ("dead", "main"): _revived,
    ("processing", "main"): _taken_back,
    ("main", "dead"): _given_up,
    ("processing", "dead"): _taken_and_given_up,
    **{(place, end): _finished(place) for place in STATES for end in ("acknowledged", "archived")},
}


async def _messages(items: list[Any]) -> list[asked.Imported]:
    if len(items) > IMPORTED_AT_ONCE:
        limit = f"an import has at most {IMPORTED_AT_ONCE:,} messages, got {len(items):,}"
        raise views.problem(413, "too_large", "TOO_MANY_MESSAGES", limit)
    pace, messages = Pace(), list[asked.Imported]()
    for number, item in enumerate(items, 1):
        try:
            messages.append(_IMPORTED.validate_python(item))
        except ValidationError as error:
            raise views.problem(400, "invalid", "INVALID_MESSAGE", _told(number, error)) from None
        if pace.is_up:
            await pace.rest()
    return messages


def _told(number: int, error: ValidationError) -> str:
    """What is wrong first, and never the value: it may be a secret."""
    wrong = error.errors(include_input=False)[0]
    return f"message {number}: {'.'.join(map(str, wrong['loc']))}: {wrong['msg']}"[:500]


async def _file(request: Request) -> bytes:
    """Of a form as browsers and `curl -F file=@…` send it: the part that is named `file`."""
    said, body = request.headers.get("content-type", ""), await request.body()
    if not said.lower().startswith("multipart/"):
        return body
    try:
        found = file_of(said, body)
    except BadForm as error:
        raise views.problem(400, "invalid", "INVALID_FORM", f"the form cannot be read: {error}") from None
    if found is None:
        raise views.problem(400, "invalid", "NO_FILE", "the form has no file: curl -F file=@messages.json")
    return found
