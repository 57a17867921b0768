"""What a worker does with handlers that fail, on the memory store with a clock that stands still."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

import tarry
from tarry import Retry, Worker
from tarry.api.queue import AsyncQueue
from tarry.app import AsyncApp
from tarry.services.worker.results import HandlerResult, Totals
from tarry.testing import MutableClock
from tests.services.kit import MINUTE, TIMEOUT_S, OnMemory, running

ACKED, FAILED, BURIED, SNOOZED = HandlerResult.ACKED, HandlerResult.FAILED, HandlerResult.BURIED, HandlerResult.SNOOZED
RELEASED, SETTLED, LOST = HandlerResult.RELEASED, HandlerResult.SETTLED, HandlerResult.LOST


@dataclass
class Order:
    total: int


class TestFailures:
    def test_an_exception_is_a_failure_with_its_traceback(self, on_memory: OnMemory) -> None:
        async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
            worker = Worker()

            @worker.handler("orders", retry=Retry.fixed(MINUTE))
            def handle(order: Any) -> None:
                raise RuntimeError("the bank is closed")

            await orders.offer("a", 1)
            async with running(worker, app) as run:
                await run.until(1)
                assert run.endings == [FAILED]
            stored = await orders.read("a")
            assert stored is not None
            assert (stored.attempt, stored.due_at) == (1, clock.pinned() + MINUTE)
            assert stored.last_error is not None
            assert stored.last_error.startswith("RuntimeError: the bank is closed\n\nTraceback")
            assert "in handle" in stored.last_error

        on_memory(test)

    def test_the_policy_is_the_message_s_then_the_handler_s_then_the_queue_s(self, on_memory: OnMemory) -> None:
        async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
            await app.queues.create("orders", tarry.QueueSettings(retry=Retry.fixed(3 * MINUTE)))
            worker = Worker()

            @worker.handler("orders", type="typed", retry=Retry.fixed(2 * MINUTE))
            @worker.handler("orders")
            async def handle(order: Any) -> None:
                raise ValueError

            await orders.offer("message", 1, type="typed", retry=Retry.fixed(MINUTE))
            await orders.offer("handler", 1, type="typed")
            await orders.offer("queue", 1)
            async with running(worker, app) as run:
                await run.until(3)
            for n, key in enumerate(("message", "handler", "queue"), 1):
                stored = await orders.read(key)
                assert stored is not None
                assert stored.due_at == clock.pinned() + n * MINUTE

        on_memory(test)

    def test_the_last_attempt_of_the_handler_s_policy_makes_a_dead_letter(self, on_memory: OnMemory) -> None:
        async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
            worker = Worker()

            @worker.handler("orders", retry=Retry.at_once(max_attempts=3))
            async def handle(order: Any) -> None:
                raise ValueError

            await orders.offer("a", 1)
            async with running(worker, app) as run:
                await run.until(3)
                assert run.endings == [FAILED] * 3
            (letter,) = await orders.dead_letters.list()
            assert (letter.attempt, letter.reason) == (3, "exhausted")

        on_memory(test)

    def test_what_killed_its_workers_is_buried_after_the_handler_s_last_attempt(self, on_memory: OnMemory) -> None:
        async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
            worker, seen = Worker(), []

            @worker.handler("orders", retry=Retry.at_once(max_attempts=2))
            async def handle(order: Any) -> None:
                seen.append(order)

            await orders.offer("deadly", 1, priority=9)
            for _ in range(2):
                assert await orders.try_poll() is not None
                clock.advance(MINUTE)
            await orders.offer("harmless", 2)
            async with running(worker, app) as run:
                await run.until(1)
            assert seen == [2]
            assert [letter.reason for letter in await orders.dead_letters.list()] == ["exhausted"]

        on_memory(test)

    def test_hopeless_errors_bury_at_once(self, on_memory: OnMemory) -> None:
        async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
            worker = Worker()

            @worker.handler("orders", bury_on=LookupError)
            async def handle(order: Any) -> None:
                raise KeyError("no such order")

            await orders.offer("a", 1)
            async with running(worker, app) as run:
                await run.until(1)
                assert run.endings == [BURIED]
            (letter,) = await orders.dead_letters.list()
            assert letter.error is not None
            assert letter.error.startswith("KeyError: 'no such order'")

        on_memory(test)

    @pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
    def test_no_exception_of_a_handler_ends_the_worker(self, on_memory: OnMemory, error: BaseException) -> None:
        async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
            worker = Worker()

            @worker.handler("orders", type="bad", retry=Retry.fixed(MINUTE))
            async def handle(order: Any) -> None:
                raise error

            @worker.handler("orders", type="good")
            async def good(order: Any) -> None: ...

            await orders.offer("a", 1, type="bad")
            async with running(worker, app) as run:
                await run.until(1)
                await orders.offer("b", 1, type="good")
                await run.until(2)
                assert run.endings == [FAILED, ACKED]

        on_memory(test)

    def test_an_undecodable_payload_is_buried_and_blocks_no_other_message(self, on_memory: OnMemory) -> None:
        async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
            worker, seen = Worker(), []

            @worker.handler("orders")
            async def handle(order: Order) -> None:
                seen.append(order.total)

            await orders.offer("poison", "no order", priority=9)
            await orders.offer("good", {"total": 3})
            async with running(worker, app) as run:
                await run.until(2)
            assert seen == [3]
            (letter,) = await orders.dead_letters.list()
            assert (letter.key, letter.reason) == ("poison", "undecodable")
            assert "Order" in str(letter.error)

        on_memory(test)

    def test_a_handler_that_cancels_its_own_task_has_failed(self, on_memory: OnMemory) -> None:
        async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
            worker = Worker()

            @worker.handler("orders", retry=Retry.at_once(max_attempts=1))
            async def handle(order: int) -> None:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(0)

            await orders.offer("a", 1)
            async with running(worker, app) as run:
                await run.until(1)
            assert run.endings == [FAILED]
            (dead,) = await orders.dead_letters.list()
            assert (dead.error or "").startswith("asyncio.exceptions.CancelledError")

        on_memory(test)

    def test_a_handler_that_takes_too_long_has_failed(self, on_memory: OnMemory) -> None:
        async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
            worker, cancelled = Worker(), asyncio.Event()
            stopping = threading.Event()

            @worker.handler("orders", type="async", timeout=timedelta(milliseconds=20), retry=Retry.fixed(MINUTE))
            async def forever(order: Any) -> None:
                try:
                    await asyncio.Event().wait()
                finally:
                    cancelled.set()

            @worker.handler("orders", type="sync", timeout=timedelta(milliseconds=20), retry=Retry.fixed(MINUTE))
            def blocks(order: Any, delivery: tarry.Delivery[Any]) -> None:
                while not delivery.lost:
                    pass
                stopping.set()

            await orders.offer("a", 1, type="async")
            await orders.offer("b", 1, type="sync")
            async with running(worker, app) as run:
                handled = await run.until(2)
                assert run.endings == [FAILED] * 2
                assert all("longer than" in str(job.error) for job in handled)
                async with asyncio.timeout(TIMEOUT_S):
                    await cancelled.wait()
                assert await asyncio.to_thread(stopping.wait, TIMEOUT_S)

        on_memory(test)


def test_the_totals_of_a_worker_end_with_what_became_of_failed_messages() -> None:
    totals = Totals(dead=1)
    totals.add([HandlerResult.FAILED, HandlerResult.SETTLED, HandlerResult.BURIED, HandlerResult.ACKED])
    assert str(totals) == "1 acked, 1 settled, 1 failed, 1 buried: 1 to be retried, 1 dead"
