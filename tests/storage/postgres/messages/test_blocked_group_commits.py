"""Group commits that meet locks of other transactions, above all on keys that these have created."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from time import monotonic

import psycopg

from tarry.core.errors import LockTimeout
from tarry.core.messages.model import Draft
from tarry.core.messages.outcomes import Outcome
from tarry.core.settings import QueueSettings, StoreSettings
from tarry.storage.postgres.store import AsyncPostgresStore
from tests.storage.postgres.locking import LOCK_FOR, LONG_S, QUEUE, blocked, opened, row_locked, with_store


@asynccontextmanager
async def being_created(dsn: str, store: AsyncPostgresStore, keys: Sequence[str]) -> AsyncIterator[None]:
    """A transaction that stays open has offered these keys: no other one can see them, or whether they are locked."""
    await store.run(store.queues.create(QUEUE, QueueSettings(), exist_ok=True))
    async with await psycopg.AsyncConnection.connect(dsn) as foreign:
        await store.run(store.messages.offer_many(QUEUE, [Draft(key, b"theirs") for key in keys]), conn=foreign)
        yield
        await foreign.rollback()


MANY = [f"k{i:02d}" for i in range(40)]


def test_an_unrelated_offer_does_not_wait_for_many_keys_that_another_transaction_is_creating(database: str) -> None:
    async def run() -> None:
        patient = StoreSettings(lock_for=timedelta(seconds=LONG_S), connect_for=timedelta(minutes=1))
        async with asyncio.timeout(2 * LONG_S), opened(database, patient) as store:
            async with being_created(database, store, MANY):
                ours = [
                    asyncio.create_task(store.run(store.messages.offer(QUEUE, Draft(key, b"ours")))) for key in MANY
                ]
                while not await asyncio.to_thread(blocked, database):
                    pass
                async with asyncio.timeout(LONG_S / 6):  # to find out about each of the many took 16 s
                    assert await store.run(store.messages.offer(QUEUE, Draft("unrelated", b""))) is Outcome.CREATED
                assert not any(task.done() for task in ours)
            assert await asyncio.gather(*ours) == [Outcome.CREATED] * len(MANY)

    asyncio.run(run())


def test_unrelated_offers_of_the_same_batch_are_parted_from_keys_that_another_transaction_is_creating(
    database: str,
) -> None:
    async def run() -> None:
        patient = StoreSettings(lock_for=timedelta(seconds=LONG_S), connect_for=timedelta(minutes=1))
        async with asyncio.timeout(2 * LONG_S), opened(database, patient) as store:
            async with being_created(database, store, MANY[::4]):
                offers = {
                    key: asyncio.create_task(store.run(store.messages.offer(QUEUE, Draft(key, b"ours"))))
                    for key in MANY
                }
                others = [task for key, task in offers.items() if key not in MANY[::4]]
                assert await asyncio.gather(*others) == [Outcome.CREATED] * len(others)
                assert not any(offers[key].done() for key in MANY[::4])
            assert await asyncio.gather(*offers.values()) == [Outcome.CREATED] * len(MANY)

    asyncio.run(run())


def test_offers_of_many_keys_that_another_transaction_is_creating_fail_in_time(database: str) -> None:
    async def work(store: AsyncPostgresStore) -> None:
        async with being_created(database, store, MANY):
            started = monotonic()
            offers = [store.run(store.messages.offer(QUEUE, Draft(key, b"ours"))) for key in MANY]
            outcomes = await asyncio.gather(*offers, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [LockTimeout] * len(MANY)
            assert monotonic() - started < 6 * LOCK_FOR.total_seconds()

    with_store(database, work)


def test_many_offers_of_one_locked_key_fail_together(database: str) -> None:
    async def work(store: AsyncPostgresStore) -> None:
        await store.run(store.messages.offer(QUEUE, Draft("hot", b"")))
        with row_locked(database, "hot"):
            started = monotonic()
            offers = [store.run(store.messages.offer(QUEUE, Draft("hot", b"%d" % i))) for i in range(10)]
            outcomes = await asyncio.gather(*offers, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [LockTimeout] * 10
            assert monotonic() - started < 6 * LOCK_FOR.total_seconds()

    with_store(database, work)


def test_closing_leaves_no_offer_waiting_for_keys_that_another_transaction_is_creating(database: str) -> None:
    async def work() -> None:
        patient = StoreSettings(lock_for=timedelta(hours=1), connect_for=timedelta(hours=2))
        store = AsyncPostgresStore(database, settings=patient)
        await store.open()
        async with being_created(database, store, MANY):
            offers = [asyncio.create_task(store.run(store.messages.offer(QUEUE, Draft(key, b"ours")))) for key in MANY]
            while not await asyncio.to_thread(blocked, database):
                pass
            await store.close()
            _, pending = await asyncio.wait(offers, timeout=LONG_S / 6)
        assert not pending

    asyncio.run(work())


def test_closing_leaves_no_second_offer_of_a_locked_key_waiting(database: str) -> None:
    async def work() -> None:
        patient = StoreSettings(lock_for=timedelta(hours=1), connect_for=timedelta(hours=2))
        store = AsyncPostgresStore(database, settings=patient)
        await store.open()
        await store.run(store.messages.offer(QUEUE, Draft("hot", b"")))
        with row_locked(database, "hot"):
            offers = [
                asyncio.create_task(store.run(store.messages.offer(QUEUE, Draft("hot", b"%d" % i)))) for i in range(2)
            ]
            while not await asyncio.to_thread(blocked, database):
                pass
            await store.close()
            _, pending = await asyncio.wait(offers, timeout=LONG_S / 6)
        assert not pending

    asyncio.run(work())
