"""A handler that commits its effect and the ack together, blocking and awaiting, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest

import tarry
from tarry import Message, Retry, Worker
from tarry.services.worker.results import HandlerResult
from tests.kit.settings import FOR_TESTS
from tests.services.kit import MINUTE, eventually, running

WRITE = "insert into invoice values (%s)"


@pytest.mark.parametrize("awaits", [False, True], ids=["blocking", "awaiting"])
def test_effect_and_ack_commit_together_or_not_at_all(database: str, awaits: bool) -> None:
    worker = Worker()

    def blocks(order: int, delivery: tarry.Delivery[Any]) -> None:
        with psycopg.connect(database) as conn:
            conn.execute(WRITE, (delivery.key,))
            assert delivery.ack(conn=conn) is tarry.Settled.DONE
            if order == 2:
                raise RuntimeError("after the ack, before the commit")

    async def waits(order: int, delivery: tarry.AsyncDelivery[Any]) -> None:
        async with await psycopg.AsyncConnection.connect(database) as conn:
            await conn.execute(WRITE, (delivery.key,))
            assert await delivery.ack(conn=conn) is tarry.Settled.DONE
            if order == 2:
                raise RuntimeError("after the ack, before the commit")

    worker.handler("orders", retry=Retry.fixed(MINUTE))(waits if awaits else blocks)

    async def test() -> None:
        async with tarry.connect_async(database, settings=FOR_TESTS) as app:
            orders = app.queue("orders")
            await orders.offer_many([Message(key=f"k{i}", payload=i) for i in range(4)])
            async with running(worker, app) as run:
                handled = await run.until(4)
            endings = {job.delivery.key: job.result for job in handled}
            assert endings.pop("k2") is HandlerResult.FAILED
            assert set(endings.values()) == {HandlerResult.SETTLED}
            stored = await orders.read("k2")
            assert stored is not None
            # Not only rolled back: it waits for its retry, instead of for the end of its lease.
            assert (stored.attempt, stored.lease_until) == (1, None)
            assert "after the ack" in str(stored.last_error)

    with psycopg.connect(database) as conn:
        conn.execute("create table invoice (key text primary key)")
    asyncio.run(test())
    with psycopg.connect(database) as conn:
        assert conn.execute("select key from invoice order by key").fetchall() == [("k0",), ("k1",), ("k3",)]


SHORT = timedelta(seconds=1)
"""The shortest lease there is: a handler that works for longer than this is prolonged several times."""


@pytest.mark.parametrize("awaits", [False, True], ids=["blocking", "awaiting"])
@pytest.mark.parametrize("verb", ["ack", "nack", "release", "bury"])
def test_a_handler_that_has_settled_its_message_may_work_for_longer_than_the_lease(
    database: str, verb: str, awaits: bool
) -> None:
    worker, lost, worked = Worker(), list[bool](), list[str]()

    def blocks(order: int, delivery: tarry.Delivery[Any]) -> None:
        assert getattr(delivery, verb)() is tarry.Settled.DONE
        time.sleep(1.5 * SHORT.total_seconds())  # the work
        worked.append(delivery.key)
        lost.append(delivery.lost)

    async def waits(order: int, delivery: tarry.AsyncDelivery[Any]) -> None:
        assert await getattr(delivery, verb)() is tarry.Settled.DONE
        await asyncio.sleep(1.5 * SHORT.total_seconds())  # the work
        worked.append(delivery.key)
        lost.append(delivery.lost)

    worker.handler("orders", lease_for=SHORT)(waits if awaits else blocks)

    async def test() -> None:
        async with tarry.connect_async(database, settings=FOR_TESTS) as app:
            await app.queue("orders").offer("k", 1, retry=Retry.fixed(MINUTE))
            async with running(worker, app, concurrency=1) as run:
                handled = await run.until(1)
                assert handled[0].result is HandlerResult.SETTLED
        assert worked[0] == "k"
        assert lost[0] is False

    asyncio.run(test())


def test_a_transaction_longer_than_the_lease_stops_neither_its_handler_nor_another(database: str) -> None:
    worker = Worker()

    @worker.handler("orders", lease_for=SHORT)
    async def handle(order: int, delivery: tarry.AsyncDelivery[Any]) -> None:
        if order:
            await asyncio.sleep(2 * SHORT.total_seconds())  # the work
            return
        async with await psycopg.AsyncConnection.connect(database) as conn:
            assert await delivery.ack(conn=conn) is tarry.Settled.DONE
            await asyncio.sleep(2.5 * SHORT.total_seconds())  # the work, in the transaction
        await asyncio.sleep(1.5 * SHORT.total_seconds())  # … and more after it

    async def test() -> None:
        async with tarry.connect_async(database, settings=FOR_TESTS) as app:
            await app.queue("orders").offer_many([Message(key=f"k{i}", payload=i) for i in range(3)])
            async with running(worker, app) as run:
                handled = await run.until(3)
            endings = {job.delivery.key: (job.result, job.delivery.attempt) for job in handled}
            assert endings == {
                "k0": (HandlerResult.SETTLED, 1),
                "k1": (HandlerResult.ACKED, 1),
                "k2": (HandlerResult.ACKED, 1),
            }

    asyncio.run(test())


@pytest.mark.parametrize("verb", ["ack", "nack", "release", "bury"])
def test_a_settle_that_was_rolled_back_is_reported_as_a_failure(database: str, verb: str) -> None:
    worker = Worker()

    @worker.handler("orders", retry=Retry.fixed(MINUTE))
    async def handle(order: int, delivery: tarry.AsyncDelivery[Any]) -> None:
        async with await psycopg.AsyncConnection.connect(database) as conn:
            assert await getattr(delivery, verb)(conn=conn) is tarry.Settled.DONE
            await conn.rollback()

    async def test() -> None:
        async with tarry.connect_async(database, settings=FOR_TESTS) as app:
            orders = app.queue("orders")
            await orders.offer("k", 1)
            async with running(worker, app) as run:
                (handled,) = await run.until(1)
            assert handled.result is HandlerResult.FAILED
            assert f"{verb} was rolled back" in str(handled.why)
            stored = await orders.read("k")
            assert stored is not None
            assert (stored.attempt, stored.lease_until) == (1, None)
            assert f"{verb} was rolled back" in str(stored.last_error)

    asyncio.run(test())


@pytest.mark.parametrize("verb", ["ack", "nack", "release", "bury"])
def test_a_settle_that_was_committed_is_reported_as_settled(database: str, verb: str) -> None:
    worker = Worker()

    @worker.handler("orders")
    async def handle(order: int, delivery: tarry.AsyncDelivery[Any]) -> None:
        async with await psycopg.AsyncConnection.connect(database) as conn:
            assert await getattr(delivery, verb)(conn=conn) is tarry.Settled.DONE
        if order == 2:
            raise RuntimeError("after the commit")

    async def test(order: int) -> None:
        async with tarry.connect_async(database, settings=FOR_TESTS) as app:
            orders = app.queue("orders")
            await orders.offer("k", order, retry=Retry.fixed(MINUTE))
            async with running(worker, app, concurrency=1) as run:
                handled = await run.until(1)
            assert handled[0].result is HandlerResult.SETTLED
            assert (handled[0].error is None) == (order == 1)
            await orders.drop("k")

    asyncio.run(test(1))
    asyncio.run(test(2))


@pytest.mark.parametrize("verb", ["ack", "nack", "release", "bury"])
@pytest.mark.parametrize("committed", [False, True], ids=["rolled back", "committed"])
def test_a_settle_is_confirmed_also_when_its_queue_was_renamed(database: str, verb: str, *, committed: bool) -> None:
    worker = Worker()

    async def test() -> None:
        settings = replace(FOR_TESTS, create_queues=False)
        async with tarry.connect_async(database, settings=settings) as app:

            @worker.handler("orders", retry=Retry.fixed(MINUTE))
            async def handle(order: int, delivery: tarry.AsyncDelivery[Any]) -> None:
                async with await psycopg.AsyncConnection.connect(database) as conn:
                    assert await getattr(delivery, verb)(conn=conn) is tarry.Settled.DONE
                    await (conn.commit() if committed else conn.rollback())
                await app.queues.rename("orders", "sales")

            await app.queues.create("orders")
            await app.queue("orders").offer("k", 1, retry=Retry.fixed(MINUTE))
            async with running(worker, app, concurrency=1) as run:
                handled = (await run.until(1))[0]
            assert handled.result is (HandlerResult.SETTLED if committed else HandlerResult.FAILED)
            if not committed:
                stored = await app.queue("sales").read("k")
                assert stored is not None
                assert (stored.attempt, stored.lease_until) == (1, None)
                assert f"{verb} was rolled back" in str(stored.last_error)

    asyncio.run(test())


def test_a_transaction_that_outlives_its_handler_is_waited_for(database: str) -> None:
    worker, left_open = Worker(), list[psycopg.AsyncConnection[Any]]()

    @worker.handler("orders", lease_for=SHORT)
    async def handle(order: int, delivery: tarry.AsyncDelivery[Any]) -> None:
        conn = await psycopg.AsyncConnection.connect(database)
        await delivery.ack(conn=conn)
        left_open.append(conn)

    async def test() -> None:
        async with tarry.connect_async(database, settings=FOR_TESTS) as app:
            await app.queue("orders").offer("k", 1)
            async with running(worker, app) as run:
                await eventually(lambda: left_open)
                await asyncio.sleep(1.5 * SHORT.total_seconds())  # the lease would be over
                assert run.finished == []
                await left_open[0].commit()
                (handled,) = await run.until(1)
                assert (handled.result, handled.delivery.attempt) == (HandlerResult.SETTLED, 1)
            await left_open[0].close()

    asyncio.run(test())
