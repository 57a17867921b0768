"""A handler is alone: what it leaves in its task and its context, and how it ends, concerns no other message."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import pytest

from tarry import Message, Retry, Worker
from tarry.api.leases import AsyncLeases
from tarry.api.queue import AsyncQueue
from tarry.app import AsyncApp
from tarry.services.worker import dispatch
from tarry.services.worker.results import HandlerResult
from tarry.testing import MutableClock, drain_async
from tests.services.kit import MINUTE, OnMemory, eventually, running

SOON = timedelta(milliseconds=20)


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_a_handler_inherits_no_context_variable_of_another(on_memory: OnMemory, is_async: bool) -> None:
    async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
        worker, seen = Worker(), list[int | None]()
        current: ContextVar[int | None] = ContextVar("current", default=None)

        def blocks(order: int) -> None:
            seen.append(current.get())
            current.set(order)

        async def awaits(order: int) -> None:
            blocks(order)

        worker.handler("orders")(awaits if is_async else blocks)
        await orders.offer_many([Message(payload=i) for i in range(20)])
        async with running(worker, app, concurrency=2) as run:
            await run.until(20)
        assert seen == [None] * 20

    on_memory(test)


def test_a_handler_that_cancels_its_task_and_returns_has_failed_alone(on_memory: OnMemory) -> None:
    async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
        worker = Worker()

        @worker.handler("orders", retry=Retry.fixed(MINUTE))
        async def handle(order: int) -> None:
            if order == 0:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()  # and no await follows

        await orders.offer_many([Message(key=f"k{i}", payload=i) for i in range(5)])
        async with running(worker, app, concurrency=1) as run:
            handled = await run.until(5)
        assert {job.delivery.key for job in handled if job.result is HandlerResult.FAILED} == {"k0"}

    on_memory(test)


def test_a_handler_that_catches_its_own_cancellation_has_succeeded(on_memory: OnMemory) -> None:
    """Hand-made time-outs do so: cancel, catch, and no `uncancel`."""

    async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
        worker = Worker()

        @worker.handler("orders")
        async def handle(order: int) -> None:
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_soon(task.cancel)
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            await asyncio.sleep(0)

        await orders.offer("k", 0)
        async with running(worker, app, concurrency=1) as run:
            assert [handled.result for handled in await run.until(1)] == [HandlerResult.ACKED]

    on_memory(test)


def test_a_cancellation_that_a_handler_left_behind_loses_no_ack_and_no_slot(
    on_memory: OnMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
        worker, left_behind = Worker(), list[asyncio.Task[Any]]()
        ack = AsyncLeases.ack

        async def slow_ack(leases: AsyncLeases, *args: Any, **kwargs: Any) -> Any:
            if left_behind:
                left_behind.pop().cancel()  # as a watchdog that was not disarmed does
                await asyncio.sleep(0)
            return await ack(leases, *args, **kwargs)

        monkeypatch.setattr(AsyncLeases, "ack", slow_ack)

        @worker.handler("orders")
        async def handle(order: int) -> None:
            task = asyncio.current_task()
            assert task is not None
            if order == 0:
                left_behind.append(task)

        await orders.offer_many([Message(key=f"k{i}", payload=i, priority=9 - i) for i in range(5)])
        async with running(worker, app, concurrency=1) as run:
            assert [handled.result for handled in await run.until(5)] == [HandlerResult.ACKED] * 5

    on_memory(test)


def test_a_drain_can_be_cancelled_and_its_handlers_share_no_context(on_memory: OnMemory) -> None:
    async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
        worker, seen, current = Worker(), list[int | None](), ContextVar[int | None]("current", default=None)
        never = asyncio.Event()

        @worker.handler("orders")
        async def handle(order: int) -> None:
            seen.append(current.get())
            current.set(order)
            if order == 1:
                await never.wait()

        await orders.offer_many([Message(key=f"k{i}", payload=i, priority=9 - i) for i in range(3)])
        drain = asyncio.create_task(drain_async(worker, app))
        await eventually(lambda: _is(len(seen) == 2))
        drain.cancel()
        with pytest.raises(asyncio.CancelledError):
            await drain
        assert seen == [None, None]

    on_memory(test)


async def _is(value: bool) -> bool:
    return value


def test_any_exception_in_a_thread_is_a_failure(on_memory: OnMemory) -> None:
    async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
        worker, errors = Worker(), [StopIteration(), SystemExit(1), KeyboardInterrupt(), GeneratorExit()]

        @worker.handler("orders", retry=Retry.fixed(MINUTE))
        def handle(order: int) -> None:
            raise errors[order]

        await orders.offer_many([Message(payload=i) for i in range(4)])
        async with running(worker, app) as run:
            await run.until(4)
            assert run.endings == [HandlerResult.FAILED] * 4

    on_memory(test)


def test_a_handler_that_ignores_its_cancellation_is_settled_and_keeps_its_slot(
    on_memory: OnMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "CLEAN_UP_S", 0.02)

    async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
        worker, released, started = Worker(), asyncio.Event(), list[int]()

        @worker.handler("orders", timeout=SOON, retry=Retry.fixed(MINUTE))
        async def handle(order: int) -> None:
            started.append(order)
            while order == 0 and not released.is_set():
                try:
                    await released.wait()
                except asyncio.CancelledError:
                    continue

        await orders.offer_many([Message(key=f"k{i}", payload=i, priority=9 - i) for i in range(2)])
        async with running(worker, app, concurrency=1) as run:
            (handled,) = await run.until(1)
            assert (handled.result, type(handled.error)) == (HandlerResult.FAILED, TimeoutError)
            await asyncio.sleep(0.05)
            assert started == [0]
            released.set()
            await run.until(2)
        assert (run.endings, started) == ([HandlerResult.FAILED, HandlerResult.ACKED], [0, 1])

    on_memory(test)


def test_a_worker_whose_loop_is_torn_down_releases_what_runs(on_memory: OnMemory) -> None:
    """As `asyncio.run` does at its end: all tasks are cancelled at once, those of handlers, too."""

    async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
        worker, started = Worker(), list[int]()

        @worker.handler("orders")
        async def handle(order: int) -> None:
            started.append(order)
            await asyncio.Event().wait()

        await orders.offer_many([Message(key=f"k{i}", payload=i) for i in range(3)])
        async with running(worker, app) as run:
            await eventually(lambda: len(started) == 3)
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run.task
        assert run.endings == [HandlerResult.RELEASED] * 3
        for delivery in await orders.try_poll_many(3):
            assert delivery.attempt == 1

    on_memory(test)
