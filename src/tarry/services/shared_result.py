"""The result of a call that many requests need: the call is made once, however many they are."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

R = TypeVar("R")


class SharedResult(Generic[R]):
    """Concurrent requests share one call, in a task that survives theirs. An error is raised to each, and is not kept."""

    def __init__(self, call: Callable[[], Awaitable[R]], keep_s: float = math.inf) -> None:
        self.keep_s = keep_s
        self.until_s = 0.0
        """When the result is outdated, by the monotonic clock. It is as old as the start of its call."""
        self._call = call
        self._task: asyncio.Task[R] | None = None

    async def __call__(self) -> R:
        if self._task is None or (self._task.done() and time.monotonic() >= self.until_s):
            self._task = asyncio.create_task(self._run(), name="tarry-shared-result")
            self._task.add_done_callback(retrieve_error)
        # `shield` makes a future and a callback, which most requests of a broker do not need.
        return self._task.result() if self._task.done() else await asyncio.shield(self._task)

    def forget(self) -> None:
        """Call again for the next request. A result that is on its way is for the requests that wait for it."""
        self._task, self.until_s = None, 0.0

    async def _run(self) -> R:
        this, started_s = asyncio.current_task(), time.monotonic()
        result = await self._call()
        if this is self._task:
            self.until_s = started_s + self.keep_s
        return result


def retrieve_error(task: asyncio.Future[Any]) -> None:
    """Mark the error of a task as retrieved: all requests that waited for it may be gone, and asyncio would log it."""
    _ = task.cancelled() or task.exception()
