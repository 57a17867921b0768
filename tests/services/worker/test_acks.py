"""Acks in batches: fewer calls for each message, and the failure of a batch concerns no message by itself."""

from __future__ import annotations

import asyncio
import contextvars
from collections import Counter
from typing import Any

import psycopg
import pytest

from tarry import Message, Worker
from tarry.app import AsyncApp
from tarry.core.errors import StoreUnavailable
from tarry.services.worker import acks
from tarry.services.worker.results import Handled, HandlerResult
from tarry.services.worker.worker import WorkerSettings
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tarry.storage.postgres.store import AsyncPostgresStore
from tests.kit.calls import call_of, replace_call
from tests.kit.settings import FOR_TESTS
from tests.services.kit import Running, eventually

N = 100
AT_ONCE = WorkerSettings(concurrency=N)


def trivial_worker() -> Worker:
    worker = Worker()

    @worker.handler("orders")
    async def handle(payload: int) -> None: ...

    return worker


async def offered(app: AsyncApp) -> None:
    await app.queue("orders").offer_many([Message(payload=i, key=f"k{i:03}") for i in range(N)])


def test_handlers_that_end_together_share_an_ack() -> None:
    async def test() -> None:
        store, sizes = AsyncMemoryStore(MemoryStore()), list[int]()
        ack = call_of(store, "messages.ack")

        async def counted(queue: str, lease_ids: Any) -> Any:
            sizes.append(len(lease_ids))
            return await ack(queue, lease_ids)

        replace_call(store, "messages.ack", counted)
        app = AsyncApp(store)
        await offered(app)
        running = Running(trivial_worker(), app, AT_ONCE)
        await running.until(N)
        assert str(await running.stop()) == f"{N} acked"
        assert sum(sizes) == N
        assert len(sizes) < N / 10

    asyncio.run(test())


@pytest.mark.parametrize("limited", [True, False], ids=["queue", "worker"])
def test_handlers_run_while_others_are_acked_and_as_many_may_wait_for_their_acks(limited: bool) -> None:
    async def test() -> None:
        store, worker, reply = AsyncMemoryStore(MemoryStore()), Worker(), asyncio.Event()
        ack, running_now, started = call_of(store, "messages.ack"), 0, 0

        async def slow(queue: str, lease_ids: Any) -> Any:
            await reply.wait()
            return await ack(queue, lease_ids)

        replace_call(store, "messages.ack", slow)

        @worker.handler("orders", concurrency=4 if limited else None, prefetch=4)  # else 50 more of such quick ones
        async def handle(payload: int) -> None:
            nonlocal running_now, started
            started, running_now = started + 1, running_now + 1
            await asyncio.sleep(0)
            assert running_now <= 4
            running_now -= 1

        app = AsyncApp(store)
        await offered(app)
        running = Running(worker, app, WorkerSettings(concurrency=N if limited else 4))
        await eventually(lambda: started == 8)
        for _ in range(100):
            await asyncio.sleep(0)
        assert started == 8
        reply.set()
        await running.until(N)
        assert str(await running.stop()) == f"{N} acked"

    asyncio.run(test())


@pytest.mark.parametrize("is_executed", [True, False])
def test_a_batch_that_fails_is_acked_one_by_one(is_executed: bool) -> None:
    """Also if it was executed, and its reply was lost: then the message is gone, and by this worker."""

    async def test() -> None:
        store, sizes = AsyncMemoryStore(MemoryStore()), Counter[int]()
        ack = call_of(store, "messages.ack")

        async def fails(queue: str, lease_ids: Any) -> Any:
            sizes[len(lease_ids)] += 1
            if len(lease_ids) == 1:
                return await ack(queue, lease_ids)
            if is_executed:
                await ack(queue, lease_ids)
            raise StoreUnavailable("the reply was lost")

        replace_call(store, "messages.ack", fails)
        app = AsyncApp(store)
        await offered(app)
        running = Running(trivial_worker(), app, AT_ONCE)
        assert {handled.result for handled in await running.until(N)} == {HandlerResult.ACKED}
        assert str(await running.stop()) == f"{N} acked"
        assert sizes[1] >= N / 2
        assert not await app.store.run(app.store.messages.list("orders"))

    asyncio.run(test())


def test_a_locked_message_delays_no_other(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acks, "WITHIN_S", 0.3)

    async def test() -> None:
        store = AsyncPostgresStore(database, settings=FOR_TESTS)
        await store.open()
        async with AsyncApp(store, dsn=database) as app:
            await offered(app)
            worker, locked = Worker(), asyncio.Event()

            @worker.handler("orders")
            async def handle(payload: int) -> None:
                await locked.wait()

            running = Running(worker, app, AT_ONCE)
            with psycopg.connect(database) as other, psycopg.connect(database, autocommit=True) as watcher:
                leased = "select count(*) from tarry.message where token is not null"
                await eventually(lambda: watcher.execute(leased).fetchone() == (N,))
                other.execute("select from tarry.message where key = 'k007' for update")
                locked.set()
                await running.until(N - 1)
                assert "k007" not in running.keys
                other.rollback()
                await running.until(N)
            assert str(await running.stop()) == f"{N} acked"

    asyncio.run(test())


def test_a_stopping_worker_waits_for_its_acks() -> None:
    async def test() -> None:
        store, is_sent, reply = AsyncMemoryStore(MemoryStore()), asyncio.Event(), asyncio.Event()
        ack = call_of(store, "messages.ack")

        async def slow(queue: str, lease_ids: Any) -> Any:
            is_sent.set()
            await reply.wait()
            return await ack(queue, lease_ids)

        replace_call(store, "messages.ack", slow)
        app = AsyncApp(store)
        await offered(app)
        running = Running(trivial_worker(), app, AT_ONCE)
        await is_sent.wait()
        stopped = asyncio.create_task(running.stop())
        await asyncio.sleep(0)
        assert not stopped.done()
        reply.set()
        assert "acked" in str(await stopped)
        left = await app.store.run(app.store.messages.list("orders", limit=N))
        assert all(message.lease_until is None for message in left)

    asyncio.run(test())


def test_hooks_see_the_context_of_their_handler() -> None:
    async def test() -> None:
        app, worker, seen = AsyncApp(AsyncMemoryStore(MemoryStore())), Worker(), dict[str, int | None]()
        order = contextvars.ContextVar[int | None]("order", default=None)

        @worker.handler("orders")
        async def handle(payload: int) -> None:
            order.set(payload)

        @worker.on("finished")
        def finished(handled: Handled) -> None:
            seen[handled.delivery.key] = order.get()

        await offered(app)
        running = Running(worker, app, AT_ONCE)
        await running.until(N)
        await running.stop()
        assert seen == {f"k{i:03}": i for i in range(N)}

    asyncio.run(test())


def test_a_batch_has_the_context_of_the_worker_not_that_of_a_handler() -> None:
    """For example its span: the batch is of many messages."""

    async def test() -> None:
        store, worker, seen = AsyncMemoryStore(MemoryStore()), Worker(), set[str]()
        ack = call_of(store, "messages.ack")
        origin = contextvars.ContextVar[str]("origin")

        async def noted(queue: str, lease_ids: Any) -> Any:
            seen.add(origin.get())
            return await ack(queue, lease_ids)

        replace_call(store, "messages.ack", noted)

        @worker.handler("orders")
        async def handle(payload: int) -> None:
            origin.set(f"handler {payload}")

        app = AsyncApp(store)
        await offered(app)
        origin.set("worker")
        running = Running(worker, app, AT_ONCE)
        await running.until(N)
        await running.stop()
        assert seen == {"worker"}

    asyncio.run(test())
