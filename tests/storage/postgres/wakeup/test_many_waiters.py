"""Thousands of long polls in one process: waiting is cheap, and leaving is cheaper."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tarry.core.clock import AuthorityClock
from tarry.core.settings import StoreSettings
from tarry.testing import async_memory_app
from tests.kit.calls import call_of, replace_call
from tests.kit.sleepers import waiting
from tests.kit.steps import TIMEOUT

WAITERS = 5_000


def test_five_thousand_tasks_wait_and_each_message_wakes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    statements: list[str] = []

    async def work() -> None:
        app = async_memory_app(AuthorityClock(), settings=StoreSettings(listening_scan_every=timedelta(hours=1)))
        queue, store = app.queue("q"), app.store
        wait = call_of(store, "wakeup.announce")

        async def counted(*args: object, **kwargs: object) -> object:
            statements.append("wait")
            return await wait(*args, **kwargs)  # pyright: ignore[reportArgumentType]

        replace_call(store, "wakeup.announce", counted)
        tasks = [asyncio.create_task(queue.poll(TIMEOUT)) for _ in range(WAITERS)]
        while waiting(store.wakeup.wait_queue, "q") < WAITERS:  # noqa: ASYNC110 - state of the wait queue, which has no event for it
            await asyncio.sleep(0)
        before = len(statements)
        for n in range(3):
            await queue.offer(f"k{n}", n)
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            assert len(done) == 1
            tasks = [task for task in tasks if not task.done()]
        assert len(statements) - before < 50, "the others have announced, too"
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert waiting(store.wakeup.wait_queue, "q") == 0
        await queue.offer("last", 1)
        assert await queue.poll(TIMEOUT) is not None

    asyncio.run(work())
