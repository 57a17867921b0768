"""Tarry in a FastAPI application: `FastAPI(lifespan=lifespan(worker=worker))`, and `app: Tarry` as a parameter of a route."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated, Any

from tarry.app import AsyncApp, connect_async
from tarry.core.errors import InvalidInput, InvalidState
from tarry.core.extras import needs_extra
from tarry.services.worker.worker import Worker, WorkerSettings

with needs_extra("http", "tarry.fastapi"):
    from fastapi import Depends, FastAPI
    from fastapi.requests import HTTPConnection

__all__ = ["Tarry", "lifespan"]

_log = logging.getLogger("tarry")


def lifespan(
    dsn: str | None = None,
    *,
    queues: Iterable[str] = (),
    worker: Worker | None = None,
    worker_settings: WorkerSettings = WorkerSettings(),
    **options: Any,
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """A lifespan with one app per server, `connect_async(dsn, **options)`. It creates the queues and runs the worker in the
    server's event loop; the worker stops gracefully with the server."""
    if isinstance(queues, str):
        raise InvalidInput(f"queues={queues!r} is one text, not a list of names", hint=f"queues=[{queues!r}]")

    @asynccontextmanager
    async def connected(api: FastAPI) -> AsyncGenerator[None]:
        async with connect_async(dsn, **options) as app:
            for queue in queues:
                await app.queues.create(queue, exist_ok=True)
            api.state.tarry = app
            stop = asyncio.Event()
            running = worker and asyncio.create_task(worker.run(app, worker_settings, stop=stop))
            if running:
                running.add_done_callback(_report)
            try:
                yield
            finally:
                stop.set()
                if running:
                    await asyncio.wait({running})

    return connected


def _report(running: asyncio.Task[Any]) -> None:
    if not running.cancelled() and (error := running.exception()) is not None:
        _log.error("the worker of this server has ended: %s", error, exc_info=error)


def _app(connection: HTTPConnection) -> AsyncApp:
    app = getattr(connection.app.state, "tarry", None)
    if app is None:
        raise InvalidState(
            "this FastAPI application has no Tarry",
            hint="FastAPI(lifespan=tarry.fastapi.lifespan()), and run its lifespan",
        )
    return app


Tarry = Annotated[AsyncApp, Depends(_app)]
"""The app of the server, as a parameter of a route."""
