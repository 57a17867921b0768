"""Work that has begun and not ended, so that closing a store can wait for it, and cut it off in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import psycopg

from tarry.storage.postgres.connections import cut


class UnderWay:
    """`with under_way:` around each piece of work, in one event loop."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()
        self._used: set[psycopg.AsyncConnection[Any]] = set()
        self._is_over = False

    def __enter__(self) -> None:
        self._count += 1
        self._none.clear()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._count -= 1
        if not self._count:
            self._none.set()

    @contextmanager
    def using(self, conn: psycopg.AsyncConnection[Any]) -> Generator[None]:
        """The connection of a piece of work, for as long as it has it."""
        self._used.add(conn)
        try:
            if self._is_over:
                cut(conn)
            yield
        finally:
            self._used.discard(conn)

    def cut_off(self) -> None:
        """End every connection in use: what waits for an answer on it fails at once, also if the server is frozen."""
        self._is_over = True
        for conn in self._used:
            cut(conn)

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
