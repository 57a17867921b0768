# Generated from src/tarry/storage/http/connections.py by tools/generate-blocking. Edit that file, then run `make generate`.
"""The blocking half of `tarry.storage.http.connections`."""

from __future__ import annotations

import threading
from contextlib import suppress

from tarry.core.errors import InvalidState
from tarry.storage.http.connections import Socket
from tarry.storage.http.protocol import Address, HttpRequest, HttpResponse


class Connection:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._socket: Socket | None = None

    def exchange(self, request: HttpRequest) -> HttpResponse:
        response = HttpResponse()
        try:
            self.send(request)
            while not response.is_complete:
                self.receive(response)
        except BaseException:
            self.close()
            raise
        if not response.keeps_alive:
            self.close()
        return response

    def send(self, request: HttpRequest) -> None:
        """Opens the connection first, if it is not open, or the broker has closed it since the last response."""
        if self._socket is not None and self._socket.is_stale:
            self.close()
        if self._socket is None:
            self._socket = Socket.connect(self._address, request.connect_s)
        with suppress(ConnectionError):  # refused before all of it was read: there may be a response
            self._socket.send(request.data, request.reply_s)

    def receive(self, response: HttpResponse) -> None:
        """Read the next bytes of the response, or wait for them."""
        if self._socket is None:
            raise ConnectionError("the connection is closed")
        response.receive(self._socket.receive())

    def close(self) -> None:
        opened, self._socket = self._socket, None
        if opened is not None:
            opened.close()


class ConnectionPool:
    """At most `size` concurrent requests; further ones wait. The connection used last is used first."""

    def __init__(self, address: Address, size: int) -> None:
        self._address = address
        self._all: list[Connection] = []
        self._idle: list[Connection] = []
        self._slots = threading.Semaphore(size)
        self._is_closed = False

    def exchange(self, request: HttpRequest) -> HttpResponse:
        self._acquire(request.reply_s)
        try:
            connection = self._take()
            try:
                return connection.exchange(request)
            finally:
                self._idle.append(connection)
        finally:
            self._slots.release()

    def _acquire(self, within_s: float) -> None:
        if self._slots.acquire(timeout=within_s):
            return
        raise TimeoutError("all connections to the broker are in use")

    def _take(self) -> Connection:
        if self._is_closed:
            raise InvalidState("this client is closed", hint="use it inside its with block, or open another one")
        try:
            return self._idle.pop()  # no check before it: another thread may take the last one
        except IndexError:
            self._all.append(created := Connection(self._address))
            return created

    def close(self) -> None:
        self._is_closed = True
        for connection in self._all:
            connection.close()
