"""Relay's routes that list and export messages.

Relay stores every message in one table. Here waiting, leased and dead messages are read slice by slice, and finished messages
come from the journal. A request scans a bounded number of messages and keeps a bounded number of payload bytes.
"""

import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import Response

from tarry.core.dead_letters.redrive import EVERY_LETTER, DeadFilter
from tarry.core.errors import UnknownQueue
from tarry.core.messages.model import DeadLetter
from tarry.core.messages.states import State
from tarry.core.ports import AsyncStore
from tarry.core.security.api_keys import Action
from tarry.edges.http.pages import SLICE, dead_letters, live_messages, slices
from tarry.edges.http.problems import Problem
from tarry.edges.http.relay import wire
from tarry.edges.http.relay.journal import finished_messages
from tarry.edges.http.relay.messages import with_default_queue
from tarry.edges.http.routes.analytics import analytics_query
from tarry.edges.http.routes.transfer import Export, slot_of, while_exporting
from tarry.edges.http.routing import AccessRoute, BrokerRequest, Scope, access, respond

router = APIRouter(prefix="/api/queue", route_class=AccessRoute, include_in_schema=False)
_LISTED = access(Action.READ, Scope.LISTED)
LOOK_LIMIT = 10_000
"""Messages that one list scans. /v1 lists have a cursor instead of page numbers, and no such limit."""
_STATUS_LIMIT = 1_000
_FINISHED = ("acknowledged", "archived")
STATES = {"main": (State.READY, State.DELAYED), "processing": (State.LEASED,), "dead": ()}


@router.get("/status", openapi_extra=_LISTED)
async def status(request: BrokerRequest, query: Annotated[wire.StatusQuery, Query()]) -> Response:
    """Counts of waiting, leased and dead messages, with the first messages of each. Finished messages are not kept."""
    names = await _queues(request, query.queueName)
    lengths, types = await counts(request, names), set[str]()
    groups: dict[str, Any] = {}
    for queue_type, name in (("main", "mainQueue"), ("processing", "processingQueue"), ("dead", "deadLetterQueue")):
        rows = await _find(request, names, queue_type, wire.BrowseQuery(), most=_STATUS_LIMIT)
        rows = [row for row in rows if row.payload is not None]
        types |= {row.type for row in rows if row.type is not None}
        shown = [wire.message(row) for row in rows] if query.include_messages != "false" else []
        groups[name] = {"name": queue_type, "length": lengths[queue_type], "messages": shown}
    for queue_type in _FINISHED:
        groups[f"{queue_type}Queue"] = {"name": queue_type, "length": 0, "messages": []}
    return respond({**groups, "metadata": {"totalFailed": lengths["dead"]}, "availableTypes": sorted(types)})


@router.get("/messages", openapi_extra=_LISTED)
async def by_date(request: BrokerRequest, dates: Annotated[wire.ByDateQuery, Query()]) -> Response:
    """Unfinished messages that were created between two instants, newest first."""
    query = wire.BrowseQuery.model_construct(startDate=dates.startTimestamp, endDate=dates.endTimestamp)
    names, rows = await _queues(request, None), list[wire.AnyMessage]()
    for queue_type in STATES:
        rows += await _find(request, names, queue_type, query)
    rows.sort(key=query.sort_key, reverse=True)
    return respond(await _show(request, rows[: dates.limit]))


@router.get("/{queueType}/messages", openapi_extra=_LISTED)
async def browse(request: BrokerRequest, queueType: str, query: Annotated[wire.BrowseQuery, Query()]) -> Response:  # noqa: N803
    """Waiting (`main`), leased (`processing`), `dead` or `acknowledged` messages, page by page."""
    start, end = (query.page - 1) * query.limit, query.page * query.limit
    if end > LOOK_LIMIT:
        detail = f"pages end after {LOOK_LIMIT:,} messages, got page {query.page:,} of {query.limit:,} messages each"
        raise Problem(422, "invalid", detail, hint="GET /v1/queues/{queue}/messages")
    names = await _queues(request, query.queueName)
    if queueType in _FINISHED:
        return respond(await _finished(request, queueType, query, start, end))
    queue_type = check_queue_type(queueType)
    rows = await _find(request, names, queue_type, query)
    rows.sort(key=query.sort_key, reverse=query.sortOrder.lower() == "desc")
    total = len(rows)
    if not query.is_filtered:
        total = max(total, (await counts(request, names))[queue_type])
    return respond({"messages": await _show(request, rows[start:end]), "pagination": _pagination(query, total)})


async def _finished(
    request: BrokerRequest, queue_type: str, query: wire.BrowseQuery, start: int, end: int
) -> dict[str, Any]:
    """Acked messages from the journal, newest first, ignoring `sortBy`. Tarry has no archived state."""
    messages: list[dict[str, Any]] = []
    if queue_type == "acknowledged":
        selection = analytics_query(request, query.queueName, since=query.startDate, until=query.endDate, limit=1_000)
        messages = await finished_messages(request, selection, query, end + 1)
    return {"messages": messages[start:end], "pagination": _pagination(query, len(messages))}


