"""One call whose result concurrent requests share."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

R = TypeVar("R")


class SharedResult(Generic[R]):
    """Runs the call in its own task, which outlives the requests. All waiting requests get its error, which is not cached."""

    def __init__(self, call: Callable[[], Awaitable[R]], keep_s: float = math.inf) -> None:
        self.keep_s = keep_s
        self.until_s = 0.0
        """When the result expires, by the monotonic clock, counted from the start of its call."""
        self._call = call
        self._task: asyncio.Task[R] | None = None

    async def __call__(self) -> R:
        if self._task is None or (self._task.done() and time.monotonic() >= self.until_s):
            self._task = asyncio.create_task(self._run(), name="tarry-shared-result")
            self._task.add_done_callback(retrieve_error)
        # `shield` creates a future and a callback, which most broker requests do not need.
        return self._task.result() if self._task.done() else await asyncio.shield(self._task)

    def forget(self) -> None:
        """Call again for the next request. Requests that are waiting still get the pending result."""
        self._task, self.until_s = None, 0.0

    async def _run(self) -> R:
        this, started_s = asyncio.current_task(), time.monotonic()
        result = await self._call()
        if this is self._task:
            self.until_s = started_s + self.keep_s
        return result


def retrieve_error(task: asyncio.Future[Any]) -> None:
    """Mark a task's error as retrieved: if all waiting requests were cancelled, asyncio would log it."""
    _ = task.cancelled() or task.exception()
