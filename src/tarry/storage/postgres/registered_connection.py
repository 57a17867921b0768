"""A driver connection whose socket stays registered with the event loop from one statement to the next.

The driver registers the socket for each wait and removes it afterwards, which is eight system calls on uvloop. With the timer
of each wait, that costs the client twice as much CPU as the rest of a statement.
"""

import asyncio
from typing import Any, Generic, TypeVar, cast

from psycopg import AsyncConnection
from psycopg.abc import PQGen
from psycopg.waiting import Ready, Wait

R = TypeVar("R")


class RegisteredConnection(AsyncConnection[Any]):
    """Waits for replies itself. The driver does all other waits: to write, with a limit, and to cancel a statement."""

    _loop: asyncio.AbstractEventLoop | None = None
    """The loop that the socket is registered with."""
    _fileno = -1
    _waiter: asyncio.Future[None] | None = None
    _is_surplus = False

    async def wait(self, gen: PQGen[R], *limits: Any, **more_limits: Any) -> R:
        try:
            first: Wait | BaseException = next(gen)
            while first == Wait.R and not limits and not more_limits:
                await self._readable()
                first = gen.send(Ready.R)
        except StopIteration as stop:
            return stop.value
        except BaseException as error:
            first = error
        self._unregister()  # the driver registers the same descriptor, or libpq has closed it
        return await super().wait(cast("PQGen[R]", _Rest(gen, first)), *limits, **more_limits)

    async def close(self) -> None:
        self._unregister()
        await super().close()

    def _readable(self) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._fileno = loop, self.pgconn.socket
            loop.add_reader(self._fileno, self._on_readable)
        self._is_surplus = False
        self._waiter = loop.create_future()
        return self._waiter

    def _on_readable(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        elif self._is_surplus:
            self._unregister()  # no statement waits for these bytes: the loop would report them forever
        else:
            self._is_surplus = True  # asyncio reports a reply once more before its task reads it

    def _unregister(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._fileno)
        self._loop = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)  # another task closes the connection: this one fails now


class _Rest(Generic[R]):
    """The rest of a generator, beginning with the state that it has yielded or the error that it was interrupted by."""

    def __init__(self, gen: PQGen[R], first: Wait | BaseException) -> None:
        self._gen = gen
        self._first: Wait | BaseException | None = first

    def __next__(self) -> Wait:
        return self.send(None)

    def send(self, ready: Any) -> Wait:
        first, self._first = self._first, None
        if isinstance(first, BaseException):
            raise first
        return self._gen.send(ready) if first is None else first
