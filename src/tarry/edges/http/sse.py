"""Live events as server-sent events, in a response without an end.

sse-starlette is not used: it cannot close the connection of a client that stopped reading, and runs four tasks per client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tarry.core.errors import TarryError
from tarry.core.journal.events import Event
from tarry.core.journal.positions import GapReason
from tarry.edges.http.auth import Caller
from tarry.edges.http.problems import Problem
from tarry.services.live_events.stream import Ending, EventFormat, Stream
from tarry.wire.events import GapEvent, LiveEvent

if TYPE_CHECKING:
    from tarry.edges.http.app import Broker
    from tarry.services.live_events.hub import EventHub
    from tarry.services.live_events.topics import TopicHub

MEDIA_TYPE = "text/event-stream"
CHUNK_BYTES = 32 * 1024
"""Bytes per write to the socket."""
READ_WITHIN_S = 30.0
"""A client that does not read one chunk within this time has stopped reading."""
LAST_CHUNK_S = 1.0
"""How long a client may take to read the end of a stream when the broker stops."""
RECONNECT_MS = 1_000

_GAPS = {
    GapReason.UNKNOWN: "this is not a position of this journal; the stream starts now",
    GapReason.FAILOVER: "a standby took over without the last events; the stream resumes before the failover",
    GapReason.PRUNED: "events after this position are no longer in the journal; the stream resumes now",
    GapReason.TOO_FAR: "too many events happened since this position; the stream resumes now",
    GapReason.UNREADABLE: "an event cannot be shown; the stream resumes after it",
}


def event_text(position: str, event: Event) -> bytes:
    """An event as /v1 shows it, without payload and headers: many clients receive it, and it is kept in buffers."""
    return server_sent(position, event.kind.value, LiveEvent.of(event))


def gap_text(position: str, gap: GapReason) -> bytes:
    return server_sent(position, "gap", GapEvent(reason=gap.value, detail=_GAPS[gap]))


def server_sent(position: str, name: str, data: Any) -> bytes:
    return b"event: %b\nid: %b\ndata: %b\n\n" % (name.encode(), position.encode(), msgspec.json.encode(data))


V1 = EventFormat(event_text, gap_text)


def _position(position: str, comment: str) -> bytes:
    """A comment, which keeps the connection open, and an id without data, which only moves the client's Last-Event-ID."""
    return f": {comment}\nid: {position}\n\n".encode()


class ServerSentEvents(Response):
    """The media type for the OpenAPI document."""

    media_type = MEDIA_TYPE


class EventStream(ServerSentEvents):
    def __init__(
        self,
        broker: Broker,
        caller: Caller,
        wants: Callable[[Event], bool],
        *,
        after: str | None,
        format: EventFormat = V1,
        live: EventHub | TopicHub | None = None,
        allowed: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """`live`: the source of events, by default the journal. `allowed`: whether the stream may continue, by default while
        the caller's key is valid."""
        super().__init__(headers={"x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._broker = broker
        self._caller = caller
        self._wants = wants
        self._after = after
        self._format = format
        self._live = live or broker.live
        self._allowed = allowed or (lambda: broker.authenticator.still_valid(caller))
        self._started = False
        self._sending: asyncio.Timeout | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        authenticator, live = self._broker.authenticator, self._live
        if live.open >= self._broker.settings.streams:
            detail = f"{live.open:,} streams are open, which is the limit of this broker"
            raise Problem(503, "too_many", detail, hint="retry after Retry-After", headers={"retry-after": "5"})
        try:
            with authenticator.slot(self._caller, "streams", self._broker.settings.streams_per_key):
                self._broker.server_monitor.start(scope)
                async with live.stream(self._wants, allowed=self._allowed, format=self._format) as stream:
                    stream.on_end = lambda: self._shorten_timeout(stream)
                    watching = asyncio.create_task(_end_on_disconnect(receive, stream))
                    try:
                        await self._send_all(send, stream)
                    finally:
                        watching.cancel()
                if stream.ending is Ending.SLOW:
                    await self._abort(scope)
                elif stream.ending is Ending.STOPPING:
                    self._broker.server_monitor.abort_later(scope)
        except TimeoutError:
            await self._abort(scope)
        except TarryError:
            if not self._started:
                raise  # as a problem
            await self._send(send, b"", more=False)  # the client reconnects, and gets the problem

    async def _send_all(self, send: Send, stream: Stream) -> None:
        live, after = self._live, self._after
        if after is not None:
            # Replay most events before joining, to keep them out of the stream's buffer, and the rest afterwards.
            after = await self._replay(send, stream, after, None)
        start = await live.join(stream)
        if after is not None:
            after = await self._replay(send, stream, after, start)
        await self._send(send, _position(after or start, "hello"))
        ping_s = self._broker.settings.ping_every.total_seconds()
        while stream.ending is None:
            if not await stream.wait(ping_s):
                await self._send(send, _position(stream.position or "", "ping"))
            while body := stream.take(CHUNK_BYTES):
                await self._send(send, body)
        if stream.ending in (Ending.STOPPING, Ending.REFUSED, Ending.FAILED):
            await self._send(send, b"", more=False)

    async def _replay(self, send: Send, stream: Stream, after: str, until: str | None) -> str:
        """Send events after a position; returns the position to continue from."""
        async for page in self._broker.live.replay(stream, after, until=until):
            await self._send(send, page.text)
            if not page.complete:
                # Sent even without a matching event: a client that reconnects during a long replay must not restart it.
                await self._send(send, _position(page.position, "ping"))
            after = until if page.is_gap and page.complete and until is not None else page.position
            if stream.ending is not None:
                break
        return after

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        if not self._started:
            self._started = True
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._send(send, f"retry: {RECONNECT_MS}\n\n".encode())
        for at in range(0, len(body), CHUNK_BYTES) if more else (0,):
            try:
                async with asyncio.timeout(READ_WITHIN_S if more else LAST_CHUNK_S) as self._sending:
                    await send({"type": "http.response.body", "body": body[at : at + CHUNK_BYTES], "more_body": more})
            finally:
                self._sending = None

    async def _abort(self, scope: Scope) -> None:
        self._broker.server_monitor.abort(scope)
        await asyncio.sleep(0)  # the server must notice it before this response returns incomplete

    def _shorten_timeout(self, stream: Stream) -> None:
        """Shorten the timeout of a send in progress. An expired timeout cannot be rescheduled."""
        if self._sending is not None and not self._sending.expired():
            left_s = 0.0 if stream.ending is Ending.SLOW else LAST_CHUNK_S
            self._sending.reschedule(asyncio.get_running_loop().time() + left_s)


async def _end_on_disconnect(receive: Receive, stream: Stream) -> None:
    """End the stream when the client disconnects, or when a disconnect can no longer be detected."""
    ending = Ending.REFUSED
    try:
        with suppress(HTTPException):  # a body, which the route does not read, is too large or late
            while (await receive())["type"] != "http.disconnect":
                pass
            ending = Ending.GONE
    finally:
        stream.end(ending)
