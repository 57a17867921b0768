"""The long poll: a blocking poll that stops when its client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tarry.api.delivery import AsyncDelivery
from tarry.core.errors import TarryError
from tarry.core.messages.model import PollOptions
from tarry.edges.http.auth import unauthorized
from tarry.edges.http.pages import SLICE, next_slice
from tarry.edges.http.routing import BrokerRequest
from tarry.wire import messages as wire
from tarry.wire.base import same_fields
from tarry.wire.payload import Content

Deliveries = Sequence[AsyncDelivery[Content]]
Body = wire.Deliveries | Mapping[str, Any]


def _v1(queue: str, deliveries: Deliveries) -> wire.Deliveries:
    return wire.Deliveries([wire.Delivery.of(queue, delivery.lease) for delivery in deliveries])


async def long_poll(
    request: BrokerRequest,
    name: str,
    poll: wire.PollRequest,
    show: Callable[[str, Deliveries], Body | Awaitable[Body]] = _v1,
) -> Response:
    """Poll for a client, in the name of `poll.consumer`.

    If the client disconnects during the wait, nothing is leased; during the response, messages are released.
    """
    broker = request.broker
    with broker.authenticator.slot(request.caller, "polls", broker.settings.polls_per_key):
        client = ClientPoll(request, name, poll)
        try:
            broker.server_monitor.start(request.scope)
            await client.lease()
            if client.deliveries:
                body = show(name, client.deliveries)
                return _DeliveryResponse(client, await body if isinstance(body, Awaitable) else body)
        except BaseException:
            await asyncio.shield(client.abandon())
            raise
    client.disconnect.cancel()
    return Response(status_code=204)


class ClientPoll:
    """The poll of a client with the messages that it has leased, which are released unless they are sent."""

    def __init__(self, request: BrokerRequest, name: str, poll: wire.PollRequest) -> None:
        self._broker, self._caller, self._poll = request.broker, request.caller, poll
        self._queue = self._broker.queue(name, poll.consumer)
        self._options = same_fields(poll, PollOptions, "consumer")
        self._waiting: asyncio.Task[list[AsyncDelivery[Content]]] | None = None
        self.deliveries: list[AsyncDelivery[Content]] = []
        self.disconnect = asyncio.create_task(_disconnect(request))

    async def lease(self) -> None:
        """Wait for a first message, if the client waits, and lease up to `max`."""
        rows, authenticator = min(self._poll.max, SLICE), self._broker.authenticator
        if not self._poll.wait:
            self.deliveries = await self._queue.try_poll_many(rows, **self._options)
            await self._fill(rows)
            return
        self._waiting = waiting = asyncio.create_task(self._queue.poll_many(rows, self._poll.wait, **self._options))
        stopping = asyncio.create_task(self._broker.stopping.wait())
        try:
            with authenticator.watched(self._caller) as key_ended:
                await asyncio.wait({waiting, self.disconnect, stopping, key_ended}, return_when=asyncio.FIRST_COMPLETED)
                is_refused = key_ended.done()
        finally:
            stopping.cancel()
        if not waiting.done():
            waiting.cancel()  # a cancelled poll releases messages that it was about to return
            await asyncio.wait({waiting})
        self.deliveries = [] if waiting.cancelled() else waiting.result()
        if not is_refused:
            await self._fill(rows)
        if is_refused or (self.deliveries and not await authenticator.still_valid(self._caller)):
            # The key was revoked or expired during the wait: it gets no messages.
            raise unauthorized("this API key is no longer valid")

    async def _fill(self, rows: int) -> None:
        """Lease more after the first slice, until there are `max` messages, or `page_bytes` of payloads, or no more.

        After an error, the messages leased so far are delivered.
        """
        latest, size = self.deliveries, 0
        while True:
            latest_size = sum(len(delivery.payload.data) for delivery in latest)
            size += latest_size
            is_full = len(self.deliveries) >= self._poll.max or size >= self._broker.settings.page_bytes
            if is_full or len(latest) < rows or self.disconnect.done() or self._broker.stopping.is_set():
                return
            rows = min(next_slice(rows, latest_size), self._poll.max - len(self.deliveries))
            try:
                latest = await self._queue.try_poll_many(rows, **self._options)
            except TarryError:
                return
            self.deliveries = [*self.deliveries, *latest]

    async def release(self) -> None:
        await self._queue.leases.release([delivery.lease_id for delivery in self.deliveries])

    async def abandon(self) -> None:
        """End the poll of a failed or cancelled request, and release its messages."""
        self.disconnect.cancel()
        if self._waiting is not None:
            self._waiting.cancel()
            await asyncio.wait({self._waiting})
            if not self.deliveries and not self._waiting.cancelled() and self._waiting.exception() is None:
                self.deliveries = self._waiting.result()
        if self.deliveries:
            await self.release()


async def _disconnect(request: BrokerRequest) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class _DeliveryResponse(Response):
    """Sends the deliveries, and releases them if the client has disconnected."""

    def __init__(self, client: ClientPoll, body: Body) -> None:
        super().__init__(msgspec.json.encode(body), media_type="application/json")
        self._client = client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = self._client
        try:
            if not client.disconnect.done():
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await send({"type": "http.response.body", "body": self.body, "more_body": True})
                await asyncio.sleep(0)  # let the loop process a disconnect that the send ran into
            if client.disconnect.done():
                await client.release()
            else:
                client.disconnect.cancel()
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except BaseException:
            await asyncio.shield(client.abandon())
            raise
