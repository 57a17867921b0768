"""Connection limits of a broker's own server: how many, and how long a client may keep one busy.

uvicorn times out connections that are idle between two requests, but not an incomplete request head, the rest of a body whose
request was refused, or a response that the client does not read. Without limits, a client without an API key could keep a
descriptor and the response bytes for as long as it likes.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from itertools import chain
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tarry.edges.http.settings import BrokerSettings

_log = logging.getLogger("tarry.http")
READ_BYTES_PER_S = 64 * 1024
"""The slowest rate at which a client may read a long response, after `write_for`."""
RESERVED = 128
"""Descriptors reserved for the database, files, and connections accepted and closed in one iteration of the event loop."""
ACCEPTED_AT_ONCE = 32
"""Per iteration of the event loop: fewer than reserved, or a burst exhausts the descriptors before any is counted."""
HEAD_BYTES = 64 * 1024
"""Limit on a request head or trailers, which the parser keeps in memory without a limit."""
_PART = 4 * 1024
"""Bytes per parser call. They may contain many small requests, each of which becomes a waiting object."""
_OUT_OF_DESCRIPTORS = "socket.accept() out of system resource"
_LOG_EVERY_S = 10.0
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n"
    b"content-type: application/problem+json\r\n\r\n"
    b'{"type":"urn:tarry:problem:too_many","title":"Service Unavailable","status":503,"code":"too_many",'
    b'"detail":"all connections of this broker are in use","hint":"retry after Retry-After"}'
)


def most_connections(configured: int) -> int:
    """The configured number of connections, or fewer if the descriptor limit of this process is lower."""
    if sys.platform == "win32":
        return configured
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return configured
    return min(configured, max(soft - RESERVED, soft // 2, 1))


def raise_descriptor_limit(connections: int) -> None:
    """Raise the soft descriptor limit of this process to fit this many connections, at most to the hard limit."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + RESERVED
    if hard != resource.RLIM_INFINITY:
        needed = min(needed, hard)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    except (OSError, ValueError) as error:  # the system has a limit below the hard one
        _log.warning("the descriptor limit stays at %d: %s", soft, error)


