"""Thousands of long polls in one process: waiting is cheap, and leaving is cheaper."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tarry.core.clock import AuthorityClock
from tarry.core.settings import StoreSettings
from tarry.testing import async_memory_app
from tests.kit.steps import PATIENCE

WAITERS = 5_000


def test_five_thousand_tasks_wait_and_each_message_wakes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def work() -> None:
        app = async_memory_app(AuthorityClock(), settings=StoreSettings(listening_scan_every=timedelta(hours=1)))
        queue, store = app.queue("q"), app.store
        wait = store.wait

        async def counted(*args: object, **kwargs: object) -> object:
            asked.append("wait")
            return await wait(*args, **kwargs)  # pyright: ignore[reportArgumentType]

        monkeypatch.setattr(store, "wait", counted)
        tasks = [asyncio.create_task(queue.poll(PATIENCE)) for _ in range(WAITERS)]
        while store.lobby.waiting("q") < WAITERS:  # noqa: ASYNC110 - asked of the lobby, which is not ours to change
            await asyncio.sleep(0)
        before = len(asked)
        for n in range(3):
            await queue.offer(f"k{n}", n)
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            assert len(done) == 1
            tasks = [task for task in tasks if not task.done()]
        assert len(asked) - before < 50, "the others have asked, too"
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert store.lobby.waiting("q") == 0
        await queue.offer("last", 1)
        assert await queue.poll(PATIENCE) is not None

    asyncio.run(work())
