"""A store that is closed while threads and tasks use it: they end, and no connection is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

import tarry
from tarry.api._sync.queue import Queue
from tarry.app import App, AsyncApp
from tarry.core.errors import InvalidState
from tarry.storage.redis._sync.store import RedisStore
from tests.kit.backends import new_name
from tests.kit.redis_servers import RedisServer, until
from tests.kit.steps import TIMEOUT_S


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    server = RedisServer("--appendfsync", "always")
    yield server
    server.close()


def offer_forever(queue: Queue[Any]) -> None:
    while True:
        queue.offer("a", 1)


def poll_forever(queue: Queue[Any]) -> None:
    queue.poll()


@pytest.mark.parametrize("work", [offer_forever, poll_forever])
def test_threads_end_when_their_store_is_closed(server: RedisServer, work: Callable[[Queue[Any]], None]) -> None:
    app = App(RedisStore(server.url))  # pyright: ignore[reportArgumentType]
    queue = app.queue(new_name())
    app.queues.create(queue.name)
    with redis.Redis(port=server.port) as admin, ThreadPoolExecutor(4) as threads:

        def scripts() -> int:
            stats: Any = admin.info("commandstats")
            return stats["cmdstat_evalsha"]["calls"]

        before = scripts()
        futures = [threads.submit(work, queue) for _ in range(4)]
        until(lambda: scripts() > before + 8)
        app.close()
        for future in futures:
            with pytest.raises(InvalidState, match="this store is closed"):
                future.result(TIMEOUT_S)
        clients: Any = admin.client_list()
        assert len(clients) == 1, clients


def test_a_consumer_that_was_not_closed_releases_its_leases_before_the_store_is_closed(server: RedisServer) -> None:
    name = new_name()

    async def run() -> None:
        async with await tarry.connect_async(server.url) as app:
            queue = app.queue(name)
            await queue.offer_many([tarry.Message(payload=n) for n in range(10)])
            async for delivery in queue.consume(prefetch=10):
                await delivery.ack()
                break

    asyncio.run(run())
    with tarry.connect(server.url) as app:
        counts = app.queues.counts(name)
        assert (counts.ready.n, counts.leased.n) == (9, 0)


def test_another_event_loop_is_refused_and_changes_nothing(server: RedisServer) -> None:
    name = new_name()
    with asyncio.Runner() as first:
        app = first.run(_connected(server.url))
        first.run(app.queues.create(name))
        for use in (lambda: app.queue(name).offer("a", 1), app.close):
            with pytest.raises(InvalidState, match="this store belongs to another event loop"):
                asyncio.run(use())
        counts = first.run(app.queues.counts(name))
        assert counts.ready.n == 0
        first.run(app.close())


async def _connected(url: str) -> AsyncApp:
    return await tarry.connect_async(url)
