"""Connections to a broker, each in a pool of its own: one pool looks at all of them with every request, and that is dear."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import httpx

_ONE = httpx.Limits(max_connections=1, max_keepalive_connections=1)


class Lanes(httpx.BaseTransport):
    """At most `size` requests at once; whoever comes next waits. The connection that was used last is used first."""

    def __init__(self, size: int) -> None:
        self._room = threading.Semaphore(size)
        self._all: list[httpx.HTTPTransport] = []
        self._idle: list[httpx.HTTPTransport] = []
        self._context = httpx.create_ssl_context(trust_env=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if not self._room.acquire(timeout=_pool_s(request)):
            raise httpx.PoolTimeout("all connections to the broker are in use", request=request)
        try:
            lane = self._idle.pop()  # and not a look before it: another thread may be quicker
        except IndexError:
            lane = httpx.HTTPTransport(verify=self._context, limits=_ONE)
            self._all.append(lane)

        def free() -> None:
            self._idle.append(lane)
            self._room.release()

        try:
            response = lane.handle_request(request)
        except BaseException:
            free()
            raise
        response.stream = _Stream(response.stream, free)  # pyright: ignore[reportArgumentType]
        return response

    def close(self) -> None:
        for lane in self._all:
            lane.close()


class AsyncLanes(httpx.AsyncBaseTransport):
    def __init__(self, size: int) -> None:
        self._room = asyncio.Semaphore(size)
        self._all: list[httpx.AsyncHTTPTransport] = []
        self._idle: list[httpx.AsyncHTTPTransport] = []
        self._context = httpx.create_ssl_context(trust_env=False)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        try:
            async with asyncio.timeout(_pool_s(request)):
                await self._room.acquire()
        except TimeoutError:
            raise httpx.PoolTimeout("all connections to the broker are in use", request=request) from None
        if not self._idle:
            self._idle.append(httpx.AsyncHTTPTransport(verify=self._context, limits=_ONE))
            self._all.append(self._idle[-1])
        lane = self._idle.pop()

        def free() -> None:
            self._idle.append(lane)
            self._room.release()

        try:
            response = await lane.handle_async_request(request)
        except BaseException:
            free()
            raise
        response.stream = _AsyncStream(response.stream, free)  # pyright: ignore[reportArgumentType]
        return response

    async def aclose(self) -> None:
        for lane in self._all:
            await lane.aclose()


def _pool_s(request: httpx.Request) -> float | None:
    return request.extensions.get("timeout", {}).get("pool")


class _Stream(httpx.SyncByteStream):
    """An answer. Its connection is free when it has been read, or given up."""

    def __init__(self, inner: httpx.SyncByteStream, free: Callable[[], None]) -> None:
        self._inner, self._free = inner, free

    def __iter__(self) -> Iterator[bytes]:
        yield from self._inner

    def close(self) -> None:
        try:
            self._inner.close()
        finally:
            self._free()


class _AsyncStream(httpx.AsyncByteStream):
    def __init__(self, inner: httpx.AsyncByteStream, free: Callable[[], None]) -> None:
        self._inner, self._free = inner, free

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            yield chunk

    async def aclose(self) -> None:
        try:
            await self._inner.aclose()
        finally:
            self._free()
