"""A poll that is cancelled while the store hands messages over releases them: no other consumer would get them."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from tarry.app import AsyncApp
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tarry.storage.postgres.store import AsyncPostgresStore
from tests.kit.calls import call_of, replace_call
from tests.kit.settings import FOR_TESTS
from tests.services.kit import eventually


def test_what_was_being_handed_over_is_released_uncounted() -> None:
    class Slow(AsyncMemoryStore):
        """Leases, and takes its time to return."""

        leased, reply = asyncio.Event(), asyncio.Event()

        def __init__(self, store: MemoryStore) -> None:
            super().__init__(store)
            self._poll = call_of(self, "messages.poll")
            replace_call(self, "messages.poll", self._poll_slowly)

        async def _poll_slowly(self, *args: Any, **kwargs: Any) -> Any:
            leases = await self._poll(*args, **kwargs)
            self.leased.set()
            await self.reply.wait()
            return leases

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
        store.reply.set()
        with pytest.raises(asyncio.CancelledError):
            await poll
        stored = await queue.read("a")
        assert stored is not None
        assert (stored.attempt, stored.lease_until) == (0, None)

    asyncio.run(test())


def test_also_on_postgresql_where_the_statement_waits_for_a_lock(database: str) -> None:
    """The lease waits for a lock on the table; then it succeeds, and its caller is gone."""
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"

    async def test() -> None:
        store = AsyncPostgresStore(database, settings=FOR_TESTS)
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
            assert [event.kind.value for event in await store.run(store.journal.timeline("orders", "a"))] == [
                "offered",
                "leased",
                "released",
            ]

    asyncio.run(test())
