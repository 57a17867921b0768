"""A broker in this process, on a loop of its own, for tests that reach it by HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tarry.app import AsyncApp
from tarry.core.settings import StoreSettings
from tarry.edges.http.server import running_broker
from tarry.edges.http.settings import BrokerSettings
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tarry.testing import MutableClock
from tests.kit.blocking import Loop
from tests.kit.clocks import START


@contextmanager
def broker_on(app: AsyncApp, loop: Loop, settings: BrokerSettings, port: int = 0) -> Iterator[str]:
    """Its address."""
    running = running_broker(app, settings, port=port)
    url = loop.run(running.__aenter__())
    try:
        yield url
    finally:
        loop.run(running.__aexit__(None, None, None))


@pytest.fixture(scope="session")
def http_loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.stop()


@pytest.fixture
def pinned() -> MutableClock:
    return MutableClock(START)


@pytest.fixture
def behind(pinned: MutableClock) -> AsyncApp:
    return AsyncApp(AsyncMemoryStore(MemoryStore(clock=pinned, settings=StoreSettings(create_queues=False))))


@pytest.fixture
def key(behind: AsyncApp, http_loop: Loop) -> Callable[..., str]:
    def make(*actions: str, queues: tuple[str, ...] = ("*",), **options: Any) -> str:
        return http_loop.run(behind.keys.create("test", actions, queues, **options)).text

    return make


@pytest.fixture
def broker_url(behind: AsyncApp, http_loop: Loop) -> Iterator[str]:
    with broker_on(behind, http_loop, BrokerSettings(anonymous=True)) as url:
        yield url
