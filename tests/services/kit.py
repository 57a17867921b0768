"""Workers beside a test, on one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from tarry import Worker
from tarry.api.queue import AsyncQueue
from tarry.app import AsyncApp
from tarry.services.worker.results import Handled, HandlerResult, Totals
from tarry.services.worker.worker import WorkerSettings
from tarry.testing import MutableClock

TIMEOUT_S = 20.0
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
Test = Callable[[AsyncApp, AsyncQueue[Any], MutableClock], Coroutine[Any, Any, None]]
OnMemory = Callable[[Test], None]


class Running:
    """A worker that works until the test stops it."""

    def __init__(self, worker: Worker, app: AsyncApp, settings: WorkerSettings) -> None:
        self.finished: list[Handled] = []
        self._changed = asyncio.Event()
        worker.on("finished")(self._note)
        self._stop = asyncio.Event()
        self.task = asyncio.create_task(worker.run(app, settings, stop=self._stop))

    def _note(self, handled: Handled) -> None:
        self.finished.append(handled)
        self._changed.set()

    @property
    def endings(self) -> list[HandlerResult]:
        return [handled.result for handled in self.finished]

    @property
    def keys(self) -> list[str]:
        return [handled.delivery.key for handled in self.finished]

    async def until(self, n: int) -> list[Handled]:
        """Until that many deliveries were handled."""
        async with asyncio.timeout(TIMEOUT_S):
            while len(self.finished) < n:
                self._changed.clear()
                await self._changed.wait()
        return self.finished

    async def stop(self) -> Totals:
        self._stop.set()
        async with asyncio.timeout(TIMEOUT_S):
            return await self.task


@asynccontextmanager
async def running(worker: Worker, app: AsyncApp, **settings: Any) -> AsyncIterator[Running]:
    run = Running(worker, app, WorkerSettings(**{"concurrency": 4, **settings}))
    try:
        yield run
    finally:
        if not run.task.done():
            await run.stop()


async def eventually(condition: Callable[[], Any]) -> Any:
    """Wait until the condition holds; for state that only the store has."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            result = condition()
            if asyncio.iscoroutine(result):
                result = await result
            if result:
                return result
            await asyncio.sleep(0.005)
