"""Messages: offer, list, read, edit, drop. Editing a leased message has to be forced."""

from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from tarry.core import limits
from tarry.core.messages.explain import Why, why_not_delivered
from tarry.core.messages.model import Filter, StoredMessage
from tarry.core.messages.outcomes import Edited, Outcome
from tarry.core.messages.states import State
from tarry.core.security.api_keys import Action
from tarry.core.security.idempotency import StoredResponse
from tarry.edges.http import pages
from tarry.edges.http.idempotency import IDEMPOTENT, offer_idempotent, response_to_store, run_idempotent
from tarry.edges.http.lean_routes import hot_routes
from tarry.edges.http.problems import Problem, message_gone
from tarry.edges.http.queries import After, Before, Limit
from tarry.edges.http.routing import AccessRoute, BrokerRequest, Scope, Sent, needs, respond
from tarry.wire import events
from tarry.wire import messages as wire
from tarry.wire.base import data_of
from tarry.wire.ids import parse_position, position_text, storable
from tarry.wire.openapi import value_model

router = APIRouter(prefix="/v1", tags=["messages"], route_class=AccessRoute)
_READ = needs(Action.READ, Scope.MESSAGE)
_EDIT = needs(Action.PRODUCE, Scope.MESSAGE, conflicts=True)
_UPDATED = {200: {"model": wire.Offered, "description": "The key was live: updated or ignored"}}
_OFFER = needs(Action.PRODUCE, extra=IDEMPOTENT, conflicts=True, responses=_UPDATED)
_OFFER_BATCH = needs(Action.PRODUCE, extra=IDEMPOTENT, conflicts=True)
Version = Annotated[
    int | None, Query(ge=1, le=2**63 - 1, description="Only if this is still the version of the message.")
]
Force = Annotated[bool, Query(description="Also if it is leased: the lease is then lost.")]
UnlessLeased = Annotated[bool, Query(description="Only if it is not leased; else a lease on it is lost.")]


@router.post("/queues/{queue}/messages", status_code=201, response_model=wire.Offered, **_OFFER)
async def offer(request: BrokerRequest, queue: str, body: Sent[wire.OfferRequest]) -> Response:
    """Keep a message until it is due: now, `at` an instant, or `after` a while. An unknown queue is created."""
    name, draft = limits.check_queue_name(queue), request.broker.drafter.draft_message(body.core())

    def show(outcome: Outcome) -> StoredResponse:
        return response_to_store(wire.Offered.of(name, draft.key, outcome), 201 if outcome is Outcome.CREATED else 200)

    return await request.broker.in_queues([name], lambda: offer_idempotent(request, name, draft, show), request.caller)


@router.post("/queues/{queue}/messages:batch", response_model=wire.OfferedBatch, **_OFFER_BATCH)
async def offer_batch(request: BrokerRequest, queue: str, body: Sent[wire.OfferBatch]) -> Response:
    """Offer many messages, all or none. Returns an outcome for each, in the given order."""
    name = limits.check_queue_name(queue)
    drafts = request.broker.drafter.draft_messages(item.core() for item in body.messages)
    offers = request.store.messages.offer_many(name, drafts)

    def show(outcomes: list[Outcome]) -> wire.OfferedBatch:
        offered = zip(drafts, outcomes, strict=True)
        return wire.OfferedBatch(messages=[wire.Offered.of(name, draft.key, outcome) for draft, outcome in offered])

    run = partial(run_idempotent, request, partial(request.run, offers), show)
    return await request.broker.in_queues([name], run, request.caller)


