"""`AsyncApp` and the handles it shares with the broker client: queues, schedules, redrives, keys."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from tarry.api.api_keys import AsyncApiKeys
from tarry.api.queue import AsyncQueue
from tarry.api.queues import AsyncQueues
from tarry.api.redrives import AsyncRedrives
from tarry.api.schedules import AsyncSchedules
from tarry.core._sync.ports import Store
from tarry.core.codecs import codec_for
from tarry.core.errors import InvalidState
from tarry.core.ports import AsyncStore
from tarry.core.settings import SweeperSettings
from tarry.pipeline import pipeline_on
from tarry.services.cron.api import AsyncCron
from tarry.services.sweeper import Sweeper, SweepReport

if TYPE_CHECKING:
    from tarry._sync.handles import App
    from tarry.storage.postgres.analytics import Pipeline

P = TypeVar("P")


class AsyncHandles:
    """The handles of an app and of a broker client. A context manager."""

    _queue_type: type[AsyncQueue[Any]] = AsyncQueue

    def __init__(self, store: AsyncStore, consumer: str | None) -> None:
        self._handled = store
        self.queues = AsyncQueues(store)
        self.schedules = AsyncSchedules(store)
        self.redrives = AsyncRedrives(store)
        self.consumer = consumer or f"{socket.gethostname()}:{os.getpid()}"[:200]
        """The name under which messages are leased, as the journal shows it; by default the host and the process id."""

    @overload
    def queue(self, name: str) -> AsyncQueue[Any]: ...
    @overload
    def queue(self, name: str, payload_type: type[P]) -> AsyncQueue[P]: ...
    def queue(self, name: str, payload_type: type[Any] | None = None) -> AsyncQueue[Any]:
        """A handle on a queue, which is created on first use. Payloads are validated against `payload_type`."""
        return self._queue_type(self._handled, name, codec_for(payload_type), consumer=self.consumer)

    def cron(self) -> AsyncCron:
        """Install schedules from code; as a context manager, plan them as well. On a broker this needs a key with `read`, and
        with `admin` on the queues; planning alone needs only `produce`."""
        return AsyncCron(self._handled)

    async def close(self) -> None:
        await self._handled.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncApp(AsyncHandles):
    """Everything on one store. `close` is idempotent."""

    def __init__(
        self,
        store: AsyncStore,
        *,
        dsn: str | None = None,
        consumer: str | None = None,
        blocking: Callable[[], Store] | None = None,  # ASYNC
        on_close: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(store, consumer)
        self.store = store
        self.dsn = dsn
        """The DSN for your own connections to the same database; None if the store is not PostgreSQL."""
        self.keys = AsyncApiKeys(store)
        self._blocking = blocking  # ASYNC
        self._on_close = on_close
        self._closed = False

    if True:  # ASYNC

        def blocking(self) -> App:
            """A blocking app on the same store, for this program's threads; close it before this app."""
            from tarry._sync.handles import App

            if self._blocking is None:
                raise InvalidState("this app was made without a blocking store", hint="use tarry.connect_async(…)")
            return App(self._blocking(), dsn=self.dsn, consumer=self.consumer)

        def sweeper(
            self,
            settings: SweeperSettings = SweeperSettings(),
            *,
            on_report: Callable[[SweepReport], None] = lambda report: None,
        ) -> Sweeper:
            """Run maintenance inside your program: `async with app.sweeper(): …`. One sweeper per database is active."""
            return Sweeper(self.store, settings, holder=self.consumer, on_report=on_report)

    else:

        @property
        def pipeline(self) -> Pipeline:
            """The database side of the data pipeline: journal windows, the archive manifest, and published job results."""
            if self.dsn is None:
                raise InvalidState(
                    "the data pipeline needs PostgreSQL: this store has no journal that it can archive exactly",
                    hint="name a PostgreSQL database: tarry.connect(dsn), TARRY_DSN or --dsn",
                )
            return pipeline_on(self.dsn)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            await self.store.close()
        except InvalidState:  # in another event loop: nothing was closed
            self._closed = False
            raise
        finally:
            if self._closed and self._on_close is not None:
                await asyncio.to_thread(self._on_close)
