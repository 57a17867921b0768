"""Workers beside a test, on one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from tarry import Worker
from tarry.app import AsyncApp
from tarry.handles.aio import AsyncQueue
from tarry.services.reports import Ending, Handled, Tally
from tarry.services.worker import WorkerSettings
from tarry.testing import MutableClock

PATIENCE_S = 20.0
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
    def endings(self) -> list[Ending]:
        return [handled.ending for handled in self.finished]

    @property
    def keys(self) -> list[str]:
        return [handled.delivery.key for handled in self.finished]

    async def until(self, n: int) -> list[Handled]:
        """Until that many deliveries were handled."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.finished) < n:
                self._changed.clear()
                await self._changed.wait()
        return self.finished

    async def stop(self) -> Tally:
        self._stop.set()
        async with asyncio.timeout(PATIENCE_S):
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
    """Until the condition holds; for what only the store can tell."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            answer = condition()
            if asyncio.iscoroutine(answer):
                answer = await answer
            if answer:
                return answer
            await asyncio.sleep(0.005)
