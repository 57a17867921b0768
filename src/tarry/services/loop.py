"""The loop that calls `run_once()` of a service, in a task or in its own thread."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta

from tarry.core.errors import LockTimeout, StoreUnavailable

_log = logging.getLogger("tarry")
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_END_WITHIN_S = (1.5, 0.5)
_END_THREAD_S = 5.0


def pause_s(failures: int) -> float:
    """Back-off after this many consecutive failures."""
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(failures - 1, 10))


class Loop:
    """Calls `run_once` until it is stopped, whatever `run_once` raises.

    `run_once` may return the seconds until the next run; None means `every`. `wake` triggers an earlier run."""

    def __init__(self, name: str, run_once: Callable[[], Awaitable[float | None]], *, every: timedelta) -> None:
        self.name = name
        self._run_once = run_once
        self._every_s = every.total_seconds()
        self._called = asyncio.Event()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Run in a task of the running event loop."""
        self._task = asyncio.create_task(self.run(), name=self.name)

    async def end(self) -> None:
        """Stop after the current run, which is cancelled if it takes long: while the database is unavailable, it would
        retry for as long as its settings allow."""
        self.stop()
        if self._task is not None:
            for within_s in _END_WITHIN_S:
                await asyncio.wait({self._task}, timeout=within_s)
                self._task.cancel()

    def wake(self) -> None:
        self._called.set()

    def stop(self) -> None:
        """Stop after the current run."""
        self._stopping = True
        self.wake()

    async def run(self) -> None:
        failures = 0
        while not self._stopping:
            self._called.clear()
            try:
                wait_s = await self._run_once()
                failures, rest_s = 0, self._every_s if wait_s is None else wait_s
            except (StoreUnavailable, LockTimeout) as error:
                failures += 1
                rest_s = pause_s(failures)
                if failures == 1:
                    _log.warning("%s: %s; trying again", self.name, error)
            except Exception:
                failures += 1
                rest_s = max(pause_s(failures), self._every_s)
                _log.exception("%s failed; trying again", self.name)
            if not self._stopping:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, rest_s)):
                        await self._called.wait()


class Background:
    """A `Loop` in a thread, for blocking code."""

    def __init__(self, name: str, cycle: Callable[[], float], *, every: timedelta) -> None:
        async def once() -> float:
            return cycle()  # blocks on purpose: nothing else runs on this loop

        self._inner = Loop(name, once, every=every)
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._loop.call_soon_threadsafe(self._inner.wake)

    def end(self) -> None:
        """Stop after the current cycle."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._inner.stop)
            self._thread.join(_END_THREAD_S)

    def _run(self) -> None:
        with self._runner:
            self._runner.run(self._inner.run())
