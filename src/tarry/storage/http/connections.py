"""Connections to a broker, each with one request at a time, which stay open for the next.

On sockets and a parser in C: a client library took 0.8 to 1.3 ms of CPU per request, many times the cost of the rest.
"""

import asyncio
import select
import socket
import threading
from contextlib import suppress
from typing import Self

from tarry.core.errors import InvalidState
from tarry.storage.http.protocol import Address, HttpRequest, HttpResponse

_READ_BYTES = 64 * 1024


class Socket:
    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    @classmethod
    def connect(cls, address: Address, within_s: float) -> Self:
        connected = socket.create_connection((address.host, address.port), within_s)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if address.tls is not None:
            connected = address.tls.wrap_socket(connected, server_hostname=address.host)
        return cls(connected)

    @property
    def is_stale(self) -> bool:
        """Whether the broker has closed it, or sent bytes without a request."""
        if not hasattr(select, "poll"):  # Windows, where numbers of sockets have no limit
            return bool(select.select([self._socket], [], [], 0)[0])
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def send(self, request: HttpRequest) -> None:
        self._socket.settimeout(request.reply_s)
        with suppress(ConnectionError):  # refused before all of it was read: there may be a response
            self._socket.sendall(request.data)

    def receive(self) -> bytes:
        return self._socket.recv(_READ_BYTES)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that reads from it
        self._socket.close()


class AsyncSocket:  # ASYNC
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._within_s = 0.0

    @classmethod
    async def connect(cls, address: Address, within_s: float) -> Self:
        async with asyncio.timeout(within_s):
            return cls(*await asyncio.open_connection(address.host, address.port, ssl=address.tls))

    @property
    def is_stale(self) -> bool:
        return self._reader.at_eof() or self._writer.is_closing()

    async def send(self, request: HttpRequest) -> None:
        self._within_s = request.reply_s
        with suppress(ConnectionError):  # as above
            self._writer.write(request.data)
            async with asyncio.timeout(request.reply_s):
                await self._writer.drain()

    async def receive(self) -> bytes:
        async with asyncio.timeout(self._within_s):
            return await self._reader.read(_READ_BYTES)

    async def close(self) -> None:
        self._writer.transport.abort()


class AsyncConnectionPool:
    """At most `size` concurrent requests; further ones wait. The connection used last is used first."""

    def __init__(self, address: Address, size: int) -> None:
        self._address = address
        self._all: list[AsyncSocket] = []
        self._idle: list[AsyncSocket] = []
        if True:  # ASYNC
            self._slots = asyncio.Semaphore(size)
        else:
            self._slots = threading.Semaphore(size)
        self._is_closed = False

    async def exchange(self, request: HttpRequest) -> HttpResponse:
        await self._acquire(request.reply_s)
        try:
            opened, response = await self._take(request.connect_s), HttpResponse()
            try:
                await opened.send(request)
                while not response.is_complete:
                    response.receive(await opened.receive())
                return response
            finally:
                if response.is_complete and response.keeps_alive:
                    self._idle.append(opened)
                else:
                    self._all.remove(opened)
                    await opened.close()
        finally:
            self._slots.release()

    async def _acquire(self, within_s: float) -> None:
        if True:  # ASYNC
            if not self._slots.locked():
                await self._slots.acquire()
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._slots.acquire()
                    return
        else:
            if self._slots.acquire(timeout=within_s):
                return
        raise TimeoutError("all connections to the broker are in use")

    async def _take(self, within_s: float) -> AsyncSocket:
        if self._is_closed:
            raise InvalidState("this client is closed", hint="use it inside its with block, or open another one")
        with suppress(IndexError):  # no check before `pop`: another thread may take the last one
            while (opened := self._idle.pop()).is_stale:
                self._all.remove(opened)
                await opened.close()
            return opened
        self._all.append(opened := await AsyncSocket.connect(self._address, within_s))
        return opened

    async def close(self) -> None:
        self._is_closed = True
        for opened in [*self._all]:
            await opened.close()
