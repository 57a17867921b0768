"""The broker as a process: it binds, starts, and stops quickly while clients wait."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator, Generator
from functools import partial
from typing import Any, cast

import uvicorn
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route

from tarry.app import AsyncApp
from tarry.core.errors import InvalidState
from tarry.edges.dashboard import app as dashboard
from tarry.edges.dashboard.settings import DashboardSettings
from tarry.edges.http.app import Broker, broker_app
from tarry.edges.http.connection_limits import (
    ACCEPTED_AT_ONCE,
    ConnectionLimits,
    LimitedConnection,
    summarize_accept_errors,
)
from tarry.edges.http.origins import is_loopback
from tarry.edges.http.settings import BrokerSettings
from tarry.edges.http.uvicorn_shutdown import FLUSH_S

BACKLOG = 4096
_PAGES = DashboardSettings()
_TICKS_PER_CHECK = 5
"""uvicorn ticks ten times per second."""


class BrokerServer(uvicorn.Server):
    """A uvicorn server with limits on connections, which stops the broker before it waits for responses in progress."""

    def __init__(self, served: FastAPI, stop: asyncio.Event | None = None) -> None:
        """`stop`: the server stops when it is set."""
        self._broker: Broker = served.state.broker
        self._stop = stop or asyncio.Event()
        self._limits = ConnectionLimits(self._broker.settings)
        # Connections with a long request are not closed to make room, so one key must not use all of them.
        self._broker.authenticator.long_per_caller = max(1, self._limits.most // 2)
        self._broker.server_monitor.server = self
        super().__init__(
            uvicorn.Config(
                served,
                # A factory instead of a class: uvicorn only calls it.
                http=cast("Any", partial(LimitedConnection, limits=self._limits)),
                lifespan="off",
                access_log=False,
                log_level="warning",
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
        loop.set_exception_handler(summarize_accept_errors(self._handler))
        await super().startup(sockets)
        for listening in sockets or ():
            # asyncio uses one parameter for the kernel backlog and for the accepts per iteration.
            listening.listen(BACKLOG)
        self.open.set()

    async def on_tick(self, counter: int) -> bool:
        if not counter % _TICKS_PER_CHECK:
            self._limits.check()
        return self._stop.is_set() or await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """Disabled: the process handles signals; uvicorn would raise them again after a clean shutdown."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._broker.stop()
        aborting = asyncio.create_task(self._abort_unread(), name="tarry-abort-unread")
        await super().shutdown(sockets)
        aborting.cancel()
        asyncio.get_running_loop().set_exception_handler(self._handler)

    async def _abort_unread(self) -> None:
        """Close connections with a complete response that the client does not read."""
        await asyncio.sleep(FLUSH_S)
        for connection in list(self.server_state.connections):
            if connection.transport.is_closing():
                connection.transport.abort()


async def check_bind(app: AsyncApp, host: str) -> BrokerSettings:
    """Settings for this address. Beyond loopback every request needs a key, so a key must exist."""
    if is_loopback(host):
        return BrokerSettings(anonymous=True)
    if not any(key.active for key in await app.keys.list()):
        raise InvalidState(
            f"the broker does not bind to {host} without an API key: every client could use it",
            hint="create a key first: tarry key create NAME --action all",
        )
    return BrokerSettings(anonymous=False)


def bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol TCP: otherwise the loop leaves Nagle's algorithm on, which delays each response by 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        # From here on the kernel queues clients, so the address may be announced before the server runs.
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise InvalidState(
            f"cannot bind to {host} port {port}: {error.strerror}", hint="choose another --port"
        ) from error
    return listening


def with_dashboard(served: FastAPI, settings: DashboardSettings) -> FastAPI:
    """The broker with its dashboard. The root path redirects to the dashboard."""

    async def to_dashboard(request: Request) -> Response:
        return RedirectResponse(f"{request.scope.get('root_path', '').rstrip('/')}{dashboard.PATH}/", 307)

    mounted = dashboard.dashboard_app(served.state.broker, settings)
    for path in ("/", dashboard.PATH):
        served.router.routes.append(Route(path, to_dashboard, methods=["GET"]))
    served.router.routes.append(Mount(dashboard.PATH, mounted))
    return served


@contextlib.asynccontextmanager
async def running_broker(
    app: AsyncApp,
    settings: BrokerSettings,
    host: str = "127.0.0.1",
    port: int = 0,
    pages: DashboardSettings = _PAGES,
    stop: asyncio.Event | None = None,
) -> AsyncGenerator[str]:
    """A broker with its dashboard in a running loop, by default on a free port. Yields its URL.

    `stop`: the broker stops when it is set, and sets it if it stops by itself.
    """
    listening, ended = bind(host, port), stop or asyncio.Event()
    server = BrokerServer(with_dashboard(broker_app(app, settings), pages), ended)
    running = asyncio.create_task(server.serve([listening]), name="tarry-broker")
    for event in (server.open, ended):
        running.add_done_callback(lambda _, event=event: event.set())
    try:
        await server.open.wait()
        yield f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
    finally:
        ended.set()
        await running
        listening.close()