def _pagination(query: wire.BrowseQuery, total: int) -> dict[str, Any]:
    pages = -(-total // query.limit)
    more = query.page * query.limit < total
    return {"total": total, "page": query.page, "limit": query.limit, "totalPages": pages, "hasMore": more}


@router.get("/{queueType}/export", openapi_extra=_LISTED)
async def export(request: BrokerRequest, queueType: str, query: Annotated[wire.ExportQuery, Query()]) -> Response:  # noqa: N803
    """All matching messages as a JSON file that an import accepts, without a limit on their number."""
    queue_type = check_queue_type(queueType)
    names, at = await _queues(request, query.queueName), await request.broker.now()
    file = f"{queue_type}-queue-export-{at:%Y-%m-%dT%H-%M-%S}.json"
    headers = {"content-disposition": f'attachment; filename="{file}"'}
    body, slot = _file(request, _walk(request, names, queue_type, query)), slot_of(request, "exports")
    return Export(body, slot, media_type="application/json", headers=headers)


async def counts(request: BrokerRequest, names: Sequence[str]) -> dict[str, int]:
    """Messages of these queues by type; each queue is counted up to 10,000."""
    sums = dict.fromkeys(STATES, 0)
    for name in names:
        with suppress(UnknownQueue):  # deleted since it was listed
            of_queue = await request.queues.counts(name)
            sums["main"] += of_queue.delayed.n + of_queue.ready.n
            sums["processing"] += of_queue.leased.n
            sums["dead"] += of_queue.dead.n
    return sums


def check_queue_type(queue_type: str) -> str:
    if queue_type not in STATES:
        detail = (
            f"queueType must be main, processing or dead, got {queue_type!r:.80}: finished messages are in the journal"
        )
        raise Problem(422, "invalid", detail, hint="GET /v1/messages/{id}/timeline")
    return queue_type


async def allowed_queues(request: BrokerRequest, action: Action = Action.READ) -> list[str]:
    return [info.name for info in await request.broker.queues_of(request.caller, action)]


async def pages(
    store: AsyncStore,
    queue: str,
    queue_type: str,
    *,
    where: DeadFilter = EVERY_LETTER,
    with_payloads: Callable[[], bool] = lambda: True,
) -> AsyncIterator[Sequence[wire.AnyMessage]]:
    """Yield messages of one type in slices, each with the state at the time of its read.

    Live messages are read without payloads once `with_payloads` returns false. Dead letters match `where`, newest first.
    """
    if queue_type == "dead":
        async for letters in slices(*dead_letters(store, queue, where)):
            yield letters
        return
    state = State.LEASED if queue_type == "processing" else None
    async for rows in slices(*live_messages(store, queue, state, with_payloads=with_payloads)):
        yield [row for row in rows if row.state in STATES[queue_type]]


async def _walk(
    request: BrokerRequest,
    names: Sequence[str],
    queue_type: str,
    query: wire.ExportQuery,
    *,
    most: float = math.inf,
    with_payloads: Callable[[], bool] = lambda: True,
) -> AsyncIterator[Sequence[wire.AnyMessage]]:
    """Yield matching messages in slices. Stops after about `most` scanned messages, matching or not."""
    looked_at = 0
    for name in names:
        with suppress(UnknownQueue):  # deleted since it was listed
            async for rows in pages(request.store, name, queue_type, with_payloads=with_payloads):
                yield [row for row in rows if query.admits(row)]
                looked_at += max(len(rows), SLICE)  # a slice may have no message of this type
                if looked_at >= most:
                    return


async def _find(
    request: BrokerRequest, names: Sequence[str], queue_type: str, query: wire.BrowseQuery, *, most: int | None = None
) -> list[wire.AnyMessage]:
    """Matching messages to sort, at most `most`. After a share of `page_bytes`, their payload is None."""
    matches, left = list[wire.AnyMessage](), request.broker.settings.page_bytes // len(STATES)

    def with_payloads() -> bool:
        return left >= 0 or query.search is not None

    async for rows in _walk(request, names, queue_type, query, most=LOOK_LIMIT, with_payloads=with_payloads):
        for row in rows:
            left -= len(row.payload)
            matches.append(row if left >= 0 else replace(row, payload=None, headers=None))
            if len(matches) == most:
                return matches
    return matches


async def _show(request: BrokerRequest, rows: Sequence[wire.AnyMessage]) -> list[dict[str, Any]]:
    """One page, with up to `page_bytes` of payloads. Payloads that `_find` did not keep are read, one at a time."""
    shown, left = list[dict[str, Any]](), request.broker.settings.page_bytes
    for match in rows:
        row = match if match.payload is not None else await _read_again(request.store, match)
        if row is not None:
            left -= len(row.payload)
            shown.append(wire.message(row, with_payload=left >= 0 or not shown))
    return shown


async def _read_again(store: AsyncStore, row: wire.AnyMessage) -> wire.AnyMessage | None:
    """Read a message again, with its payload. None: it is gone, or its queue type has changed."""
    with suppress(UnknownQueue):
        if isinstance(row, DeadLetter):
            version = DeadFilter(versions=(row.version,))
            return next(iter(await store.run(store.dead_letters.list(row.queue, where=version, limit=1))), None)
        message = await store.run(store.messages.read(row.queue, row.key))
        if message is not None and (message.state is State.LEASED) is (row.state is State.LEASED):
            return message
    return None


async def _file(request: BrokerRequest, matches: AsyncIterator[Sequence[wire.AnyMessage]]) -> AsyncIterator[bytes]:
    """A JSON list."""
    before = b"["
    async for rows in while_exporting(request, matches):
        if rows:
            yield before + b",\n".join(msgspec.json.encode(wire.message(row)) for row in rows)
            before = b",\n"
    yield b"[]" if before == b"[" else b"]"


async def _queues(request: BrokerRequest, queue: str | None) -> list[str]:
    """This queue, or all queues that the caller may read."""
    if queue is None:
        return await allowed_queues(request)
    request.caller.require(Action.READ, queue)
    await with_default_queue(request, queue, lambda: request.queues.get(queue))
    return [queue]
