"""A worker through PgBouncer in transaction mode: no session of its own, and nothing is missing."""

from __future__ import annotations

import asyncio
from typing import Any

import tarry
from tarry import Message, Retry, Snooze, Worker
from tarry.services.worker.results import HandlerResult
from tests.kit.settings import FOR_TESTS
from tests.services.kit import SECOND, eventually, running
from tests.storage.postgres.bouncers import pgbouncer


def test_it_polls_touches_and_settles_without_a_session(database: str) -> None:
    async def test(dsn: str) -> None:
        worker, proceed = Worker(), asyncio.Event()

        @worker.handler("orders", lease_for=5 * SECOND, retry=Retry.at_once(max_attempts=2), concurrency=4)
        async def handle(order: int, delivery: tarry.AsyncDelivery[Any]) -> Snooze | None:
            if order < 0:
                await proceed.wait()
            if order == 7:
                raise ValueError("seven")
            return Snooze(SECOND * 3600) if order == 8 else None

        async with tarry.connect_async(dsn, settings=FOR_TESTS) as app:
            orders = app.queue("orders")
            await orders.offer_many([Message(key=f"k{i}", payload=i) for i in range(-1, 40)])
            async with running(worker, app) as run:
                await run.until(41)  # all but the one that waits, and one that failed twice

                async def touched() -> bool:
                    return any(
                        event.kind == "touched"
                        for event in await app.store.run(app.store.journal.timeline("orders", "k-1"))
                    )

                await eventually(touched)
                proceed.set()
                await run.until(42)
            endings = [handled.result for handled in run.finished]
            assert {kind: endings.count(kind) for kind in set(endings)} == {
                HandlerResult.ACKED: 39,
                HandlerResult.FAILED: 2,
                HandlerResult.SNOOZED: 1,
            }
            counts = await app.queues.counts("orders")
            assert (counts.ready.n, counts.leased.n, counts.delayed.n, counts.dead.n) == (0, 0, 1, 1)

    with pgbouncer(database, pool_size=2) as dsn:
        asyncio.run(test(dsn))