class ConnectionLimits:
    """Tracks the connections of one server. `check` is called about twice a second."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.most = most_connections(settings.connections)
        self._head_s = settings.head_for.total_seconds()
        self._write_s = settings.write_for.total_seconds()
        self._unread_bytes = settings.unread_bytes
        # Each dict is in order of insertion: the oldest connection first.
        self.all: dict[LimitedConnection, None] = {}
        self._partial: dict[LimitedConnection, float] = {}
        """Connections with an incomplete head or an unread body, and when each started."""
        self._idle: dict[LimitedConnection, None] = {}
        self._unread: dict[LimitedConnection, float] = {}
        """Connections with unread response bytes, and their deadlines."""
        self._warn = RateLimitedWarning()

    def admit(self) -> bool:
        """Whether one more connection may open. If necessary, closes one that has no request in progress."""
        if len(self.all) < self.most:
            return True
        victim = self._victim()
        if victim is None:
            self._warn("refused a connection: all %d are in use", self.most)
            return False
        self._warn("closed a connection without a request to make room: the limit is %d", self.most)
        self._abort(victim)
        return True

    def _victim(self) -> LimitedConnection | None:
        """The connection to close first. Responses to a client with a key come last: they may contain leases.

        1. A client without a key that had unread bytes at the last check. New connections come later: otherwise a few
           clients that do not read would leave one connection for all others.
        2. No request in progress: incomplete heads, then idle connections.
        3. A client without a key that has unread bytes.
        4. A client that has not read all of its last response.
        """
        return next(
            chain(
                (connection for connection in self._unread if not connection.is_identified),
                (connection for connection in chain(self._partial, self._idle) if not connection.unread),
                (connection for connection in self.all if connection.unread and not connection.is_identified),
                chain(self._partial, self._idle),
            ),
            None,
        )

    def opened(self, connection: LimitedConnection) -> None:
        self.all[connection] = None
        self._partial[connection] = time.monotonic()

    def received(self, connection: LimitedConnection) -> None:
        """Note received bytes of an incomplete head or an unread body."""
        if connection not in self._partial:
            self._idle.pop(connection, None)
            self._partial[connection] = time.monotonic()

    def busy(self, connection: LimitedConnection) -> None:
        self._partial.pop(connection, None)
        self._idle.pop(connection, None)

    def responded(self, connection: LimitedConnection) -> None:
        self._idle[connection] = None

    def drained(self, connection: LimitedConnection) -> None:
        self._unread.pop(connection, None)

    def forget(self, connection: LimitedConnection) -> None:
        self.all.pop(connection, None)
        self.busy(connection)
        self.drained(connection)

    def check(self) -> None:
        """Close connections that take too long."""
        now = time.monotonic()
        late: list[LimitedConnection] = []
        for connection, since in self._partial.items():
            if since + self._head_s > now:
                break
            late.append(connection)
        sizes: dict[LimitedConnection, int] = {}
        for connection in self.all:
            size = connection.unread
            if not size:
                self.drained(connection)
            elif now > self._unread.setdefault(connection, now + self._write_s + size / READ_BYTES_PER_S):
                late.append(connection)
            else:
                sizes[connection] = size
        for connection in (*late, *self._beyond_budget(sizes)):
            self._abort(connection)

    def _beyond_budget(self, sizes: dict[LimitedConnection, int]) -> list[LimitedConnection]:
        """The connections with the most unread bytes, until the rest fits the budget."""
        total = sum(sizes.values())
        if total > self._unread_bytes:
            self._warn("closed connections whose clients do not read: %d bytes were unread in total", total)
        closed: list[LimitedConnection] = []
        for connection in sorted(sizes, key=sizes.__getitem__, reverse=True):
            if total <= self._unread_bytes:
                break
            closed.append(connection)
            total -= sizes[connection]
        return closed

    def _abort(self, connection: LimitedConnection) -> None:
        self.forget(connection)
        connection.transport.abort()  # `close` would wait until the client has read the rest


class ResponseTransport:
    """The transport of one response. It writes head and first body part in one system call.

    The head is written alone if no body follows in the same iteration of the event loop.
    """

    __slots__ = ("_head", "_is_new", "_loop", "_transport", "is_closing")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._head, self._is_new = b"", True
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        if self._is_new:
            self._head, self._is_new = data, False
            self._loop.call_soon(self.flush)
        else:
            head, self._head = self._head, b""
            self._transport.write(head + data)

    def flush(self) -> None:
        head, self._head = self._head, b""
        if head and not self.is_closing():  # uvloop raises if the client has disconnected since the head was written
            self._transport.write(head)

    def close(self) -> None:
        self.flush()
        self._transport.close()


class LimitedConnection(HttpToolsProtocol):
    """uvicorn's protocol, which reports the state of its client to `ConnectionLimits`.

    A pipelined request waits until the client has read the earlier responses: its response could not be sent, and a request
    in progress would protect the connection from being closed to make room.
    """

    def __init__(self, *args: Any, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(*args, **options)
        self._limits = limits
        self._refused = False
        self._received = b""
        """Bytes not parsed yet: parsing stops while a request waits."""
        self._incomplete = 0
        """Bytes parsed since the last complete head or part of a body."""
        self._is_replayed = False
        self._running: Any = None
        """The current or last request; `cycle` is the last that was parsed."""
        self._held: tuple[Any, Any] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if self._limits.admit():
            super().connection_made(transport)
            self._limits.opened(self)
            return
        self._refused, self.transport = True, transport
        transport.write(_BUSY)
        transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._limits.forget(self)
        if self._in_progress:  # uvicorn notifies only the request that was parsed last
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._unset_keepalive_if_required()
        self._received += data
        self._parse()

    def _parse(self) -> None:
        while self._received and not self.pipeline and self._held is None and not self.transport.is_closing():
            part, self._received = self._received[:_PART], self._received[_PART:]
            self._incomplete += len(part)
            try:
                self.parser.feed_data(part)
            except httptools.HttpParserUpgrade as upgrade:
                self._ignore_upgrade()
                self._received = part[upgrade.args[0] :] + self._received
            except httptools.HttpParserError:
                self._incomplete = HEAD_BYTES + 1
            if self._incomplete > HEAD_BYTES:
                self.send_400_response("Invalid HTTP request received.")
        if self._received and not self.transport.is_closing():
            self.flow.pause_reading()
        self._note_request()

    def _ignore_upgrade(self) -> None:
        """Continue with HTTP/1.1 after a head that offers another protocol, as Java's client does on its first request.

        The parser treats such a head as the end of the request. A new parser gets a head with the same framing, then the
        body.
        """
        self.parser = httptools.HttpRequestParser(self)
        framing = (pair for pair in self.headers if pair[0] in (b"content-length", b"transfer-encoding"))
        self._is_replayed = True
        self.parser.feed_data(b"".join((b"POST / HTTP/1.1\r\n", *(b"%b: %b\r\n" % pair for pair in framing), b"\r\n")))

    def on_message_begin(self) -> None:
        if not self._is_replayed:
            super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if not self._is_replayed:
            super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_replayed:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._incomplete = 0
        if not self._is_replayed:
            super().on_headers_complete()
        self._is_replayed = False

    def on_body(self, body: bytes) -> None:
        self._incomplete = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        if self.flow.write_paused:
            self._held = cycle, app
            self.flow.pause_reading()
        else:
            self._running, cycle.transport = cycle, ResponseTransport(self.transport, self.loop)
            super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._received:
            self._unset_keepalive_if_required()
            self._parse()
        if not self._in_progress:  # otherwise the next request has already arrived
            self._limits.responded(self)

    def resume_writing(self) -> None:
        self._limits.drained(self)
        super().resume_writing()
        if self._held is not None and not self.transport.is_closing():
            held, self._held = self._held, None
            self.flow.resume_reading()
            self._start_asgi_task(*held)
            self._parse()

    def shutdown(self) -> None:
        if self._held is None:
            super().shutdown()
        else:
            self.transport.close()

    @property
    def unread(self) -> int:
        """Unread response bytes in this process. Bytes in kernel buffers are not counted."""
        return self.transport.get_write_buffer_size()

    @property
    def is_identified(self) -> bool:
        """Whether the caller of the current or last request was identified: by a key, or because none is needed."""
        return self._running is not None and "tarry.caller" in self._running.scope

    def _note_request(self) -> None:
        if self._in_progress:
            self._limits.busy(self)
        elif self._held is None:
            self._limits.received(self)

    @property
    def _in_progress(self) -> bool:
        return self._running is not None and not self._running.response_complete


class RateLimitedWarning:
    """Logs a warning at most once every ten seconds."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def __call__(self, message: str, *args: Any) -> None:
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _LOG_EVERY_S
            _log.warning(message, *args)


Handler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]


def summarize_accept_errors(before: Handler | None) -> Handler:
    """An exception handler for the loop: asyncio logs each failed `accept` with a traceback, thousands per second."""
    warn = RateLimitedWarning()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if context.get("message") == _OUT_OF_DESCRIPTORS:
            warn("no descriptors are left for new connections: %s; raise the limit (ulimit -n)", context["exception"])
        elif before is not None:
            before(loop, context)
        else:
            loop.default_exception_handler(context)

    return handle
