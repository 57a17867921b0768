"""The broker as a process: where it binds, how it starts, and how it ends quickly with clients still waiting."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from functools import partial
from typing import Any, cast

import uvicorn
from fastapi import FastAPI

from tarry.app import AsyncApp
from tarry.core.errors import Refused
from tarry.edges.http.broker import Broker, broker_app
from tarry.edges.http.connections import ACCEPTED_AT_ONCE, Connection, Connections, quiet_about_descriptors
from tarry.edges.http.hosting import FLUSH_S
from tarry.edges.http.origins import is_loopback
from tarry.edges.http.settings import BrokerSettings

BACKLOG = 4096
_TICKS_PER_CHECK = 5
"""uvicorn ticks ten times a second."""


class BrokerServer(uvicorn.Server):
    """Tells the broker that it is stopping before it waits for the answers under way."""

    def __init__(self, served: FastAPI, *, log_level: str = "warning") -> None:
        self._broker: Broker = served.state.broker
        self._bounds = Connections(self._broker.settings)
        # A connection with a long request does not give way: one key must leave connections for the others.
        self._broker.gate.long_per_caller = max(1, self._bounds.most // 2)
        super().__init__(
            uvicorn.Config(
                served,
                # A factory in place of a class: uvicorn does nothing with it but call it.
                http=cast("Any", partial(Connection, bounds=self._bounds)),
                lifespan="off",
                access_log=False,
                log_level=log_level,
                log_config=None,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=cast("int", self._broker.settings.grace.total_seconds()),
                timeout_keep_alive=30,
                backlog=ACCEPTED_AT_ONCE,
                ws="none",
            )
        )
        self.open = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        self._handler = loop.get_exception_handler()
        loop.set_exception_handler(quiet_about_descriptors(self._handler))
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(
                BACKLOG
            )  # asyncio takes one number for the queue of the kernel and for how many it accepts at once
        self.open.set()

    async def on_tick(self, counter: int) -> bool:
        if not counter % _TICKS_PER_CHECK:
            self._bounds.check()
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals are handled by the process: uvicorn would raise them again after a good end."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._broker.stop()
        hurrying = asyncio.create_task(self._drop_who_does_not_read(), name="tarry-hang-up")
        await super().shutdown(sockets)
        hurrying.cancel()
        asyncio.get_running_loop().set_exception_handler(self._handler)

    async def _drop_who_does_not_read(self) -> None:
        """Those who have their answer, except that it does not go out."""
        await asyncio.sleep(FLUSH_S)
        for connection in list(self.server_state.connections):
            if connection.transport.is_closing():
                connection.transport.abort()


async def check_bind(app: AsyncApp, host: str) -> BrokerSettings:
    """Beyond loopback nobody gets in without a key, so there has to be one."""
    if is_loopback(host):
        return BrokerSettings(anonymous=True)
    if not any(key.active for key in await app.keys.list()):
        raise Refused(
            f"the broker does not bind to {host} while there is no API key: everybody could use it",
            hint="make one first: tarry key create NAME --action admin --action read …",
        )
    return BrokerSettings(anonymous=False)


def bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP: else the loop does not switch Nagle's algorithm off, and every answer waits 40 ms for an echo.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
        # From here on clients wait instead of being refused: whoever reads that we answer may come at once.
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        raise Refused(f"cannot bind to {host} port {port}: {error.strerror}", hint="choose another --port") from error
    return found


async def serve(
    app: AsyncApp,
    sockets: Sequence[socket.socket],
    settings: BrokerSettings,
    stop: asyncio.Event,
    announce: Callable[[], None] = lambda: None,
) -> None:
    """Serve until `stop` is set. `announce` is called when clients may come."""
    server = BrokerServer(broker_app(app, settings))

    async def stop_it() -> None:
        await stop.wait()
        server.should_exit = True

    stopping = asyncio.create_task(stop_it(), name="tarry-broker-stop")
    announce()
    try:
        await server.serve(list(sockets))
    finally:
        stopping.cancel()


@contextlib.asynccontextmanager
async def serving(
    app: AsyncApp, settings: BrokerSettings, host: str = "127.0.0.1", port: int = 0
) -> AsyncGenerator[str]:
    """A broker inside a running loop, by default on a free port: for tests, and for programs that bring their own."""
    listening = bind(host, port)
    server = BrokerServer(broker_app(app, settings))
    running = asyncio.create_task(server.serve([listening]), name="tarry-broker")
    try:
        await server.open.wait()
        yield f"http://{host}:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await running
        listening.close()
