"""Threads for blocking handlers."""

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

Call = tuple[contextvars.Context, Callable[..., Any], tuple[Any, ...], "asyncio.Future[Any]"]


class Threads:
    """At most `most` threads, started on demand, for calls from one event loop.

    They are daemon threads: a handler that does not finish must not keep the process alive. Its message is released, or its
    lease expires."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._results: deque[tuple[asyncio.Future[Any], Any]] = deque()
        self._is_woken = False
        """The event loop was woken and has not read the results yet: more results need no further wakeup."""
        self._started = 0
        self._busy = 0

    def run(self, call: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Run a call that never raises in a thread, in a copy of the caller's context."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._busy += 1
        if self._busy > self._started and self._started < self._most:
            self._started += 1
            threading.Thread(target=self._work, name=f"tarry-handler-{self._started}", daemon=True).start()
        self._calls.put((contextvars.copy_context(), call, args, future))
        return future

    def close(self) -> None:
        for _ in range(self._started):
            self._calls.put(None)

    def _work(self) -> None:
        while (item := self._calls.get()) is not None:
            context, call, args, future = item
            self._results.append((future, context.run(call, *args)))
            if not self._is_woken:
                self._is_woken = True
                with suppress(RuntimeError):  # the loop is closed: results are no longer needed
                    future.get_loop().call_soon_threadsafe(self._deliver)
            del item, context, call, args, future

    def _deliver(self) -> None:
        self._is_woken = False  # before reading: later results wake the loop again
        while self._results:
            future, result = self._results.popleft()
            self._busy -= 1
            if not future.done():
                future.set_result(result)
