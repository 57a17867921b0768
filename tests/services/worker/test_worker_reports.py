"""A worker reports that it runs, drains when that is requested, and is gone when it has ended."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from typing import Any

import pytest

from tarry import Worker
from tarry.api.queue import AsyncQueue
from tarry.app import AsyncApp
from tarry.core.workers.model import RunningWorker
from tarry.services.worker import registration
from tarry.testing import MutableClock
from tests.services.kit import OnMemory, eventually, running


async def listed(app: AsyncApp) -> list[RunningWorker]:
    return await app.store.run(app.store.workers.list())


def test_a_worker_is_listed_while_it_runs_and_a_drain_ends_it_after_its_handlers(
    on_memory: OnMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "REPORT_EVERY", timedelta(milliseconds=5))
    worker, finish = Worker(), asyncio.Event()

    @worker.handler("orders")
    async def handle(payload: int) -> None:
        await finish.wait()

    async def test(app: AsyncApp, queue: AsyncQueue[Any], clock: MutableClock) -> None:
        await app.queue("orders").offer("a", 1)
        async with running(worker, app, concurrency=3) as run:

            async def busy() -> list[RunningWorker]:
                return [each for each in await listed(app) if each.running == 1]

            (reported,) = await eventually(busy)
            assert (reported.consumer, reported.pid) == (app.consumer, os.getpid())
            assert (reported.queues, reported.concurrency, reported.is_stopping) == (("orders",), 3, False)
            assert await app.store.run(app.store.workers.drain(app.consumer)) == 1

            async def stopping() -> bool:
                return [each.is_stopping for each in await listed(app)] == [True]

            await eventually(stopping)
            await app.queue("orders").offer("b", 2)
            finish.set()
            async with asyncio.timeout(20):
                await run.task
            assert run.keys == ["a"]
        assert await listed(app) == []

    on_memory(test)
