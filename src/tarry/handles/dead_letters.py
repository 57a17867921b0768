"""Dead letters: messages that failed permanently."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any, Generic, TypeVar, Unpack
from uuid import uuid4

from tarry.core import limits
from tarry.core.codecs import Codec
from tarry.core.messages import DeadLetter
from tarry.core.ports import AsyncStore, Store
from tarry.core.redriving import DeadFilter, DeadGroup, Matching, Where, check_canary, check_rate
from tarry.handles.reading import decoded
from tarry.handles.redrives import AsyncRedrive, Redrive

P = TypeVar("P")


class DeadLetters(Generic[P]):
    """`where` is any of fingerprint, type, died_from, died_to, key_prefix, versions; absent fields do not restrict."""

    def __init__(self, store: Store, queue: str, codec: Codec[P], who: str | None = None) -> None:
        self._store = store
        self._queue = queue
        self._codec = codec
        self._who = who

    def groups(self, *, limit: int = 100, conn: Any = None) -> list[DeadGroup]:
        """Groups by fingerprint, the most recent group first."""
        return self._store.dead_groups(self._queue, limit=limits.check_count(limit, "limit"), conn=conn)

    def list(self, *, limit: int = 100, conn: Any = None, **where: Unpack[Where]) -> builtins.list[DeadLetter[P]]:
        """Newest first."""
        found = self._store.dead_letters(
            self._queue, where=DeadFilter.of(where), limit=limits.check_count(limit, "limit"), conn=conn
        )
        return [decoded(dead, self._codec) for dead in found]

    def get(self, version: int, *, conn: Any = None) -> DeadLetter[P] | None:
        """One dead letter by its version; None if it is no longer dead, or never was."""
        found = self.list(versions=[version], limit=1, conn=conn)
        return found[0] if found else None

    def count(self, *, limit: int = 10_000, conn: Any = None, **where: Unpack[Where]) -> Matching:
        """How many a redrive with this filter would take, and how many of them are blocked by a live key. Read-only."""
        return self._store.count_dead(
            self._queue, where=DeadFilter.of(where), limit=limits.check_count(limit, "limit"), conn=conn
        )

    def redrive(self, versions: Sequence[int] | None = None, *, limit: int = 1000, conn: Any = None) -> int:
        """Redrive the named ones, or the oldest, with attempts reset. A letter whose key is live again stays dead."""
        named = None if versions is None else [limits.check_count(version, "version") for version in versions]
        return self._store.redrive(self._queue, versions=named, limit=limits.check_count(limit, "limit"), conn=conn)

    def start_redrive(
        self,
        *,
        rate: float | None = None,
        canary: int = 0,
        who: str | None = None,
        conn: Any = None,
        **where: Unpack[Where],
    ) -> Redrive:
        """Redrive as a job: `rate` messages per second, `canary` messages first and the rest once those succeeded.

        A sweeper advances it, or a caller of `advance`. It may be paused, resumed and cancelled at any time.
        """
        job = self._store.start_redrive(
            self._queue,
            where=DeadFilter.of(where),
            rate=check_rate(rate),
            canary=check_canary(canary),
            who=limits.check_consumer(who) or self._who,
            request=uuid4(),
            conn=conn,
        )
        return Redrive(self._store, job)

    def purge(self, *, conn: Any = None, **where: Unpack[Where]) -> int:
        """Discard dead letters: all, or those that match."""
        return self._store.purge_dead(self._queue, where=DeadFilter.of(where), conn=conn)


class AsyncDeadLetters(Generic[P]):
    def __init__(self, store: AsyncStore, queue: str, codec: Codec[P], who: str | None = None) -> None:
        self._store = store
        self._queue = queue
        self._codec = codec
        self._who = who

    async def groups(self, *, limit: int = 100, conn: Any = None) -> list[DeadGroup]:
        return await self._store.dead_groups(self._queue, limit=limits.check_count(limit, "limit"), conn=conn)

    async def list(self, *, limit: int = 100, conn: Any = None, **where: Unpack[Where]) -> builtins.list[DeadLetter[P]]:
        found = await self._store.dead_letters(
            self._queue, where=DeadFilter.of(where), limit=limits.check_count(limit, "limit"), conn=conn
        )
        return [decoded(dead, self._codec) for dead in found]

    async def get(self, version: int, *, conn: Any = None) -> DeadLetter[P] | None:
        found = await self.list(versions=[version], limit=1, conn=conn)
        return found[0] if found else None

    async def count(self, *, limit: int = 10_000, conn: Any = None, **where: Unpack[Where]) -> Matching:
        return await self._store.count_dead(
            self._queue, where=DeadFilter.of(where), limit=limits.check_count(limit, "limit"), conn=conn
        )

    async def redrive(self, versions: Sequence[int] | None = None, *, limit: int = 1000, conn: Any = None) -> int:
        named = None if versions is None else [limits.check_count(version, "version") for version in versions]
        return await self._store.redrive(
            self._queue, versions=named, limit=limits.check_count(limit, "limit"), conn=conn
        )

    async def start_redrive(
        self,
        *,
        rate: float | None = None,
        canary: int = 0,
        who: str | None = None,
        conn: Any = None,
        **where: Unpack[Where],
    ) -> AsyncRedrive:
        job = await self._store.start_redrive(
            self._queue,
            where=DeadFilter.of(where),
            rate=check_rate(rate),
            canary=check_canary(canary),
            who=limits.check_consumer(who) or self._who,
            request=uuid4(),
            conn=conn,
        )
        return AsyncRedrive(self._store, job)

    async def purge(self, *, conn: Any = None, **where: Unpack[Where]) -> int:
        return await self._store.purge_dead(self._queue, where=DeadFilter.of(where), conn=conn)
