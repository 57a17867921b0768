"""Live events as a response that does not end by itself: server-sent events, in the form that browsers read.

Not by sse-starlette: it cannot hang up on a client that has stopped reading, and runs four tasks for each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tarry.core.errors import TarryError
from tarry.core.events import Event
from tarry.core.following import Gap
from tarry.edges.http import views
from tarry.edges.http.gate import Caller
from tarry.edges.http.problems import Problem
from tarry.services.streams import Ending, Form, Stream

if TYPE_CHECKING:
    from tarry.edges.http.broker import Broker

MEDIA_TYPE = "text/event-stream"
AT_ONCE = 32 * 1024
"""Bytes that are handed to the socket together."""
READ_WITHIN_S = 30.0
"""A client that does not take as much as that in so long has stopped reading."""
LAST_WORDS_S = 1.0
"""How long a client may take to read the end of a stream when the broker stops."""
COME_BACK_MS = 1_000

_HINTS = {
    Gap.UNKNOWN: "this is no position of this journal; the stream begins now",
    Gap.FAILOVER: "a standby took over that lacks events before this position; the stream goes on from before the failover",
    Gap.PRUNED: "events after this position are no longer in the journal; the stream goes on now",
    Gap.TOO_FAR: "too much has happened since; the stream goes on now",
    Gap.UNREADABLE: "an event could not be told; the stream goes on behind it",
}


def shown(position: str, event: Event) -> bytes:
    """Never with the payload, nor with the headers that are journaled beside it: it goes to many, and is kept in buffers."""
    said = views.event(event)
    del said["payload_base64"]
    if said["detail"] is not None:
        said["detail"] = {name: value for name, value in said["detail"].items() if name != "headers"} or None
    return written(position, event.kind.value, said)


def told(position: str, gap: Gap) -> bytes:
    return written(position, "gap", {"reason": gap.value, "detail": _HINTS[gap]})


def written(position: str, name: str, data: dict[str, Any]) -> bytes:
    return b"event: %b\nid: %b\ndata: %b\n\n" % (name.encode(), position.encode(), msgspec.json.encode(data))


PLAIN = Form(shown, told)
"""As `/v1` shows them."""


def _here(position: str, comment: str) -> bytes:
    """A comment keeps the connection open; an id without data moves the client's Last-Event-ID and tells it nothing."""
    return f": {comment}\nid: {position}\n\n".encode()


class ServerSentEvents(Response):
    """What it is, for the OpenAPI document."""

    media_type = MEDIA_TYPE


class EventStream(ServerSentEvents):
    def __init__(
        self,
        broker: Broker,
        caller: Caller,
        wants: Callable[[Event], bool],
        *,
        after: str | None,
        form: Form = PLAIN,
    ) -> None:
        super().__init__(headers={"x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._broker = broker
        self._caller = caller
        self._wants = wants
        self._after = after
        self._form = form
        self._started = False
        self._sending: asyncio.Timeout | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gate, live = self._broker.gate, self._broker.live
        if live.open >= self._broker.settings.streams:
            raise Problem(503, "too_many", f"{live.open:,} streams are open already", headers={"retry-after": "5"})
        try:
            with (
                gate.slot(self._caller, "streams", self._broker.settings.streams_per_key),
                self._broker.host.long_answer(scope),
            ):
                async with live.stream(
                    self._wants, allowed=lambda: gate.still_valid(self._caller), form=self._form
                ) as stream:
                    stream.on_end = lambda: self._hurry(stream)
                    gone = asyncio.create_task(_watch(receive, stream))
                    try:
                        await self._tell(send, stream)
                    finally:
                        gone.cancel()
                if stream.ending is Ending.SLOW:
                    await self._hang_up(scope)
                elif stream.ending is Ending.STOPPING:
                    self._broker.host.hang_up_soon(scope)
        except TimeoutError:
            await self._hang_up(scope)
        except TarryError:
            if not self._started:
                raise  # as a problem
            await self._send(send, b"", more=False)  # the client comes back, and is told why not

    async def _tell(self, send: Send, stream: Stream) -> None:
        live, after = self._broker.live, self._after
        if after is not None:
            # The long way back before we join, so that it does not fill the buffer; what is left of it afterwards.
            after = await self._tell_again(send, stream, after, None)
        start = await live.join(stream)
        if after is not None:
            after = await self._tell_again(send, stream, after, start)
        await self._send(send, _here(after or start, "hello"))
        await self._go_on(send, stream)
        if stream.ending in (Ending.STOPPING, Ending.REFUSED, Ending.FAILED):
            await self._send(send, b"", more=False)

    async def _tell_again(self, send: Send, stream: Stream, after: str, until: str | None) -> str:
        async for page in self._broker.live.replay(stream, after, until=until):
            await self._send(send, page.text)
            if not page.complete:
                # Also where nothing was wanted, so that who is cut off on a long way back does not begin it again.
                await self._send(send, _here(page.position, "ping"))
            after = until if page.is_gap and page.complete and until is not None else page.position
            if stream.ending is not None:
                break
        return after

    async def _go_on(self, send: Send, stream: Stream) -> None:
        ping_s = self._broker.settings.ping_every.total_seconds()
        while stream.ending is None:
            if not await stream.something(ping_s):
                await self._send(send, _here(stream.position or "", "ping"))
            while body := stream.take(AT_ONCE):
                await self._send(send, body)

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        if not self._started:
            self._started = True
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._send(send, f"retry: {COME_BACK_MS}\n\n".encode())
        for at in range(0, len(body), AT_ONCE) if more else (0,):
            try:
                async with asyncio.timeout(READ_WITHIN_S if more else LAST_WORDS_S) as self._sending:
                    await send({"type": "http.response.body", "body": body[at : at + AT_ONCE], "more_body": more})
            finally:
                self._sending = None

    async def _hang_up(self, scope: Scope) -> None:
        self._broker.host.hang_up(scope)
        await asyncio.sleep(0)  # so that the server knows before it wonders why the answer has no end

    def _hurry(self, stream: Stream) -> None:
        # One that has run out already says so to whoever sends, and takes no other time.
        if self._sending is not None and not self._sending.expired():
            left_s = 0.0 if stream.ending is Ending.SLOW else LAST_WORDS_S
            self._sending.reschedule(asyncio.get_running_loop().time() + left_s)


async def _watch(receive: Receive, stream: Stream) -> None:
    """Where nobody watches any more, nobody would notice that the client has left: the stream ends, whatever the reason."""
    why = Ending.REFUSED
    try:
        with suppress(HTTPException):  # a body, which nobody asked for, is too large or does not come
            while (await receive())["type"] != "http.disconnect":
                pass
            why = Ending.GONE
    finally:
        stream.end(why)
