"""A host application's own server, on the loop of the tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from tarry.edges.http.server import bind
from tests.kit.blocking import Loop


@contextmanager
def running(served: Any, loop: Loop) -> Iterator[str]:
    """Its address."""
    listening = bind("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(served, log_level="warning", lifespan="off", timeout_graceful_shutdown=3))
    server.capture_signals = _no_signals  # pyright: ignore[reportAttributeAccessIssue]

    async def start() -> asyncio.Task[None]:
        return asyncio.create_task(server.serve([listening]))

    async def stop(task: asyncio.Task[None]) -> None:
        server.should_exit = True
        await task

    task = loop.run(start())
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        loop.run(stop(task))
        listening.close()


@contextmanager
def _no_signals() -> Iterator[None]:
    yield
