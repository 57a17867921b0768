"""Work that is done once, and stored with its answer: the shell for code that blocks and the one for code that awaits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

from psycopg import AsyncConnection, Connection

from tarry.core.leading import Leadership
from tarry.core.once import Answered, AsyncDoing, Doing, Once
from tarry.core.settings import QueueInfo, QueueSettings, StoreSettings
from tarry.storage.postgres.connections import keeps_state
from tarry.storage.postgres.drive import adrive, atransaction, drive, transaction
from tarry.storage.postgres.statement import Op
from tarry.storage.postgres.statements import MissingQueue
from tarry.storage.postgres.verbs import Verbs

R = TypeVar("R")


class Answering(ABC):
    settings: StoreSettings
    _verbs: Verbs
    _lent: set[Connection[Any]]
    """Connections of ours that somebody's `do` works with. No queue is made on the way: that would take another one."""

    @abstractmethod
    def _retried(self, work: Callable[[Connection[Any]], R]) -> R: ...
    @abstractmethod
    def _run(self, make: Callable[[Verbs], Op[R]], conn: Any, *, atomic: bool = False) -> R: ...
    @abstractmethod
    def create_queue(self, name: str, settings: QueueSettings, *, exist_ok: bool, conn: Any = None) -> QueueInfo: ...

    def once(self, request: Once, do: Doing) -> Answered | None:
        try:
            return self._retried(lambda own: self._once(own, request, do))
        except MissingQueue as missing:
            if not self.settings.create_queues:
                raise
            self.create_queue(missing.name, QueueSettings(), exist_ok=True)
        return self._retried(lambda own: self._once(own, request, do))

    def _once(self, own: Connection[Any], request: Once, do: Doing) -> Answered | None:
        with transaction(own, bounded=not keeps_state(own)):
            found = drive(own, self._verbs.recall(request))
            if found:
                return found[0]
            self._lent.add(own)
            try:
                answered = do(own)
            finally:
                self._lent.discard(own)
            drive(own, self._verbs.keep(request, answered))
            return answered

    def forget_answers(
        self, older_than: timedelta, *, limit: int = 1000, lead: Leadership | None = None, conn: Any = None
    ) -> int:
        return self._run(lambda verbs: verbs.forget_answers(older_than, limit, lead), conn)


class AsyncAnswering(ABC):
    settings: StoreSettings
    _verbs: Verbs
    _lent: set[AsyncConnection[Any]]

    @abstractmethod
    async def _retried(self, work: Callable[[AsyncConnection[Any]], Awaitable[R]]) -> R: ...
    @abstractmethod
    async def _run(self, make: Callable[[Verbs], Op[R]], conn: Any, *, atomic: bool = False) -> R: ...
    @abstractmethod
    async def create_queue(
        self, name: str, settings: QueueSettings, *, exist_ok: bool, conn: Any = None
    ) -> QueueInfo: ...

    async def once(self, request: Once, do: AsyncDoing) -> Answered | None:
        try:
            return await self._retried(lambda own: self._once(own, request, do))
        except MissingQueue as missing:
            if not self.settings.create_queues:
                raise
            await self.create_queue(missing.name, QueueSettings(), exist_ok=True)
        return await self._retried(lambda own: self._once(own, request, do))

    async def _once(self, own: AsyncConnection[Any], request: Once, do: AsyncDoing) -> Answered | None:
        async with atransaction(own, bounded=not keeps_state(own)):
            found = await adrive(own, self._verbs.recall(request))
            if found:
                return found[0]
            self._lent.add(own)
            try:
                answered = await do(own)
            finally:
                self._lent.discard(own)
            await adrive(own, self._verbs.keep(request, answered))
            return answered

    async def forget_answers(
        self, older_than: timedelta, *, limit: int = 1000, lead: Leadership | None = None, conn: Any = None
    ) -> int:
        return await self._run(lambda verbs: verbs.forget_answers(older_than, limit, lead), conn)
