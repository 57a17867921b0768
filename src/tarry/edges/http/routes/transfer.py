"""Export and import of a queue as a stream of lines. Each line is an offer; the whole queue is never in memory."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import islice
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import APIRouter, Query
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tarry.api.transfer import OUTCOMES, Importing, Lines, OnBad
from tarry.core.errors import TarryError
from tarry.core.limits import check_queue_name
from tarry.core.messages.model import Draft
from tarry.core.security.api_keys import Action
from tarry.edges.http.auth import unauthorized
from tarry.edges.http.middleware import accept_stream
from tarry.edges.http.pages import in_time_slices, live_messages, slices
from tarry.edges.http.problems import Problem, of_error
from tarry.edges.http.routing import AccessRoute, BrokerRequest, needs
from tarry.wire.messages import OfferRequest

P = TypeVar("P")

MEDIA_TYPE = "application/x-ndjson"
_BINARY = ("application/octet-stream", "application/x-www-form-urlencoded")
_ACCEPTED = (MEDIA_TYPE, "application/jsonl", *_BINARY, "text/plain", "")
_LINES: dict[str, Any] = {MEDIA_TYPE: {"schema": {"type": "string"}}}

router = APIRouter(prefix="/v1", tags=["export and import"], route_class=AccessRoute)


@router.get(
    "/queues/{queue}/export",
    response_class=StreamingResponse,
    **needs(Action.READ, responses={200: {"description": "One offer per line", "content": _LINES}}),
)
async def export(request: BrokerRequest, queue: str) -> Response:
    """All live messages in due order, as JSON lines for an import. Pages are not read in one snapshot: messages that change
    during the export may be missing or duplicated."""
    await request.queues.get(queue)
    return Export(_lines(request, queue), slot_of(request, "exports"), media_type=MEDIA_TYPE)


def slot_of(request: BrokerRequest, kind: str) -> AbstractContextManager[None]:
    return request.broker.authenticator.slot(request.caller, kind, request.broker.settings.streams_per_key)


class Export(StreamingResponse):
    """A response that occupies one of its caller's slots. An export takes it at its start, when it can still be refused."""

    def __init__(
        self, lines: AsyncIterator[bytes] | Iterator[bytes], slot: AbstractContextManager[object], **options: Any
    ) -> None:
        super().__init__(lines, **options)
        self._slot = slot

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._slot:
            await super().__call__(scope, receive, send)


async def _lines(request: BrokerRequest, queue: str) -> AsyncIterator[bytes]:
    async for page in while_exporting(request, slices(*live_messages(request.store, queue))):
        yield b"".join(OfferRequest.of_stored(message).line() for message in page)


async def while_exporting(request: BrokerRequest, pages: AsyncIterator[P]) -> AsyncIterator[P]:
    """Yield the pages. An error closes the connection without the end of the stream, so the client detects that pages are
    missing."""
    async for page in pages:
        if request.broker.stopping.is_set() or not await request.broker.authenticator.still_valid(request.caller):
            raise unauthorized("this API key is no longer valid, or the broker is about to stop")
        yield page


@router.post(
    "/queues/{queue}/import",
    response_class=StreamingResponse,
    **needs(
        Action.PRODUCE,
        extra={"requestBody": {"required": True, "content": _LINES}},
        responses={200: {"description": "An outcome per line, then the totals", "content": _LINES}},
    ),
)
async def import_lines(
    request: BrokerRequest,
    queue: str,
    on_bad: Annotated[OnBad, Query(description="stop: stop at the first invalid line.")] = "skip",
    dry_run: Annotated[bool, Query(description="Only validate the lines.")] = False,  # noqa: FBT002 - of the query
) -> Response:
    """Offer every line, in batches that are each stored completely or not at all. The response follows the last line, with an
    outcome for each: `refused` lines are invalid, `not_stored` lines shared a batch with an invalid line."""
    content_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if content_type not in _ACCEPTED:
        raise Problem(415, "not_json", "the body must be JSON lines", hint=f"send Content-Type: {MEDIA_TYPE}")
    accept_stream(request.scope)
    name = check_queue_name(queue)
    importing = Importing(request.store.settings.payload_limit, on_bad=on_bad, dry_run=dry_run)
    with ExitStack() as slot:
        slot.enter_context(slot_of(request, "imports"))
        try:
            await _import(request, name, importing)
        except ClientDisconnect:
            return Response(status_code=400)  # the client has disconnected; batches that were stored stay
        return Export(_results(importing, dry_run=dry_run), slot.pop_all(), media_type=MEDIA_TYPE)


async def _import(request: BrokerRequest, name: str, importing: Importing) -> None:
    splitting = Lines(request.broker.settings.body_limit)
    # After a stop the rest is still read: a client that cannot send it may never read the response.
    try:
        async for chunk in request.broker.authenticator.while_valid(request.caller, request.stream()):
            async for line in in_time_slices(splitting.split(chunk)):
                if importing.lines >= (limit := request.broker.settings.import_limit):
                    hint = "send the lines after stored_lines in another import"
                    raise Problem(413, "too_large", f"an import has at most {limit:,} lines", hint=hint)
                if batch := importing.take(line):
                    await request.broker.authenticator.require_valid(request.caller)
                    await _store(request, name, importing, batch)
        await request.broker.authenticator.require_valid(request.caller)
    except Problem as problem:
        problem.more.setdefault("stored_lines", importing.stored_lines)
        raise
    for line in splitting.end():
        importing.take(line)
    if batch := importing.rest():
        await _store(request, name, importing, batch)


async def _store(request: BrokerRequest, queue: str, importing: Importing, batch: Sequence[Draft]) -> None:
    offers = request.store.messages.offer_many(queue, batch)
    try:
        importing.stored(await request.broker.in_queues([queue], lambda: request.run(offers), request.caller))
    except TarryError as error:
        problem = of_error(error)
        problem.more["stored_lines"] = importing.stored_lines
        raise problem from error


def _results(importing: Importing, *, dry_run: bool) -> Iterator[bytes]:
    each = enumerate(importing.outcomes())
    while some := list(islice(each, 1_000)):
        yield b"".join(_line(importing, index, outcome) for index, outcome in some)
    totals = importing.imported()
    sums = {name: getattr(totals, name) for name in OUTCOMES if name != "fine" or dry_run}
    yield msgspec.json.encode({"lines": totals.lines, **sums}) + b"\n"


def _line(importing: Importing, index: int, outcome: str) -> bytes:
    result = {"line": index + 1, "outcome": outcome}
    if index in importing.problems:
        result["problem"] = importing.problems[index]
    return msgspec.json.encode(result) + b"\n"
