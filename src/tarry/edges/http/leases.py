"""Poll and settle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from starlette.responses import Response

from tarry.core.errors import UnknownQueue
from tarry.core.keys import Action
from tarry.core.messages import Failure, Hold
from tarry.core.outcomes import Settled
from tarry.core.retry import Retry
from tarry.edges.http import answers, contracts
from tarry.edges.http.documented import SETTLE_ERRORS, WRITE_ERRORS
from tarry.edges.http.ids import MessageId
from tarry.edges.http.polling import long_poll
from tarry.edges.http.problems import Problem, busy, lease_lost, message_gone
from tarry.edges.http.routing import AccessRoute, Scope, access, caller_of, message_of
from tarry.edges.http.views import answer
from tarry.edges.times import exact
from tarry.handles.aio import AsyncQueue
from tarry.handles.content import Content

I = TypeVar("I", bound=contracts.Settle | contracts.Nack)  # noqa: E741

router = APIRouter(prefix="/v1", tags=["deliveries"], route_class=AccessRoute)
_ONE = access(Action.CONSUME, Scope.MESSAGE)
_MANY = access(Action.CONSUME, Scope.BODY)


@router.post(
    "/queues/{queue}/messages:poll",
    response_model=answers.Deliveries,
    responses={204: {"description": "Nothing came in time"}, **WRITE_ERRORS},
    openapi_extra=access(Action.CONSUME),
)
async def poll(request: Request, queue: str, body: contracts.PollRequest | None = None) -> Response:
    """Lease up to `max` messages, waiting up to `wait` for the first. The lease begins when they are handed over."""
    asked, broker = body or contracts.PollRequest(), request.app.state.broker
    if asked.wait > broker.settings.wait_limit:
        raise Problem(422, "invalid", f"wait: at most {broker.settings.wait_limit.total_seconds():g} seconds")
    caller = caller_of(request)
    with broker.gate.slot(caller, "polls", broker.settings.polls_per_key):
        handle = broker.queue(queue, asked.consumer or caller.id)
        return await broker.in_queue(queue, lambda: long_poll(request, broker, handle, asked), caller)


@router.post("/messages/{id}/ack", response_model=answers.SettledAnswer, responses=SETTLE_ERRORS, openapi_extra=_ONE)
async def ack(request: Request, id: str, body: contracts.SettleRequest) -> Response:
    """Finished: the message is gone."""
    queue, hold = _held(request, body)
    return _settled(await queue.ack_many([hold]))


@router.post("/messages/{id}/nack", response_model=answers.SettledAnswer, responses=SETTLE_ERRORS, openapi_extra=_ONE)
async def nack(request: Request, id: str, body: contracts.NackRequest) -> Response:
    """Failed: tried again later, or dead when its attempts are used up."""
    queue, hold = _held(request, body)
    return _settled(await queue.nack_many([Failure(hold, body.error, body.delay)], retry=_retry(body.retry)))


@router.post("/messages/{id}/touch", response_model=answers.Touched, responses=SETTLE_ERRORS, openapi_extra=_ONE)
async def touch(request: Request, id: str, body: contracts.TouchRequest) -> Response:
    """Hold it for longer, counted from now. Refused once the lease has run out."""
    queue, hold = _held(request, body)
    response = _settled(await queue.touch_many([hold], body.extend_seconds))
    found = await queue.read(hold.key)
    return response if found is None else answer({"outcome": "done", "lease_until": exact(found.lease_until)})


@router.post(
    "/messages/{id}/release", response_model=answers.SettledAnswer, responses=SETTLE_ERRORS, openapi_extra=_ONE
)
async def release(request: Request, id: str, body: contracts.ReleaseRequest) -> Response:
    """Give it back: deliverable at once or later, and the attempt does not count."""
    queue, hold = _held(request, body)
    return _settled(await queue.release_many([hold], at=body.at, after=body.delay))


@router.post("/messages/{id}/bury", response_model=answers.SettledAnswer, responses=SETTLE_ERRORS, openapi_extra=_ONE)
async def bury(request: Request, id: str, body: contracts.BuryRequest) -> Response:
    """Give it up: a dead letter, whatever attempts are left."""
    queue, hold = _held(request, body)
    return _settled(await queue.bury_many([hold], body.error, reason=body.reason))


@router.post("/messages:ack", response_model=answers.SettledBatch, responses=WRITE_ERRORS, openapi_extra=_MANY)
async def ack_batch(request: Request, body: contracts.SettleBatch) -> Response:
    """`ack` for many, of any queues, each with its own outcome."""
    return await _each(request, body.messages, lambda queue, some: queue.ack_many([_hold(one) for one in some]))


@router.post("/messages:nack", response_model=answers.SettledBatch, responses=WRITE_ERRORS, openapi_extra=_MANY)
async def nack_batch(request: Request, body: contracts.NackBatch) -> Response:
    """`nack` for many."""
    return await _each(
        request,
        body.messages,
        lambda queue, some: queue.nack_many(
            [Failure(_hold(one), one.error, one.delay) for one in some], retry=_retry(body.retry)
        ),
    )


@router.post("/messages:touch", response_model=answers.SettledBatch, responses=WRITE_ERRORS, openapi_extra=_MANY)
async def touch_batch(request: Request, body: contracts.TouchBatch) -> Response:
    """`touch` for many."""
    extend: timedelta | None = body.extend_seconds
    return await _each(
        request, body.messages, lambda queue, some: queue.touch_many([_hold(one) for one in some], extend)
    )


@router.post("/messages:release", response_model=answers.SettledBatch, responses=WRITE_ERRORS, openapi_extra=_MANY)
async def release_batch(request: Request, body: contracts.ReleaseBatch) -> Response:
    """`release` for many."""
    return await _each(
        request,
        body.messages,
        lambda queue, some: queue.release_many([_hold(one) for one in some], at=body.at, after=body.delay),
    )


@router.post("/messages:bury", response_model=answers.SettledBatch, responses=WRITE_ERRORS, openapi_extra=_MANY)
async def bury_batch(request: Request, body: contracts.BuryBatch) -> Response:
    """`bury` for many."""
    return await _each(
        request,
        body.messages,
        lambda queue, some: queue.bury_many([_hold(one) for one in some], body.error, reason=body.reason),
    )


def _retry(policy: contracts.ConsumerRetryPolicy | None) -> Retry | None:
    return None if policy is None else policy.retry(policy.max_attempts)


def _held(request: Request, body: contracts.SettleRequest) -> tuple[AsyncQueue[Content], Hold]:
    name, key = message_of(request)
    return request.app.state.broker.queue(name), Hold(key, body.lock_token)


def _settled(answers_: Sequence[Settled]) -> Response:
    outcome = answers_[0]
    if outcome is Settled.LEASE_LOST:
        raise lease_lost()
    if outcome is Settled.GONE:
        raise message_gone()
    if outcome is Settled.BUSY:
        raise busy()
    return answer({"outcome": outcome.value})


def _hold(one: contracts.Settle | contracts.Nack) -> Hold:
    """Of those whose id was read already."""
    found = MessageId.parse(one.id)
    return Hold("" if found is None else found.key, one.lock_token)


async def _each(
    request: Request,
    items: Sequence[I],
    settle: Callable[[AsyncQueue[Content], Sequence[I]], Awaitable[list[Settled]]],
) -> Response:
    """Queue by queue. Nothing is settled unless the caller may settle all of it."""
    by_queue: dict[str, list[int]] = defaultdict(list)
    for place, item in enumerate(items):
        if (found := MessageId.parse(item.id)) is not None:
            by_queue[found.queue].append(place)
    for name in by_queue:
        caller_of(request).require(Action.CONSUME, name)
    outcomes: list[Settled] = [Settled.GONE] * len(items)
    for name, places in by_queue.items():
        try:
            settled = await settle(request.app.state.broker.queue(name), [items[place] for place in places])
        except UnknownQueue:
            continue  # what is gone is gone, with its queue or without
        for place, outcome in zip(places, settled, strict=True):
            outcomes[place] = outcome
    shown: list[dict[str, Any]] = [
        {"id": item.id, "outcome": outcome.value} for item, outcome in zip(items, outcomes, strict=True)
    ]
    return answer({"messages": shown})
