"""The running operations of an awaiting store, and its event loop."""

import asyncio
from contextlib import suppress

from tarry.core.errors import InvalidState


class Running:
    """Counter of running operations, which `close` waits for. Used in one event loop, to which the connections belong."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    def check_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._loop is not None:
                raise InvalidState(
                    "this store belongs to another event loop", hint="connect in each event loop, and close there"
                )
            self._loop = loop

    def begin(self) -> None:
        self._count += 1
        self._none.clear()

    def end(self) -> None:
        self._count -= 1
        if not self._count:
            self._none.set()

    async def ended(self, within_s: float) -> None:
        """Wait for operations that run or are about to begin: an unclosed consumer releases its leases in a new task."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                for _ in range(5):
                    await asyncio.sleep(0)
                    await self._none.wait()
