"""The composition root: settings → database → store → handles. It joins the layers and holds no logic of theirs."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

import psycopg

from tarry.bulk import pipeline_on
from tarry.core.clock import Clock
from tarry.core.codecs import codec_for
from tarry.core.errors import InvalidInput, Refused
from tarry.core.ports import AsyncStore, Store
from tarry.core.settings import StoreSettings, SweeperSettings
from tarry.edges.env import dsn_from, listen_dsn_from
from tarry.handles.aio import AsyncQueue
from tarry.handles.keys import ApiKeys, AsyncApiKeys
from tarry.handles.queue import Queue
from tarry.handles.queues import AsyncQueues, Queues
from tarry.handles.redrives import AsyncRedrives, Redrives
from tarry.handles.schedules import AsyncSchedules, Schedules
from tarry.services.cron import AsyncCron, Cron
from tarry.services.sweeper import Sweeper, SweepReport

if TYPE_CHECKING:
    from tarry.storage.postgres.pipeline import Pipeline

P = TypeVar("P")

JOURNAL_DAYS_AHEAD = 7
_log = logging.getLogger("tarry")


class App:
    """Everything on one store, for code that blocks. A context manager; `close` is idempotent."""

    def __init__(
        self,
        store: Store,
        *,
        dsn: str | None = None,
        consumer: str | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self.store = store
        self.dsn = dsn
        """How to reach the same database with a connection of your own; None for the memory store."""
        self.queues = Queues(store)
        self.schedules = Schedules(store)
        self.redrives = Redrives(store)
        self.keys = ApiKeys(store)
        self.consumer = consumer or default_consumer()
        """Who leases, as the journal shows it."""
        self._closing = ExitStack()
        if on_close is not None:
            self._closing.callback(on_close)
        self._closing.callback(store.close)

    @overload
    def queue(self, name: str) -> Queue[Any]: ...
    @overload
    def queue(self, name: str, payload_type: type[P]) -> Queue[P]: ...
    def queue(self, name: str, payload_type: type[Any] | None = None) -> Queue[Any]:
        """A handle on a queue, which comes into being when it is first used. Payloads are checked against their type."""
        return Queue(self.store, name, codec_for(payload_type), consumer=self.consumer)

    def cron(self) -> Cron:
        """Install schedules from code; in a `with` block, plan them as well."""
        return Cron(self.store)

    @property
    def pipeline(self) -> Pipeline:
        """The database side of the data pipeline: windows of the journal, the archive's manifest, and what jobs serve."""
        if self.dsn is None:
            raise Refused(
                "the data pipeline needs PostgreSQL: the memory store has no database", hint="tarry.connect(dsn)"
            )
        return pipeline_on(self.dsn)

    def close(self) -> None:
        self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncApp:
    """`App` for code that awaits."""

    def __init__(
        self,
        store: AsyncStore,
        *,
        dsn: str | None = None,
        consumer: str | None = None,
        blocking: Callable[[], Store] | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self.store = store
        self.dsn = dsn
        self.queues = AsyncQueues(store)
        self.schedules = AsyncSchedules(store)
        self.redrives = AsyncRedrives(store)
        self.keys = AsyncApiKeys(store)
        self.consumer = consumer or default_consumer()
        self._blocking = blocking
        self._on_close = on_close

    @overload
    def queue(self, name: str) -> AsyncQueue[Any]: ...
    @overload
    def queue(self, name: str, payload_type: type[P]) -> AsyncQueue[P]: ...
    def queue(self, name: str, payload_type: type[Any] | None = None) -> AsyncQueue[Any]:
        return AsyncQueue(self.store, name, codec_for(payload_type), consumer=self.consumer)

    def cron(self) -> AsyncCron:
        return AsyncCron(self.store)

    def blocking(self) -> App:
        """Another way to the same messages, for the threads of this program; close it before this app."""
        if self._blocking is None:
            raise Refused("this app was made without a way for code that blocks", hint="use tarry.connect_async(…)")
        return App(self._blocking(), dsn=self.dsn, consumer=self.consumer)

    def sweeper(
        self,
        settings: SweeperSettings = SweeperSettings(),
        *,
        on_report: Callable[[SweepReport], None] = lambda report: None,
    ) -> Sweeper:
        """Clean up beside your program: `async with app.sweeper(): …`. Of all that run on a database one works."""
        return Sweeper(self.store, settings, holder=self.consumer, on_report=on_report)

    async def close(self) -> None:
        on_close, self._on_close = self._on_close, None
        await self.store.close()
        if on_close is not None:
            await asyncio.to_thread(on_close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def connect(
    dsn: str | None = None,
    *,
    migrate: bool = False,
    settings: StoreSettings = StoreSettings(),
    clock: Clock | None = None,
    consumer: str | None = None,
    allow_unsafe: bool = False,
) -> App:
    """Open Tarry on a database: `dsn`, else TARRY_DSN, else libpq's PG* variables, else an embedded PostgreSQL.

    The embedded one is always migrated; a database of your own only when asked to.
    """
    from tarry.storage.postgres.sync import PostgresStore

    dsn, leave = _database(dsn, migrate=migrate, allow_unsafe=allow_unsafe)
    settings = _listening(settings, dsn)
    return App(PostgresStore(dsn, clock=clock, settings=settings), dsn=dsn, consumer=consumer, on_close=leave)


def connect_embedded(*, settings: StoreSettings = StoreSettings()) -> App:
    """`connect` to the embedded PostgreSQL, whatever the environment names."""
    from tarry.storage.postgres.sync import PostgresStore

    dsn, leave = _embedded()
    return App(PostgresStore(dsn, settings=settings), dsn=dsn, on_close=leave)


class connect_async:  # noqa: N801 - used like a function: `async with tarry.connect_async() as app`, or awaited
    """`connect` for code that awaits."""

    def __init__(
        self,
        dsn: str | None = None,
        *,
        migrate: bool = False,
        settings: StoreSettings = StoreSettings(),
        clock: Clock | None = None,
        consumer: str | None = None,
        allow_unsafe: bool = False,
    ) -> None:
        async def open_app() -> AsyncApp:
            from tarry.storage.postgres.aio import AsyncPostgresStore
            from tarry.storage.postgres.sync import PostgresStore

            # Starting and checking a database blocks for as long as it takes, and must not block the loop.
            found, leave = await asyncio.to_thread(_database, dsn, migrate=migrate, allow_unsafe=allow_unsafe)
            chosen = _listening(settings, found)
            store = AsyncPostgresStore(found, clock=clock, settings=chosen)
            await store.open()
            return AsyncApp(
                store,
                dsn=found,
                consumer=consumer,
                blocking=lambda: PostgresStore(found, clock=clock, settings=chosen),
                on_close=leave,
            )

        self._open = open_app
        self._app: AsyncApp | None = None

    def __await__(self) -> Any:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncApp:
        self._app = await self._open()
        return self._app

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._app is not None:
            await self._app.close()


def _database(dsn: str | None, *, migrate: bool, allow_unsafe: bool) -> tuple[str, Callable[[], None] | None]:
    """A database that is fit to be used, and what to call when we leave it."""
    if dsn is None:
        dsn = dsn_from()
    if dsn is None:
        return _embedded()
    prepare(dsn, migrate=migrate, allow_unsafe=allow_unsafe)
    return dsn, None


def _listening(settings: StoreSettings, dsn: str) -> StoreSettings:
    """For programs whose settings nobody can change, as `tarry worker` is: the environment may know a way around a pooler."""
    return settings if settings.listen_dsn else dataclasses.replace(settings, listen_dsn=listen_dsn_from(dsn))


def _embedded() -> tuple[str, Callable[[], None]]:
    from tarry.storage.postgres import embedded

    server = embedded.start()
    try:
        prepare(server.dsn, migrate=True, allow_unsafe=False)
    except BaseException:
        server.close()
        raise
    return server.dsn, server.close


def default_lake() -> Path:
    """Where the archive goes if nobody says otherwise: beside the embedded data."""
    from tarry.storage.postgres.embedded.environment import read_environment

    home = read_environment().data_home
    if home is None:
        raise InvalidInput("this user has no home directory: say where the lake is", hint="--lake, or set TARRY_HOME")
    return home / "lake"


def prepare(dsn: str, *, migrate: bool, allow_unsafe: bool) -> None:
    """Refuse a database that would lose messages, migrate where asked to, and make the journal's next partitions."""
    from tarry.storage.postgres import health, queue_statements
    from tarry.storage.postgres.connections import connected
    from tarry.storage.postgres.drive import drive
    from tarry.storage.postgres.migrate import migrate as apply_migrations

    with connected(dsn) as conn:
        health.check_safety(conn, allow_unsafe=allow_unsafe)
        if migrate:
            apply_migrations(conn)
        health.check_schema(conn)
        health.check_journal(conn, allow_unsafe=allow_unsafe)
        try:
            drive(conn, queue_statements.journal_partitions(JOURNAL_DAYS_AHEAD).run())
        except psycopg.errors.InsufficientPrivilege:
            # A role that may not create tables: whoever migrates makes them, and until then the overflow takes the events.
            _log.info("this role may not make partitions of the journal ahead")
        except psycopg.errors.LockNotAvailable:
            # Whoever starts next makes them. There are days of them ahead, and the overflow after that.
            _log.info("partitions of the journal ahead were not made: the journal is being read")


def default_consumer() -> str:
    """Who leases, where nobody says otherwise: enough to find the process."""
    return f"{socket.gethostname()}:{os.getpid()}"[:200]
