"""Connections to one server for scripts, without what redis-py does around every command: its pool checks each connection by
a system call before it is used. Here a broken one fails its command, which the store repeats with the same request number."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import ResponseError

from tarry.core.ports import Connections
from tarry.core.settings import StoreSettings


def packed(command: Sequence[Any]) -> bytes:
    """A command in the protocol of Redis."""
    parts = [b"*%d\r\n" % len(command)]
    for argument in command:
        data = argument if isinstance(argument, bytes) else str(argument).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


Free = TypeVar("Free", threading.Semaphore, asyncio.Semaphore)


class _Idle(Generic[Free]):
    """Connections that no command uses. A child process has none of its parent's, neither idle nor in use."""

    def __init__(self, client: Any, settings: StoreSettings, semaphore: Callable[[int], Free]) -> None:
        self._make, self._size = client.connection_pool.make_connection, settings.pool_size
        self._wait_s = settings.connect_for.total_seconds()
        self._semaphore = semaphore
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._idle: list[Any] = []
        self._used = 0
        self._free = self._semaphore(self._size)

    def _own(self) -> Free:
        """The semaphore of this process, whose number of connections is limited."""
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


class BlockingConnections(_Idle[threading.Semaphore]):
    def __init__(self, client: Any, settings: StoreSettings) -> None:
        super().__init__(client, settings, threading.Semaphore)

    def execute(self, command: Sequence[Any]) -> Any:
        data = packed(command)
        free = self._own()
        if not free.acquire(timeout=self._wait_s):
            raise LostConnection(f"no connection was free for {self._wait_s:g} s")
        try:
            connection = self._take()
            try:
                connection.send_packed_command([data])
                return connection.read_response()
            except ResponseError:
                raise
            except BaseException:
                connection.disconnect()
                self.close()  # the others are probably broken, too: a repetition must not find one after the other
                raise
            finally:
                self._give_back(connection)
        finally:
            free.release()

    def close(self) -> None:
        with suppress(IndexError):  # no check before: other threads take connections, too
            while True:
                self._idle.pop().disconnect()


class AwaitingConnections(_Idle[asyncio.Semaphore]):
    def __init__(self, client: Any, settings: StoreSettings) -> None:
        super().__init__(client, settings, asyncio.Semaphore)

    async def execute(self, command: Sequence[Any]) -> Any:
        data = packed(command)
        free = self._own()
        if free.locked():
            try:
                await asyncio.wait_for(free.acquire(), self._wait_s)
            except TimeoutError:
                raise LostConnection(f"no connection was free for {self._wait_s:g} s") from None
        else:
            await free.acquire()
        try:
            connection = self._take()
            try:
                await connection.send_packed_command(data)
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
        finally:
            free.release()

    async def close(self) -> None:
        while self._idle:
            await self._idle.pop().disconnect()
