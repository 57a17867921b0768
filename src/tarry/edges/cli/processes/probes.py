"""A small HTTP server for probes of processes other than a broker: `/healthz`, `/readyz` and `/metrics`."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tarry.core.errors import InvalidState, TarryError
from tarry.core.ports import AsyncStore

_log = logging.getLogger("tarry.process")
_READ_WITHIN_S = 5.0
_READY_WITHIN_S = 2.0
_MOST_BYTES = 8_192


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    host: str = "127.0.0.1"
    port: int | None = None
    """None: no server."""


NO_PROBES = ProbeOptions()


@asynccontextmanager
async def probes(
    options: ProbeOptions, store: AsyncStore, stop: asyncio.Event, metrics: Callable[[], bytes] | None = None
) -> AsyncGenerator[None]:
    """Serve while the block runs. Healthy: the event loop responds. Ready: the database responds and no signal arrived."""
    if options.port is None:
        yield
        return

    async def respond(path: str) -> tuple[int, str, bytes]:
        if path == "/metrics" and metrics is not None:
            return 200, "text/plain; version=0.0.4; charset=utf-8", metrics()
        if path not in ("/healthz", "/readyz"):
            return (
                404,
                "application/json",
                b'{"status":"there is /healthz, /readyz and, of a worker with prometheus-client, /metrics"}',
            )
        problem = await _problem(store, stop) if path == "/readyz" else None
        return 503 if problem else 200, "application/json", f'{{"status":"{problem or "ok"}"}}'.encode()

    try:
        server = await asyncio.start_server(
            lambda r, w: _serve(r, w, respond), options.host, options.port, limit=_MOST_BYTES
        )
    except OSError as error:
        raise InvalidState(f"probes cannot be served on {options.host} port {options.port}: {error}") from error
    host = f"[{options.host}]" if ":" in options.host else options.host
    _log.info("probes on http://%s:%d/", host, server.sockets[0].getsockname()[1])
    try:
        yield
    finally:
        server.close()


async def _problem(store: AsyncStore, stop: asyncio.Event) -> str | None:
    if stop.is_set():
        return "stopping"
    try:
        async with asyncio.timeout(_READY_WITHIN_S):
            await store.run(store.queues.now())
    except (TarryError, TimeoutError):
        return "the database cannot be used"
    return None


async def _serve(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    respond: Callable[[str], Awaitable[tuple[int, str, bytes]]],
) -> None:
    with contextlib.closing(writer), contextlib.suppress(OSError, EOFError, asyncio.LimitOverrunError):
        async with asyncio.timeout(_READ_WITHIN_S):
            method, _, target = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").partition(" ")
        path = target.partition(" ")[0]
        status, kind, body = await respond(path.partition("?")[0])
        head = (
            f"HTTP/1.1 {status} -\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode() + (b"" if method == "HEAD" else body))
        await writer.drain()
