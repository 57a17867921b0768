"""A broker on a memory store: in this process without sockets for what it answers, with sockets for how it behaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from tarry.app import AsyncApp
from tarry.core.settings import StoreSettings
from tarry.edges.http.broker import broker_app
from tarry.edges.http.settings import BrokerSettings
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tarry.testing import MutableClock
from tests.kit.blocking import Loop
from tests.kit.brokers import broker_on
from tests.kit.clocks import START


class Caller:
    """Asks an ASGI application, from code that blocks."""

    def __init__(
        self,
        served: FastAPI,
        loop: Loop,
        key: str | None = None,
        *,
        host: str = "localhost",
        peer: tuple[str, int] | None = ("127.0.0.1", 123),
    ) -> None:
        self.served = served
        self._loop = loop
        self._key = key
        self._host = host
        self._peer = peer

    def __call__(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        return self._loop.run(self.answer(method, path, body, **options))

    def with_key(self, key: str | None) -> Caller:
        return Caller(self.served, self._loop, key, host=self._host, peer=self._peer)

    async def answer(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        headers = {**({"authorization": f"Bearer {self._key}"} if self._key else {}), **options.pop("headers", {})}
        if body is not None:
            options["json"] = body
        peer: Any = self._peer  # None: as a server on a Unix socket has it
        transport = httpx.ASGITransport(self.served, raise_app_exceptions=False, client=peer)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{self._host}") as client:
            return await client.request(method, path, headers=headers, **options)


@pytest.fixture(scope="session")
def http_loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.stop()


@pytest.fixture(scope="session")
def documented() -> dict[str, Any]:
    """The paths of the OpenAPI document, which takes half a second to make and is the same for every broker."""
    return broker_app(AsyncApp(AsyncMemoryStore(MemoryStore()))).openapi()["paths"]


@pytest.fixture
def pinned() -> MutableClock:
    return MutableClock(START)


@pytest.fixture
def behind(pinned: MutableClock) -> AsyncApp:
    return AsyncApp(AsyncMemoryStore(MemoryStore(clock=pinned, settings=StoreSettings(create_queues=False))))


@pytest.fixture
def ask(behind: AsyncApp, http_loop: Loop) -> Caller:
    """An open broker, asked from this machine."""
    return Caller(broker_app(behind, BrokerSettings(anonymous=True)), http_loop)


@pytest.fixture
def key(behind: AsyncApp, http_loop: Loop) -> Callable[..., str]:
    def make(*actions: str, queues: tuple[str, ...] = ("*",), **options: Any) -> str:
        return http_loop.run(behind.keys.create("test", actions, queues, **options)).text

    return make


@pytest.fixture
def broker_url(behind: AsyncApp, http_loop: Loop) -> Iterator[str]:
    with broker_on(behind, http_loop, BrokerSettings(anonymous=True)) as url:
        yield url
