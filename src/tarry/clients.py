"""The broker client that `tarry.http` exports."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, TypeVar, Unpack, cast

from tarry.api.api_keys import AsyncApiKeys
from tarry.api.delivery import AsyncDelivery
from tarry.api.queue import AsyncQueue
from tarry.core import limits
from tarry.core.journal.events import EventKind
from tarry.core.journal.positions import Gap, LiveEvent
from tarry.core.messages.model import Lease, PollArguments, PollOptions
from tarry.core.operation import Operation
from tarry.core.ports import AsyncStore
from tarry.core.settings import StoreSettings
from tarry.edges.env import broker_from
from tarry.handles import AsyncHandles
from tarry.storage.http.messages import HttpMessages
from tarry.storage.http.store import AsyncHttpStore

P = TypeVar("P")

_LONGEST_WAIT_S = 50.0
_PAUSE_S = 0.02
"""Pause before a poll repeats its request: if no message can be decoded, the broker responds immediately, every time."""
_ON_ITS_WAY_S = 0.1
"""How long a cancelled poll waits for a response that the broker may already have sent."""


class _RemoteQueue(AsyncQueue[P]):
    """A queue whose blocking polls wait in the broker: the response is sent when a message is due."""

    async def poll_many(
        self, n: int, timeout: timedelta | None = None, **options: Unpack[PollArguments]
    ) -> list[AsyncDelivery[P]]:
        timeout, chosen = limits.check_timeout(timeout), PollOptions(consumer=self._consumer, **options)
        until_s = math.inf if timeout is None else time.monotonic() + timeout.total_seconds()
        while True:
            poll = cast("HttpMessages", self._store.messages).poll(
                self.name, limits.check_count(n), self._codec.decode, chosen, wait_for=_left(until_s)
            )
            deliveries = await self._leased(poll, None)
            if deliveries or n <= 0 or not _left(until_s):
                return deliveries
            await asyncio.sleep(_PAUSE_S)

    async def _unless_cancelled(self, running: Coroutine[Any, Any, list[Lease[P]]]) -> list[Lease[P]]:  # ASYNC
        """Await a poll request. Cancelling it closes the connection, and the broker then releases messages it has not sent;
        messages in a response already sent are released here."""
        polling = asyncio.ensure_future(running)
        try:
            return await asyncio.shield(polling)
        except asyncio.CancelledError:
            await asyncio.shield(self._end(polling))
            raise

    async def _end(self, polling: asyncio.Task[list[Lease[P]]]) -> None:  # ASYNC
        await asyncio.wait({polling}, timeout=_ON_ITS_WAY_S)
        if polling.cancel():
            await asyncio.wait({polling})
        else:
            await self._release_result(polling)


def _left(until_s: float) -> timedelta:
    return timedelta(seconds=min(_LONGEST_WAIT_S, max(0.0, until_s - time.monotonic())))


class _Keys:
    """`app.keys` over HTTP."""

    def __init__(self, store: Any) -> None:
        def running(make: Callable[..., Operation[Any]]) -> Callable[..., Any]:
            return lambda *args, **options: store.run(make(*args, **options))

        self.create = running(store.keys.create)
        self.list = running(store.keys.list)
        self.revoke = running(store.keys.revoke)


class AsyncClient(AsyncHandles):
    """An `AsyncApp` on a broker: it has no methods that need a database connection."""

    _queue_type = _RemoteQueue

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        consumer: str | None = None,
        settings: StoreSettings = StoreSettings(),
        store: AsyncHttpStore | None = None,
    ) -> None:
        """The default address is TARRY_URL with the key TARRY_KEY, otherwise the broker on this machine. `store`: shared with
        other clients, instead of an address."""
        self.store = AsyncHttpStore(*_broker(url, key), settings=settings) if store is None else store
        super().__init__(cast("AsyncStore", self.store), consumer)
        self.keys = cast("AsyncApiKeys", _Keys(self.store))

    def events(
        self, queues: Sequence[str] = (), kinds: Sequence[EventKind | str] = (), *, after: str | None = None
    ) -> AsyncGenerator[LiveEvent | Gap]:
        """Tail the events of these queues (default: every queue the key may read), from now on or after a position.
        Events have no payloads. Reconnects and resumes after a lost connection, and yields a `Gap` where events are missing.
        To stop, leave the loop; `contextlib.aclosing` closes the connection immediately."""
        return self.store.events(_names(queues), _names(kinds), after)


def _broker(url: str | None, key: str | None) -> tuple[str, str | None]:
    """Resolve address and key. TARRY_KEY is only sent to TARRY_URL, never to another address."""
    if url is not None:
        return url, key
    default_url, default_key = broker_from()
    return default_url, default_key if key is None else key


def _names(names: Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)
