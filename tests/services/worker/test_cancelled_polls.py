"""A poll that is cancelled while the store hands messages over gives them back: nobody else would know of them."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from tarry.app import AsyncApp
from tarry.core.settings import StoreSettings
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tarry.storage.postgres.aio import AsyncPostgresStore
from tests.services.kit import eventually


def test_what_was_being_handed_over_is_released_uncounted() -> None:
    class Slow(AsyncMemoryStore):
        """Leases, and takes its time to say so."""

        leased, gate = asyncio.Event(), asyncio.Event()

        async def lease(self, *args: Any, **kwargs: Any) -> Any:
            found = await super().lease(*args, **kwargs)
            self.leased.set()
            await self.gate.wait()
            return found

    async def test() -> None:
        store = Slow(MemoryStore())
        app = AsyncApp(store)
        queue = app.queue("orders")
        await queue.offer("a", 1)
        poll = asyncio.create_task(queue.poll())
        await store.leased.wait()
        poll.cancel()
        await asyncio.sleep(0)
        assert not poll.done()
        store.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await poll
        stored = await queue.read("a")
        assert stored is not None
        assert (stored.attempt, stored.lease_until) == (0, None)

    asyncio.run(test())


def test_also_on_postgresql_where_the_statement_waits_for_a_lock(database: str) -> None:
    """The lease is held up by somebody who locks the table; then it succeeds, and its caller is gone."""
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"

    async def test() -> None:
        store = AsyncPostgresStore(database, settings=StoreSettings.for_tests())
        await store.open()
        async with AsyncApp(store, dsn=database) as app:
            queue = app.queue("orders")
            await queue.offer("a", 1)
            with psycopg.connect(database) as other, psycopg.connect(database, autocommit=True) as watcher:
                other.execute("lock table tarry.message in exclusive mode")
                poll = asyncio.create_task(queue.poll_many(1))
                await eventually(lambda: watcher.execute(waiting).fetchone() == (1,))
                poll.cancel()
                await asyncio.sleep(0)
                other.rollback()
                with pytest.raises(asyncio.CancelledError):
                    await poll
            stored = await queue.read("a")
            assert stored is not None
            assert (stored.attempt, stored.lease_until) == (0, None)
            assert [event.kind.value for event in await store.timeline("orders", "a")] == [
                "offered",
                "leased",
                "released",
            ]

    asyncio.run(test())
