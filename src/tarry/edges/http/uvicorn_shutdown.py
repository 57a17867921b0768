"""Access to the uvicorn server around a broker: the broker's own, or the server of the application it is mounted in.

uvicorn runs the `lifespan` shutdown only after all connections are closed, and notifies no application earlier. A mounted
broker therefore polls the server: open streams would otherwise block the shutdown forever.
"""

import asyncio
import signal
import sys
from collections.abc import Callable
from typing import Any

from starlette.types import Scope

CHECK_EVERY_S = 0.1
"""The interval at which uvicorn itself checks whether to stop."""
FLUSH_S = 2.0
"""How long a client may take to read the rest of its response when the server stops."""


class ServerMonitor:
    """Calls `on_stop` when the server stops, and closes connections of clients that do not read."""

    def __init__(self, on_stop: Callable[[], None]) -> None:
        self.server: Any = None
        """The uvicorn server. A broker's own server sets it; otherwise it is looked up at the first long request."""
        self._on_stop = on_stop
        self._is_started = False

    def start(self, scope: Scope) -> None:
        """Monitor the server from the first long request on; short requests do not delay its shutdown."""
        if self._is_started:
            return
        self._is_started = True
        self.server = self.server or _server_of(scope)
        if self.server is not None:
            self._check()

    def abort(self, scope: Scope) -> None:
        """Abort the connection of this request: `close` would wait for a client that does not read."""
        client = None if scope["client"] is None else tuple(scope["client"])
        for connection in [] if self.server is None else list(self.server.server_state.connections):
            if client is not None and getattr(connection, "client", None) == client:
                connection.transport.abort()

    def abort_later(self, scope: Scope) -> None:
        """Abort the connection after `FLUSH_S`, unless the client has read the rest of its response."""
        asyncio.get_running_loop().call_later(FLUSH_S, self.abort, scope)

    def _check(self) -> None:
        # uvicorn also stops without `should_exit`, after `limit_max_requests`: then it no longer listens.
        if self.server.should_exit or not any(listener.is_serving() for listener in self.server.servers):
            self._on_stop()
        else:
            asyncio.get_running_loop().call_later(CHECK_EVERY_S, self._check)


def _server_of(scope: Scope) -> Any:
    """The uvicorn server of this request, which has registered its `handle_exit` for SIGTERM and SIGINT.

    None for other servers, and for a uvicorn server outside the main thread, which handles no signals: its owner calls
    `Broker.stop`.
    """
    uvicorn: Any = sys.modules.get("uvicorn")
    for number in (signal.SIGTERM, signal.SIGINT):  # an application may replace one of the handlers
        server: Any = getattr(signal.getsignal(number), "__self__", None)
        if uvicorn is not None and isinstance(server, uvicorn.Server):
            # A process may run several servers: this one must have a connection to the address of the request.
            addresses = {getattr(connection, "server", None) for connection in server.server_state.connections}
            return server if scope.get("server") in addresses else None
    return None
