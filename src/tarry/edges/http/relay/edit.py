"""Relay's routes that change messages manually (edit, delete, move, clear, import), and for queues, health and counts."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any, cast

import pydantic_core
from fastapi import APIRouter, Query
from pydantic import ValidationError
from starlette.responses import Response

from tarry.core.dead_letters.redrive import DeadFilter
from tarry.core.errors import InvalidState, TarryError, UnknownQueue
from tarry.core.messages.model import StoredMessage
from tarry.core.messages.outcomes import Edited
from tarry.core.messages.states import State
from tarry.core.security.api_keys import Action
from tarry.core.settings import QueueInfo, QueueSettings
from tarry.edges.http.multipart import BadForm, file_of
from tarry.edges.http.pages import in_time_slices
from tarry.edges.http.problems import Problem
from tarry.edges.http.relay import wire
from tarry.edges.http.relay.browse import STATES, allowed_queues, check_queue_type, counts, pages
from tarry.edges.http.relay.messages import enqueue_all, with_default_queue
from tarry.edges.http.routing import AUDITED, AccessRoute, BrokerRequest, Scope, access, respond
from tarry.wire.ids import MessageId
from tarry.wire.payload import Content

router = APIRouter(prefix="/api", route_class=AccessRoute, include_in_schema=False)
_MESSAGE = access(Action.PRODUCE, Scope.MESSAGE)
_PRODUCE = access(Action.PRODUCE, Scope.BODY)
_ALL = access(Action.ADMIN, Scope.ALL)
_ADMIN = access(Action.ADMIN)
_ADMIN_BODY = access(Action.ADMIN, Scope.BODY)
_READ = access(Action.READ)
_LISTED = access(Action.READ, Scope.LISTED)
IMPORT_LIMIT = 10_000
"""Messages per import, which is stored completely or not at all."""


@router.put("/queue/message/{id}", openapi_extra=_MESSAGE)
async def edit(request: BrokerRequest, id: str, body: wire.Edit) -> Response:
    """Change a waiting message. 409 if it is leased; 404 if it does not exist or no change is given."""
    name, key = request.message
    changes: dict[str, Any] = {field: getattr(body, field) for field in body.model_fields_set}
    if not changes:
        raise wire.problem(404, "gone", "NOT_FOUND", "nothing to change: give type, payload or priority")
    if "payload" in changes:
        changes["payload"] = Content.of_value(body.payload)
    queue = request.broker.queue(name)
    if await queue.edit(key, **changes) is Edited.LEASED:
        raise wire.problem(409, "leased", "LOCKED", "this message is leased to a worker: it was not changed")
    message = await queue.read(key)
    if message is None and await _dead_versions(request, request.message):
        detail = "a dead letter is not edited: move it to main (POST /api/queue/move), and edit it there"
        raise wire.problem(404, "gone", "DEAD", detail)
    if message is None:
        raise wire.not_found()
    return respond({"success": True, "data": wire.message(message)})


@router.delete("/queue/message/{id}", openapi_extra=_MESSAGE)
async def delete(request: BrokerRequest, id: str, query: Annotated[wire.DeleteQuery, Query()]) -> Response:
    if query.queueType == "dead":
        request.caller.require(Action.ADMIN, request.message.queue)
    return respond({"success": bool(await _remove_all(request, [request.message], query.queueType))})


@router.post("/queue/messages/delete", openapi_extra=_PRODUCE | AUDITED)
async def delete_batch(
    request: BrokerRequest, body: wire.DeleteBatch, query: Annotated[wire.DeleteQuery, Query()]
) -> Response:
    ids = _parse_ids(request, body.messageIds, Action.ADMIN if query.queueType == "dead" else Action.PRODUCE)
    deleted = await _remove_all(request, ids, query.queueType)
    return respond({"success": True, "deletedCount": deleted, "message": f"{deleted} messages deleted successfully"})


@router.post("/queue/move", openapi_extra=_ADMIN_BODY)
async def move(request: BrokerRequest, body: wire.Move) -> Response:
    """Move messages out of `fromQueue`. A message that is no longer there is not moved and not counted."""
    change = _MOVES.get((body.fromQueue, body.toQueue))
    if change is None:
        detail = f"messages cannot be moved from {body.fromQueue} to {body.toQueue}"
        hint = "only a worker's poll puts a message in processing: GET /api/queue/message"
        raise Problem(422, "invalid", detail, hint=hint if body.toQueue == "processing" else None)
    ids = _parse_ids(request, body.messages, Action.ADMIN)
    moved = sum([await _unless_unknown(change(request, id, body.fromQueue, body.errorReason)) for id in ids])
    return respond({"message": f"{moved} messages moved successfully", "movedCount": moved})


@router.delete("/queue/clear", openapi_extra=_ALL)
async def clear_all(request: BrokerRequest) -> Response:
    """Delete every message of every queue, dead letters included. Queues, schedules and the journal stay."""
    for queue_type in STATES:
        await _clear(request, queue_type)
    return respond({"message": "All queues cleared successfully"})


@router.delete("/queue/{queueType}/clear", openapi_extra=_ALL)
async def clear(request: BrokerRequest, queueType: str) -> Response:  # noqa: N803
    """Delete the messages of one type in every queue. Finished messages are not kept, so there are none to delete."""
    if queueType not in ("acknowledged", "archived"):
        await _clear(request, check_queue_type(queueType))
    message = f"{queueType} queue cleared successfully"
    return respond({"success": True, "queueType": queueType, "message": message})


@router.post("/queue/import", openapi_extra=_PRODUCE)
async def import_messages(request: BrokerRequest) -> Response:
    """Import one message or a list of them from a JSON file, sent as the form field `file` or as the body: all or none."""
    try:
        content: Any = pydantic_core.from_json(await _uploaded_file(request), allow_inf_nan=False)
    except ValueError:
        raise wire.problem(400, "not_json", "INVALID_JSON", "the file is not JSON") from None
    messages = await _validated(cast("list[Any]", content) if isinstance(content, list) else [content])
    body = {"message": f"Imported {len(messages)} messages successfully", "count": len(messages)}
    return await enqueue_all(request, messages, lambda ids: body)


@router.get("/health")
async def health(request: BrokerRequest) -> Response:
    try:
        await request.broker.now()
    except TarryError:
        return respond({"status": "ERROR", "details": "the database cannot be used"}, 500)
    return respond({"status": "OK", "details": {}})


@router.get("/queue/config", openapi_extra=_LISTED)
async def config() -> Response:
    defaults = QueueSettings.for_relay()
    lease_s = round(defaults.lease_for.total_seconds())
    return respond({"ack_timeout_seconds": lease_s, "max_attempts": defaults.max_attempts})


@router.get("/queue/metrics", openapi_extra=_LISTED)
async def metrics(request: BrokerRequest) -> Response:
    """Counts over the queues that this key may read; each queue is counted up to 10,000."""
    sums = await counts(request, await allowed_queues(request))
    names = {
        "main": ("queued", "main_queue_size"),
        "processing": ("processing", "processing_size", "processing_queue_size"),
        "dead": ("dead", "dead_letter_size", "dead_letter_queue_size"),
    }
    return respond({name: sums[queue_type] for queue_type, several in names.items() for name in several})


@router.post("/queues", openapi_extra=_ADMIN_BODY)
async def create_queue(request: BrokerRequest, body: wire.NewQueue) -> Response:
    request.caller.require(Action.ADMIN, body.name)
    info = await request.queues.create(body.name, replace(QueueSettings.for_relay(), **body.settings()))
    return respond({"message": f"Queue '{info.name}' created successfully", "queue": await _shown(request, info)}, 201)


async def _shown(request: BrokerRequest, info: QueueInfo) -> dict[str, Any]:
    return wire.queue(info, await request.queues.counts(info.name))


@router.get("/queues", openapi_extra=_LISTED)
async def list_queues(request: BrokerRequest) -> Response:
    counts = request.queues.counts
    if request.caller.allows(Action.READ, wire.DEFAULT_QUEUE):
        await with_default_queue(request, wire.DEFAULT_QUEUE, lambda: request.queues.get(wire.DEFAULT_QUEUE))
    infos = await request.broker.queues_of(request.caller)
    shown = [wire.queue(info, await counts(info.name, limit=1_000)) for info in infos]
    return respond({"queues": shown, "total": len(shown)})


@router.get("/queues/{queue}", openapi_extra=_READ)
async def show_queue(request: BrokerRequest, queue: str) -> Response:
    info = await with_default_queue(request, queue, lambda: request.queues.get(queue))
    return respond(await _shown(request, info))


@router.patch("/queues/{queue}", openapi_extra=_ADMIN)
async def edit_queue(request: BrokerRequest, queue: str, body: wire.QueueChanges) -> Response:
    info = await request.queues.edit(queue, **body.settings())
    return respond({"message": f"Queue '{queue}' updated successfully", "queue": await _shown(request, info)})


@router.delete("/queues/{queue}", openapi_extra=_ADMIN)
async def delete_queue(request: BrokerRequest, queue: str, query: Annotated[wire.ForceQuery, Query()]) -> Response:
    """Delete a queue. 400 while it has messages, unless `force` is set."""
    try:
        await request.queues.delete(queue, force=query.force)
    except InvalidState as error:
        raise wire.problem(400, "refused", "NOT_EMPTY", error.message) from error
    return respond({"message": f"Queue '{queue}' deleted successfully"})


@router.post("/queues/{queue}/rename", openapi_extra=_ADMIN)
async def rename_queue(request: BrokerRequest, queue: str, body: wire.Rename) -> Response:
    request.caller.require(Action.ADMIN, body.newName)
    info = await request.queues.rename(queue, body.newName)
    message = f"Queue renamed from '{queue}' to '{body.newName}'"
    return respond({"message": message, "queue": await _shown(request, info)})


@router.post("/queues/{queue}/purge", openapi_extra=_ADMIN)
async def purge_queue(request: BrokerRequest, queue: str, body: wire.Purge | None = None) -> Response:
    """Delete the messages of one status. Finished messages are not kept, so there are none to delete."""
    status = (body or wire.Purge()).status
    await request.queues.get(queue)
    if status == "all":
        deleted = await request.run(request.store.messages.purge(queue))
        deleted += await request.run(request.store.dead_letters.discard(queue))
    else:
        queue_type = {"queued": "main"}.get(status, status)
        deleted = await _purge_type(request, queue, queue_type) if queue_type in STATES else 0
    return respond({"message": f"Purged {deleted} messages from queue '{queue}'", "deleted_count": deleted})


async def _purge_type(request: BrokerRequest, queue: str, queue_type: str) -> int:
    """Delete the messages of one type. A message leased in the meantime stays. Stops if the key expires."""
    await request.broker.authenticator.require_valid(request.caller)
    if queue_type == "dead":
        return await request.run(request.store.dead_letters.discard(queue))
    dropped = 0
    async for rows in pages(request.store, queue, queue_type):
        await request.broker.authenticator.require_valid(request.caller)
        for row in rows:
            dropped += await request.run(
                request.store.messages.drop(queue, row.key, version=row.version, unless_leased=queue_type == "main")
            )
    return dropped


async def _clear(request: BrokerRequest, queue_type: str) -> None:
    for name in await allowed_queues(request, Action.ADMIN):
        await _unless_unknown(_purge_type(request, name, queue_type))


def _parse_ids(request: BrokerRequest, texts: Sequence[str], action: Action) -> list[MessageId]:
    """Valid ids without duplicates. Raises unless the caller may change all of them."""
    ids = [id for id in dict.fromkeys(map(MessageId.parse, texts)) if id is not None]
    for name in {id.queue for id in ids}:
        request.caller.require(action, name)
    return ids


async def _unless_unknown(change: Awaitable[int]) -> int:
    try:
        return await change
    except UnknownQueue:
        return 0


async def _remove_all(request: BrokerRequest, ids: Sequence[MessageId], queue_type: str) -> int:
    return sum([await _unless_unknown(_remove(request, id, queue_type)) for id in ids])


async def _remove(request: BrokerRequest, id: MessageId, queue_type: str) -> bool:
    if queue_type != "dead":
        return await request.run(request.store.messages.drop(id.queue, id.key, unless_leased=queue_type == "main"))
    where = DeadFilter(versions=await _dead_versions(request, id))
    return bool(where.versions and await request.run(request.store.dead_letters.discard(id.queue, where=where)))


async def _dead_versions(request: BrokerRequest, id: MessageId) -> tuple[int, ...]:
    letters = pages(request.store, id.queue, "dead", where=DeadFilter(key_prefix=id.key))
    return tuple([letter.version async for page in letters for letter in page if letter.key == id.key])


async def _leased(request: BrokerRequest, id: MessageId) -> StoredMessage[bytes] | None:
    message = await request.run(request.store.messages.read(id.queue, id.key))
    return message if message is not None and message.state is State.LEASED else None


async def _redrive(request: BrokerRequest, id: MessageId, queue_type: str, reason: str | None) -> bool:
    """Redrive the newest dead letter of this key, from the first attempt. Older ones stay dead."""
    newest = (await _dead_versions(request, id))[:1]
    return bool(newest and await request.run(request.store.dead_letters.redrive(id.queue, versions=newest, limit=1)))


async def _requeue(request: BrokerRequest, id: MessageId, queue_type: str, reason: str | None) -> bool:
    """Void the worker's lease without counting the attempt.

    An edit that changes nothing would keep the lease. The message therefore becomes due one microsecond earlier, which
    hardly changes its position in the queue.
    """
    message = await _leased(request, id)
    if message is None:
        return False
    at = message.due_at - timedelta(microseconds=1)
    outcome = await request.broker.queue(id.queue).edit(id.key, at=at, version=message.version, force=True)
    return outcome is Edited.UPDATED


async def _bury(request: BrokerRequest, id: MessageId, queue_type: str, reason: str | None) -> bool:
    condition: dict[str, Any] = {}
    if queue_type == "processing":
        message = await _leased(request, id)
        if message is None:
            return False
        condition = {"version": message.version, "force": True}
    bury = request.store.messages.bury_by_key(id.queue, id.key, error=reason, **condition)
    return await request.run(bury) is Edited.UPDATED


async def _finish(request: BrokerRequest, id: MessageId, queue_type: str, reason: str | None) -> bool:
    if queue_type == "processing" and await _leased(request, id) is None:
        return False
    return await _remove(request, id, queue_type)


_MOVES: dict[tuple[str, str], Callable[[BrokerRequest, MessageId, str, str | None], Awaitable[bool]]] = {
    ("dead", "main"): _redrive,
    ("processing", "main"): _requeue,
    ("main", "dead"): _bury,
    ("processing", "dead"): _bury,
    **{(queue_type, end): _finish for queue_type in STATES for end in ("acknowledged", "archived")},
}


async def _validated(items: list[Any]) -> list[wire.ImportedMessage]:
    if len(items) > IMPORT_LIMIT:
        detail = f"an import has at most {IMPORT_LIMIT:,} messages, got {len(items):,}"
        raise wire.problem(413, "too_large", "TOO_MANY_MESSAGES", detail)
    messages: list[wire.ImportedMessage] = []
    async for number, item in in_time_slices(enumerate(items, 1)):
        try:
            messages.append(wire.ImportedMessage.model_validate(item))
        except ValidationError as error:
            # The first error, and never the value: it may be a secret.
            first = error.errors(include_input=False)[0]
            detail = f"message {number}: {'.'.join(map(str, first['loc']))}: {first['msg']}"[:500]
            raise wire.problem(400, "invalid", "INVALID_MESSAGE", detail) from None
    return messages


async def _uploaded_file(request: BrokerRequest) -> bytes:
    """The part `file` of a form, as browsers and `curl -F file=@…` send it; otherwise the body."""
    content_type, body = request.headers.get("content-type", ""), await request.body()
    if not content_type.lower().startswith("multipart/"):
        return body
    try:
        content = file_of(content_type, body)
    except BadForm as error:
        raise wire.problem(400, "invalid", "INVALID_FORM", f"the form cannot be read: {error}") from None
    if content is None:
        raise wire.problem(400, "invalid", "NO_FILE", "the form has no file: curl -F file=@messages.json")
    return content
