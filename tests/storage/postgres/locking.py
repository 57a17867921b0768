"""Locks that a transaction of the test holds, and stores that meet them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

import psycopg

from tarry.core.messages.model import Draft, LeaseId
from tarry.core.settings import StoreSettings
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.store import AsyncPostgresStore

QUEUE = "locked"
LONG_S = 30.0
"""Much longer than any limit under test, much shorter than for ever."""
LOCK_FOR = timedelta(seconds=1)
SETTINGS = StoreSettings(lock_for=LOCK_FOR, connect_for=timedelta(seconds=30))


def plain(data: bytes, content_type: str | None) -> bytes:
    return data


@contextmanager
def row_locked(dsn: str, *keys: str) -> Iterator[psycopg.Connection[Any]]:
    """These messages are locked by a transaction that stays open until the block ends, or until it is ended."""
    with psycopg.connect(dsn) as conn:
        rows = conn.execute("select key from tarry.message where key = any (%s) for update", [list(keys)]).fetchall()
        assert len(rows) == len(keys)
        yield conn
        conn.rollback()


@asynccontextmanager
async def opened(dsn: str, settings: StoreSettings = SETTINGS) -> AsyncIterator[AsyncPostgresStore]:
    store = AsyncPostgresStore(dsn, settings=settings)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def with_store(dsn: str, work: Callable[[AsyncPostgresStore], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(LONG_S), opened(dsn) as store:
            await work(store)

    asyncio.run(run())


async def leased(store: AsyncPostgresStore, *keys: str) -> dict[str, LeaseId]:
    for key in keys:
        await store.run(store.messages.offer(QUEUE, Draft(key, b"")))
    return {lease.key: lease.lease_id for lease in await store.run(store.messages.poll(QUEUE, len(keys), plain))}


def blocked(dsn: str, n: int = 1) -> bool:
    """Whether that many statements wait for a lock in this database."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        row = conn.execute(
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        ).fetchone()
    return row is not None and row[0] >= n


@contextmanager
def contextstore(dsn: str, settings: StoreSettings = SETTINGS) -> Iterator[PostgresStore]:
    store = PostgresStore(dsn, settings=settings)
    try:
        yield store
    finally:
        store.close()
