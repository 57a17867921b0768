"""What has begun and not ended, so that whoever closes a store can wait for it."""

from __future__ import annotations

import asyncio
from types import TracebackType


class UnderWay:
    """`with under_way:` around each piece of work, in one event loop."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    def __enter__(self) -> None:
        self._count += 1
        self._none.clear()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._count -= 1
        if not self._count:
            self._none.set()

    async def ended(self, within_s: float) -> None:
        """Also what is about to begin: a consumer that nobody closed gives back what it holds in a task of its own, which the
        loop has only just been told of."""
        try:
            async with asyncio.timeout(within_s):
                for _ in range(5):
                    await asyncio.sleep(0)
                    await self._none.wait()
        except TimeoutError:
            return
