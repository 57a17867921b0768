"""A server that goes away and comes back: a caller that can wait notices nothing, the others get an error."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest

from tarry.core.errors import StoreUnavailable
from tarry.core.messages.model import Draft
from tarry.core.messages.outcomes import Outcome, Settled
from tarry.core.settings import QueueSettings, RetrySettings, StoreSettings
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.store import AsyncPostgresStore
from tests.storage.postgres.fallible import FallibleServer, fallible_server

QUEUE = "outage"
PATIENT = StoreSettings(
    pool_size=5,
    connection_retry=RetrySettings(retries=50, cap_for=timedelta(milliseconds=200), total_for=timedelta(minutes=1)),
)
N = 5


@pytest.fixture(scope="module")
def server() -> Iterator[FallibleServer]:
    with fallible_server() as server:
        yield server


@pytest.fixture
def store(server: FallibleServer) -> Iterator[PostgresStore]:
    store = PostgresStore(server.dsn, settings=PATIENT)
    store.run(store.queues.create(QUEUE, QueueSettings(), exist_ok=True))
    store.run(store.messages.purge(QUEUE))
    yield store
    store.close()


def plain(data: bytes, content_type: str | None) -> bytes:
    return data


def fill_pool(store: PostgresStore) -> None:
    """All connections of the pool at once, so that every one of them is there, and will be stale."""
    barrier = threading.Barrier(N)

    def occupy() -> None:
        with store._pool.connection() as conn:
            barrier.wait(30)
            conn.execute("select 1")

    with ThreadPoolExecutor(N) as pool:
        for future in [pool.submit(occupy) for _ in range(N)]:
            future.result(30)


def test_sessions_that_were_ended_are_replaced_unnoticed(server: FallibleServer, store: PostgresStore) -> None:
    fill_pool(store)
    assert server.terminate() == N
    for i in range(2 * N):
        assert store.run(store.messages.offer(QUEUE, Draft(f"k{i}", b""))) is Outcome.CREATED
    assert server.terminate() >= 1
    leases = store.run(store.messages.poll(QUEUE, 2 * N, plain))
    assert len(leases) == 2 * N
    server.terminate()
    assert store.run(store.messages.ack(QUEUE, [lease.lease_id for lease in leases])) == [Settled.DONE] * 2 * N


def test_a_pool_that_went_stale_in_a_restart_serves_again(server: FallibleServer, store: PostgresStore) -> None:
    fill_pool(store)
    store.run(store.messages.offer(QUEUE, Draft("before", b"")))
    server.restart()
    with ThreadPoolExecutor(N) as pool:
        offers = [pool.submit(store.run, store.messages.offer(QUEUE, Draft(f"k{i}", b""))) for i in range(4 * N)]
        assert [outcome.result(60) for outcome in offers] == [Outcome.CREATED] * 4 * N
    assert store.run(store.messages.contains(QUEUE, "before"))


def test_an_offer_during_a_crash_waits_for_the_server_to_come_back(
    server: FallibleServer, store: PostgresStore
) -> None:
    fill_pool(store)
    server.kill()
    assert store.run(store.messages.offer(QUEUE, Draft("k", b"1"))) in (Outcome.CREATED, Outcome.UPDATED)
    assert store.run(store.messages.contains(QUEUE, "k"))


def test_the_awaiting_store_is_as_patient(server: FallibleServer, store: PostgresStore) -> None:
    async def work() -> None:
        awaiting = AsyncPostgresStore(server.dsn, settings=PATIENT)
        await awaiting.open()
        await asyncio.gather(*(awaiting.run(awaiting.messages.contains(QUEUE, f"k{i}")) for i in range(N)))
        await asyncio.to_thread(server.terminate)
        offers = [awaiting.run(awaiting.messages.offer(QUEUE, Draft(f"k{i}", b""))) for i in range(100)]
        assert await asyncio.gather(*offers) == [Outcome.CREATED] * 100
        await asyncio.to_thread(server.restart)
        (lease,) = await awaiting.run(awaiting.messages.poll(QUEUE, 1, plain))
        assert await awaiting.run(awaiting.messages.ack(QUEUE, [lease.lease_id])) == [Settled.DONE]
        await awaiting.close()

    asyncio.run(work())


def test_a_server_that_stays_away_is_reported_with_what_to_do(server: FallibleServer) -> None:
    hasty = StoreSettings(connection_retry=RetrySettings(retries=2), connect_for=timedelta(milliseconds=200))
    store = PostgresStore(server.dsn, settings=hasty)
    store.run(store.messages.offer(QUEUE, Draft("k", b"")))
    server.stop()
    try:
        with pytest.raises(StoreUnavailable, match="also not after 2 more tries") as raised:
            store.run(store.messages.offer(QUEUE, Draft("k", b"")))
        assert raised.value.hint is not None
    finally:
        server.start()
    assert store.run(store.messages.read(QUEUE, "k")) is not None
    store.close()


def test_a_real_deadlock_is_tried_again_unnoticed(server: FallibleServer, store: PostgresStore) -> None:
    """Another session locks our rows by hand, in the wrong order; whichever side the server picks, ours is stored."""
    store.run(store.messages.offer_many(QUEUE, [Draft("a", b""), Draft("b", b"")]))
    lock = "select from tarry.message where key = %s for update"
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'tarry'"
    with psycopg.connect(server.dsn) as other, ThreadPoolExecutor(1) as pool:
        other.execute("set deadlock_timeout = '10s'")  # so that the other side is the one that notices
        other.execute(lock, ("b",))
        ours = pool.submit(store.run, store.messages.offer_many(QUEUE, [Draft("a", b"new"), Draft("b", b"new")]))
        with psycopg.connect(server.dsn, autocommit=True) as watcher:
            while watcher.execute(waiting).fetchone() == (0,):
                assert not ours.done()
        other.execute(lock, ("a",))
        other.commit()
        assert ours.result(30) == [Outcome.UPDATED] * 2
