"""The loop around every `run_once()` of the services."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

from tarry.core.errors import HeldUp, StoreUnavailable

_log = logging.getLogger("tarry")
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 5.0
_END_WITHIN_S = (1.5, 0.5)


def pause_s(failures: int) -> float:
    """Back-off after this many consecutive failures."""
    return min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(failures - 1, 10))


async def ended(task: asyncio.Task[None]) -> None:
    """Wait for a task that was told to stop, for a moment: where the database is away it would take as long as its patience.
    Then it is cancelled, and waited for again."""
    for within_s in _END_WITHIN_S:
        await asyncio.wait({task}, timeout=within_s)
        if task.done():
            return
        task.cancel()


class Loop:
    """Runs `run_once` until it is stopped; exceptions of `run_once` do not end it.

    `run_once` may return the seconds until the next run; None means `every`. `wake` triggers an earlier run.
    """

    def __init__(self, name: str, run_once: Callable[[], Awaitable[float | None]], *, every: timedelta) -> None:
        self.name = name
        self._run_once = run_once
        self._every_s = every.total_seconds()
        self._called = asyncio.Event()
        self._stopping = False

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
                asked_s = await self._run_once()
                failures, rest_s = 0, self._every_s if asked_s is None else asked_s
            except (StoreUnavailable, HeldUp) as error:
                failures += 1
                rest_s = pause_s(failures)
                if failures == 1:
                    _log.warning("%s: %s; trying again", self.name, error)
            except Exception:
                failures += 1
                rest_s = max(pause_s(failures), self._every_s)
                _log.exception("%s failed; trying again", self.name)
            await self._rest(rest_s)

    async def _rest(self, seconds: float) -> None:
        if not self._stopping:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, seconds)):
                    await self._called.wait()
