"""Relay's routes for producers and workers, on the operations of /v1: a Relay client only changes its URL.

Defects of Relay are not reproduced (docs/howto/move-from-relay.md).
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from tarry.api.leases import AsyncLeases
from tarry.core.errors import UnknownQueue
from tarry.core.messages.model import Draft, Failure, LeaseId
from tarry.core.messages.outcomes import Outcome, Settled
from tarry.core.security.api_keys import Action
from tarry.core.security.idempotency import StoredResponse
from tarry.core.settings import QueueSettings
from tarry.edges.http.idempotency import offer_idempotent, response_to_store, run_idempotent
from tarry.edges.http.long_poll import Deliveries, long_poll
from tarry.edges.http.pages import in_time_slices
from tarry.edges.http.problems import busy
from tarry.edges.http.relay import wire
from tarry.edges.http.routes.leases import settle_by_queue
from tarry.edges.http.routing import AccessRoute, BrokerRequest, Scope, access, respond
from tarry.wire.ids import MessageId, storable
from tarry.wire.messages import PollRequest

R = TypeVar("R")
Show = Callable[[list[dict[str, Any]]], Mapping[str, Any]]

router = APIRouter(prefix="/api/queue", route_class=AccessRoute, include_in_schema=False)
_PRODUCE = access(Action.PRODUCE, Scope.BODY)
_CONSUME = access(Action.CONSUME, Scope.BODY)
_MESSAGE = access(Action.CONSUME, Scope.MESSAGE)
_PROBLEMS = {Settled.BUSY: busy, Settled.GONE: wire.not_found, Settled.LEASE_LOST: wire.lock_lost}


@router.post("/message", openapi_extra=_PRODUCE)
async def enqueue(request: BrokerRequest, body: wire.Enqueue) -> Response:
    """201 with the id; 404 for a queue that does not exist."""
    request.caller.require(Action.PRODUCE, body.queue)
    draft = request.broker.drafter.draft_message(body.core())

    def show(_: Outcome) -> StoredResponse:
        shown = {
            "message": "Message added successfully",
            "id": str(MessageId(body.queue, draft.key)),
            "queue": body.queue,
        }
        return response_to_store(shown, 201)

    return await with_default_queue(request, body.queue, lambda: offer_idempotent(request, body.queue, draft, show))


@router.post("/batch", openapi_extra=_PRODUCE)
async def enqueue_batch(
    request: BrokerRequest, body: Annotated[list[wire.Enqueue], Field(max_length=wire.ENQUEUE_LIMIT)]
) -> Response:
    """Enqueue messages, each with its own queue, priority, time-out and attempts. Returns their ids in the given order."""
    message = f"Batch processed: {len(body)}/{len(body)} messages enqueued"
    return await enqueue_all(request, body, lambda ids: {"message": message, "ids": ids}, status=201)


@router.get("/message", openapi_extra=_CONSUME)
async def dequeue(request: BrokerRequest, query: Annotated[wire.DequeueQuery, Query()]) -> Response:
    """One message with its lock_token, or 404 after `timeout` seconds without one (at most 60: poll again)."""
    response = await _poll(request, query, 1, lambda messages: messages[0])
    return respond({"message": "Message not found"}, 404) if response.status_code == 204 else response


@router.get("/messages/batch", openapi_extra=_CONSUME)
async def dequeue_batch(request: BrokerRequest, query: Annotated[wire.DequeueBatchQuery, Query()]) -> Response:
    """Up to `count` messages; an empty list if there are none."""

    def show(messages: list[dict[str, Any]]) -> dict[str, Any]:
        return {"messages": messages, "count": len(messages)}

    response = await _poll(request, query, query.count, show)
    return respond(show([])) if response.status_code == 204 else response


@router.post("/ack", openapi_extra=_CONSUME)
async def ack(request: BrokerRequest, body: wire.Ack) -> Response:
    """200; 409 if the lock was lost; 400 if the message no longer exists."""
    (outcome,) = await _ack_all(request, [body])
    if outcome is Settled.GONE:
        raise wire.not_found(400)
    _raise_unless_done(outcome)
    return respond({"message": "Message acknowledged"})


@router.post("/ack/batch", openapi_extra=_CONSUME)
async def ack_batch(request: BrokerRequest, body: wire.AckBatch) -> Response:
    outcomes = await _ack_all(request, body.acks)
    succeeded, failed = _results(body.acks, outcomes)
    message = f"Acknowledged {len(succeeded)} messages, {len(failed)} failed"
    return respond({"message": message, "succeeded": succeeded, "failed": failed})


@router.post("/message/{id}/nack", openapi_extra=_MESSAGE)
async def nack(request: BrokerRequest, id: str, body: wire.Nack) -> Response:
    """Queue the message again in its place, or make it a dead letter when its attempts are used up."""
    queue, key = request.message
    failure = await _failure(request, id, LeaseId(key, body.lock_token), body.errorReason or body.error)
    (outcome,) = await request.broker.queue(queue).leases.nack([failure])
    _raise_unless_done(outcome)
    return respond({"message": "Message nacked successfully"})


@router.post("/nack/batch", openapi_extra=_CONSUME)
async def nack_batch(request: BrokerRequest, body: wire.NackBatch) -> Response:
    failures = [(item.id, await _failure(request, item.id, _lease_id(item), item.error)) for item in body.nacks]
    outcomes = await settle_by_queue(request, failures, AsyncLeases.nack)
    succeeded, failed = _results(body.nacks, outcomes)
    contains = request.store.messages.contains
    requeued = [id for id in succeeded if (of := MessageId.parse(id)) and await request.run(contains(*of))]
    dead = [id for id in succeeded if id not in requeued]
    message = f"NACKed {len(succeeded)} messages, {len(failed)} failed"
    return respond(
        {"message": message, "succeeded": succeeded, "failed": failed, "requeued": requeued, "movedToDlq": dead}
    )


@router.put("/message/{id}/touch", openapi_extra=_MESSAGE)
async def touch(request: BrokerRequest, id: str, body: wire.Touch) -> Response:
    """Lock the message for `extend_seconds` from now, by default for as long as before. 409 if the lock was lost, 404 if the
    message no longer exists."""
    name, key = request.message
    queue = request.broker.queue(name)
    (outcome,) = await queue.leases.touch([LeaseId(key, body.lock_token)], body.extend_seconds)
    _raise_unless_done(outcome)
    message = await queue.read(key)
    until = None if message is None else wire.seconds(message.lease_until)
    return respond(
        {"message": "Lock extended successfully", "new_timeout_at": until, "lock_token": str(body.lock_token)}
    )


async def enqueue_all(
    request: BrokerRequest,
    messages: Sequence[wire.Enqueue],
    show: Callable[[list[str]], Mapping[str, Any]],
    status: int = 200,
) -> Response:
    """Offer messages to any number of queues. `show` gets their ids in the given order."""
    by_queue: dict[str, list[Draft]] = defaultdict(list)
    ids: list[str] = []
    async for message in in_time_slices(messages):
        request.caller.require(Action.PRODUCE, message.queue)
        by_queue[message.queue].append(draft := request.broker.drafter.draft_message(message.core()))
        ids.append(str(MessageId(message.queue, draft.key)))
    for name in by_queue:  # before anything is stored
        await with_default_queue(request, name, lambda name=name: request.queues.get(name))

    async def offer(conn: Any) -> list[str]:
        for name, drafts in sorted(by_queue.items()):
            await request.run(request.store.messages.offer_many(name, drafts), conn=conn)
        return ids

    return await run_idempotent(request, offer, show, status)


async def with_default_queue(request: BrokerRequest, queue: str, do: Callable[[], Awaitable[R]]) -> R:
    """Run `do`, creating the default queue if necessary: it always exists in Relay. Other queues are created explicitly."""
    if queue != wire.DEFAULT_QUEUE:
        return await do()
    return await request.broker.in_queues([queue], do, None, QueueSettings.for_relay())


async def _poll(request: BrokerRequest, query: wire.DequeueQuery, most: int, show: Show) -> Response:
    request.caller.require(Action.CONSUME, query.queue)
    poll = PollRequest(
        max=most,
        wait=min(timedelta(seconds=min(query.timeout, 3600)), request.broker.settings.wait_limit),
        lease_for=None if query.ackTimeout is None else timedelta(seconds=query.ackTimeout),
        type=storable(query.type, "type"),
        consumer=storable(query.consumerId, "consumerId"),
    )

    async def show_all(queue: str, deliveries: Deliveries) -> Mapping[str, Any]:
        """Deliveries with the fields that Tarry's poll does not read because workers rarely need them."""
        read = request.store.messages.read
        stored = [await request.run(read(queue, delivery.key)) for delivery in deliveries]
        return show([wire.delivery(queue, *each, query.consumerId) for each in zip(deliveries, stored, strict=True)])

    return await with_default_queue(request, query.queue, lambda: long_poll(request, query.queue, poll, show_all))


