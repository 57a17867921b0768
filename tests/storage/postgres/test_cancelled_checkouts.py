"""A task is cancelled as the pool hands it a connection, takes it back, checks its connections, or as its statement fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import psycopg
import pytest

from tarry.core.messages.model import Draft
from tarry.core.settings import QueueSettings, StoreSettings
from tarry.storage.postgres.store import AsyncPostgresStore


@pytest.mark.parametrize("turns", range(12))
def test_a_cancelled_task_ends_however_near_its_connection_is(database: str, turns: int) -> None:
    async def run() -> None:
        store = AsyncPostgresStore(database, settings=StoreSettings(pool_size=1))
        await store.open()

        async def look_forever() -> None:
            while True:
                await store.run(store.messages.contains("q", "k"))

        try:
            await store.run(store.queues.create("q", QueueSettings(), exist_ok=False))
            async with store._pool.connection():
                looking = asyncio.create_task(look_forever())
                for _ in range(20):
                    await asyncio.sleep(0)
                assert (await store.connections()).waiting == 1
            for _ in range(turns):
                await asyncio.sleep(0)
            looking.cancel()
            done, _ = await asyncio.wait({looking}, timeout=5)
            looking.cancel()
            assert done == {looking}
            assert not await store.run(store.messages.contains("q", "k"))  # the pool has its connection again
        finally:
            await store.close()

    asyncio.run(run())


@pytest.mark.parametrize("turns", range(8))
def test_a_cancelled_task_ends_while_the_pool_checks_its_connections(database: str, turns: int) -> None:
    async def run() -> None:
        store = AsyncPostgresStore(database, settings=StoreSettings(pool_size=2))
        await store.open()
        try:
            await store.run(store.queues.create("q", QueueSettings(), exist_ok=False))
            async with store._pool.connection() as healthy, store._pool.connection() as ended:
                pid, kept = ended.info.backend_pid, healthy.info.backend_pid
            # The other one is the spare connection, which is used first.
            assert [conn.info.backend_pid for conn in store._pool._pool] == [kept]
            with psycopg.connect(database, autocommit=True) as admin:
                admin.execute("select pg_terminate_backend(%s, 10000)", [pid])
            checking, check = asyncio.Event(), store._pool.check

            async def noted() -> None:
                checking.set()
                await check()

            store._pool.check = noted

            async def look_forever() -> None:
                while True:
                    await store.run(store.messages.contains("q", "k"))

            looking = asyncio.create_task(look_forever())
            await checking.wait()
            for _ in range(turns):
                await asyncio.sleep(0)
            looking.cancel()
            done, _ = await asyncio.wait({looking}, timeout=5)
            looking.cancel()
            assert done == {looking}
            await asyncio.gather(*[store.run(store.messages.contains("q", "k")) for _ in range(4)])
        finally:
            await store.close()

    asyncio.run(run())


@pytest.mark.parametrize("is_terminated", [False, True])
def test_a_cancelled_task_ends_although_its_statement_fails_meanwhile(database: str, is_terminated: bool) -> None:
    """The driver has not yet read the error of the statement, and raises it instead of the cancellation."""
    waits = "from pg_stat_activity where application_name = 'tarry' and datname = current_database()"

    async def run() -> None:
        store = AsyncPostgresStore(database, settings=StoreSettings(pool_size=1))
        await store.open()
        try:
            await store.run(store.messages.offer("q", Draft("k", b"1")))
            with psycopg.connect(database, autocommit=True) as admin, psycopg.connect(database) as holder:
                holder.execute("select 1 from tarry.message for update")
                dropping = asyncio.create_task(store.run(store.messages.drop("q", "k")))
                is_waiting = f"select 1 {waits} and wait_event_type = 'Lock'"
                while not admin.execute(is_waiting).fetchone():  # noqa: ASYNC110 - there is no event for this
                    await asyncio.sleep(0)
                if is_terminated:
                    admin.execute(f"select pg_terminate_backend(pid, 10000) {waits}")
                while admin.execute(f"select 1 {waits} and state = 'active'").fetchone():
                    pass  # without a turn of the loop, until the lock was not granted in time
                dropping.cancel()
                done, _ = await asyncio.wait({dropping}, timeout=5)
                holder.rollback()
            dropping.cancel()
            assert done == {dropping}
            assert dropping.cancelled()
            assert await store.run(store.messages.contains("q", "k"))
        finally:
            await store.close()

    asyncio.run(run())


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - there is no event for this
        await asyncio.sleep(0)


@pytest.mark.parametrize("is_locked", [False, True])
def test_the_pool_has_the_connection_of_a_task_that_is_cancelled_while_it_returns_it(
    database: str, is_locked: bool
) -> None:
    async def run() -> None:
        store = AsyncPostgresStore(database, settings=StoreSettings(pool_size=1))
        await store.open()
        try:
            await store.run(store.messages.offer("q", Draft("k", b"1")))
            with psycopg.connect(database) as holder:
                if is_locked:
                    holder.execute("select 1 from tarry.message for update")
                dropping = asyncio.create_task(store.run(store.messages.drop("q", "k")))
                await until(lambda: store._lock_turns.locked() if is_locked else bool(store._in_flight._used))
                waiting = asyncio.create_task(store.run(store.messages.contains("q", "other")))
                await until(lambda: store._pool._checkouts > 0)
                async with store._pool._lock:
                    await until(lambda: not store._in_flight._used)
                    dropping.cancel()
                    for _ in range(3):
                        await asyncio.sleep(0)
            async with asyncio.timeout(5):
                assert not await waiting
            assert dropping.cancelled()
            assert not store._lock_turns.locked()
        finally:
            await store.close()

    asyncio.run(run())
