"""Poll and settle."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from fastapi import APIRouter
from msgspec.structs import replace
from starlette.responses import Response

from tarry.api.leases import AsyncLeases
from tarry.api.queue import AsyncQueue
from tarry.core.errors import UnknownQueue
from tarry.core.messages.model import Failure, LeaseId
from tarry.core.messages.outcomes import Settled
from tarry.core.security.api_keys import Action
from tarry.edges.formats import exact
from tarry.edges.http.lean_routes import hot_routes
from tarry.edges.http.long_poll import long_poll
from tarry.edges.http.problems import Problem, busy, lease_lost, message_gone
from tarry.edges.http.routing import AccessRoute, BrokerRequest, Scope, Sent, needs, respond
from tarry.wire import messages as wire
from tarry.wire.ids import MessageId
from tarry.wire.payload import Content

S = TypeVar("S", LeaseId, Failure)
Settle = Callable[[AsyncLeases, list[S]], Awaitable[list[Settled]]]

router = APIRouter(prefix="/v1", tags=["deliveries"], route_class=AccessRoute)
_POLL = needs(Action.CONSUME, responses={204: {"description": "Nothing came in time"}})
_SINGLE = needs(Action.CONSUME, Scope.MESSAGE, conflicts=True)
_MANY = needs(Action.CONSUME, Scope.BODY)
_PROBLEMS = {Settled.LEASE_LOST: lease_lost, Settled.GONE: message_gone, Settled.BUSY: busy}


@router.post("/queues/{queue}/messages:poll", response_model=wire.Deliveries, **_POLL)
async def poll(request: BrokerRequest, queue: str, body: Sent[wire.PollRequest | None] = None) -> Response:
    """Lease up to `max` messages, waiting up to `wait` for the first. The lease begins when they are handed over."""
    options, longest = body or wire.PollRequest(), request.broker.settings.wait_limit
    if options.wait > longest:
        raise Problem(422, "invalid", f"wait: at most {longest.total_seconds():g} seconds")
    named = replace(options, consumer=options.consumer or request.caller.id)
    return await request.broker.in_queues([queue], partial(long_poll, request, queue, named), request.caller)


@router.post("/messages/{id}/ack", response_model=wire.Settlement, **_SINGLE)
async def ack(request: BrokerRequest, id: str, body: Sent[wire.SettleRequest]) -> Response:
    """Finish a message: it is deleted."""
    queue, lease_id = _leased(request, body)
    return _settled(await queue.leases.ack([lease_id]))


@router.post("/messages/{id}/nack", response_model=wire.Settlement, **_SINGLE)
async def nack(request: BrokerRequest, id: str, body: Sent[wire.NackRequest]) -> Response:
    """Report a failure: the message is retried later, or becomes a dead letter when its attempts are used up."""
    queue, lease_id = _leased(request, body)
    failure = Failure(lease_id, body.error, body.after)
    return _settled(await queue.leases.nack([failure], retry=body.retry and body.retry.core()))


@router.post("/messages/{id}/touch", response_model=wire.Touched, **_SINGLE)
async def touch(request: BrokerRequest, id: str, body: Sent[wire.TouchRequest]) -> Response:
    """Extend the lease, counted from now. Rejected after it has expired."""
    queue, lease_id = _leased(request, body)
    _settled(await queue.leases.touch([lease_id], body.lease_for))
    message = await queue.read(lease_id.key)
    return respond(wire.Touched(outcome="done", lease_until=None if message is None else exact(message.lease_until)))


@router.post("/messages/{id}/release", response_model=wire.Settlement, **_SINGLE)
async def release(request: BrokerRequest, id: str, body: Sent[wire.ReleaseRequest]) -> Response:
    """Give a message back: deliverable immediately or later. The attempt does not count."""
    queue, lease_id = _leased(request, body)
    return _settled(await queue.leases.release([lease_id], at=body.at, after=body.after))


@router.post("/messages/{id}/bury", response_model=wire.Settlement, **_SINGLE)
async def bury(request: BrokerRequest, id: str, body: Sent[wire.BuryRequest]) -> Response:
    """Make a message a dead letter, even if attempts are left."""
    queue, lease_id = _leased(request, body)
    return _settled(await queue.leases.bury([lease_id], body.error, reason=body.reason))


@router.post("/messages:ack", response_model=wire.SettledBatch, **_MANY)
async def ack_batch(request: BrokerRequest, body: Sent[wire.SettleBatch]) -> Response:
    """`ack` for many messages of any queues, each with its own outcome."""
    return await _settle_each(request, body, AsyncLeases.ack)


@router.post("/messages:nack", response_model=wire.SettledBatch, **_MANY)
async def nack_batch(request: BrokerRequest, body: Sent[wire.NackBatch]) -> Response:
    """`nack` for many messages."""
    retry = body.retry and body.retry.core()
    failures = [(nack.id, Failure(nack.core(), nack.error, nack.after, nack.at)) for nack in body.messages]
    return _outcomes(
        body.messages,
        await settle_by_queue(request, failures, lambda leases, items: leases.nack(items, retry=retry)),
    )


@router.post("/messages:touch", response_model=wire.SettledBatch, **_MANY)
async def touch_batch(request: BrokerRequest, body: Sent[wire.TouchBatch]) -> Response:
    """`touch` for many messages."""
    return await _settle_each(request, body, lambda leases, lease_ids: leases.touch(lease_ids, body.lease_for))


@router.post("/messages:release", response_model=wire.SettledBatch, **_MANY)
async def release_batch(request: BrokerRequest, body: Sent[wire.ReleaseBatch]) -> Response:
    """`release` for many messages."""
    return await _settle_each(
        request, body, lambda leases, lease_ids: leases.release(lease_ids, at=body.at, after=body.after)
    )


@router.post("/messages:bury", response_model=wire.SettledBatch, **_MANY)
async def bury_batch(request: BrokerRequest, body: Sent[wire.BuryBatch]) -> Response:
    """`bury` for many messages."""
    return await _settle_each(
        request, body, lambda leases, lease_ids: leases.bury(lease_ids, body.error, reason=body.reason)
    )


def _leased(request: BrokerRequest, body: wire.SettleRequest) -> tuple[AsyncQueue[Content], LeaseId]:
    name, key = request.message
    return request.broker.queue(name), LeaseId(key, body.token)


def _settled(outcomes: Sequence[Settled]) -> Response:
    (outcome,) = outcomes
    if outcome in _PROBLEMS:
        raise _PROBLEMS[outcome]()
    return respond(wire.Settlement(outcome=outcome.value))


async def _settle_each(request: BrokerRequest, body: wire.SettleBatch, settle: Settle[LeaseId]) -> Response:
    leases = [(item.id, item.core()) for item in body.messages]
    return _outcomes(body.messages, await settle_by_queue(request, leases, settle))


def _outcomes(items: Sequence[wire.Settle], outcomes: Sequence[Settled]) -> Response:
    settled = [wire.SettledOne(id=item.id, outcome=o.value) for item, o in zip(items, outcomes, strict=True)]
    return respond(wire.SettledBatch(messages=settled))


async def settle_by_queue(request: BrokerRequest, items: Sequence[tuple[str, S]], settle: Settle[S]) -> list[Settled]:
    """Settle messages of any queues, each with its id. Nothing is settled unless the caller may settle all of them."""
    by_queue: dict[str, list[int]] = defaultdict(list)
    for index, (text, _) in enumerate(items):
        if (id := MessageId.parse(text)) is not None:
            by_queue[id.queue].append(index)
    for name in by_queue:
        request.caller.require(Action.CONSUME, name)
    outcomes: list[Settled] = [Settled.GONE] * len(items)
    for name, indexes in by_queue.items():
        try:
            settled = await settle(request.broker.queue(name).leases, [items[index][1] for index in indexes])
        except UnknownQueue:
            continue  # its messages are gone, too
        for index, outcome in zip(indexes, settled, strict=True):
            outcomes[index] = outcome
    return outcomes


HOT = hot_routes(router, poll, ack, nack, touch, release, bury)