async def _failure(request: BrokerRequest, id: str, lease_id: LeaseId, error: str | None) -> Failure:
    """A failure that keeps the due time: Relay orders by creation, so a failed message keeps its place."""
    message = MessageId.parse(id)
    with suppress(UnknownQueue):
        if message is not None and request.caller.allows(Action.CONSUME, message.queue):
            stored = await request.run(request.store.messages.read(*message))
            if stored is not None:
                return Failure(lease_id, error, due_at=stored.due_at)
    return Failure(lease_id, error, timedelta(0))


def _ack_all(request: BrokerRequest, items: Sequence[wire.Ack]) -> Awaitable[list[Settled]]:
    return settle_by_queue(request, [(item.id, _lease_id(item)) for item in items], AsyncLeases.ack)


def _lease_id(item: wire.Ack) -> LeaseId:
    id = MessageId.parse(item.id)
    return LeaseId("" if id is None else id.key, item.lock_token)


def _results(items: Sequence[wire.Ack], outcomes: Sequence[Settled]) -> tuple[list[str], list[dict[str, str]]]:
    """The settled ids, and the failed ids with their problems."""
    succeeded: list[str] = []
    failed: list[dict[str, str]] = []
    for item, outcome in zip(items, outcomes, strict=True):
        if outcome is Settled.DONE:
            succeeded.append(item.id)
        elif outcome is not Settled.BUSY:
            problem = _PROBLEMS[outcome]()
            failed.append({"id": item.id, "error": problem.detail, "code": problem.more["error"]})
    return succeeded, failed


def _raise_unless_done(outcome: Settled) -> None:
    if outcome in _PROBLEMS:
        raise _PROBLEMS[outcome]()
