"""Through PgBouncer in transaction mode every statement may meet another session: nothing we do depends on one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest

import tarry
from tarry.core.messages.model import Draft, Failure, PollOptions
from tarry.core.messages.outcomes import Outcome, Settled
from tarry.core.settings import QueueSettings, RetrySettings, StoreSettings
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.connections import keeps_state
from tarry.storage.postgres.store import AsyncPostgresStore
from tests.kit.servers import Server
from tests.storage.postgres.bouncers import pgbouncer
from tests.storage.postgres.fallible import fallible_server

SETTINGS = StoreSettings(pool_size=8, connection_retry=RetrySettings.none())
THREADS = 8
ROUNDS = 15
BATCH = 5


@pytest.fixture(scope="module")
def direct(server: Server) -> Iterator[str]:
    dsn = server.new_database()
    yield dsn
    server.drop_database(dsn)


@pytest.fixture(scope="module")
def pooled(direct: str) -> Iterator[str]:
    with pgbouncer(direct, pool_size=2) as dsn:
        yield dsn


def plain(data: bytes, content_type: str | None) -> bytes:
    return data


def live(store: PostgresStore, queue: str) -> None:
    """Many rounds of every verb, in a queue of its own, each with the answer it must give."""
    for i in range(ROUNDS):
        keys = [f"{i}-{n}" for n in range(BATCH)]
        assert store.run(store.messages.offer(queue, Draft(keys[0], b"1"))) is Outcome.CREATED
        outcomes = store.run(store.messages.offer_many(queue, [Draft(key, b"2", type="t") for key in keys]))
        assert outcomes == [Outcome.UPDATED] + [Outcome.CREATED] * (BATCH - 1)
        assert store.run(store.messages.contains(queue, keys[0]))
        a, b, c, d = store.run(store.messages.poll(queue, BATCH - 1, plain))
        (e,) = store.run(store.messages.poll(queue, BATCH, plain, PollOptions(type="t")))
        assert store.run(store.messages.poll(queue, BATCH, plain)) == []
        assert store.run(store.wakeup.announce(queue, sleep_for=timedelta(seconds=1))).due_in is not None
        assert store.run(store.messages.touch(queue, [a.lease_id, b.lease_id])) == [Settled.DONE] * 2
        assert store.run(store.messages.ack(queue, [a.lease_id])) == [Settled.DONE]
        assert store.run(store.messages.ack(queue, [a.lease_id])) == [Settled.GONE]
        assert store.run(store.messages.nack(queue, [Failure(b.lease_id, "no", timedelta(hours=1))])) == [Settled.DONE]
        assert store.run(store.messages.ack(queue, [b.lease_id])) == [Settled.LEASE_LOST]
        assert store.run(store.messages.release(queue, [c.lease_id])) == [Settled.DONE]
        assert store.run(store.messages.bury(queue, [d.lease_id], error="no")) == [Settled.DONE]
        assert store.run(store.dead_letters.redrive(queue)) == 1
        assert store.run(store.messages.ack(queue, [e.lease_id])) == [Settled.DONE]
        assert len(store.run(store.journal.timeline(queue, b.key))) == 5
        assert store.run(store.messages.drop(queue, b.key))
        assert store.run(store.queues.counts(queue)).ready.n == 2
        assert store.run(store.messages.purge(queue)) == 2
    assert store.run(store.queues.info(queue)).name == queue
    store.run(store.queues.delete(queue, force=True))


def test_eight_threads_use_every_verb_on_two_sessions(pooled: str) -> None:
    store = PostgresStore(pooled, settings=SETTINGS)
    with ThreadPoolExecutor(THREADS) as pool:
        for future in [pool.submit(live, store, f"blocking-{n}") for n in range(THREADS)]:
            future.result(60)
    assert not any(keeps_state(conn) for conn in connections(store))
    store.close()


def connections(store: PostgresStore) -> list[psycopg.Connection[Any]]:
    pooled = list(store._pool._pool)
    assert pooled, "the pool kept no connection to look at"
    return pooled


def test_large_batches_go_by_copy_in_one_transaction(pooled: str) -> None:
    with tarry.connect(pooled, settings=SETTINGS) as app:
        queue = app.queue("large")
        with ThreadPoolExecutor(4) as pool:
            batches = [
                pool.submit(queue.offer_many, [tarry.Message(payload=i) for i in range(2_500)]) for _ in range(4)
            ]
            assert {outcome for batch in batches for outcome in batch.result(60)} == {Outcome.CREATED}
        assert app.queues.counts("large").ready.n == 10_000


def test_tasks_gather_their_offers_and_acks_through_it(pooled: str) -> None:
    async def work() -> None:
        store = AsyncPostgresStore(pooled, settings=SETTINGS)
        await store.open()

        async def offer_and_ack(i: int) -> None:
            queue = f"awaiting-{i % 8}"
            for n in range(10):
                assert await store.run(store.messages.offer(queue, Draft(f"{i}-{n}", b""))) is Outcome.CREATED
                for lease in await store.run(store.messages.poll(queue, 1, plain)):
                    assert await store.run(store.messages.touch(queue, [lease.lease_id])) == [Settled.DONE]
                    assert await store.run(store.messages.ack(queue, [lease.lease_id])) == [Settled.DONE]

        await asyncio.gather(*(offer_and_ack(i) for i in range(40)))
        left = [(await store.run(store.queues.counts(f"awaiting-{n}"))) for n in range(8)]
        assert sum(counts.leased.n for counts in left) == 0
        assert not any(keeps_state(conn) for conn in store._pool._pool)
        await store.close()

    asyncio.run(work())


def test_the_sessions_behind_it_have_no_settings_and_nothing_prepared(pooled: str, direct: str) -> None:
    """The next application that gets one of them has it as the server made it."""
    store = PostgresStore(pooled, settings=SETTINGS)
    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(store.run, store.messages.offer("clean", Draft(f"k{n}", b""))) for n in range(100)]:
            future.result(60)
    store.run(store.messages.poll("clean", 50, plain))
    changed = "select name, setting from pg_settings where source = 'session' and name not in ('application_name')"
    with psycopg.connect(pooled, autocommit=True, prepare_threshold=None) as conn:
        for _ in range(10):
            assert conn.execute("select count(*) from pg_prepared_statements").fetchone() == (0,)
            assert set(conn.execute(changed).fetchall()) <= {("client_encoding", "UTF8")}
    store.close()


def test_a_direct_connection_is_tuned_and_prepares(direct: str) -> None:
    """The other side of it: so that the test above is not passed by doing nothing anywhere."""
    store = PostgresStore(direct, settings=SETTINGS)
    store.run(store.messages.offer("tuned", Draft("k", b"")))
    with store._pool.connection() as conn:
        assert keeps_state(conn)
        assert conn.execute("show enable_seqscan").fetchone() == ("off",)
        assert conn.execute("show plan_cache_mode").fetchone() == ("force_generic_plan",)
        assert conn.execute("select count(*) > 0 from pg_prepared_statements").fetchone() == (True,)
    store.close()


def test_a_server_that_restarts_behind_it_is_waited_for() -> None:
    connection_retry = RetrySettings(retries=100, cap_for=timedelta(milliseconds=200), total_for=timedelta(minutes=1))
    with fallible_server() as server, pgbouncer(server.dsn) as dsn:
        store = PostgresStore(dsn, settings=StoreSettings(pool_size=4, connection_retry=connection_retry))
        store.run(store.queues.create("behind", QueueSettings(), exist_ok=False))
        stopping = threading.Event()

        def offer(thread: int) -> int:
            stored = 0
            while not stopping.is_set():
                store.run(store.messages.offer("behind", Draft(f"{thread}-{stored}", b"")))
                stored += 1
            return stored

        with ThreadPoolExecutor(4) as pool:
            offers = [pool.submit(offer, thread) for thread in range(4)]
            try:
                for fault in (server.kill, server.restart, server.kill):
                    before = store.run(store.queues.counts("behind")).ready.n
                    fault()
                    while store.run(store.queues.counts("behind")).ready.n < before + 20:
                        assert not any(future.done() for future in offers), "an offer ended early"
            finally:
                stopping.set()
            stored = sum(future.result(60) for future in offers)
        assert store.run(store.queues.counts("behind")).ready.n == stored
        store.close()
