"""Tarry through a broker, for programs that reach it by HTTP alone: the same verbs as on a database.

with tarry.http.Client("http://localhost:8080", key="tarry_…") as client:
    client.queue("orders").offer("order-17", {"total": 40})
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self, TypeVar, cast, overload

from tarry.app import default_consumer
from tarry.core import limits
from tarry.core.codecs import codec_for
from tarry.core.events import EventKind
from tarry.core.following import LiveEvent, Missed
from tarry.core.messages import Lease
from tarry.core.ports import AsyncStore, Store
from tarry.core.settings import StoreSettings
from tarry.edges.env import broker_from
from tarry.handles.aio import AsyncQueue
from tarry.handles.delivery import AsyncDelivery, Delivery
from tarry.handles.keys import ApiKeys, AsyncApiKeys
from tarry.handles.queue import Queue
from tarry.handles.queues import AsyncQueues, Queues
from tarry.handles.redrives import AsyncRedrives, Redrives
from tarry.handles.schedules import AsyncSchedules, Schedules
from tarry.services.cron import AsyncCron, Cron
from tarry.storage.http import AsyncHttpStore, HttpStore, key_ops

__all__ = ["AsyncClient", "Client"]

P = TypeVar("P")

_LONGEST_WAIT = timedelta(seconds=50)
_PAUSE_S = 0.02
"""Before the next request of a poll that waits: messages whose decoder raises are answered at once, and may be due again."""
_DEFAULTS = StoreSettings()


class _Patient:
    """A broker that is asked to wait for a first message."""

    def __init__(self, store: Any, wait_for: timedelta) -> None:
        self._store = store
        self._wait_for = wait_for

    def lease(self, *args: Any, **options: Any) -> Any:
        return self._store.lease(*args, **options, wait_for=self._wait_for)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _RemoteQueue(Queue[P]):
    """Waiting is the broker's business: a poll that blocks is a request that is answered late."""

    def poll_many(self, n: int, timeout: timedelta | None = None, **options: Any) -> list[Delivery[P]]:
        until_s = _deadline_s(timeout)
        while True:
            left = _left(until_s)
            patient = cast("Store", _Patient(self._store, left))
            found = Queue(patient, self.name, self._codec, consumer=self._consumer).try_poll_many(n, **options)
            if found or n <= 0 or not _left(until_s):
                return found
            time.sleep(_PAUSE_S)


class _AsyncRemoteQueue(AsyncQueue[P]):
    async def poll_many(self, n: int, timeout: timedelta | None = None, **options: Any) -> list[AsyncDelivery[P]]:
        until_s = _deadline_s(timeout)
        while True:
            left = _left(until_s)
            patient = cast("AsyncStore", _Patient(self._store, left))
            queue = _AsyncRemoteQueue(patient, self.name, self._codec, consumer=self._consumer)
            found = await queue.try_poll_many(n, **options)
            if found or n <= 0 or not _left(until_s):
                return found
            await asyncio.sleep(_PAUSE_S)

    async def _unless_cancelled(self, asking: Coroutine[Any, Any, list[Lease[P]]]) -> list[Lease[P]]:
        """A cancelled request is a connection that closes, and what the broker was about to hand over it gives back."""
        return await asking


class _Keys:
    """The verbs of `app.keys`, blocking or awaitable like the store that asks."""

    def __init__(self, store: HttpStore | AsyncHttpStore) -> None:
        self.create = store.asking(key_ops.create)
        self.list = store.asking(key_ops.list)
        self.revoke = store.asking(key_ops.revoke)


