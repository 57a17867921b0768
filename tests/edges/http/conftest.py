"""A broker on a memory store: in this process without sockets for what it answers, with sockets for how it behaves."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from tarry.app import AsyncApp
from tarry.edges.http.app import broker_app
from tarry.edges.http.settings import BrokerSettings
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tests.kit.blocking import Loop
from tests.kit.brokers import behind, broker_url, http_loop, key, pinned

__all__ = ["behind", "broker_url", "http_loop", "key", "pinned"]


class Caller:
    """Sends requests to an ASGI application, from code that blocks."""

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
        return self._loop.run(self.request(method, path, body, **options))

    def with_key(self, key: str | None) -> Caller:
        return Caller(self.served, self._loop, key, host=self._host, peer=self._peer)

    async def request(self, method: str, path: str, body: Any = None, **options: Any) -> httpx.Response:
        headers = {**({"authorization": f"Bearer {self._key}"} if self._key else {}), **options.pop("headers", {})}
        if body is not None:
            options["json"] = body
        peer: Any = self._peer  # None: as a server on a Unix socket has it
        transport = httpx.ASGITransport(self.served, raise_app_exceptions=False, client=peer)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{self._host}") as client:
            return await client.request(method, path, headers=headers, **options)


@pytest.fixture(scope="session")
def documented() -> dict[str, Any]:
    """The paths of the OpenAPI document, which takes half a second to make and is the same for every broker."""
    return broker_app(AsyncApp(AsyncMemoryStore(MemoryStore()))).openapi()["paths"]


@pytest.fixture
def call(behind: AsyncApp, http_loop: Loop) -> Caller:
    """An open broker, called from this machine."""
    return Caller(broker_app(behind, BrokerSettings(anonymous=True)), http_loop)
