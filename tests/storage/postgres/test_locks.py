"""Row locks of other transactions: what they delay, what they do not, and for how long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from time import monotonic
from typing import Any

import psycopg
import pytest

from tarry.core.errors import InvalidPayload, LockTimeout
from tarry.core.messages.model import Draft, Failure, LeaseId
from tarry.core.messages.outcomes import Outcome, Settled
from tarry.core.settings import QueueSettings, StoreSettings
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.analytics import database as pipeline_database
from tarry.storage.postgres.messages import statements
from tarry.storage.postgres.store import AsyncPostgresStore
from tests.kit.sleepers import until
from tests.storage.postgres.bouncers import pgbouncer
from tests.storage.postgres.locking import (
    LOCK_FOR,
    LONG_S,
    QUEUE,
    blocked,
    contextstore,
    leased,
    opened,
    plain,
    row_locked,
    with_store,
)


def test_an_unrelated_ack_and_offer_do_not_wait_for_a_locked_row(database: str) -> None:
    async def work(store: AsyncPostgresStore) -> None:
        lease_ids = await leased(store, "a", "b", "hot")
        with row_locked(database, "hot") as foreign:
            hot = asyncio.create_task(store.run(store.messages.ack(QUEUE, [lease_ids["hot"]])))
            hot_offer = asyncio.create_task(store.run(store.messages.offer(QUEUE, Draft("hot", b"new"))))
            while not await asyncio.to_thread(blocked, database):
                assert not hot.done()
            others = [
                store.run(store.messages.ack(QUEUE, [lease_ids["a"]])),
                store.run(store.messages.ack(QUEUE, [lease_ids["b"]])),
                store.run(store.messages.offer(QUEUE, Draft("c", b""))),
                store.run(store.messages.offer(QUEUE, Draft("d", b""))),
            ]
            outcomes = await asyncio.gather(*others)
            assert outcomes == [[Settled.DONE], [Settled.DONE], Outcome.CREATED, Outcome.CREATED]
            assert not hot.done()
            assert not hot_offer.done()
            foreign.rollback()
            await asyncio.gather(hot, hot_offer)
        # Either may be first: then the ack has lost its lease, or the offer finds nothing to update.
        expected = Outcome.CREATED if hot.result() == [Settled.DONE] else Outcome.UPDATED
        assert hot_offer.result() is expected
        assert await store.run(store.messages.contains(QUEUE, "hot"))

    # Its own limit is out of reach here: only the end of the other transaction lets the two go on.
    async def run() -> None:
        patient = StoreSettings(lock_for=timedelta(seconds=LONG_S), connect_for=timedelta(minutes=1))
        async with asyncio.timeout(LONG_S / 2), opened(database, patient) as store:
            await work(store)

    asyncio.run(run())


def test_an_unrelated_offer_does_not_wait_for_a_key_that_another_transaction_is_creating(database: str) -> None:
    async def work(store: AsyncPostgresStore) -> None:
        await store.run(store.queues.create(QUEUE, QueueSettings(), exist_ok=True))
        async with await psycopg.AsyncConnection.connect(database) as foreign:
            await store.run(store.messages.offer(QUEUE, Draft("new", b"theirs")), conn=foreign)
            ours = asyncio.create_task(store.run(store.messages.offer(QUEUE, Draft("new", b"ours"))))
            others = [store.run(store.messages.offer(QUEUE, Draft(f"k{i}", b""))) for i in range(20)]
            assert await asyncio.gather(*others) == [Outcome.CREATED] * 20
            assert not ours.done()
            await foreign.commit()
            assert await ours is Outcome.UPDATED

    async def run() -> None:
        patient = StoreSettings(lock_for=timedelta(seconds=LONG_S), connect_for=timedelta(minutes=1))
        async with asyncio.timeout(LONG_S / 2), opened(database, patient) as store:
            await work(store)

    asyncio.run(run())


def test_offers_of_a_locked_key_keep_their_order(database: str) -> None:
    async def work(store: AsyncPostgresStore) -> None:
        await store.run(store.messages.offer(QUEUE, Draft("hot", b"0")))
        with row_locked(database, "hot") as foreign:
            offers = [
                asyncio.create_task(store.run(store.messages.offer(QUEUE, Draft("hot", b"%d" % i))))
                for i in range(1, 4)
            ]
            while not await asyncio.to_thread(blocked, database):
                pass
            offers.append(asyncio.create_task(store.run(store.messages.offer(QUEUE, Draft("hot", b"4")))))
            assert await store.run(store.messages.offer(QUEUE, Draft("other", b""))) is Outcome.CREATED
            foreign.rollback()
            assert await asyncio.gather(*offers) == [Outcome.UPDATED] * 4
        message = await store.run(store.messages.read(QUEUE, "hot"))
        assert message is not None
        assert message.payload == b"4"

    async def run() -> None:
        patient = StoreSettings(lock_for=timedelta(seconds=LONG_S), connect_for=timedelta(minutes=1))
        async with asyncio.timeout(LONG_S / 2), opened(database, patient) as store:
            await work(store)

    asyncio.run(run())


def test_a_touch_passes_by_a_locked_row_and_calls_it_busy(database: str) -> None:
    async def work(store: AsyncPostgresStore) -> None:
        lease_ids = await leased(store, "a", "b", "hot")
        touched = [lease_ids["a"], lease_ids["hot"], lease_ids["b"]]
        with row_locked(database, "hot"):
            assert await store.run(store.messages.touch(QUEUE, touched)) == [Settled.DONE, Settled.BUSY, Settled.DONE]
        assert await store.run(store.messages.touch(QUEUE, touched)) == [Settled.DONE] * 3
        kinds = [event.kind.value for event in await store.run(store.journal.timeline(QUEUE, "hot"))]
        assert "refused" not in kinds

    with_store(database, work)


def test_a_touch_of_a_row_that_the_same_transaction_has_locked_is_done(database: str) -> None:
    with psycopg.connect(database) as conn, contextstore(database) as store:
        store.run(store.messages.offer(QUEUE, Draft("k", b"")))
        (lease,) = store.run(store.messages.poll(QUEUE, 1, plain))
        conn.execute("select from tarry.message where key = 'k' for update")
        assert store.run(store.messages.touch(QUEUE, [lease.lease_id]), conn=conn) == [Settled.DONE]


Act = Callable[[PostgresStore, list[LeaseId]], Any]
WAITING: dict[str, Act] = {
    "ack": lambda store, lease_ids: store.run(store.messages.ack(QUEUE, lease_ids)),
    "nack": lambda store, lease_ids: store.run(
        store.messages.nack(QUEUE, [Failure(lease_id) for lease_id in lease_ids])
    ),
    "release": lambda store, lease_ids: store.run(store.messages.release(QUEUE, lease_ids)),
    "bury": lambda store, lease_ids: store.run(store.messages.bury(QUEUE, lease_ids)),
    "offer_many": lambda store, lease_ids: store.run(
        store.messages.offer_many(QUEUE, [Draft(lease_id.key, b"new") for lease_id in lease_ids])
    ),
    "drop": lambda store, lease_ids: store.run(store.messages.drop(QUEUE, "hot")),
    "purge": lambda store, lease_ids: store.run(store.messages.purge(QUEUE)),
}


@pytest.mark.parametrize("verb", WAITING)
def test_a_batch_that_meets_a_locked_row_fails_in_time_and_changes_nothing(database: str, verb: str) -> None:
    with contextstore(database) as store:
        store.run(store.messages.offer_many(QUEUE, [Draft(key, b"") for key in ("a", "b", "hot")]))
        lease_ids = [lease.lease_id for lease in store.run(store.messages.poll(QUEUE, 3, plain))]
        before = [(m.key, m.version, m.state) for m in store.run(store.messages.list(QUEUE))]
        with row_locked(database, "hot"):
            started = monotonic()
            with pytest.raises(LockTimeout, match="locked") as caught:
                WAITING[verb](store, lease_ids)
            assert monotonic() - started < LONG_S
            assert "pg_stat_activity" in (caught.value.hint or "")
        assert [(m.key, m.version, m.state) for m in store.run(store.messages.list(QUEUE))] == before


def test_an_awaiting_caller_of_a_locked_row_fails_in_time(database: str) -> None:
    async def work(store: AsyncPostgresStore) -> None:
        lease_ids = await leased(store, "hot")
        with row_locked(database, "hot"):
            outcomes = await asyncio.gather(
                store.run(store.messages.ack(QUEUE, [lease_ids["hot"]])),
                store.run(store.messages.offer(QUEUE, Draft("hot", b""))),
                return_exceptions=True,
            )
        assert [type(outcome) for outcome in outcomes] == [LockTimeout, LockTimeout]
        assert await store.run(store.messages.ack(QUEUE, [lease_ids["hot"]])) == [Settled.DONE]

    with_store(database, work)


def test_ten_blocked_drops_do_not_block_another_queue(database: str) -> None:
    async def work(store: AsyncPostgresStore) -> None:
        await store.run(store.messages.offer(QUEUE, Draft("hot", b"")))
        with row_locked(database, "hot") as foreign:
            drops = [asyncio.create_task(store.run(store.messages.drop(QUEUE, "hot"))) for _ in range(10)]
            while not await asyncio.to_thread(blocked, database, 5):
                pass
            assert await store.run(store.messages.offer("another", Draft("k", b""))) is Outcome.CREATED
            assert not any(drop.done() for drop in drops)
            foreign.rollback()
            assert sum(await asyncio.gather(*drops)) == 1

    async def run() -> None:
        patient = StoreSettings(lock_for=timedelta(seconds=LONG_S), connect_for=timedelta(minutes=1))
        async with asyncio.timeout(LONG_S / 2), opened(database, patient) as store:
            await work(store)

    asyncio.run(run())


def test_ten_blocked_threads_do_not_block_another_queue(database: str) -> None:
    patient = StoreSettings(lock_for=timedelta(seconds=LONG_S), connect_for=timedelta(minutes=1))
    with contextstore(database, patient) as store, ThreadPoolExecutor(10) as threads:
        store.run(store.messages.offer(QUEUE, Draft("hot", b"")))
        with row_locked(database, "hot") as foreign:
            drops = [threads.submit(store.run, store.messages.drop(QUEUE, "hot")) for _ in range(10)]
            while not blocked(database, 5):
                pass
            assert store.run(store.messages.offer("another", Draft("k", b""))) is Outcome.CREATED
            assert not any(drop.done() for drop in drops)
            foreign.rollback()
            assert sum(drop.result(LONG_S) for drop in drops) == 1


FEW = StoreSettings(pool_size=4, lock_for=timedelta(seconds=LONG_S), connect_for=timedelta(minutes=1))


def test_many_blocked_drops_leave_half_of_the_pool_to_others(database: str) -> None:
    async def run() -> None:
        async with asyncio.timeout(LONG_S), opened(database, FEW) as store:
            await store.run(store.messages.offer(QUEUE, Draft("hot", b"")))
            with row_locked(database, "hot") as foreign:
                drops = [asyncio.create_task(store.run(store.messages.drop(QUEUE, "hot"))) for _ in range(40)]
                while not await asyncio.to_thread(blocked, database, 4):
                    pass
                while (await store.connections()).waiting:  # the first try of each
                    await asyncio.to_thread(blocked, database)
                assert await store.run(store.messages.offer("another", Draft("k", b""))) is Outcome.CREATED
                assert not any(drop.done() for drop in drops)
                foreign.rollback()
                assert sum(await asyncio.gather(*drops)) == 1

    asyncio.run(run())


def test_many_blocked_threads_leave_half_of_the_pool_to_others(database: str) -> None:
    with contextstore(database, FEW) as store, ThreadPoolExecutor(40) as threads:
        store.run(store.messages.offer(QUEUE, Draft("hot", b"")))
        with row_locked(database, "hot") as foreign:
            drops = [threads.submit(store.run, store.messages.drop(QUEUE, "hot")) for _ in range(40)]
            while not blocked(database, 4):
                pass
            until(lambda: not store.connections().waiting, "blocked drops wait for connections all the time")
            assert store.run(store.messages.offer("another", Draft("k", b""))) is Outcome.CREATED
            assert not any(drop.done() for drop in drops)
            foreign.rollback()
            assert sum(drop.result(LONG_S) for drop in drops) == 1


def test_many_blocked_drops_fail_in_time(database: str) -> None:
    async def run() -> None:
        few = StoreSettings(pool_size=2, lock_for=LOCK_FOR, connect_for=timedelta(seconds=30))
        async with asyncio.timeout(LONG_S), opened(database, few) as store:
            await store.run(store.messages.offer(QUEUE, Draft("hot", b"")))
            with row_locked(database, "hot"):
                drops = [store.run(store.messages.drop(QUEUE, "hot")) for _ in range(20)]
                outcomes = await asyncio.gather(*drops, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [LockTimeout] * 20

    asyncio.run(run())


@pytest.mark.parametrize("error", [KeyError("no such field"), InvalidPayload("not a number")])
def test_a_poll_returns_its_leases_although_a_message_that_it_must_nack_is_locked(
    database: str, error: Exception
) -> None:
    with contextstore(database) as store, psycopg.connect(database) as foreign:
        store.run(store.messages.offer_many(QUEUE, [Draft(key, key.encode()) for key in ("a", "bad", "c")]))

        def decode(data: bytes, content_type: str | None) -> bytes:
            if data == b"bad":
                foreign.execute("select from tarry.message where key = 'bad' for update")
                raise error
            return data

        assert {lease.key for lease in store.run(store.messages.poll(QUEUE, 10, decode))} == {"a", "c"}
        foreign.rollback()
        assert {message.key: message.attempt for message in store.run(store.messages.list(QUEUE))} == {
            "a": 1,
            "bad": 1,
            "c": 1,
        }


def test_an_awaiting_poll_returns_its_leases_although_a_message_that_it_must_nack_is_locked(database: str) -> None:
    async def work(store: AsyncPostgresStore) -> None:
        await store.run(store.messages.offer_many(QUEUE, [Draft(key, key.encode()) for key in ("a", "bad", "c")]))

        def decode(data: bytes, content_type: str | None) -> bytes:
            if data == b"bad":
                foreign.execute("select from tarry.message where key = 'bad' for update")
                raise KeyError("no such field")
            return data

        with psycopg.connect(database) as foreign:
            assert {lease.key for lease in await store.run(store.messages.poll(QUEUE, 10, decode))} == {"a", "c"}

    with_store(database, work)


def test_an_ack_that_was_done_is_not_called_gone_after_the_next_step_met_a_lock(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = statements.refused
    with psycopg.connect(database) as foreign, contextstore(database) as store:

        def refused_while_locked(*args: Any) -> Any:
            foreign.execute("lock table tarry.event in access exclusive mode")
            return refused(*args)

        monkeypatch.setattr(statements, "refused", refused_while_locked)
        store.run(store.messages.offer_many(QUEUE, [Draft(key, b"") for key in ("a", "stale")]))
        lease_ids = {lease.key: lease.lease_id for lease in store.run(store.messages.poll(QUEUE, 2, plain))}
        store.run(store.messages.offer(QUEUE, Draft("stale", b"new")))
        assert store.run(store.messages.ack(QUEUE, [lease_ids["a"], lease_ids["stale"]])) == [
            Settled.DONE,
            Settled.LEASE_LOST,
        ]


def test_closing_does_not_wait_for_a_group_commit_that_hangs(database: str) -> None:
    async def work() -> None:
        patient = StoreSettings(lock_for=timedelta(hours=1), connect_for=timedelta(hours=2))
        store = AsyncPostgresStore(database, settings=patient)
        await store.open()
        await store.run(store.messages.offer(QUEUE, Draft("hot", b"")))
        with psycopg.connect(database) as foreign:
            foreign.execute("lock table tarry.message in access exclusive mode")
            offers = [
                asyncio.create_task(store.run(store.messages.offer(QUEUE, Draft(f"k{i}", b"")))) for i in range(3)
            ]
            while not await asyncio.to_thread(blocked, database):
                pass
            offers[0].cancel()
            async with asyncio.timeout(LONG_S):
                await store.close()
                outcomes = await asyncio.gather(*offers, return_exceptions=True)
        assert all(isinstance(outcome, BaseException) for outcome in outcomes)

    asyncio.run(work())


def test_a_blocking_store_closes_in_time_while_its_threads_are_blocked(database: str) -> None:
    patient = StoreSettings(lock_for=timedelta(hours=1), connect_for=timedelta(hours=2))
    store = PostgresStore(database, settings=patient)
    store.run(store.messages.offer(QUEUE, Draft("hot", b"")))
    with row_locked(database, "hot"), ThreadPoolExecutor(3) as threads:
        drops = [threads.submit(store.run, store.messages.drop(QUEUE, "hot")) for _ in range(3)]
        while not blocked(database):
            pass
        closing = threading.Thread(target=store.close)
        closing.start()
        closing.join(LONG_S)
        assert not closing.is_alive()
        assert all(drop.exception(LONG_S) is not None for drop in drops)


def test_behind_a_pooler_a_statement_waits_no_longer(database: str) -> None:
    with pgbouncer(database, pool_size=2) as pooled, contextstore(pooled) as store:
        store.run(store.messages.offer_many(QUEUE, [Draft(key, b"") for key in ("a", "hot")]))
        with row_locked(database, "hot"):
            with pytest.raises(LockTimeout):
                store.run(store.messages.drop(QUEUE, "hot"))
            assert store.run(store.messages.drop(QUEUE, "a"))
        assert store.run(store.messages.drop(QUEUE, "hot"))


def test_the_pipeline_waits_no_longer_than_its_limit(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline_database, "LOCK_LIMIT", "set local lock_timeout = '100ms'")
    with contextstore(database) as store:
        store.run(store.messages.offer(QUEUE, Draft("hot", b"")))
    with row_locked(database, "hot"), pytest.raises(LockTimeout):
        pipeline_database.Database(database).transact(statements.drop(QUEUE, "hot", None, None).run())
    pipeline_database.Database(database).transact(statements.drop(QUEUE, "hot", None, None).run())
