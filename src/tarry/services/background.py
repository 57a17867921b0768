"""A `Loop` in its own thread, for blocking programs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta

from tarry.services.loop import Loop

_STOP_S = 30.0
_END_S = 5.0


class Background:
    """Runs `cycle` repeatedly; it returns the seconds until the next run."""

    def __init__(self, name: str, cycle: Callable[[], float], *, every: timedelta) -> None:
        self._name = name
        self._cycle = cycle
        self._every = every
        self._loop: asyncio.AbstractEventLoop | None = None
        self._inner: Loop | None = None
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name=self._name, daemon=True)
            self._thread.start()
            self._ready.wait(_STOP_S)

    def wake(self) -> None:
        if self._loop is not None and self._inner is not None:
            self._loop.call_soon_threadsafe(self._inner.wake)

    def stop(self) -> None:
        """Stop after the current cycle."""
        if self._thread is None or self._loop is None or self._inner is None:
            return
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._inner.stop)
            self._thread.join(_END_S)
        self._thread = None

    async def _run(self) -> None:
        async def once() -> float:
            return self._cycle()  # blocks on purpose: nothing else runs on this loop

        self._loop, self._inner = asyncio.get_running_loop(), Loop(self._name, once, every=self._every)
        self._ready.set()
        await self._inner.run()
