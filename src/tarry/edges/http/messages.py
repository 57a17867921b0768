"""Messages: offer, browse, inspect, tell their life."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from tarry.core import limits
from tarry.core.events import Event
from tarry.core.keys import Action
from tarry.core.messages import Filter, Message, Place, StoredMessage
from tarry.core.outcomes import Outcome
from tarry.core.retry import Retry
from tarry.core.states import State
from tarry.core.why import why_not_delivered
from tarry.edges.http import answers, contracts, views
from tarry.edges.http.documented import READ_ERRORS, SETTLE_ERRORS
from tarry.edges.http.ids import PLACE, MessageId, parse_place, show_place, storable
from tarry.edges.http.once import ONCE, offer_once, once
from tarry.edges.http.pacing import paced
from tarry.edges.http.pages import bounded
from tarry.edges.http.problems import message_gone
from tarry.edges.http.routing import AccessRoute, Scope, access, caller_of, message_of
from tarry.edges.http.views import answer
from tarry.edges.times import exact
from tarry.handles.content import Content
from tarry.handles.drafting import fresh_key

router = APIRouter(prefix="/v1", tags=["messages"], route_class=AccessRoute)
_PRODUCE = access(Action.PRODUCE) | ONCE
_READ = access(Action.READ)
_READ_MESSAGE = access(Action.READ, Scope.MESSAGE)


@router.post(
    "/queues/{queue}/messages",
    status_code=201,
    response_model=answers.Offered,
    responses={200: {"model": answers.Offered, "description": "The key was live: updated or ignored"}, **SETTLE_ERRORS},
    openapi_extra=_PRODUCE,
)
async def offer(request: Request, queue: str, body: contracts.OfferRequest) -> Response:
    """Keep a message until it is due: now, `at` an instant, or after a `delay`. A queue that is new is made."""
    key, broker = body.key or fresh_key(), request.app.state.broker
    name, draft = limits.check_queue_name(queue), broker.drafter.draft_message(offered_message(body, key))

    def show(outcome: Outcome) -> Response:
        return answer(_offered(name, key, outcome), 201 if outcome is Outcome.CREATED else 200)

    return await broker.in_queue(name, lambda: offer_once(request, name, draft, show), caller_of(request))


@router.post(
    "/queues/{queue}/messages:batch",
    response_model=answers.OfferedBatch,
    responses=SETTLE_ERRORS,
    openapi_extra=_PRODUCE,
)
async def offer_batch(request: Request, queue: str, body: contracts.OfferBatch) -> Response:
    """All or nothing, with an outcome for each in the order given."""
    keys, broker = [item.key or fresh_key() for item in body.messages], request.app.state.broker
    messages = [offered_message(item, key) for item, key in zip(body.messages, keys, strict=True)]

    async def offer_all(conn: Any) -> Response:
        outcomes = await broker.queue(queue).offer_many(messages, conn=conn)
        return answer({"messages": [_offered(queue, key, o) for key, o in zip(keys, outcomes, strict=True)]})

    return await broker.in_queue(queue, lambda: once(request, offer_all), caller_of(request))


@router.get("/queues/{queue}/messages", response_model=answers.Messages, responses=READ_ERRORS, openapi_extra=_READ)
async def browse(
    request: Request,
    queue: str,
    state: Literal["delayed", "ready", "leased"] | None = None,
    type: Annotated[str | None, Query(max_length=100)] = None,
    priority: Annotated[int | None, Query(ge=0, le=9)] = None,
    key_prefix: Annotated[str | None, Query(max_length=200)] = None,
    limit: Annotated[int, Query(ge=1, le=contracts.MOST)] = 100,
    after: Annotated[str | None, Query(pattern=PLACE, description="`next` of the page before.")] = None,
) -> Response:
    """Live messages in due order. Each page looks through 10,000 messages of each priority to find what it shows."""
    broker = request.app.state.broker
    await broker.app.queues.get(queue)
    place = None if after is None else parse_place(after)
    wanted = Filter(
        after=place, type=storable(type, "type"), priority=priority, key_prefix=storable(key_prefix, "key_prefix")
    )

    def read(behind: Place | None, n: int) -> Awaitable[list[StoredMessage[bytes]]]:
        chosen = None if state is None else State(state)
        return broker.store.messages(queue, state=chosen, limit=n, filter=replace(wanted, after=behind))

    found, last = await bounded(
        read,
        lambda one: Place(one.due_at, one.version),
        start=place,
        limit=limit,
        most_bytes=broker.settings.page_bytes,
    )
    following = None if last is None else show_place(last)
    return answer({"messages": await paced(views.message, found), "next": following})


@router.get("/messages/{id}", response_model=answers.Message, responses=READ_ERRORS, openapi_extra=_READ_MESSAGE)
async def inspect(request: Request, id: str) -> Response:
    """One live message. It leases nothing."""
    return answer(views.message(await _found(request)))


@router.get(
    "/messages/{id}/timeline", response_model=answers.Timeline, responses=READ_ERRORS, openapi_extra=_READ_MESSAGE
)
async def timeline(
    request: Request,
    id: str,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1_000,
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1, description="`next` of the page before.")] = None,
) -> Response:
    """What happened to this key, oldest first, also after its end; as far back as the journal goes.

    The first page has the newest events. A page ends early when its payloads reach 8 MiB."""
    queue, key = message_of(request)
    broker = request.app.state.broker
    await broker.app.queues.get(queue)

    async def read(before: int | None, n: int) -> list[Event]:
        return (await broker.store.timeline(queue, key, limit=n, before=before))[::-1]

    events, last = await bounded(
        read, lambda one: one.id, start=before, limit=limit, most_bytes=broker.settings.page_bytes
    )
    return answer({"events": [views.event(one) for one in reversed(events)], "next": last})


@router.get("/messages/{id}/why", response_model=answers.Why, responses=READ_ERRORS, openapi_extra=_READ_MESSAGE)
async def why(request: Request, id: str) -> Response:
    """Why it is not delivered yet."""
    broker = request.app.state.broker
    found = await _found(request)
    info = await broker.app.queues.get(found.queue)
    said = why_not_delivered(found, info, await broker.store.now())
    return answer(
        {
            "state": found.state.value,
            "deliverable": said.deliverable,
            "reasons": list(said.reasons),
            "deliverable_at": exact(said.deliverable_at),
        }
    )


async def _found(request: Request) -> Any:
    queue, key = message_of(request)
    broker = request.app.state.broker
    await broker.app.queues.get(queue)
    found = await broker.store.read(queue, key)
    if found is None:
        raise message_gone()
    return found


def offered_message(body: contracts.OfferRequest, key: str) -> Message[Content]:
    return Message(
        payload=content_of(body),
        key=key,
        at=body.at,
        after=body.delay,
        priority=body.priority,
        type=body.type,
        headers=body.headers,
        lease_for=body.lease_for,
        max_attempts=body.max_attempts,
        retry=_retry(body),
        conflict=body.conflict(),
    )


def content_of(body: contracts.OfferRequest | contracts.EditRequest) -> Content:
    if body.payload_base64 is None:
        return Content.of_value(body.payload)
    return Content.of_base64(body.payload_base64, body.content_type or "application/octet-stream")


def _retry(body: contracts.OfferRequest) -> Retry | None:
    return None if body.retry is None else body.retry.retry()


def _offered(queue: str, key: str, outcome: Outcome) -> dict[str, Any]:
    return {"id": str(MessageId(queue, key)), "key": key, "outcome": outcome.value}
