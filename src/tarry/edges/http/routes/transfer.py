"""A queue as a stream of lines, out and in. Each line is an offer; neither way is the whole queue ever in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tarry.core.errors import TarryError
from tarry.core.keys import Action
from tarry.core.limits import check_queue_name
from tarry.core.messages import Draft
from tarry.edges.http.documented import READ_ERRORS, WRITE_ERRORS
from tarry.edges.http.gate import Caller, unauthorized
from tarry.edges.http.guard import takes_a_stream
from tarry.edges.http.pacing import Pace
from tarry.edges.http.problems import Problem, of_error
from tarry.edges.http.routing import AccessRoute, access, caller_of
from tarry.handles import transfer
from tarry.handles.transfer import OUTCOMES, Exporting, Importing, Lines, OnBad

if TYPE_CHECKING:
    from tarry.edges.http.broker import Broker

MEDIA_TYPE = "application/x-ndjson"
_TAKEN = (
    MEDIA_TYPE,
    "application/jsonl",
    "application/octet-stream",
    "application/x-www-form-urlencoded",
    "text/plain",
    "",
)
_LINES: dict[str, Any] = {MEDIA_TYPE: {"schema": {"type": "string"}}}

router = APIRouter(prefix="/v1", tags=["export and import"], route_class=AccessRoute)


@router.get(
    "/queues/{queue}/export",
    response_class=StreamingResponse,
    responses={200: {"description": "One offer per line", "content": _LINES}, **READ_ERRORS},
    openapi_extra=access(Action.READ),
)
async def export(request: Request, queue: str) -> Response:
    """All live messages in due order, as JSON lines that an import takes. Read page by page, each as it is by then: what is
    changed while it runs may be missing, or there twice."""
    broker: Broker = request.app.state.broker
    await broker.app.queues.get(queue)
    caller = caller_of(request)
    slot = broker.gate.slot(caller, "exports", broker.settings.streams_per_key)
    return Export(_exported(broker, caller, queue), slot, MEDIA_TYPE)


class Export(StreamingResponse):
    """Holds one of the slots of its caller. An export takes it when it begins, while it can still be refused."""

    def __init__(
        self,
        lines: AsyncIterator[bytes] | Iterator[bytes],
        slot: AbstractContextManager[object],
        media_type: str,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(lines, headers=headers, media_type=media_type)
        self._slot = slot

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._slot:
            await super().__call__(scope, receive, send)


async def _exported(broker: Broker, caller: Caller, queue: str) -> AsyncIterator[bytes]:
    """An error ends the connection, and so the stream has no proper end: a reader can tell that something is missing."""
    exporting = Exporting()
    while True:
        page = await broker.store.messages(queue, limit=transfer.PAGE, filter=exporting.filter)
        yield b"".join(exporting.take(page))
        if exporting.done:
            return
        if broker.stopping.is_set() or not await broker.gate.still_valid(caller):
            raise unauthorized("this API key is no longer valid, or the broker is about to stop")


@router.post(
    "/queues/{queue}/import",
    response_class=StreamingResponse,
    responses={200: {"description": "An outcome per line, then the sums", "content": _LINES}, **WRITE_ERRORS},
    openapi_extra={
        **access(Action.PRODUCE),
        "requestBody": {"required": True, "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}},
    },
)
async def import_lines(
    request: Request,
    queue: str,
    on_bad: Annotated[OnBad, Query(description="stop: at the first line that is bad.")] = "skip",
    dry_run: Annotated[bool, Query(description="Only say what is bad.")] = False,  # noqa: FBT002 - of the query
) -> Response:
    """Offer every line, in batches of which each is stored as a whole. Answered when all of it was read, with an outcome for
    each line: `refused` ones are bad, `not_stored` ones were given up with a bad line of their batch."""
    said = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if said not in _TAKEN:
        raise Problem(415, "not_json", "the body must be JSON lines", hint=f"send Content-Type: {MEDIA_TYPE}")
    takes_a_stream(request.scope)
    broker: Broker = request.app.state.broker
    caller = caller_of(request)
    name = check_queue_name(queue)
    importing = Importing(broker.store.settings.payload_limit, on_bad=on_bad, dry_run=dry_run)
    with ExitStack() as slot:
        slot.enter_context(broker.gate.slot(caller, "imports", broker.settings.streams_per_key))
        try:
            await _import(request, name, importing)
        except ClientDisconnect:
            return Response(status_code=400)  # the client has left; what was stored by then stays
        return Export(_told(importing, dry_run=dry_run), slot.pop_all(), MEDIA_TYPE)


async def _import(request: Request, name: str, importing: Importing) -> None:
    broker: Broker = request.app.state.broker
    caller = caller_of(request)
    splitting, pace = Lines(broker.settings.body_limit), Pace()
    # Once it has stopped, the rest is read all the same: a client that cannot get rid of it may never hear the answer.
    try:
        async for chunk in broker.gate.while_valid(caller, request.stream()):
            for line in splitting.split(chunk):
                if importing.lines >= broker.settings.import_limit:
                    raise _too_many_lines(broker, importing)
                if batch := importing.take(line):
                    await broker.gate.require_valid(caller)
                    await _store(request, name, importing, batch)
                if pace.is_up:
                    await pace.rest()
        await broker.gate.require_valid(caller)
    except Problem as problem:
        problem.more.setdefault("stored_lines", importing.stored_lines)
        raise
    for line in splitting.end():
        importing.take(line)
    if batch := importing.rest():
        await _store(request, name, importing, batch)


def _too_many_lines(broker: Broker, importing: Importing) -> Problem:
    limit = broker.settings.import_limit
    return Problem(
        413,
        "too_large",
        f"an import has at most {limit:,} lines",
        hint="send the lines after stored_lines in another import",
        stored_lines=importing.stored_lines,
    )


async def _store(request: Request, queue: str, importing: Importing, batch: Sequence[Draft]) -> None:
    broker, caller = request.app.state.broker, caller_of(request)
    try:
        importing.stored(await broker.in_queue(queue, lambda: broker.store.offer_many(queue, batch), caller))
    except TarryError as error:
        problem = of_error(error)
        problem.more["stored_lines"] = importing.stored_lines
        raise problem from error


def _told(importing: Importing, *, dry_run: bool) -> Iterator[bytes]:
    each = enumerate(importing.outcomes())
    while some := list(islice(each, 1_000)):
        yield b"".join(_line(importing, place, outcome) for place, outcome in some)
    found = importing.imported()
    sums = {name: getattr(found, name) for name in OUTCOMES if name != "fine" or dry_run}
    yield msgspec.json.encode({"lines": found.lines, **sums}) + b"\n"


def _line(importing: Importing, place: int, outcome: str) -> bytes:
    problem = importing.problems.get(place)
    said = {"line": place + 1, "outcome": outcome} | ({} if problem is None else {"problem": problem})
    return msgspec.json.encode(said) + b"\n"
