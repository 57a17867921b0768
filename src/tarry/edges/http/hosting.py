"""The uvicorn server that a broker is served by: its own, or that of an application it is mounted in.

It waits for its connections before it runs the end of `lifespan`, and tells nobody before that it stops. So a broker has to
find it and look at it: else streams would hold the end of somebody else's application up for ever, and long polls for long.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from starlette.types import Scope

LOOK_EVERY_S = 0.1
"""As often as uvicorn itself looks whether it shall stop."""
FLUSH_S = 2.0
"""How long clients may take to read what was sent to them when the server stops."""


class Host:
    """Looked at while long answers are under way, and only then."""

    def __init__(self, on_stop: Callable[[], None]) -> None:
        self._on_stop = on_stop
        self._under_way = 0
        self._looking: asyncio.TimerHandle | None = None
        self._server: Any = None
        self._sought = False

    @contextmanager
    def long_answer(self, scope: Scope) -> Generator[None]:
        if not self._sought:  # once: it looks at every task
            self._sought, self._server = True, _serving(scope)
        self._under_way += 1
        if self._looking is None:
            self._look()
        try:
            yield
        finally:
            self._under_way -= 1
            if not self._under_way and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    def hang_up(self, scope: Scope) -> None:
        """At once, with what is still to be sent: closing in peace would wait for a client that does not read."""
        client = None if scope["client"] is None else tuple(scope["client"])
        for connection in [] if self._server is None else list(self._server.server_state.connections):
            if client is not None and getattr(connection, "client", None) == client:
                connection.transport.abort()

    def hang_up_soon(self, scope: Scope) -> None:
        """On a client that has not read the last of its answer by then."""
        asyncio.get_running_loop().call_later(FLUSH_S, self.hang_up, scope)

    def _look(self) -> None:
        self._looking = None
        if self._server is None:
            return
        if _is_stopping(self._server):
            self._on_stop()
        else:
            self._looking = asyncio.get_running_loop().call_later(LOOK_EVERY_S, self._look)


def _has(server: Any, scope: Scope) -> bool:
    """One loop may have several."""
    asked = scope.get("server")
    return any(getattr(one, "server", None) == asked for one in server.server_state.connections)


def _is_stopping(server: Any) -> bool:
    """It also stops without being told to, after so many requests: then it listens no more."""
    return server.should_exit or not any(one.is_serving() for one in server.servers)


def _serving(scope: Scope) -> Any:
    """Found on the stack of its task, for nothing in a request leads to it; None where another kind of server runs."""
    uvicorn: Any = sys.modules.get("uvicorn")
    if uvicorn is None:
        return None
    for task in asyncio.all_tasks():
        step: Any = task.get_coro()
        while (frame := getattr(step, "cr_frame", None)) is not None:
            found = frame.f_locals.get("self")
            if isinstance(found, uvicorn.Server) and _has(found, scope):
                return found
            step = step.cr_await
    return None
