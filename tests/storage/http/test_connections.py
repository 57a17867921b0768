"""Connections to a broker: as many as allowed, the last used first, free again whatever became of the request."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from tarry.app import AsyncApp
from tarry.core.settings import StoreSettings
from tarry.edges.http.settings import BrokerSettings
from tarry.http import AsyncClient, Client
from tarry.storage.http._sync.connections import ConnectionPool
from tarry.storage.http.call import Call
from tarry.storage.http.protocol import Address, HttpRequest
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tests.kit.blocking import Loop
from tests.kit.brokers import broker_on
from tests.kit.sleepers import until, waiting

TIMEOUT_S = 30


def health(url: str, *, wait_s: float = TIMEOUT_S) -> HttpRequest:
    return Address(url, None).request(Call("GET", "/healthz"), TIMEOUT_S)._replace(reply_s=wait_s)


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
    return len(client.store._pool._all)  # pyright: ignore[reportPrivateUsage]


def test_one_after_the_other_use_one_connection(url: str) -> None:
    with Client(url) as client:
        for number in range(5):
            client.queue("q").offer(f"k{number}", 1)
        assert connections(client) == 1


def test_no_more_than_allowed_are_under_way(url: str, store: MemoryStore) -> None:
    with Client(url, settings=StoreSettings(pool_size=2)) as client, ThreadPoolExecutor() as pool:
        queue = client.queue("q")
        polls = [pool.submit(queue.poll, timedelta(seconds=TIMEOUT_S)) for _ in range(2)]
        until(lambda: waiting(store.wakeup.wait_queue, "q") == 2, "they never waited")
        began = threading.Event()
        third = pool.submit(lambda: (began.set(), queue.contains("a")))
        assert began.wait(TIMEOUT_S)
        with Client(url) as other:
            for key in ("a", "b"):
                other.queue("q").offer(key, 1)
        assert all(poll.result(TIMEOUT_S) for poll in polls)
        third.result(TIMEOUT_S)
        assert connections(client) == 2


def test_a_request_that_waits_too_long_for_a_connection_fails(url: str, store: MemoryStore) -> None:
    with Client(url, settings=StoreSettings(pool_size=1)) as client, ThreadPoolExecutor() as pool:
        poll = pool.submit(client.queue("q").poll, timedelta(seconds=TIMEOUT_S))
        until(lambda: waiting(store.wakeup.wait_queue, "q") == 1, "it never waited")
        with pytest.raises(TimeoutError, match="are in use"):
            client.store._pool.exchange(health(url, wait_s=0.01))
        with Client(url) as other:
            other.queue("q").offer("a", 1)
        assert poll.result(TIMEOUT_S)
        assert client.store._pool.exchange(health(url)).status == 200


def test_the_connection_of_a_request_that_failed_is_free_again(url: str) -> None:
    pool = ConnectionPool(Address(url, None), 1)
    closing = health(url)._replace(data=b"GET /healthz HTTP/1.1\r\n\r\nx y z\r\n\r\n")
    assert pool.exchange(closing).status == 400  # no Host: the broker closes
    for _ in range(2):
        with pytest.raises(TimeoutError):
            pool.exchange(health(url, wait_s=0.02)._replace(data=b"GET /healthz HTTP/1.1\r\n"))
    assert pool.exchange(health(url)).status == 200
    pool.close()


def test_a_request_that_is_cancelled_leaves_its_connection_free(url: str, store: MemoryStore) -> None:
    async def scenario() -> str:
        async with AsyncClient(url, settings=StoreSettings(pool_size=1)) as client:
            queue = client.queue("q")
            poll = asyncio.create_task(queue.poll(timedelta(seconds=TIMEOUT_S)))
            await asyncio.to_thread(until, lambda: waiting(store.wakeup.wait_queue, "q") == 1)
            poll.cancel()
            await asyncio.wait([poll])
            return (await asyncio.wait_for(queue.offer("a", 1), TIMEOUT_S)).value

    assert asyncio.run(scenario()) == "created"


def test_an_awaiting_request_that_waits_too_long_for_a_connection_fails(url: str, store: MemoryStore) -> None:
    async def scenario() -> bytes:
        async with AsyncClient(url, settings=StoreSettings(pool_size=1)) as client:
            poll = asyncio.create_task(client.queue("q").poll(timedelta(seconds=TIMEOUT_S)))
            await asyncio.to_thread(until, lambda: waiting(store.wakeup.wait_queue, "q") == 1)
            with pytest.raises(TimeoutError, match="are in use"):
                await client.store._pool.exchange(health(url, wait_s=0.01))
            poll.cancel()
            await asyncio.wait([poll])
            return (await client.store._pool.exchange(health(url))).take_body()

    assert asyncio.run(scenario()) == b'{"status":"ok"}'


@pytest.mark.parametrize("times", [1, 2])
def test_a_client_goes_on_after_requests_were_cancelled_at_any_moment(url: str, times: int) -> None:
    """A cancelled request may leave a connection that httpx takes for one in use."""

    async def run() -> None:
        async with AsyncClient(url, settings=StoreSettings(pool_size=1)) as client:
            queue = client.queue("q")
            await queue.offer("k", 1)
            for turns in range(40):
                offering = asyncio.create_task(queue.offer("k", turns))
                for _ in range(turns):
                    await asyncio.sleep(0)
                for _ in range(times):
                    offering.cancel()
                    await asyncio.sleep(0)
                await asyncio.wait({offering})
                async with asyncio.timeout(TIMEOUT_S / 10):
                    await queue.contains("k")

    asyncio.run(run())


def test_a_poll_that_is_cancelled_when_its_response_is_on_its_way_releases_it(url: str, store: MemoryStore) -> None:
    async def run() -> None:
        async with AsyncClient(url) as client:
            queue = client.queue("q")
            await queue.offer("k", 1)
            for turns in range(20):
                polling = asyncio.create_task(queue.poll(timedelta(seconds=TIMEOUT_S)))
                for _ in range(turns):
                    await asyncio.sleep(0)
                polling.cancel()
                await asyncio.wait({polling})
                if not polling.cancelled() and (delivery := polling.result()) is not None:
                    await delivery.release()
                message = await queue.read("k")
                assert message is not None
                assert message.lease_until is None

    asyncio.run(run())