@router.get("/queues/{queue}/messages", response_model=wire.Messages, **needs(Action.READ))
async def list_messages(
    request: BrokerRequest,
    queue: str,
    state: Literal["delayed", "ready", "leased"] | None = None,
    type: Annotated[str | None, Query(max_length=100)] = None,
    priority: Annotated[int | None, Query(ge=0, le=9)] = None,
    key_prefix: Annotated[str | None, Query(max_length=200)] = None,
    limit: Limit = 100,
    after: After = None,
) -> Response:
    """Live messages in due order. Each page scans up to 10,000 messages of each priority for matches."""
    chosen = None if state is None else State(state)
    filter = Filter(type=storable(type, "type"), priority=priority, key_prefix=storable(key_prefix, "key_prefix"))
    messages, last = await pages.bounded(
        *pages.live_messages(request.store, queue, chosen, filter),
        start=None if after is None else parse_position(after),
        limit=limit,
        most_bytes=request.broker.settings.page_bytes,
    )
    next_page = None if last is None else position_text(last)
    return respond(wire.Messages(messages=await pages.paced(wire.Message.of, messages), next=next_page))


@router.get("/messages/{id}", response_model=wire.Message, **_READ)
async def read(request: BrokerRequest, id: str) -> Response:
    """Read one live message without leasing it."""
    return respond(wire.Message.of(await _read(request)))


@router.get("/messages/{id}/timeline", response_model=events.Timeline, **_READ)
async def timeline(
    request: BrokerRequest, id: str, limit: Annotated[int, Query(ge=1, le=10_000)] = 1_000, before: Before = None
) -> Response:
    """The events of this key, oldest first, as far back as the journal goes; also after the message is finished.

    The first page has the newest events. A page ends early when its payloads reach 8 MiB."""
    queue, key = request.message
    size = request.broker.settings.page_bytes
    newest, last = await pages.bounded(
        *pages.timeline(request.store, queue, key), start=before, limit=limit, most_bytes=size
    )
    return respond(events.Timeline(events=[events.Event.of(event) for event in reversed(newest)], next=last))


@router.get("/messages/{id}/why", response_model=value_model(Why, "Why"), **_READ)
async def why(request: BrokerRequest, id: str) -> Response:
    """Why a message is not delivered yet."""
    message = await _read(request)
    info = await request.queues.get(message.queue)
    now, workers = await request.broker.now(), await request.run(request.store.workers.list())
    return respond(data_of(why_not_delivered(message, info, now, workers)))


async def _read(request: BrokerRequest) -> StoredMessage[Any]:
    queue, key = request.message
    message = await request.run(request.store.messages.read(queue, key))
    if message is None:
        raise message_gone()
    return message


@router.patch("/messages/{id}", response_model=wire.Edited, **_EDIT)
async def edit(
    request: BrokerRequest, id: str, body: Sent[wire.EditRequest], *, version: Version = None, force: Force = False
) -> Response:
    """Change the given fields of a live message. Other fields and the number of attempts stay."""
    queue, key = request.message
    outcome = await request.broker.queue(queue).edit(key, version=version, force=force, **body.changes())
    if outcome in (Edited.UPDATED, Edited.IGNORED):
        return respond(wire.Edited(id=id, key=key, outcome=outcome.value))
    raise _PROBLEMS[outcome]()


@router.delete("/messages/{id}", response_model=wire.Dropped, **_EDIT)
async def drop(
    request: BrokerRequest, id: str, *, version: Version = None, unless_leased: UnlessLeased = False
) -> Response:
    """Remove a live message, leased or not."""
    queue, key = request.message
    if await request.run(request.store.messages.drop(queue, key, version=version, unless_leased=unless_leased)):
        return respond(wire.Dropped(dropped=1))
    message = await _read(request)
    if version not in (None, message.version):
        raise _changed()
    raise _leased("without unless_leased") if unless_leased else message_gone()


def _leased(override: str = "?force=true") -> Problem:
    hint = f"wait until it is settled, or take it from its consumer: {override}"
    return Problem(409, "leased", "this message is leased, so it was not changed", hint=hint)


def _changed() -> Problem:
    return Problem(409, "changed", "it is no longer this version", hint="look at it again: GET /v1/messages/{id}")


_PROBLEMS = {Edited.LEASED: _leased, Edited.CHANGED: _changed, Edited.GONE: message_gone}

HOT = hot_routes(router, offer)
