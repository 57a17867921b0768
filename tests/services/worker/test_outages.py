"""The database goes away under a worker at work: handlers go on, nothing crashes, and it resumes by itself."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import tarry
from tarry import Message, Worker
from tarry.app import AsyncApp
from tarry.core.settings import RetrySettings, StoreSettings
from tarry.services.worker.results import HandlerResult
from tarry.storage.postgres.store import AsyncPostgresStore
from tests.services.kit import eventually, running
from tests.storage.postgres.fallible import FallibleServer, fallible_server

HASTY = StoreSettings(
    pool_size=5,
    connection_retry=RetrySettings(retries=1, initial_for=timedelta(milliseconds=10)),
    connect_for=timedelta(milliseconds=300),
)
"""The store gives up soon, so that it is the worker that must be patient."""


@pytest.fixture(scope="module")
def server() -> Iterator[FallibleServer]:
    with fallible_server() as server:
        yield server


def test_a_restart_under_load_costs_nothing_but_time(server: FallibleServer) -> None:
    asyncio.run(through_an_outage(server, lambda: server.restart()))


@pytest.mark.chaos
def test_a_crash_under_load_costs_nothing_but_time(server: FallibleServer) -> None:
    for _ in range(10):
        asyncio.run(through_an_outage(server, lambda: (server.kill(), server.await_ready())))


async def through_an_outage(server: FallibleServer, outage: Any) -> None:
    store = AsyncPostgresStore(server.dsn, settings=HASTY)
    await store.open()
    async with AsyncApp(store, dsn=server.dsn) as app:
        worker, seen, proceed, queue = Worker(), Counter[str](), asyncio.Event(), app.queue("outage")
        running_now: set[str] = set()

        @worker.handler("outage", lease_for=timedelta(minutes=1))
        async def handle(payload: int, delivery: tarry.AsyncDelivery[Any]) -> None:
            running_now.add(delivery.key)
            if delivery.key.startswith("gated"):
                await proceed.wait()
            seen[delivery.key] += 1

        async with running(worker, app, concurrency=8) as run:
            await queue.offer_many([Message(key=f"gated{i}", payload=i, priority=9) for i in range(4)])
            await eventually(lambda: len(running_now) == 4)
            await queue.offer_many([Message(key=f"k{i}", payload=i) for i in range(500)])
            await run.until(50)
            away = asyncio.create_task(asyncio.to_thread(outage))
            proceed.set()  # these finish while the database is away, and are acked when it is back
            await away
            await offered_after(queue)

            async def empty() -> bool:
                counts = await app.queues.counts("outage")
                return counts.ready.n + counts.leased.n == 0

            await eventually(empty)
        assert set(seen) == {f"gated{i}" for i in range(4)} | {f"k{i}" for i in range(500)} | {"after"}
        assert set(run.endings) <= {
            HandlerResult.ACKED,
            HandlerResult.LOST,
        }  # an ack whose answer was lost finds it gone
        assert not await queue.dead_letters.list()


async def offered_after(queue: Any) -> None:
    async def offered() -> bool:
        try:
            await queue.offer("after", 0)
        except tarry.TarryError:
            return False
        return True

    await eventually(offered)
