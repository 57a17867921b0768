"""A connection pool for scripts on one server, with fewer system calls than that of redis-py.

redis-py checks each connection before use and polls a socket that has a timeout before each call. Here a broken connection
fails its command, and the store repeats the command with the same request number."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from queue import Empty, SimpleQueue
from struct import Struct
from typing import Any, Final, Generic, TypeVar

import hiredis
from redis._parsers.base import BaseParser
from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import InvalidResponse, RedisError, ResponseError

from tarry.core.ports import Connections
from tarry.core.settings import StoreSettings

_READ_SIZE = 65_536
_INCOMPLETE: Final = object()
_TIMEVAL = Struct("@ll")
_PARSER: Any = BaseParser
"""The redis-py parser, for its error classes."""


_REPEATED = 5
"""Leading arguments that calls have in common: the command, the script hash, and the queue keys."""


def packed(command: Sequence[Any]) -> bytes:
    """A command in the Redis protocol."""
    parts = b"".join([_bulk(each) for each in command[_REPEATED:]])
    return b"*%d\r\n%b%b" % (len(command), _repeated(tuple(command[:_REPEATED])), parts)


def _bulk(data: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(data), data)


@lru_cache(1_000)
def _repeated(arguments: tuple[str | int, ...]) -> bytes:
    return b"".join([_bulk(str(each).encode()) for each in arguments])


class _BlockingSocket:
    """The socket of a connection that redis-py has opened, with TLS, authentication and database selection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._socket: Any = None

    def execute(self, data: bytes) -> Any:
        sock = self._socket or self._connected()
        sock.sendall(data)
        reader, reply = self._reader, _INCOMPLETE
        while reply is _INCOMPLETE:
            received = sock.recv(_READ_SIZE)
            if not received:
                raise LostConnection("the server closed the connection")
            reader.feed(received)
            reply = reader.gets()
        if isinstance(reply, RedisError):
            raise reply
        return reply

    def _connected(self) -> Any:
        self._connection.connect()
        self._reader = hiredis.Reader(InvalidResponse, _PARSER.parse_error, notEnoughData=_INCOMPLETE)
        self._socket = sock = self._connection._sock
        limit_s = sock.gettimeout()
        if limit_s is not None and type(sock) is socket.socket:
            # The kernel enforces the timeout: Python would poll the socket before each call. A TLS socket keeps Python's
            # timeout, because Python repeats calls that the kernel has interrupted.
            sock.settimeout(None)
            limit = _TIMEVAL.pack(int(limit_s), int(limit_s % 1 * 1_000_000))
            for direction in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                sock.setsockopt(socket.SOL_SOCKET, direction, limit)
        return sock

    def disconnect(self) -> None:
        self._socket = None
        self._connection.disconnect()


Free = TypeVar("Free", "SimpleQueue[None]", asyncio.Semaphore)


class _Idle(Generic[Free]):
    """Idle connections. A child process uses none of its parent's connections."""

    def __init__(self, client: Any, settings: StoreSettings, semaphore: Callable[[int], Free]) -> None:
        self._make, self._size = client.connection_pool.make_connection, settings.pool_size
        self._wait_s = settings.connect_for.total_seconds()
        self._semaphore = semaphore
        self.keep_idle = True
        """False once the store is closed: a connection in use is then closed after its command."""
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._idle: list[Any] = []
        self._used = 0
        self._free = self._semaphore(self._size)

    def _own(self) -> Free:
        """The semaphore that limits the connections of this process."""
        if self._pid != os.getpid():
            self._reset()
        return self._free

    def _take(self) -> Any:
        self._used += 1
        try:
            return self._idle.pop()
        except IndexError:
            return self._make()

    def _give_back(self, connection: Any) -> None:
        self._used -= 1
        self._idle.append(connection)

    def now(self) -> Connections:
        return Connections(self._used + len(self._idle), len(self._idle), self._size, 0)


def _free(size: int) -> SimpleQueue[None]:
    """A semaphore in C."""
    free: SimpleQueue[None] = SimpleQueue()
    for _ in range(size):
        free.put(None)
    return free


class BlockingConnections(_Idle["SimpleQueue[None]"]):
    def __init__(self, client: Any, settings: StoreSettings) -> None:
        super().__init__(client, settings, _free)
        make = self._make
        self._make = lambda: _BlockingSocket(make())

    def execute(self, command: Sequence[Any]) -> Any:
        data = packed(command)
        free = self._own()
        try:
            free.get(timeout=self._wait_s)
        except Empty:
            raise LostConnection(f"no connection was free for {self._wait_s:g} s") from None
        try:
            connection = self._take()
            try:
                return connection.execute(data)
            except ResponseError:
                raise
            except BaseException:
                connection.disconnect()
                self.close()  # other idle connections are probably broken, too: the next try opens a new one
                raise
            finally:
                self._give_back(connection)
                if not self.keep_idle:
                    self.close()
        finally:
            free.put(None)

    def close(self) -> None:
        with suppress(IndexError):  # not checked before: other threads take connections, too
            while True:
                self._idle.pop().disconnect()


async def _send(connection: Any, data: bytes) -> None:
    """redis-py starts a task for each command, to limit its time."""
    try:
        async with asyncio.timeout(connection.socket_timeout):
            if not connection.is_connected:
                await connection.connect()
            connection._writer.write(data)
            await connection._writer.drain()
    except TimeoutError:
        raise LostConnection(f"the server accepted no request within {connection.socket_timeout:g} s") from None


class AwaitingConnections(_Idle[asyncio.Semaphore]):
    def __init__(self, client: Any, settings: StoreSettings) -> None:
        super().__init__(client, settings, asyncio.Semaphore)

    async def execute(self, command: Sequence[Any]) -> Any:
        data = packed(command)
        free = self._own()
        if free.locked():
            try:
                async with asyncio.timeout(self._wait_s):
                    await free.acquire()
            except TimeoutError:
                raise LostConnection(f"no connection was free for {self._wait_s:g} s") from None
        else:
            await free.acquire()
        try:
            connection = self._take()
            try:
                await _send(connection, data)
                return await connection.read_response()
            except ResponseError:
                raise
            except BaseException as error:
                await connection.disconnect(nowait=True)
                if not isinstance(error, asyncio.CancelledError):
                    await self.close()  # as above
                raise
            finally:
                self._give_back(connection)
                if not self.keep_idle:
                    await self.close()
        finally:
            free.release()

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().disconnect()
