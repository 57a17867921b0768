"""What became of the messages that failed for good."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from tarry.core import limits
from tarry.core.codecs import Codec
from tarry.core.messages import DeadLetter
from tarry.core.ports import AsyncStore, Store
from tarry.handles.reading import decoded

P = TypeVar("P")


class DeadLetters(Generic[P]):
    def __init__(self, store: Store, queue: str, codec: Codec[P]) -> None:
        self._store = store
        self._queue = queue
        self._codec = codec

    def list(self, *, limit: int = 100, conn: Any = None) -> list[DeadLetter[P]]:
        """The newest first."""
        return [decoded(d, self._codec) for d in self._store.dead_letters(self._queue, limit=limit, conn=conn)]

    def redrive(self, versions: Sequence[int] | None = None, *, limit: int = 1000, conn: Any = None) -> int:
        """Deliver them again, from the first attempt: those named, or the oldest. A key that is live again stays dead."""
        named = None if versions is None else [limits.check_count(version, "version") for version in versions]
        return self._store.redrive(self._queue, versions=named, limit=limit, conn=conn)

    def purge(self, *, conn: Any = None) -> int:
        return self._store.purge_dead(self._queue, conn=conn)


class AsyncDeadLetters(Generic[P]):
    def __init__(self, store: AsyncStore, queue: str, codec: Codec[P]) -> None:
        self._store = store
        self._queue = queue
        self._codec = codec

    async def list(self, *, limit: int = 100, conn: Any = None) -> list[DeadLetter[P]]:
        return [decoded(d, self._codec) for d in await self._store.dead_letters(self._queue, limit=limit, conn=conn)]

    async def redrive(self, versions: Sequence[int] | None = None, *, limit: int = 1000, conn: Any = None) -> int:
        named = None if versions is None else [limits.check_count(version, "version") for version in versions]
        return await self._store.redrive(self._queue, versions=named, limit=limit, conn=conn)

    async def purge(self, *, conn: Any = None) -> int:
        return await self._store.purge_dead(self._queue, conn=conn)
