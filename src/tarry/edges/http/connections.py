"""Bounds on the connections of a broker's own server: how many there are, and how long a client may keep one busy.

uvicorn has a timer for connections that are idle between two requests, and none for a head that is half sent, for the rest
of a body whose request was refused, or for an answer that the client does not read. Without a limit such connections hold a
descriptor and the bytes of the answer for as long as the client likes, and need no key.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from itertools import chain
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from tarry.edges.http.settings import BrokerSettings

_log = logging.getLogger("tarry.http")
READ_BYTES_PER_S = 64 * 1024
"""How slowly a client may read a long answer, after `write_for`."""
RESERVED = 128
"""Descriptors for the database, for files, and for connections that are accepted and closed in one turn of the loop."""
ACCEPTED_AT_ONCE = 32
"""In one turn of the loop: fewer than are reserved, or a burst uses up the descriptors before one of them is counted."""
_OUT_OF_DESCRIPTORS = "socket.accept() out of system resource"
_LOG_EVERY_S = 10.0
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n"
    b"content-type: application/problem+json\r\n\r\n"
    b'{"type":"urn:tarry:problem:too_many","title":"Service Unavailable","status":503,"code":"too_many",'
    b'"detail":"this broker has as many connections as it may, and all are in use"}'
)


def most_connections(wanted: int) -> int:
    """As many as wanted, or as the limit of descriptors of this process allows."""
    if sys.platform == "win32":
        return wanted
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, max(soft - RESERVED, soft // 2, 1))


def raise_descriptor_limit(connections: int) -> None:
    """Raise the soft limit of this process to what so many connections need, or to the hard limit if that is lower."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + RESERVED
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:  # the system has a limit below the hard one
        _log.warning("the limit of descriptors stays at %d: %s", soft, error)


