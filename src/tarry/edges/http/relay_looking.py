"""Relay's routes for looking at messages: by place, by date, all at once, as a file.

Relay has every message in one table; here what waits, is worked on or is dead is walked page by page, and what is finished
is in the journal. A look goes through so many messages and so many bytes, whoever asks for more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import Response

from tarry.core.errors import UnknownQueue
from tarry.core.keys import Action
from tarry.core.messages import DeadLetter, Filter, Place, StoredMessage
from tarry.core.redriving import EVERY_LETTER, DeadFilter, DeadPlace
from tarry.core.states import State
from tarry.edges.http import contracts
from tarry.edges.http import relay_views as views
from tarry.edges.http.gate import unauthorized
from tarry.edges.http.ids import storable
from tarry.edges.http.pages import SLICE, size_of, slices
from tarry.edges.http.problems import Problem
from tarry.edges.http.relay import QueueName, Text
from tarry.edges.http.routing import AccessRoute, Scope, access, caller_of
from tarry.edges.http.transfer import Export
from tarry.edges.http.views import answer

Found = StoredMessage[bytes] | DeadLetter[bytes]

router = APIRouter(prefix="/api/queue", route_class=AccessRoute, include_in_schema=False)
_LISTED = access(Action.READ, Scope.LISTED)
LOOKED = 10_000
"""As deep as pages go: /v1 has a place to go on from instead of numbers."""
_SHOWN_OF_EACH = 1_000
STATES = {"main": (State.READY, State.DELAYED), "processing": (State.LEASED,), "dead": ()}
_PAGED = {"page", "limit", "sortBy", "sortOrder"}
_FILTERS = {"queueName", "filterType", "filterPriority", "filterAttempts", "startDate", "endDate", "search"}
_SORTS: dict[str, Callable[[Found], Any]] = {
    "created_at": views.created_at,
    "priority": lambda one: one.priority,
    "attempt_count": lambda one: one.attempt,
    "type": lambda one: one.type or "",
    "id": lambda one: (one.queue, one.key),
}
Moment = Annotated[str | None, Query(max_length=40)]


@dataclass(frozen=True, slots=True)
class Sought:
    """Which messages; what is not said does not matter."""

    types: frozenset[str] = frozenset()
    priority: int | None = None
    attempts: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None

    def admits(self, one: Found) -> bool:
        at = views.created_at(one)
        return (
            (not self.types or one.type in self.types)
            and self.priority in (None, one.priority)
            and (self.attempts is None or one.attempt >= self.attempts)
            and (self.since is None or at >= self.since)
            and (self.until is None or at <= self.until)
            and (self.text is None or self.text in views.searched(one))
        )


def sought(
    filterType: Annotated[str | None, Query(max_length=2_000, description="A list with commas.")] = None,  # noqa: N803 - as Relay writes it
    filterPriority: Annotated[int | None, Query(ge=0, le=9)] = None,  # noqa: N803
    filterAttempts: Annotated[int | None, Query(ge=0, le=2**31)] = None,  # noqa: N803
    startDate: Moment = None,  # noqa: N803
    endDate: Moment = None,  # noqa: N803
    search: Text = None,
) -> Sought:
    types = (one.strip() for one in (storable(filterType, "filterType") or "").split(","))
    return Sought(
        frozenset(one for one in types if one and one != "all"),
        filterPriority,
        filterAttempts,
        _instant(startDate),
        _instant(endDate),
        None if search is None else search.lower(),
    )


Which = Annotated[Sought, Depends(sought)]


@router.get("/status", openapi_extra=_LISTED)
async def status(
    request: Request,
    include_messages: str = "true",
    queueName: QueueName | None = None,  # noqa: N803
) -> Response:
    """How many wait, are worked on and are dead, with the first of each. What is finished is no message any more."""
    names = await _named(request, queueName)
    lengths, types = await counted(request, names), set[str]()
    groups: dict[str, Any] = {}
    for place, name in (("main", "mainQueue"), ("processing", "processingQueue"), ("dead", "deadLetterQueue")):
        found = await _gathered(_walked(request, names, place, Sought(), most=LOOKED), _SHOWN_OF_EACH, _share(request))
        types |= {one.type for one in found if one.type is not None}
        shown = [views.found(one) for one in found] if include_messages != "false" else []
        groups[name] = {"name": place, "length": lengths[place], "messages": shown}
    for place in ("acknowledged", "archived"):
        groups[f"{place}Queue"] = {"name": place, "length": 0, "messages": []}
    said = {**groups, "metadata": {"totalFailed": lengths["dead"]}, "availableTypes": sorted(types)}
    return answer(said)


@router.get("/messages", openapi_extra=_LISTED)
async def by_date(
    request: Request,
    startTimestamp: Annotated[str, Query(max_length=40)],  # noqa: N803
    endTimestamp: Annotated[str, Query(max_length=40)],  # noqa: N803
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> Response:
    """What was made between two instants and is not finished, the newest first."""
    wanted = Sought(since=contracts.instant(startTimestamp), until=contracts.instant(endTimestamp))
    names, found = await _named(request, None), list[Found]()
    for place in STATES:
        found += await _gathered(_walked(request, names, place, wanted, most=LOOKED), LOOKED, _share(request))
    found.sort(key=views.created_at, reverse=True)
    return Response(msgspec.json.encode([views.found(one) for one in found[:limit]]), media_type="application/json")


@router.get("/{queueType}/messages", openapi_extra=_LISTED)
async def browse(
    request: Request,
    queueType: str,  # noqa: N803
    wanted: Which,
    queueName: QueueName | None = None,  # noqa: N803
    page: Annotated[int, Query(ge=1)] = 1,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
    sortBy: Literal["created_at", "priority", "attempt_count", "type", "id"] = "created_at",  # noqa: N803
    sortOrder: Annotated[str, Query(pattern="^(?i:asc|desc)$")] = "desc",  # noqa: N803
) -> Response:
    """What waits (`main`), is being worked on (`processing`), or is `dead`, a page at a time."""
    _only(request, _FILTERS | _PAGED)
    if page * limit > LOOKED:
        raise _too_far(f"{LOOKED:,} messages")
    place, names = placed(queueType), await _named(request, queueName)
    most_bytes = request.app.state.broker.settings.page_bytes
    found = await _gathered(_walked(request, names, place, wanted, most=LOOKED), LOOKED, most_bytes)
    if (page - 1) * limit >= len(found) and size_of(found) >= most_bytes:
        raise _too_far(f"{len(found):,} messages, whose payloads have {most_bytes:,} bytes")
    found.sort(key=_SORTS[sortBy], reverse=sortOrder.lower() == "desc")
    total = len(found) if wanted != Sought() else max(len(found), (await counted(request, names))[place])
    rows = [views.found(one) for one in found[(page - 1) * limit : page * limit]]
    more = page * limit < total
    pages = {"total": total, "page": page, "limit": limit, "totalPages": -(-total // limit), "hasMore": more}
    return answer({"messages": rows, "pagination": pages})


@router.get("/{queueType}/export", openapi_extra=_LISTED)
async def export(request: Request, queueType: str, wanted: Which, queueName: QueueName | None = None) -> Response:  # noqa: N803
    """All of them as a file that an import takes, however many there are."""
    _only(request, _FILTERS)
    broker, caller, place = request.app.state.broker, caller_of(request), placed(queueType)
    names, at = await _named(request, queueName), await broker.store.now()
    file = f"{place}-queue-export-{at:%Y-%m-%dT%H-%M-%S}.json"
    slot = broker.gate.slot(caller, "exports", broker.settings.streams_per_key)
    headers = {"content-disposition": f'attachment; filename="{file}"'}
    return Export(_lines(request, _walked(request, names, place, wanted)), slot, "application/json", headers)


async def counted(request: Request, names: Sequence[str]) -> dict[str, int]:
    """Each queue up to 10,000."""
    sums = dict.fromkeys(STATES, 0)
    for name in names:
        try:
            found = await request.app.state.broker.app.queues.counts(name)
        except UnknownQueue:
            continue  # deleted since it was listed
        sums["main"] += found.delayed.n + found.ready.n
        sums["processing"] += found.leased.n
        sums["dead"] += found.dead.n
    return sums


def placed(queue_type: str) -> str:
    if queue_type not in STATES:
        raise Problem(
            422,
            "invalid",
            "queueType is main, processing or dead: what is finished is in the journal",
            hint="GET /v1/messages/{id}/timeline",
        )
    return queue_type


async def readable(request: Request, action: Action = Action.READ) -> list[str]:
    infos, caller = await request.app.state.broker.app.queues.list(), caller_of(request)
    return [info.name for info in infos if caller.allows(action, info.name)]


async def pages(store: Any, queue: str, place: str) -> AsyncIterator[Sequence[Found]]:
    """What is in this place now, each page as it is by then."""
    if place == "dead":
        async for page in dead_pages(store, queue):
            yield page
        return
    only = State.LEASED if place == "processing" else None

    def read(after: Place | None, n: int) -> Awaitable[list[StoredMessage[bytes]]]:
        return store.messages(queue, state=only, limit=n, filter=Filter(after=after))

    async for page in slices(read, lambda one: Place(one.due_at, one.version)):
        yield [one for one in page if one.state in STATES[place]]


def dead_pages(store: Any, queue: str, where: DeadFilter = EVERY_LETTER) -> AsyncIterator[Sequence[DeadLetter[bytes]]]:
    """The newest first."""

    def read(before: DeadPlace | None, n: int) -> Awaitable[list[DeadLetter[bytes]]]:
        return store.dead_letters(queue, where=where, limit=n, before=before)

    return slices(read, lambda one: DeadPlace(one.died_at, one.version))


async def _walked(
    request: Request, names: Sequence[str], place: str, wanted: Sought, *, most: int | None = None
) -> AsyncIterator[Sequence[Found]]:
    """`most`: goes through so many, wanted or not, give or take a page."""
    looked = 0
    for name in names:
        try:
            async for page in pages(request.app.state.broker.store, name, place):
                yield [one for one in page if wanted.admits(one)]
                looked += max(len(page), SLICE)  # a page may have none that are in this place
                if most is not None and looked >= most:
                    return
        except UnknownQueue:
            continue  # deleted since it was listed


async def _gathered(found: AsyncIterator[Sequence[Found]], most: int, most_bytes: int) -> list[Found]:
    gathered, size = list[Found](), 0
    async for page in found:
        for one in page:
            gathered.append(one)
            size += len(one.payload)
            if len(gathered) >= most or size >= most_bytes:
                return gathered
    return gathered


async def _lines(request: Request, found: AsyncIterator[Sequence[Found]]) -> AsyncIterator[bytes]:
    """An error ends the connection, and so the file has no proper end."""
    broker, caller, before = request.app.state.broker, caller_of(request), b"["
    async for page in found:
        if page:
            yield before + b",\n".join(msgspec.json.encode(views.found(one)) for one in page)
            before = b",\n"
        if broker.stopping.is_set() or not await broker.gate.still_valid(caller):
            raise unauthorized("this API key is no longer valid, or the broker is about to stop")
    yield b"[]" if before == b"[" else b"]"


async def _named(request: Request, queue: str | None) -> list[str]:
    """This one, or all that may be read."""
    if queue is None:
        return await readable(request)
    caller_of(request).require(Action.READ, queue)
    await request.app.state.broker.app.queues.get(queue)
    return [queue]


def _share(request: Request) -> int:
    """Payload bytes of each place in an answer about all of them."""
    return request.app.state.broker.settings.page_bytes // len(STATES)


def _too_far(end: str) -> Problem:
    return Problem(422, "invalid", f"pages end after {end}", hint="GET /v1/queues/{queue}/messages")


def _only(request: Request, known: set[str]) -> None:
    if unknown := request.query_params.keys() - known:
        raise Problem(422, "invalid", f"{', '.join(sorted(unknown))[:200]}: not here", hint="see docs: move from Relay")


def _instant(text: str | None) -> datetime | None:
    return None if text is None else contracts.instant(text)
