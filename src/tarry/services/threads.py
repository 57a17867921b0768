"""Threads for blocking handlers."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

Job = tuple[Callable[[], Any], "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class Threads:
    """At most `most` threads, started on demand.

    Daemon threads: a handler that does not end must not keep the process alive. Its message is released, or its lease
    expires.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._started = 0
        self._busy = 0

    def run(self, call: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run in a thread, with the context variables of the caller. Call from the event loop only."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()
        self._busy += 1
        future.add_done_callback(self._done)
        if self._busy > self._started and self._started < self._most:
            self._started += 1
            threading.Thread(target=self._work, name=f"tarry-handler-{self._started}", daemon=True).start()
        self._jobs.put((lambda: context.run(call), future, loop))
        return future

    def close(self) -> None:
        for _ in range(self._started):
            self._jobs.put(None)

    def _done(self, _: asyncio.Future[Any]) -> None:
        self._busy -= 1

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            call, future, loop = job
            try:
                answer = call()
            except BaseException as error:  # a handler may raise anything; the thread continues
                _tell(loop, future, future.set_exception, error)
            else:
                _tell(loop, future, future.set_result, answer)
            del job, call, future


def _tell(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], tell: Callable[[Any], None], news: Any) -> None:
    def told() -> None:
        if not future.done():
            tell(news)

    try:
        loop.call_soon_threadsafe(told)
    except RuntimeError:
        return  # the loop is closed: the result is not needed any more
