"""What a worker adds to a message is bounded: tasks, timers, calls and transactions are counted, never timed."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

import tarry
from tarry import Message, Worker
from tarry.api.queue import AsyncQueue
from tarry.app import AsyncApp
from tarry.services.worker.worker import WorkerSettings
from tarry.testing import MutableClock
from tests.kit.settings import FOR_TESTS
from tests.services.kit import MINUTE, OnMemory

N = 600
SOURCES = str(Path(tarry.__file__).parent / "services" / "worker")


async def work(app: AsyncApp, *, concurrency: int, is_async: bool = True, **options: Any) -> None:
    """Handle `N` messages, without any hook."""
    worker, stop, left = Worker(), asyncio.Event(), iter(range(N - 1, -1, -1))
    loop = asyncio.get_running_loop()

    async def awaits(payload: int) -> None:
        if next(left) == 0:
            stop.set()

    def blocks(payload: int) -> None:
        if next(left) == 0:
            loop.call_soon_threadsafe(stop.set)

    worker.handler("orders", **options)(awaits if is_async else blocks)
    await app.queue("orders").offer_many([Message(payload=i) for i in range(N)])
    totals = await worker.run(app, WorkerSettings(concurrency=concurrency), stop=stop)
    assert str(totals) == f"{N} acked"


@contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """Calls of the worker's own functions, by name."""
    calls: Counter[str] = Counter()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCES):
            calls[frame.f_code.co_qualname] += 1

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def test_a_message_costs_one_task_and_no_timer(on_memory: OnMemory) -> None:
    async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
        loop, made = asyncio.get_running_loop(), Counter[str]()

        def task(loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **kwargs: Any) -> asyncio.Task[Any]:
            made["tasks"] += 1
            return asyncio.Task(coro, loop=loop, **kwargs)

        call_at = loop.call_at

        def timer(when: float, callback: Callable[..., Any], *args: Any, **kwargs: Any) -> asyncio.TimerHandle:
            made["timers"] += 1
            return call_at(when, callback, *args, **kwargs)

        loop.set_task_factory(task)  # pyright: ignore[reportArgumentType]
        loop.call_at = timer  # pyright: ignore[reportAttributeAccessIssue]
        for is_async in (True, False):
            made.clear()
            await work(app, concurrency=64, is_async=is_async)
            assert made["tasks"] < 1.2 * N  # and those of polls
            assert made["timers"] < 0.1 * N
        made.clear()
        await work(app, concurrency=64, timeout=MINUTE)
        assert N <= made["timers"] < 1.1 * N

    on_memory(test)


def test_the_calls_for_a_message_do_not_depend_on_how_many_run(on_memory: OnMemory) -> None:
    async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
        for concurrency in (16, 256):
            with counted_calls() as calls:
                await work(app, concurrency=concurrency)
            assert 5 * N < calls.total() < 30 * N, calls.most_common(20)
            # Log fields and a `Handled` are made only for a listener or a log level that is on.
            assert not {"Handled.__init__", "Handled.fields", "Handled.__str__"} & set(calls)

    on_memory(test)


@pytest.mark.parametrize(("concurrency", "is_async"), [(64, True), (64, False), (1, True)])
def test_polls_and_acks_of_many_messages_share_a_transaction(database: str, concurrency: int, is_async: bool) -> None:
    written = "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint"

    async def test() -> None:
        async with tarry.connect_async(database, settings=FOR_TESTS) as app:
            with psycopg.connect(database, autocommit=True) as conn:
                before = conn.execute(written).fetchone()
                await work(app, concurrency=concurrency, is_async=is_async)
                after = conn.execute(written).fetchone()
        assert before is not None
        assert after is not None
        # A worker of one slot leases few until it knows that its handler is quick.
        assert after[0] - before[0] < (0.2 if concurrency > 1 else 0.6) * N

    asyncio.run(test())
