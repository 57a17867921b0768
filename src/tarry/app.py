"""The composition root: settings → database → store → app. It joins the layers and holds no logic of theirs."""

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from tarry._sync.handles import App
from tarry.core.clock import Clock
from tarry.core.errors import InvalidInput
from tarry.core.settings import StoreSettings
from tarry.edges.env import dsn_from, libpq_dsn, listen_dsn_from, redis_url_from
from tarry.handles import AsyncApp

__all__ = ["App", "AsyncApp", "connect", "connect_async", "default_lake", "prepare"]

JOURNAL_DAYS_AHEAD = 7
_log = logging.getLogger("tarry")


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

    The embedded one is always migrated; your own database only with `migrate`. A DSN that begins with `redis://`,
    `rediss://` or `redis+cluster://` is a Redis.
    """
    if (url := redis_url_from(dsn)) is not None:
        return _connect_redis(url, settings, clock, consumer, allow_unsafe=allow_unsafe)
    from tarry.storage.postgres._sync.store import PostgresStore

    dsn, leave = _database(dsn, migrate=migrate, allow_unsafe=allow_unsafe)
    settings = _listening(settings, dsn)
    return App(PostgresStore(dsn, clock=clock, settings=settings), dsn=dsn, consumer=consumer, on_close=leave)


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
            if (url := redis_url_from(dsn)) is not None:
                return await _connect_redis_async(url, settings, clock, consumer, allow_unsafe=allow_unsafe)
            from tarry.storage.postgres._sync.store import PostgresStore
            from tarry.storage.postgres.store import AsyncPostgresStore

            # Starting and checking a database blocks for as long as it takes, and must not block the loop.
            database, leave = await asyncio.to_thread(_database, dsn, migrate=migrate, allow_unsafe=allow_unsafe)
            chosen = _listening(settings, database)
            store = AsyncPostgresStore(database, clock=clock, settings=chosen)
            await store.open()
            return AsyncApp(
                store,
                dsn=database,
                consumer=consumer,
                blocking=lambda: PostgresStore(database, clock=clock, settings=chosen),
                on_close=leave,
            )

        self._open = open_app
        self._app: AsyncApp | None = None

    def __await__(self) -> Any:
        return self._open().__await__()

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


def _connect_redis(
    url: str, settings: StoreSettings, clock: Clock | None, consumer: str | None, *, allow_unsafe: bool
) -> App:
    health = _redis_driver()
    from tarry.storage.redis._sync.store import RedisStore

    replicas = health.prepare(url, settings, allow_unsafe=allow_unsafe)
    return App(RedisStore(url, clock=clock, settings=settings, replicas=replicas), consumer=consumer)


async def _connect_redis_async(
    url: str, settings: StoreSettings, clock: Clock | None, consumer: str | None, *, allow_unsafe: bool
) -> AsyncApp:
    health = _redis_driver()
    from tarry.storage.redis._sync.store import RedisStore
    from tarry.storage.redis.store import AsyncRedisStore

    replicas = await asyncio.to_thread(health.prepare, url, settings, allow_unsafe=allow_unsafe)
    return AsyncApp(
        AsyncRedisStore(url, clock=clock, settings=settings, replicas=replicas),
        consumer=consumer,
        blocking=lambda: RedisStore(url, clock=clock, settings=settings, replicas=replicas),
    )


def _redis_driver() -> Any:
    try:
        from tarry.storage.redis import health
    except ImportError as error:
        raise InvalidInput("a Redis store needs the driver redis-py", hint="pip install tarry[redis]") from error
    return health


def _database(dsn: str | None, *, migrate: bool, allow_unsafe: bool) -> tuple[str, Callable[[], None] | None]:
    """A database that is fit to be used, and what to call when we leave it."""
    if dsn is None:
        dsn = dsn_from()
    if dsn is None:
        return _embedded()
    dsn = libpq_dsn(dsn) if isinstance(dsn, str) else dsn  # pyright: ignore[reportUnnecessaryIsInstance] - check_dsn refuses
    prepare(dsn, migrate=migrate, allow_unsafe=allow_unsafe)
    return dsn, None


def _listening(settings: StoreSettings, dsn: str) -> StoreSettings:
    """The settings with the `listen_dsn` of the environment, which may bypass a pooler, unless they have one."""
    return settings if settings.listen_dsn else dataclasses.replace(settings, listen_dsn=listen_dsn_from(dsn))


def _embedded() -> tuple[str, Callable[[], None]]:
    from tarry.storage.postgres import embedded

    server = embedded.start()
    try:
        prepare(server.dsn, migrate=True, allow_unsafe=False)
        _keep_apart(server.dsn)
    except BaseException:
        server.close()
        raise
    return server.dsn, server.close


def _keep_apart(dsn: str) -> None:
    """The role of the embedded server is named tarry, so tables of the user would be created in the schema of that name."""
    from tarry.storage.postgres.connections import connected

    with connected(dsn) as conn:
        if conn.execute("select current_schema() = 'tarry'").fetchone() == (True,):
            conn.execute("alter role current_user set search_path = public")


def default_lake() -> Path:
    """The default directory of the archive: beside the embedded data."""
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
            # A role that may not create tables. The next migration creates them; until then the overflow takes the events.
            _log.info("this role may not make partitions of the journal ahead")
        except psycopg.errors.LockNotAvailable:
            # The next start creates them. There are days of them ahead, and the overflow after that.
            _log.info("partitions of the journal ahead were not made: the journal is being read")