class Connections:
    """The connections of one server. `check` is called about once a second."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.most = most_connections(settings.connections)
        self._head_s = settings.head_for.total_seconds()
        self._write_s = settings.write_for.total_seconds()
        self._unread_bytes = settings.unread_bytes
        # All in the order in which they began.
        self.all: dict[Connection, None] = {}
        self._half: dict[Connection, float] = {}
        self._idle: dict[Connection, None] = {}
        self._unread: dict[Connection, float] = {}
        self._warn = Rarely()

    def make_room(self) -> bool:
        """For one more. A connection without a request gives way. False: there is none."""
        if len(self.all) < self.most:
            return True
        victim = self._victim()
        if victim is None:
            self._warn("refused a connection: all %d are in use", self.most)
            return False
        self._warn("closed a connection without a request to make room: there are %d", self.most)
        self.forget(victim)
        victim.transport.abort()
        return True

    def _victim(self) -> Connection | None:
        """The connection that is missed least: responses that a client with a key still reads (leases are in them) come last.

        1. A client without a key had unread bytes at the last check: before connections that have just begun, or a few
           clients that do not read would leave one place for all others.
        2. Nothing is in progress: half-sent heads, then idle connections.
        3. A client without a key has unread bytes.
        4. The client has not read all of its last response.
        """
        return next(
            chain(
                (one for one in self._unread if not one.is_identified),
                (one for one in chain(self._half, self._idle) if not one.unread),
                (one for one in self.all if one.unread and not one.is_identified),
                chain(self._half, self._idle),
            ),
            None,
        )

    def begin(self, one: Connection) -> None:
        self.all[one] = None
        self._half[one] = time.monotonic()

    def heard(self, one: Connection) -> None:
        """Bytes came that are no request yet: of a head, or of a body that nothing waits for."""
        if one not in self._half:
            self._idle.pop(one, None)
            self._half[one] = time.monotonic()

    def busy(self, one: Connection) -> None:
        self._half.pop(one, None)
        self._idle.pop(one, None)

    def answered(self, one: Connection) -> None:
        self._idle[one] = None

    def progressed(self, one: Connection) -> None:
        self._unread.pop(one, None)

    def forget(self, one: Connection) -> None:
        self.all.pop(one, None)
        self.busy(one)
        self.progressed(one)

    def check(self) -> None:
        """Close what takes too long. `abort`, for `close` would wait until the client has read what is left."""
        now = time.monotonic()
        late: list[Connection] = []
        for one, since in self._half.items():
            if since + self._head_s > now:
                break
            late.append(one)
        kept: dict[Connection, int] = {}
        for one in self.all:
            size = one.unread
            if not size:
                self.progressed(one)
            elif now > self._unread.setdefault(one, now + self._write_s + size / READ_BYTES_PER_S):
                late.append(one)
            else:
                kept[one] = size
        for one in (*late, *self._beyond_budget(kept)):
            self.forget(one)
            one.transport.abort()

    def _beyond_budget(self, kept: dict[Connection, int]) -> list[Connection]:
        """The largest, until the rest fits."""
        total = sum(kept.values())
        if total <= self._unread_bytes:
            return []
        self._warn("closed connections whose clients do not read: %d bytes were unread in total", total)
        found: list[Connection] = []
        for one in sorted(kept, key=kept.__getitem__, reverse=True):
            found.append(one)
            total -= kept[one]
            if total <= self._unread_bytes:
                break
        return found


class Connection(H11Protocol):
    """uvicorn's protocol, which tells `Connections` what its client is doing."""

    def __init__(self, *args: Any, bounds: Connections, **options: Any) -> None:
        super().__init__(*args, **options)
        self._bounds = bounds
        self._refused = False
        self._is_held = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if self._bounds.make_room():
            super().connection_made(transport)
            self._bounds.begin(self)
            return
        self._refused, self.transport = True, transport
        transport.write(_BUSY)
        transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._bounds.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        self._note_request()

    def handle_events(self) -> None:
        """Hold the next request while the responses before it are unread.

        Its response could not be sent. In progress, it would keep the connection from giving way to another.
        """
        is_next = self.conn.our_state is h11.IDLE and self.conn.their_state is h11.IDLE
        if is_next and self.flow.write_paused and self.conn.trailing_data[0]:
            self._is_held = True
            self.flow.pause_reading()
            self._unset_keepalive_if_required()
        else:
            super().handle_events()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._in_progress:  # else the next request was here already
            self._bounds.answered(self)

    def resume_writing(self) -> None:
        self._bounds.progressed(self)
        super().resume_writing()
        if self._is_held and not self.transport.is_closing():
            self._is_held = False
            self.flow.resume_reading()
            self.handle_events()
            self._note_request()

    @property
    def unread(self) -> int:
        """Bytes that wait in this process for the client to read. What the kernel holds is not counted."""
        return self.transport.get_write_buffer_size()

    @property
    def is_identified(self) -> bool:
        """Whether the caller of the current or last request was identified: by a key, or because none is needed."""
        cycle: Any = self.cycle
        return cycle is not None and "tarry.caller" in cycle.scope

    def _note_request(self) -> None:
        if self._in_progress:
            self._bounds.busy(self)
        elif not self._is_held:
            self._bounds.heard(self)

    @property
    def _in_progress(self) -> bool:
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete


class Rarely:
    """Logs a warning, and no other for a while."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def __call__(self, message: str, *args: Any) -> None:
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + _LOG_EVERY_S
            _log.warning(message, *args)


Handler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]


def quiet_about_descriptors(before: Handler | None) -> Handler:
    """An exception handler for the loop. asyncio reports each failed `accept` with a traceback: thousands in a second."""
    warn = Rarely()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if context.get("message") == _OUT_OF_DESCRIPTORS:
            warn("no descriptors are left for new connections: %s; raise the limit (ulimit -n)", context["exception"])
        elif before is not None:
            before(loop, context)
        else:
            loop.default_exception_handler(context)

    return handle
