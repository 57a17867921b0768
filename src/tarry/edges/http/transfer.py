"""A queue as a stream of lines, out and in. Each line is an offer; neither way is the whole queue ever in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import pydantic_core
from fastapi import APIRouter, Query, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tarry.core.errors import InvalidInput, TarryError
from tarry.core.keys import Action
from tarry.core.limits import check_queue_name
from tarry.core.messages import Draft, Filter, Message, Place, StoredMessage
from tarry.edges.http import views
from tarry.edges.http.content import CONTENT, Content
from tarry.edges.http.contracts import OfferRequest
from tarry.edges.http.documented import READ_ERRORS, WRITE_ERRORS
from tarry.edges.http.gate import Caller, unauthorized
from tarry.edges.http.guard import takes_a_stream
from tarry.edges.http.lines import BadLine, Lines
from tarry.edges.http.messages import offered_message
from tarry.edges.http.problems import Problem, of_error, of_line
from tarry.edges.http.routing import AccessRoute, access, caller_of
from tarry.edges.times import exact
from tarry.handles.drafting import Drafter, fresh_key

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
PAGE = 200
"""Messages that an export reads at a time: at most 50 MiB of payloads."""
BATCH = 500
BATCH_BYTES = 1024 * 1024
_SAID = 1_000
"""Bad lines whose problem is told; of more, only that they are bad."""
_OUTCOMES = ("created", "updated", "ignored", "superseded", "refused", "not_stored", "blank", "fine")
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
    return _Export(_exported(broker, caller, queue), slot)


class _Export(StreamingResponse):
    """Takes its place among the exports of its key when it begins, while it can still be refused."""

    media_type = MEDIA_TYPE

    def __init__(self, lines: AsyncIterator[bytes], slot: AbstractContextManager[None]) -> None:
        super().__init__(lines)
        self._slot = slot

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._slot:
            await super().__call__(scope, receive, send)


async def _exported(broker: Broker, caller: Caller, queue: str) -> AsyncIterator[bytes]:
    """An error ends the connection, and so the stream has no proper end: a reader can tell that something is missing."""
    after: Place | None = None
    while True:
        page = await broker.store.messages(queue, limit=PAGE, filter=Filter(after=after))
        yield b"".join(msgspec.json.encode(_line(one)) + b"\n" for one in page)
        if len(page) < PAGE:
            return
        after = Place(page[-1].due_at, page[-1].version)
        if broker.stopping.is_set() or not await broker.gate.still_valid(caller):
            raise unauthorized("this API key is no longer valid, or the broker is about to stop")


def _line(found: StoredMessage[bytes]) -> dict[str, Any]:
    said = {
        "type": found.type,
        "headers": found.headers,
        "max_attempts": found.own_max_attempts,
        "lease_for": None if found.lease_for is None else found.lease_for.total_seconds(),
        "retry": None if found.retry is None else views.retry(found.retry),
    }
    return {
        "key": found.key,
        "at": exact(found.due_at),
        "priority": found.priority,
        **{name: value for name, value in said.items() if value is not None},
        **Content(found.payload, found.content_type).offered(),
    }


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
    on_bad: Annotated[Literal["skip", "stop"], Query(description="stop: at the first line that is bad.")] = "skip",
    dry_run: Annotated[bool, Query(description="Only say what is bad.")] = False,  # noqa: FBT002 - of the query
) -> Response:
    """Offer every line, in batches of which each is stored as a whole. Answered when all of it was read, with an outcome for
    each line: `refused` ones are bad, `not_stored` ones were given up with a bad line of their batch."""
    said = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if said not in _TAKEN:
        raise Problem(415, "not_json", "the body must be JSON lines", hint=f"send Content-Type: {MEDIA_TYPE}")
    takes_a_stream(request.scope)
    taking = _Import(request.app.state.broker, queue, stop=on_bad == "stop", dry_run=dry_run)
    # Once it has stopped, the rest is read all the same: a client that cannot get rid of it may never hear the answer.
    try:
        async for line in Lines(request.app.state.broker.settings.body_limit).read(request.stream()):
            await taking.take(line)
    except ClientDisconnect:
        return Response(status_code=400)  # nobody hears it; what was stored by then stays
    await taking.store()
    return StreamingResponse(taking.told(), media_type=MEDIA_TYPE)


class _Import:
    """One byte per line, and one batch of messages, is all that is remembered."""

    def __init__(self, broker: Broker, queue: str, *, stop: bool, dry_run: bool) -> None:
        self._broker = broker
        self._queue = check_queue_name(queue)
        self._drafter = Drafter(CONTENT, broker.store.settings.payload_limit)
        self._stop = stop
        self._dry_run = dry_run
        self._outcomes = bytearray()
        self._problems: dict[int, str] = {}
        self._batch: list[tuple[int, Draft]] = []
        self._bytes = 0
        self.stopped = False

    async def take(self, line: bytes | BadLine) -> None:
        if self.stopped:
            return
        place = len(self._outcomes)
        self._note(place, "fine")
        if isinstance(line, bytes) and not line.strip():
            self._note(place, "blank")
            return
        try:
            if isinstance(line, BadLine):
                raise InvalidInput(line.problem)
            draft = self._drafter.draft_message(_message(line))
        except ValueError as error:  # of the parser, of pydantic, and our own
            self._note(place, "refused")
            if len(self._problems) < _SAID:
                self._problems[place] = of_line(error)
            if self._stop:
                self._give_up()
            return
        self._batch.append((place, draft))
        self._bytes += len(line)
        if len(self._batch) >= BATCH or self._bytes >= BATCH_BYTES:
            await self.store()

    async def store(self) -> None:
        batch, self._batch, self._bytes = self._batch, [], 0
        if not batch or self._dry_run:
            return
        drafts = [draft for _, draft in batch]
        try:
            outcomes = await self._broker.in_queue(
                self._queue, lambda: self._broker.store.offer_many(self._queue, drafts)
            )
        except TarryError as error:
            problem = of_error(error)
            problem.more["stored_lines"] = batch[0][0]
            raise problem from error
        for (place, _), outcome in zip(batch, outcomes, strict=True):
            self._note(place, outcome.value)

    def _give_up(self) -> None:
        for place, _ in self._batch:
            self._note(place, "not_stored")
        self._batch, self.stopped = [], True

    def _note(self, place: int, outcome: str) -> None:
        self._outcomes[place : place + 1] = bytes((_OUTCOMES.index(outcome),))

    def told(self) -> Iterator[bytes]:
        for start in range(0, len(self._outcomes), 1_000):
            yield b"".join(self._told(place) for place in range(start, min(start + 1_000, len(self._outcomes))))
        counted = Counter(self._outcomes)
        sums = {name: counted[code] for code, name in enumerate(_OUTCOMES) if name != "fine" or self._dry_run}
        yield msgspec.json.encode({"lines": len(self._outcomes), **sums}) + b"\n"

    def _told(self, place: int) -> bytes:
        said: dict[str, Any] = {"line": place + 1, "outcome": _OUTCOMES[self._outcomes[place]]}
        if place in self._problems:
            said["problem"] = self._problems[place]
        return msgspec.json.encode(said) + b"\n"


def _message(line: bytes) -> Message[Content]:
    body = OfferRequest.model_validate(pydantic_core.from_json(line, allow_inf_nan=False))
    return offered_message(body, body.key or fresh_key())
