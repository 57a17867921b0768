"""Queues: create, list, edit, pause, purge, delete."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from tarry.core.security.api_keys import Action
from tarry.core.settings import QueueSettings
from tarry.edges.http.idempotency import IDEMPOTENT, run_idempotent
from tarry.edges.http.problems import Problem
from tarry.edges.http.queries import CountTo, Limit
from tarry.edges.http.routing import AccessRoute, BrokerRequest, Scope, Sent, needs, respond
from tarry.wire import queues as wire

router = APIRouter(prefix="/v1", tags=["queues"], route_class=AccessRoute)
NAME = r"^[A-Za-z0-9._-]{1,100}$"
_ADMIN = needs(Action.ADMIN)
_ADMIN_IDEMPOTENT = needs(Action.ADMIN, extra=IDEMPOTENT)
_CREATE = needs(Action.ADMIN, Scope.BODY, IDEMPOTENT, responses={200: {"model": wire.Queue}})


@router.post("/queues", status_code=201, response_model=wire.Queue, **_CREATE)
async def create_queue(request: BrokerRequest, body: Sent[wire.QueueRequest]) -> Response:
    """Create a queue. With `exist_ok`, an existing queue is left unchanged (200)."""
    request.caller.require(Action.ADMIN, body.name)
    settings = QueueSettings(**body.changes())
    if body.exist_ok:
        before = {info.name for info in await request.queues.list()}
        info = await request.queues.create(body.name, settings, exist_ok=True)
        return respond(wire.Queue.of(info), 200 if body.name in before else 201)
    return await run_idempotent(
        request, lambda conn: request.queues.create(body.name, settings, conn=conn), wire.Queue.of, status=201
    )


@router.get("/queues", response_model=wire.Queues, **needs(Action.READ, Scope.LISTED))
async def list_queues(
    request: BrokerRequest,
    limit: Limit = 100,
    after: Annotated[str | None, Query(pattern=NAME, description="`next` of the page before.")] = None,
) -> Response:
    """The queues that this key may read, by name, with counts that stop at 1,000."""
    infos = [info for info in await request.broker.queues_of(request.caller) if after is None or info.name > after]
    page, counts = infos[:limit], request.queues.counts
    shown = [wire.CountedQueue.of_counted(info, await counts(info.name, limit=1_000)) for info in page]
    return respond(wire.Queues(queues=shown, next=page[-1].name if len(infos) > limit else None))


@router.get("/queues/{queue}", response_model=wire.CountedQueue, **needs(Action.READ))
async def show_queue(request: BrokerRequest, queue: str, count_to: CountTo = 10_000) -> Response:
    """Settings and counts of a queue. Counting stops at `count_to`."""
    info = await request.queues.get(queue)
    return respond(wire.CountedQueue.of_counted(info, await request.queues.counts(queue, limit=count_to)))


@router.patch("/queues/{queue}", response_model=wire.Queue, **_ADMIN)
async def edit_queue(request: BrokerRequest, queue: str, body: Sent[wire.QueueChanges]) -> Response:
    """Change the given settings. The others stay."""
    return respond(wire.Queue.of(await request.queues.edit(queue, **body.changes())))


@router.delete("/queues/{queue}", response_model=wire.Deleted, **_ADMIN)
async def delete_queue(request: BrokerRequest, queue: str, force: bool = False) -> Response:  # noqa: FBT001, FBT002 - of the query
    """Delete a queue. Refused (409) while it has messages, including dead letters, unless forced."""
    await request.queues.delete(queue, force=force)
    return respond(wire.Deleted(queue=queue, deleted=True))


@router.post("/queues/{queue}/pause", response_model=wire.Queue, **_ADMIN)
async def pause_queue(request: BrokerRequest, queue: str, body: Sent[wire.ReasonRequest | None] = None) -> Response:
    """Stop deliveries. Offers are still accepted, and leased messages may be settled."""
    info = await request.queues.pause(queue, reason=body and body.reason)
    return respond(wire.Queue.of(info))


@router.post("/queues/{queue}/resume", response_model=wire.Queue, **_ADMIN)
async def resume_queue(request: BrokerRequest, queue: str) -> Response:
    """Resume deliveries."""
    return respond(wire.Queue.of(await request.queues.resume(queue)))


@router.post("/queues/{queue}/rename", response_model=wire.Queue, **_ADMIN_IDEMPOTENT)
async def rename_queue(request: BrokerRequest, queue: str, body: Sent[wire.RenameRequest]) -> Response:
    """Rename a queue with its messages and history. The key needs the right on the new name too."""
    request.caller.require(Action.ADMIN, body.new_name)
    queues = request.queues
    return await run_idempotent(request, lambda conn: queues.rename(queue, body.new_name, conn=conn), wire.Queue.of)


@router.post("/queues/{queue}/purge", response_model=wire.Purged, **_ADMIN_IDEMPOTENT)
async def purge_queue(request: BrokerRequest, queue: str, body: Sent[wire.PurgeRequest]) -> Response:
    """Remove every live message: delayed, ready and leased. Dead letters stay."""
    if body.confirm != queue:
        raise Problem(409, "invalid_state", "the confirmation is not the name of the queue; nothing was removed")
    return await run_idempotent(
        request,
        lambda conn: request.run(request.store.messages.purge(queue), conn=conn),
        lambda purged: wire.Purged(purged=purged),
    )
