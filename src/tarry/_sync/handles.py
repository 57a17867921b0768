# Generated from src/tarry/handles.py by tools/generate-blocking. Edit that file, then run `make generate`.
"""The blocking half of `tarry.handles`."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from tarry.api._sync.api_keys import ApiKeys
from tarry.api._sync.queue import Queue
from tarry.api._sync.queues import Queues
from tarry.api._sync.redrives import Redrives
from tarry.api._sync.schedules import Schedules
from tarry.core._sync.ports import Store
from tarry.core.codecs import codec_for
from tarry.core.errors import InvalidState
from tarry.pipeline import pipeline_on
from tarry.services.cron._sync.api import Cron

if TYPE_CHECKING:
    from tarry.storage.postgres.analytics import Pipeline

P = TypeVar("P")


class Handles:
    """The handles of an app and of a broker client. A context manager."""

    _queue_type: type[Queue[Any]] = Queue

    def __init__(self, store: Store, consumer: str | None) -> None:
        self._handled = store
        self.queues = Queues(store)
        self.schedules = Schedules(store)
        self.redrives = Redrives(store)
        self.consumer = consumer or f"{socket.gethostname()}:{os.getpid()}"[:200]
        """The name under which messages are leased, as the journal shows it; by default the host and the process id."""

    @overload
    def queue(self, name: str) -> Queue[Any]: ...
    @overload
    def queue(self, name: str, payload_type: type[P]) -> Queue[P]: ...
    def queue(self, name: str, payload_type: type[Any] | None = None) -> Queue[Any]:
        """A handle on a queue, which is created on first use. Payloads are validated against `payload_type`."""
        return self._queue_type(self._handled, name, codec_for(payload_type), consumer=self.consumer)

    def cron(self) -> Cron:
        """Install schedules from code; as a context manager, plan them as well. On a broker this needs a key with `read`, and
        with `admin` on the queues; planning alone needs only `produce`."""
        return Cron(self._handled)

    def close(self) -> None:
        self._handled.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class App(Handles):
    """Everything on one store. `close` is idempotent."""

    def __init__(
        self,
        store: Store,
        *,
        dsn: str | None = None,
        consumer: str | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(store, consumer)
        self.store = store
        self.dsn = dsn
        """The DSN for your own connections to the same database; None if the store is not PostgreSQL."""
        self.keys = ApiKeys(store)
        self._on_close = on_close
        self._closed = False

    @property
    def pipeline(self) -> Pipeline:
        """The database side of the data pipeline: journal windows, the archive manifest, and published job results."""
        if self.dsn is None:
            raise InvalidState(
                "the data pipeline needs PostgreSQL: this store has no journal that it can archive exactly",
                hint="name a PostgreSQL database: tarry.connect(dsn), TARRY_DSN or --dsn",
            )
        return pipeline_on(self.dsn)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            self.store.close()
        except InvalidState:  # in another event loop: nothing was closed
            self._closed = False
            raise
        finally:
            if self._closed and self._on_close is not None:
                self._on_close()
