"""The long poll: it waits as the library waits, for as long as somebody is there to take the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tarry.core.errors import TarryError
from tarry.edges.http import contracts, views
from tarry.edges.http.gate import Caller, unauthorized
from tarry.edges.http.pages import SLICE, next_slice
from tarry.edges.http.routing import caller_of
from tarry.handles.aio import AsyncQueue
from tarry.handles.content import Content
from tarry.handles.delivery import AsyncDelivery

if TYPE_CHECKING:
    from tarry.edges.http.broker import Broker


def _deliveries(queue: str, found: Sequence[AsyncDelivery[Content]]) -> Mapping[str, Any]:
    return {"messages": [views.delivery(queue, one) for one in found]}


async def long_poll(
    request: Request,
    broker: Broker,
    queue: AsyncQueue[Content],
    asked: contracts.PollRequest,
    shown: Callable[[str, Sequence[AsyncDelivery[Content]]], Mapping[str, Any]] = _deliveries,
) -> Response:
    """A client that leaves while it waits gets nothing leased; one that leaves during the hand-over has it given back."""
    gone = asyncio.create_task(_gone(request))
    try:
        with broker.host.long_answer(request.scope):
            found = await _waited(broker, queue, caller_of(request), asked, gone)
    except BaseException:
        gone.cancel()
        raise
    if not found:
        gone.cancel()
        return Response(status_code=204)
    return _HandOver(queue, found, gone, shown(queue.name, found))


async def _waited(
    broker: Broker,
    queue: AsyncQueue[Content],
    caller: Caller,
    asked: contracts.PollRequest,
    gone: asyncio.Task[None],
) -> list[AsyncDelivery[Content]]:
    if not asked.wait:
        first = await queue.try_poll_many(min(asked.max, SLICE), **_options(asked))
        return await _filled(broker, queue, asked, gone, first)
    polling = asyncio.create_task(queue.poll_many(min(asked.max, SLICE), asked.wait, **_options(asked)))
    stopping = asyncio.create_task(broker.stopping.wait())
    try:
        with broker.gate.watched(caller) as ended:
            await asyncio.wait({polling, gone, stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
            is_over = ended.done()
        if not polling.done():
            polling.cancel()  # a cancelled poll gives back what was on its way to it
            await asyncio.wait({polling})
        found = [] if polling.cancelled() else polling.result()
    finally:
        polling.cancel()
        stopping.cancel()
    if not is_over:
        found = await _filled(broker, queue, asked, gone, found)
    if is_over or (found and not await broker.gate.still_valid(caller)):
        # Revoked or expired while it waited: nothing is handed to it any more.
        await asyncio.shield(queue.release_many([one.hold for one in found]))
        raise unauthorized("this API key is no longer valid")
    return found


async def _filled(
    broker: Broker,
    queue: AsyncQueue[Content],
    asked: contracts.PollRequest,
    gone: asyncio.Task[None],
    first: list[AsyncDelivery[Content]],
) -> list[AsyncDelivery[Content]]:
    """Lease more after the first slice, until there are `max` messages, or `page_bytes` of payloads, or no more.

    An error ends it early: the messages that are leased already are handed over.
    """
    held, some, rows, size = list(first), first, min(asked.max, SLICE), 0
    while True:
        size_of_slice = sum(len(one.payload.data) for one in some)
        size += size_of_slice
        is_full = len(held) >= asked.max or size >= broker.settings.page_bytes
        if is_full or len(some) < rows or gone.done() or broker.stopping.is_set():
            return held
        rows = min(next_slice(rows, size_of_slice), asked.max - len(held))
        try:
            some = await queue.try_poll_many(rows, **_options(asked))
        except TarryError:
            return held
        except BaseException:
            await asyncio.shield(queue.release_many([one.hold for one in held]))
            raise
        held += some


def _options(asked: contracts.PollRequest) -> dict[str, Any]:
    return {
        "type": asked.type,
        "lease_for": asked.lease_for,
        "max_attempts": asked.max_attempts,
        "lowest_first": asked.lowest_first,
    }


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class _HandOver(Response):
    """Sends the deliveries, and takes them back if the client turns out to have left."""

    def __init__(
        self,
        queue: AsyncQueue[Content],
        found: list[AsyncDelivery[Content]],
        gone: asyncio.Task[None],
        shown: Mapping[str, Any],
    ) -> None:
        super().__init__(msgspec.json.encode(shown), media_type="application/json")
        self._queue, self._found, self._gone = queue, found, gone

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if not self._gone.done():
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await send({"type": "http.response.body", "body": self.body, "more_body": True})
                await asyncio.sleep(0)  # so that the loop can notice what the send ran into
            if self._gone.done():
                await self._take_back()
            else:
                self._gone.cancel()
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except BaseException:
            self._gone.cancel()
            await asyncio.shield(self._take_back())
            raise

    async def _take_back(self) -> None:
        await self._queue.release_many([one.hold for one in self._found])
