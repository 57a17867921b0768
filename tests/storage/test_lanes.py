"""Connections to a broker: as many as allowed, the last used first, free again whatever became of the request."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import httpx
import pytest

from tarry.app import AsyncApp
from tarry.core.settings import StoreSettings
from tarry.edges.http.settings import BrokerSettings
from tarry.http import AsyncClient, Client
from tarry.storage.http.lanes import AsyncLanes, Lanes
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tests.kit.blocking import Loop
from tests.kit.brokers import broker_on
from tests.kit.sleepers import until

PATIENCE_S = 30


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(settings=StoreSettings(create_queues=False, scan_every=timedelta(milliseconds=20)))


@pytest.fixture
def url(store: MemoryStore) -> Iterator[str]:
    loop = Loop()
    with broker_on(AsyncApp(AsyncMemoryStore(store)), loop, BrokerSettings(anonymous=True)) as url:
        yield url
    loop.stop()


def connections(client: Client) -> int:
    transport: Any = client.store._client._transport
    return len(transport._all)


def test_one_after_the_other_use_one_connection(url: str) -> None:
    with Client(url) as client:
        for number in range(5):
            client.queue("q").offer(f"k{number}", 1)
        assert connections(client) == 1


def test_no_more_than_allowed_are_under_way(url: str, store: MemoryStore) -> None:
    with Client(url, settings=StoreSettings(pool_size=2)) as client, ThreadPoolExecutor() as pool:
        queue = client.queue("q")
        polls = [pool.submit(queue.poll, timedelta(seconds=PATIENCE_S)) for _ in range(2)]
        until(lambda: store.lobby.waiting("q") == 2, "they never waited")
        began = threading.Event()
        third = pool.submit(lambda: (began.set(), queue.contains("a")))
        assert began.wait(PATIENCE_S)
        with Client(url) as other:
            for key in ("a", "b"):
                other.queue("q").offer(key, 1)
        assert all(poll.result(PATIENCE_S) for poll in polls)
        third.result(PATIENCE_S)
        assert connections(client) == 2


def test_whoever_waits_too_long_for_one_is_told(url: str) -> None:
    transport = Lanes(1)
    request = httpx.Request("GET", f"{url}/healthz", extensions={"timeout": {"pool": 0.01}})
    held = transport.handle_request(request)
    with pytest.raises(httpx.PoolTimeout):
        transport.handle_request(request)
    held.close()
    free = transport.handle_request(request)
    assert free.read() == b'{"status":"ok"}'
    free.close()
    transport.close()


def test_one_that_broke_is_free_again(url: str) -> None:
    transport = Lanes(1)
    with pytest.raises(httpx.ConnectError):
        transport.handle_request(httpx.Request("GET", "http://127.0.0.1:1/"))
    answer = transport.handle_request(httpx.Request("GET", f"{url}/healthz"))
    assert answer.status_code == 200
    answer.close()
    transport.close()


def test_a_request_that_is_cancelled_leaves_its_connection_free(url: str, store: MemoryStore) -> None:
    async def scenario() -> str:
        async with AsyncClient(url, settings=StoreSettings(pool_size=1)) as client:
            queue = client.queue("q")
            poll = asyncio.create_task(queue.poll(timedelta(seconds=PATIENCE_S)))
            await asyncio.to_thread(until, lambda: store.lobby.waiting("q") == 1)
            poll.cancel()
            await asyncio.wait([poll])
            return (await asyncio.wait_for(queue.offer("a", 1), PATIENCE_S)).value

    assert asyncio.run(scenario()) == "created"


def test_awaiting_whoever_waits_too_long_for_one_is_told(url: str) -> None:
    async def scenario() -> bytes:
        transport = AsyncLanes(1)
        request = httpx.Request("GET", f"{url}/healthz", extensions={"timeout": {"pool": 0.01}})
        held = await transport.handle_async_request(request)
        with pytest.raises(httpx.PoolTimeout):
            await transport.handle_async_request(request)
        await held.aclose()
        free = await transport.handle_async_request(request)
        read = await free.aread()
        await transport.aclose()
        return read

    assert asyncio.run(scenario()) == b'{"status":"ok"}'
