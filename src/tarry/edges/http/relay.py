"""Relay's routes for producers and workers, translated onto the same verbs: moving over is changing a URL.

What Relay has broken is not imitated (docs/howto/move-from-relay.md).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request
from pydantic import Field
from starlette.responses import Response

from tarry.core.errors import UnknownQueue
from tarry.core.keys import Action
from tarry.core.messages import Draft, Failure, Hold, Message
from tarry.core.outcomes import Outcome, Settled
from tarry.edges.http import contracts
from tarry.edges.http import relay_contracts as asked
from tarry.edges.http import relay_views as views
from tarry.edges.http.ids import MessageId, storable
from tarry.edges.http.once import offer_once, once
from tarry.edges.http.pacing import Pace
from tarry.edges.http.polling import long_poll
from tarry.edges.http.problems import busy
from tarry.edges.http.routing import AccessRoute, Scope, access, caller_of, message_of
from tarry.edges.http.views import answer
from tarry.handles.aio import AsyncQueue
from tarry.handles.content import Content
from tarry.handles.drafting import fresh_key

R = TypeVar("R")
I = TypeVar("I", bound=asked.Ack | asked.NackOne)  # noqa: E741

router = APIRouter(prefix="/api/queue", route_class=AccessRoute, include_in_schema=False)
_PRODUCE = access(Action.PRODUCE, Scope.BODY)
_CONSUME = access(Action.CONSUME, Scope.BODY)
_ONE = access(Action.CONSUME, Scope.MESSAGE)
_AT_ONCE = timedelta(0)
"""A message that failed in Relay is queued again at once."""
_LONGEST_LEASE_S = 43_200

QueueName = Annotated[str, Query(pattern=contracts.NAME_PATTERN, max_length=100)]
AckTimeout = Annotated[float | None, Query(ge=1, le=_LONGEST_LEASE_S)]
Text = Annotated[str | None, Query(min_length=1, max_length=200)]


@router.post("/message", openapi_extra=_PRODUCE)
async def enqueue(request: Request, body: asked.Enqueue) -> Response:
    """201 with the id; 404 for a queue that does not exist."""
    caller_of(request).require(Action.PRODUCE, body.queue)
    key, broker = fresh_key(), request.app.state.broker

    draft = broker.drafter.draft_message(_message(key, body))

    def show(_: Outcome) -> Response:
        shown = {"message": "Message enqueued", "id": str(MessageId(body.queue, key)), "queue": body.queue}
        return answer(shown, 201)

    return await _in(broker, body.queue, lambda: offer_once(request, body.queue, draft, show))


@router.post("/batch", openapi_extra=_PRODUCE)
async def enqueue_batch(
    request: Request, body: Annotated[list[asked.Enqueue], Field(min_length=1, max_length=contracts.MOST)]
) -> Response:
    """Each into its own queue, with its own priority, time-out and attempts; with the ids, in the order given."""
    said = f"Batch processed: {len(body)}/{len(body)} messages enqueued"
    return await enqueued(request, body, lambda ids: answer({"message": said, "ids": ids}, 201))


@router.get("/message", openapi_extra=_CONSUME)
async def dequeue(
    request: Request,
    queue: QueueName = asked.DEFAULT,
    timeout: Annotated[float, Query(ge=0)] = 0,
    ackTimeout: AckTimeout = None,  # noqa: N803 - as Relay writes it
    type: Text = None,
    consumerId: Text = None,  # noqa: N803
) -> Response:
    """One message with its lock_token, or 404 when none came in `timeout` seconds (60 at most, then ask again)."""
    response = await _polled(request, queue, 1, timeout, ackTimeout, type, consumerId, views.first)
    if response.status_code == 204:
        raise views.problem(404, "nothing", "NO_MESSAGES", "no message came in time")
    return response


@router.get("/messages/batch", openapi_extra=_CONSUME)
async def dequeue_batch(
    request: Request,
    count: Annotated[int, Query(ge=1, le=asked.MOST)],
    queue: QueueName = asked.DEFAULT,
    timeout: Annotated[float, Query(ge=0)] = 0,
    ackTimeout: AckTimeout = None,  # noqa: N803
    type: Text = None,
    consumerId: Text = None,  # noqa: N803
) -> Response:
    """Up to `count` messages; none is an empty list."""
    response = await _polled(request, queue, count, timeout, ackTimeout, type, consumerId, views.batch)
    return answer({"messages": [], "count": 0}) if response.status_code == 204 else response


@router.post("/ack", openapi_extra=_CONSUME)
async def ack(request: Request, body: asked.Ack) -> Response:
    """200; 409 if the lock was lost; 400 if there is no such message any more."""
    (outcome,) = await _settled(request, [body], lambda queue, some: queue.ack_many([_hold(one) for one in some]))
    if outcome is Settled.GONE:
        raise views.not_found(400)
    if outcome is Settled.LEASE_LOST:
        raise views.lock_lost()
    return answer({"message": "Message acknowledged"})


@router.post("/ack/batch", openapi_extra=_CONSUME)
async def ack_batch(request: Request, body: asked.AckBatch) -> Response:
    outcomes = await _settled(request, body.acks, lambda queue, some: queue.ack_many([_hold(one) for one in some]))
    succeeded, failed = _told(body.acks, outcomes)
    said = f"Batch acknowledged: {len(succeeded)}/{len(outcomes)}"
    return answer({"message": said, "succeeded": succeeded, "failed": failed})


@router.post("/message/{id}/nack", openapi_extra=_ONE)
async def nack(request: Request, id: str, body: asked.Nack) -> Response:
    """Queued again at once, or dead when its attempts are used up."""
    queue, key = message_of(request)
    failure = Failure(Hold(key, body.lock_token), body.errorReason or body.error, _AT_ONCE)
    (outcome,) = await request.app.state.broker.queue(queue).nack_many([failure])
    _raise_unless_done(outcome)
    return answer({"message": "Message nacked"})


@router.post("/nack/batch", openapi_extra=_CONSUME)
async def nack_batch(request: Request, body: asked.NackBatch) -> Response:
    outcomes = await _settled(
        request,
        body.nacks,
        lambda queue, some: queue.nack_many([Failure(_hold(one), one.error, _AT_ONCE) for one in some]),
    )
    succeeded, failed = _told(body.nacks, outcomes)
    requeued = sum([await _lives(request, id) for id in succeeded])
    shown = {"succeeded": succeeded, "failed": failed, "requeued": requeued, "movedToDlq": len(succeeded) - requeued}
    return answer(shown)


@router.put("/message/{id}/touch", openapi_extra=_ONE)
async def touch(request: Request, id: str, body: asked.Touch) -> Response:
    """Locked for `extend_seconds` from now (else for as long as it was); 409 if the lock was lost, 404 if it is gone."""
    name, key = message_of(request)
    queue = request.app.state.broker.queue(name)
    (outcome,) = await queue.touch_many([Hold(key, body.lock_token)], body.extend_seconds)
    _raise_unless_done(outcome)
    found = await queue.read(key)
    until = None if found is None else views.seconds(found.lease_until)
    return answer({"message": "Lock extended", "new_timeout_at": until, "lock_token": str(body.lock_token)})


async def enqueued(
    request: Request, messages: Sequence[asked.Enqueue], show: Callable[[list[str]], Response]
) -> Response:
    """Those of each queue together; shown are their ids, in the order given."""
    broker = request.app.state.broker
    by_queue: dict[str, list[Draft]] = defaultdict(list)
    ids: list[str] = []
    pace = Pace()
    for one in messages:
        caller_of(request).require(Action.PRODUCE, one.queue)
        key = fresh_key()
        by_queue[one.queue].append(broker.drafter.draft_message(_message(key, one)))
        ids.append(str(MessageId(one.queue, key)))
        if pace.is_up:
            await pace.rest()
    for name in by_queue:  # before anything is stored
        await _in(broker, name, lambda: broker.app.queues.get(name))  # noqa: B023 - awaited before it changes

    async def offer(conn: Any) -> Response:
        for name, some in sorted(by_queue.items()):
            await broker.store.offer_many(name, some, conn=conn)
        return show(ids)

    return await once(request, offer)


async def _in(broker: Any, queue: str, do: Callable[[], Awaitable[R]]) -> R:
    """Only the default queue comes into being by itself: it is always there in Relay, and others are created."""
    return await (broker.in_queue(queue, do, None) if queue == asked.DEFAULT else do())


def _message(key: str, body: asked.Enqueue) -> Message[Content]:
    return Message(
        key=key,
        payload=body.content(),
        type=body.type,
        priority=body.priority,
        lease_for=body.ackTimeout,
        max_attempts=body.maxAttempts,
    )


async def _polled(
    request: Request,
    queue: str,
    most: int,
    timeout_s: float,
    ack_timeout_s: float | None,
    type: str | None,
    consumer: str | None,
    shown: Callable[..., Any],
) -> Response:
    broker, caller = request.app.state.broker, caller_of(request)
    caller.require(Action.CONSUME, queue)
    wanted = contracts.PollRequest.model_construct(
        max=most,
        wait=min(timedelta(seconds=min(timeout_s, 3600)), broker.settings.wait_limit),
        lease_for=None if ack_timeout_s is None else timedelta(seconds=ack_timeout_s),
        type=storable(type, "type"),
    )
    handle = broker.queue(queue, storable(consumer, "consumerId") or caller.id)
    with broker.gate.slot(caller, "polls", broker.settings.polls_per_key):
        return await _in(broker, queue, lambda: long_poll(request, broker, handle, wanted, shown))


def _hold(one: asked.Ack | asked.NackOne) -> Hold:
    found = MessageId.parse(one.id)
    return Hold("" if found is None else found.key, one.lock_token)


async def _settled(
    request: Request,
    items: Sequence[I],
    settle: Callable[[AsyncQueue[Content], Sequence[I]], Awaitable[list[Settled]]],
) -> list[Settled]:
    """Queue by queue. Nothing is settled unless the caller may settle all of it."""
    by_queue: dict[str, list[int]] = defaultdict(list)
    for place, item in enumerate(items):
        if (found := MessageId.parse(item.id)) is not None:
            caller_of(request).require(Action.CONSUME, found.queue)
            by_queue[found.queue].append(place)
    outcomes = [Settled.GONE] * len(items)
    for name, places in by_queue.items():
        try:
            settled = await settle(request.app.state.broker.queue(name), [items[place] for place in places])
        except UnknownQueue:
            continue
        for place, outcome in zip(places, settled, strict=True):
            outcomes[place] = outcome
    return outcomes


def _told(items: Sequence[I], outcomes: Sequence[Settled]) -> tuple[list[str], list[dict[str, str]]]:
    succeeded = [item.id for item, outcome in zip(items, outcomes, strict=True) if outcome is Settled.DONE]
    problems = {Settled.GONE: views.not_found(), Settled.LEASE_LOST: views.lock_lost()}
    failed = [
        {"id": item.id, "error": problems[outcome].detail, "code": problems[outcome].more["error"]}
        for item, outcome in zip(items, outcomes, strict=True)
        if outcome in problems
    ]
    return succeeded, failed


def _raise_unless_done(outcome: Settled) -> None:
    if outcome is Settled.BUSY:
        raise busy()
    if outcome is Settled.GONE:
        raise views.not_found()
    if outcome is Settled.LEASE_LOST:
        raise views.lock_lost()


async def _lives(request: Request, id: str) -> bool:
    found = MessageId.parse(id)
    return found is not None and await request.app.state.broker.store.contains(found.queue, found.key)