class Client:
    """`tarry.connect` for a broker: the verbs of an `App`, except what needs a connection of the database."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        consumer: str | None = None,
        settings: StoreSettings = _DEFAULTS,
    ) -> None:
        """Without an address, the one in TARRY_URL with the key in TARRY_KEY, else the broker of this machine."""
        self._begin(HttpStore(*_broker(url, key), settings=settings), consumer)

    def _begin(self, store: HttpStore, consumer: str | None) -> None:
        self.store = store
        self.queues = Queues(cast("Store", store))
        self.redrives = Redrives(cast("Store", store))
        self.schedules = Schedules(cast("Store", store))
        self.keys = cast("ApiKeys", _Keys(store))
        self.consumer = consumer or default_consumer()

    @classmethod
    def on(cls, store: HttpStore, consumer: str | None = None) -> Self:
        """A view of a store that others use, too."""
        client = cls.__new__(cls)
        client._begin(store, consumer)
        return client

    @overload
    def queue(self, name: str) -> Queue[Any]: ...
    @overload
    def queue(self, name: str, payload_type: type[P]) -> Queue[P]: ...
    def queue(self, name: str, payload_type: type[Any] | None = None) -> Queue[Any]:
        return _RemoteQueue(cast("Store", self.store), name, codec_for(payload_type), consumer=self.consumer)

    def events(
        self, queues: Sequence[str] = (), kinds: Sequence[EventKind | str] = (), *, after: str | None = None
    ) -> Iterator[LiveEvent | Missed]:
        """What happens in these queues (else in all that the key may read), as it happens, from now on or from after a
        position; without payloads. It comes back by itself to where it was when the broker goes away, and says so
        (`Missed`) where something is missing. Break off to end it."""
        return self.store.events(_names(queues), _names(kinds), after)

    def cron(self) -> Cron:
        """Install schedules from code; in a `with` block, plan them as well. It needs a key that may read, and administer
        the queues; one that only plans may produce instead."""
        return Cron(cast("Store", self.store))

    def close(self) -> None:
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient:
    """`Client` for code that awaits."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        consumer: str | None = None,
        settings: StoreSettings = _DEFAULTS,
    ) -> None:
        self._begin(AsyncHttpStore(*_broker(url, key), settings=settings), consumer)

    def _begin(self, store: AsyncHttpStore, consumer: str | None) -> None:
        self.store = store
        self.queues = AsyncQueues(cast("AsyncStore", store))
        self.redrives = AsyncRedrives(cast("AsyncStore", store))
        self.schedules = AsyncSchedules(cast("AsyncStore", store))
        self.keys = cast("AsyncApiKeys", _Keys(store))
        self.consumer = consumer or default_consumer()

    @classmethod
    def on(cls, store: AsyncHttpStore, consumer: str | None = None) -> Self:
        client = cls.__new__(cls)
        client._begin(store, consumer)
        return client

    @overload
    def queue(self, name: str) -> AsyncQueue[Any]: ...
    @overload
    def queue(self, name: str, payload_type: type[P]) -> AsyncQueue[P]: ...
    def queue(self, name: str, payload_type: type[Any] | None = None) -> AsyncQueue[Any]:
        return _AsyncRemoteQueue(cast("AsyncStore", self.store), name, codec_for(payload_type), consumer=self.consumer)

    def events(
        self, queues: Sequence[str] = (), kinds: Sequence[EventKind | str] = (), *, after: str | None = None
    ) -> AsyncGenerator[LiveEvent | Missed]:
        """As `Client.events`. Within `contextlib.aclosing` it ends as soon as you break off."""
        return self.store.events(_names(queues), _names(kinds), after)

    def cron(self) -> AsyncCron:
        return AsyncCron(cast("AsyncStore", self.store))

    async def close(self) -> None:
        await self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _broker(url: str | None, key: str | None) -> tuple[str, str | None]:
    """The key of the environment goes with the address of the environment, and nowhere else."""
    if url is not None:
        return url, key
    found, its_key = broker_from()
    return found, its_key if key is None else key


def _names(said: Sequence[str]) -> list[str]:
    """One name is not a row of letters."""
    return [said] if isinstance(said, str) else list(said)


def _deadline_s(timeout: timedelta | None) -> float | None:
    timeout = limits.check_timeout(timeout)
    return None if timeout is None else time.monotonic() + timeout.total_seconds()


def _left(until_s: float | None) -> timedelta:
    if until_s is None:
        return _LONGEST_WAIT
    return min(_LONGEST_WAIT, timedelta(seconds=max(0.0, until_s - time.monotonic())))
