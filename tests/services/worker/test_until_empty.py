"""A worker that ends when nothing is due."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import tarry
from tarry import Message, Retry, Worker
from tarry.services.worker.worker import WorkerSettings
from tarry.testing import async_memory_app

ONCE = WorkerSettings(concurrency=3, until_empty=True)


def shop() -> Worker:
    worker = Worker()

    @worker.handler("orders", retry=Retry.fixed(timedelta(hours=1)))
    async def accept(order: int, *, app: tarry.AsyncApp) -> None:
        if order == 3:
            raise ValueError("no such order")
        await app.queue("mails").offer(f"mail-{order}", order)

    @worker.handler("mails")
    async def send(mail: int) -> None:
        await asyncio.sleep(0)

    return worker


def test_it_handles_what_is_due_and_what_handlers_offer_meanwhile() -> None:
    async def run() -> Counter[str]:
        async with async_memory_app() as app:
            orders = app.queue("orders")
            await orders.offer_many([Message(key=f"o-{i}", payload=i) for i in range(20)])
            await orders.offer("later", 99, after=timedelta(minutes=1))
            async with asyncio.timeout(60):
                totals = await shop().run(app, ONCE)
            assert await orders.contains("later")
            assert await orders.contains("o-3"), "it is tried again in an hour"
            return Counter({result.value: n for result, n in totals.endings.items()})

    assert asyncio.run(run()) == {"acked": 19 + 19, "failed": 1}


def test_it_ends_at_once_without_messages_and_does_not_wait_for_a_paused_queue(database: str) -> None:
    async def run() -> None:
        async with tarry.connect_async(database) as app:
            for name in ("orders", "mails"):
                await app.queues.create(name)
            async with asyncio.timeout(60):
                assert str(await shop().run(app, ONCE)) == "nothing to do"
                await app.queue("orders").offer("a", 1)
                await app.queues.pause("orders")
                assert str(await shop().run(app, ONCE)) == "nothing to do"
                await app.queues.resume("orders")
                assert str(await shop().run(app, ONCE)) == "2 acked"

    asyncio.run(run())
