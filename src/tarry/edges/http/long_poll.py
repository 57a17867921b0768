"""The long poll: a blocking poll that stops when its client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tarry.api.delivery import AsyncDelivery
from tarry.api.queue import AsyncQueue
from tarry.core.errors import TarryError
from tarry.core.messages.model import PollOptions
from tarry.edges.http.auth import Caller, unauthorized
from tarry.edges.http.pages import SLICE, next_slice
from tarry.edges.http.routing import BrokerRequest
from tarry.wire import messages as wire
from tarry.wire.base import same_fields
from tarry.wire.payload import Content

if TYPE_CHECKING:
    from tarry.edges.http.app import Broker

Deliveries = Sequence[AsyncDelivery[Content]]
Body = wire.Deliveries | Mapping[str, Any]


def _v1(queue: str, deliveries: Deliveries) -> wire.Deliveries:
    return wire.Deliveries.of(queue, [delivery.lease for delivery in deliveries])


async def long_poll(
    request: BrokerRequest,
    name: str,
    poll: wire.PollRequest,
    show: Callable[[str, Deliveries], Body | Awaitable[Body]] = _v1,
) -> Response:
    """Poll for a client. If it disconnects during the wait, nothing is leased; during the response, messages are released."""
    broker, caller = request.broker, request.caller
    queue = broker.queue(name, poll.consumer or caller.id)
    with broker.authenticator.slot(caller, "polls", broker.settings.polls_per_key):
        disconnect = asyncio.create_task(_disconnect(request))
        try:
            broker.server_monitor.start(request.scope)
            deliveries = await _wait(broker, queue, caller, poll, disconnect)
        except BaseException:
            disconnect.cancel()
            raise
    if not deliveries:
        disconnect.cancel()
        return Response(status_code=204)
    body = show(name, deliveries)
    if isinstance(body, Awaitable):
        try:
            body = await body
        except BaseException:
            disconnect.cancel()
            await asyncio.shield(_release(queue, deliveries))
            raise
    return _DeliveryResponse(queue, deliveries, disconnect, body)


async def _wait(
    broker: Broker,
    queue: AsyncQueue[Content],
    caller: Caller,
    poll: wire.PollRequest,
    disconnect: asyncio.Task[None],
) -> list[AsyncDelivery[Content]]:
    if not poll.wait:
        first = await queue.try_poll_many(min(poll.max, SLICE), **_options(poll))
        return await _fill(broker, queue, poll, disconnect, first)
    polling = asyncio.create_task(queue.poll_many(min(poll.max, SLICE), poll.wait, **_options(poll)))
    stopping = asyncio.create_task(broker.stopping.wait())
    try:
        with broker.authenticator.watched(caller) as key_ended:
            await asyncio.wait({polling, disconnect, stopping, key_ended}, return_when=asyncio.FIRST_COMPLETED)
            is_refused = key_ended.done()
        if not polling.done():
            polling.cancel()  # a cancelled poll releases messages that it was about to return
            await asyncio.wait({polling})
        deliveries = [] if polling.cancelled() else polling.result()
    except BaseException:
        await asyncio.shield(_release_result(queue, polling))
        raise
    finally:
        stopping.cancel()
    if not is_refused:
        deliveries = await _fill(broker, queue, poll, disconnect, deliveries)
    try:
        if is_refused or (deliveries and not await broker.authenticator.still_valid(caller)):
            # The key was revoked or expired during the wait: it gets no messages.
            raise unauthorized("this API key is no longer valid")
    except BaseException:
        await asyncio.shield(_release(queue, deliveries))
        raise
    return deliveries


async def _fill(
    broker: Broker,
    queue: AsyncQueue[Content],
    poll: wire.PollRequest,
    disconnect: asyncio.Task[None],
    first: list[AsyncDelivery[Content]],
) -> list[AsyncDelivery[Content]]:
    """Lease more after the first slice, until there are `max` messages, or `page_bytes` of payloads, or no more.

    After an error, the messages leased so far are delivered.
    """
    deliveries, latest, rows, size = list(first), first, min(poll.max, SLICE), 0
    while True:
        latest_size = sum(len(delivery.payload.data) for delivery in latest)
        size += latest_size
        is_full = len(deliveries) >= poll.max or size >= broker.settings.page_bytes
        if is_full or len(latest) < rows or disconnect.done() or broker.stopping.is_set():
            return deliveries
        rows = min(next_slice(rows, latest_size), poll.max - len(deliveries))
        try:
            latest = await queue.try_poll_many(rows, **_options(poll))
        except TarryError:
            return deliveries
        except BaseException:
            await asyncio.shield(_release(queue, deliveries))
            raise
        deliveries += latest


def _options(poll: wire.PollRequest) -> dict[str, Any]:
    return same_fields(poll, PollOptions, "consumer")


async def _release(queue: AsyncQueue[Content], deliveries: Deliveries) -> None:
    await queue.leases.release([delivery.lease_id for delivery in deliveries])


async def _release_result(queue: AsyncQueue[Content], polling: asyncio.Task[list[AsyncDelivery[Content]]]) -> None:
    """Cancel the poll of a cancelled request, and release its messages if it has already returned."""
    polling.cancel()
    await asyncio.wait({polling})
    if not polling.cancelled() and polling.exception() is None:
        await _release(queue, polling.result())


async def _disconnect(request: BrokerRequest) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class _DeliveryResponse(Response):
    """Sends the deliveries, and releases them if the client has disconnected."""

    def __init__(
        self,
        queue: AsyncQueue[Content],
        deliveries: Deliveries,
        disconnect: asyncio.Task[None],
        body: Body,
    ) -> None:
        super().__init__(msgspec.json.encode(body), media_type="application/json")
        self._queue, self._deliveries, self._disconnect = queue, deliveries, disconnect

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if not self._disconnect.done():
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await send({"type": "http.response.body", "body": self.body, "more_body": True})
                await asyncio.sleep(0)  # let the loop process a disconnect that the send ran into
            if self._disconnect.done():
                await _release(self._queue, self._deliveries)
            else:
                self._disconnect.cancel()
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except BaseException:
            self._disconnect.cancel()
            await asyncio.shield(_release(self._queue, self._deliveries))
            raise
