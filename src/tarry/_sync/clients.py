# Generated from src/tarry/clients.py by tools/generate-blocking. Edit that file, then run `make generate`.
"""The blocking half of `tarry.clients`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from datetime import timedelta
from typing import Any, TypeVar, Unpack, cast

from tarry._sync.handles import Handles
from tarry.api._sync.api_keys import ApiKeys
from tarry.api._sync.delivery import Delivery
from tarry.api._sync.queue import Queue
from tarry.core import limits
from tarry.core._sync.ports import Store
from tarry.core.journal.events import EventKind
from tarry.core.journal.positions import Gap, LiveEvent
from tarry.core.messages.model import PollArguments, PollOptions
from tarry.core.operation import Operation
from tarry.core.settings import StoreSettings
from tarry.edges.env import broker_from
from tarry.storage.http._sync.store import HttpStore
from tarry.storage.http.messages import HttpMessages

P = TypeVar("P")

_LONGEST_WAIT_S = 50.0
_PAUSE_S = 0.02
"""Pause before a poll repeats its request: if no message can be decoded, the broker responds immediately, every time."""


class _RemoteQueue(Queue[P]):
    """A queue whose blocking polls wait in the broker: the response is sent when a message is due."""

    def poll_many(
        self, n: int, timeout: timedelta | None = None, **options: Unpack[PollArguments]
    ) -> list[Delivery[P]]:
        timeout, chosen = limits.check_timeout(timeout), PollOptions(consumer=self._consumer, **options)
        until_s = math.inf if timeout is None else time.monotonic() + timeout.total_seconds()
        while True:
            poll = cast("HttpMessages", self._store.messages).poll(
                self.name, limits.check_count(n), self._codec.decode, chosen, wait_for=_left(until_s)
            )
            deliveries = self._leased(poll, None)
            if deliveries or n <= 0 or not _left(until_s):
                return deliveries
            time.sleep(_PAUSE_S)


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


class Client(Handles):
    """An `App` on a broker: it has no methods that need a database connection."""

    _queue_type = _RemoteQueue

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        consumer: str | None = None,
        settings: StoreSettings = StoreSettings(),
        store: HttpStore | None = None,
    ) -> None:
        """The default address is TARRY_URL with the key TARRY_KEY, otherwise the broker on this machine. `store`: shared with
        other clients, instead of an address."""
        self.store = HttpStore(*_broker(url, key), settings=settings) if store is None else store
        super().__init__(cast("Store", self.store), consumer)
        self.keys = cast("ApiKeys", _Keys(self.store))

    def events(
        self, queues: Sequence[str] = (), kinds: Sequence[EventKind | str] = (), *, after: str | None = None
    ) -> Generator[LiveEvent | Gap]:
        """Tail the events of these queues (default: every queue the key may read), from now on or after a position.
        Events have no payloads. Reconnects and resumes after a lost connection, and yields a `Gap` where events are missing.
        To stop, leave the loop; `contextlib.closing` closes the connection immediately."""
        return self.store.events(_names(queues), _names(kinds), after)


def _broker(url: str | None, key: str | None) -> tuple[str, str | None]:
    """Resolve address and key. TARRY_KEY is only sent to TARRY_URL, never to another address."""
    if url is not None:
        return url, key
    default_url, default_key = broker_from()
    return default_url, default_key if key is None else key


def _names(names: Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)
