"""The composition root: settings → database → store → app. It joins the layers and holds no logic of theirs."""

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg

from tarry._sync.handles import App
from tarry.core._sync.ports import Store
from tarry.core.clock import Clock
from tarry.core.errors import InvalidInput
from tarry.core.extras import needs_extra
from tarry.core.ports import AsyncStore
from tarry.core.settings import StoreSettings
from tarry.edges.env import dsn_from, libpq_dsn, listen_dsn_from, no_schema_on_redis, redis_url_from
from tarry.handles import AsyncApp

__all__ = ["App", "AsyncApp", "connect", "connect_async", "default_lake", "prepare"]

JOURNAL_DAYS_AHEAD = 7
_log = logging.getLogger("tarry")


def connect(
    dsn: str | None = None,
    *,
    migrate: bool = False,
    schema: str | None = None,
    settings: StoreSettings = StoreSettings(),
    clock: Clock | None = None,
    consumer: str | None = None,
    allow_unsafe: bool = False,
) -> App:
    """Open Tarry on a database: `dsn`, else TARRY_DSN, else libpq's PG* variables, else an embedded PostgreSQL.

    The embedded one is always migrated; your own database only with `migrate`. `schema`: of Tarry's tables, as in
    `postgresql://…?schema=tenant`, else `tarry`. A DSN that begins with `redis://`, `rediss://` or `redis+cluster://` is a
    Redis.
    """
    stores = _stores(dsn, schema, settings, clock, migrate=migrate, allow_unsafe=allow_unsafe)
    return App(stores.blocking(), dsn=stores.dsn, consumer=consumer, on_close=stores.on_close)


class connect_async:  # noqa: N801 - used like a function: `async with tarry.connect_async() as app`, or awaited
    """`connect` for code that awaits."""

    def __init__(
        self,
        dsn: str | None = None,
        *,
        migrate: bool = False,
        schema: str | None = None,
        settings: StoreSettings = StoreSettings(),
        clock: Clock | None = None,
        consumer: str | None = None,
        allow_unsafe: bool = False,
    ) -> None:
        self._stores = partial(_stores, dsn, schema, settings, clock, migrate=migrate, allow_unsafe=allow_unsafe)
        self._consumer = consumer
        self._app: AsyncApp | None = None

    async def _open(self) -> AsyncApp:
        stores = await asyncio.to_thread(self._stores)  # starting and checking a database blocks
        blocking, dsn, on_close = stores.blocking, stores.dsn, stores.on_close
        return AsyncApp(await stores.awaiting(), dsn=dsn, consumer=self._consumer, blocking=blocking, on_close=on_close)

    def __await__(self) -> Generator[Any, Any, AsyncApp]:
        return self._open().__await__()

    if not TYPE_CHECKING:  # a type checker must still reject every attribute

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            raise AttributeError(
                f"connect_async() was not awaited, so there is no app with {name!r} yet "
                "(use: async with tarry.connect_async() as app, or: app = await tarry.connect_async())"
            )

    async def __aenter__(self) -> AsyncApp:
        self._app = await self._open()
        return self._app

    async def __aexit__(self, *_: object) -> None:
        if self._app is not None:
            await self._app.close()


class _Stores(NamedTuple):
    """Factories of stores on a prepared database."""

    blocking: Callable[[], Store]
    awaiting: Callable[[], Awaitable[AsyncStore]]
    dsn: str | None = None
    on_close: Callable[[], None] | None = None


def _stores(
    dsn: str | None,
    schema: str | None,
    settings: StoreSettings,
    clock: Clock | None,
    *,
    migrate: bool,
    allow_unsafe: bool,
) -> _Stores:
    if (url := redis_url_from(dsn)) is not None:
        if schema is not None:
            raise no_schema_on_redis()
        return _redis_stores(url, settings, clock, allow_unsafe=allow_unsafe)
    from tarry.storage.postgres._sync.store import PostgresStore

    named, leave = dsn_from() if dsn is None else dsn, None
    if named is None:
        database, leave = _embedded(schema)
    else:
        database = libpq_dsn(named, schema) if isinstance(named, str) else named  # pyright: ignore[reportUnnecessaryIsInstance] - check_dsn refuses
        prepare(database, migrate=migrate, allow_unsafe=allow_unsafe)
    if settings.listen_dsn:
        settings = dataclasses.replace(settings, listen_dsn=libpq_dsn(settings.listen_dsn))
    elif named is not None:  # the environment may name a DSN that bypasses a pooler
        settings = dataclasses.replace(settings, listen_dsn=listen_dsn_from(named))

    async def awaiting() -> AsyncStore:
        from tarry.storage.postgres.store import AsyncPostgresStore

        store = AsyncPostgresStore(database, clock=clock, settings=settings)
        await store.open()
        return store

    return _Stores(partial(PostgresStore, database, clock=clock, settings=settings), awaiting, database, leave)


def _redis_stores(url: str, settings: StoreSettings, clock: Clock | None, *, allow_unsafe: bool) -> _Stores:
    with needs_extra("redis", "the store on Redis"):
        from tarry.storage.redis import health
        from tarry.storage.redis._sync.store import RedisStore
        from tarry.storage.redis.store import AsyncRedisStore
    replicas = health.prepare(url, settings, allow_unsafe=allow_unsafe)
    options: dict[str, Any] = {"clock": clock, "settings": settings, "replicas": replicas}

    async def awaiting() -> AsyncStore:
        return AsyncRedisStore(url, **options)

    return _Stores(partial(RedisStore, url, **options), awaiting)


def _embedded(schema: str | None) -> tuple[str, Callable[[], None]]:
    from tarry.storage.postgres import embedded

    server = embedded.start()
    try:
        dsn = libpq_dsn(server.dsn, schema)
        prepare(dsn, migrate=True, allow_unsafe=False)
        _keep_apart(server.dsn)
    except BaseException:
        server.close()
        raise
    return dsn, server.close


def _keep_apart(dsn: str) -> None:
    """Keep user tables out of Tarry's schema: the embedded server's role is named tarry, and `"$user"` leads its search
    path."""
    from tarry.storage.postgres.connections import connected

    with connected(dsn) as conn:
        if conn.execute("select current_schema() = 'tarry'").fetchone() == (True,):
            conn.execute("alter role current_user set search_path = public")


def default_lake() -> Path:
    """The default archive directory, next to the embedded data."""
    from tarry.storage.postgres.embedded.home import read_environment

    home = read_environment().data_home
    if home is None:
        raise InvalidInput("this user has no home directory, and no lake was given", hint="--lake, or set TARRY_HOME")
    return home / "lake"


def prepare(dsn: str, *, migrate: bool, allow_unsafe: bool) -> None:
    """Refuse a database that would lose messages, optionally migrate it, and create the journal's next partitions."""
    from tarry.storage.postgres import health
    from tarry.storage.postgres._sync.runner import drive
    from tarry.storage.postgres.connections import connected
    from tarry.storage.postgres.journal import statements as journal_statements
    from tarry.storage.postgres.migrate import migrate as apply_migrations

    with connected(dsn) as conn:
        health.check_safety(conn, allow_unsafe=allow_unsafe)
        if migrate:
            apply_migrations(conn)
        health.check_schema(conn)
        health.check_journal(conn, allow_unsafe=allow_unsafe)
        try:
            drive(conn, journal_statements.create_partitions(JOURNAL_DAYS_AHEAD).run())
        except psycopg.errors.InsufficientPrivilege:
            # The next migration creates them; until then events go to the overflow partition.
            _log.info("this role may not make partitions of the journal ahead")
        except psycopg.errors.LockNotAvailable:
            # The next start creates them: partitions exist for days ahead, and the overflow partition takes the rest.
            _log.info("partitions of the journal ahead were not made: the journal is being read")
