"""A server that goes away and comes back: whoever waits a little notices nothing, whoever cannot wait is told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest

from tarry.core.errors import StoreUnavailable
from tarry.core.messages import Draft
from tarry.core.outcomes import Outcome, Settled
from tarry.core.settings import Patience, QueueSettings, StoreSettings
from tarry.storage.postgres.aio import AsyncPostgresStore
from tarry.storage.postgres.sync import PostgresStore
from tests.storage.fallible import FallibleServer, fallible_server

QUEUE = "outage"
PATIENT = StoreSettings(
    pool_size=5, patience=Patience(retries=50, cap_for=timedelta(milliseconds=200), total_for=timedelta(minutes=1))
)
N = 5


@pytest.fixture(scope="module")
def server() -> Iterator[FallibleServer]:
    with fallible_server() as server:
        yield server


@pytest.fixture
def store(server: FallibleServer) -> Iterator[PostgresStore]:
    store = PostgresStore(server.dsn, settings=PATIENT)
    store.create_queue(QUEUE, QueueSettings(), exist_ok=True)
    store.drop_all(QUEUE)
    yield store
    store.close()


def plain(data: bytes, content_type: str | None) -> bytes:
    return data


def fill_pool(store: PostgresStore) -> None:
    """All connections of the pool at once, so that every one of them is there, and will be stale."""
    everybody = threading.Barrier(N)

    def hold() -> None:
        with store._pool.connection() as conn:
            everybody.wait(30)
            conn.execute("select 1")

    with ThreadPoolExecutor(N) as pool:
        for future in [pool.submit(hold) for _ in range(N)]:
            future.result(30)


def test_sessions_that_were_ended_are_replaced_unnoticed(server: FallibleServer, store: PostgresStore) -> None:
    fill_pool(store)
    assert server.terminate() == N
    for i in range(2 * N):
        assert store.offer(QUEUE, Draft(f"k{i}", b"")) is Outcome.CREATED
    assert server.terminate() >= 1
    leases = store.lease(QUEUE, 2 * N, plain)
    assert len(leases) == 2 * N
    server.terminate()
    assert store.ack(QUEUE, [lease.hold for lease in leases]) == [Settled.DONE] * 2 * N


def test_a_pool_that_went_stale_in_a_restart_serves_again(server: FallibleServer, store: PostgresStore) -> None:
    fill_pool(store)
    store.offer(QUEUE, Draft("before", b""))
    server.restart()
    with ThreadPoolExecutor(N) as pool:
        answers = [pool.submit(store.offer, QUEUE, Draft(f"k{i}", b"")) for i in range(4 * N)]
        assert [answer.result(60) for answer in answers] == [Outcome.CREATED] * 4 * N
    assert store.contains(QUEUE, "before")


def test_an_offer_during_a_crash_waits_for_the_server_to_come_back(
    server: FallibleServer, store: PostgresStore
) -> None:
    fill_pool(store)
    server.kill()
    assert store.offer(QUEUE, Draft("k", b"1")) in (Outcome.CREATED, Outcome.UPDATED)
    assert store.contains(QUEUE, "k")


def test_the_awaiting_store_is_as_patient(server: FallibleServer, store: PostgresStore) -> None:
    async def work() -> None:
        awaiting = AsyncPostgresStore(server.dsn, settings=PATIENT)
        await awaiting.open()
        await asyncio.gather(*(awaiting.contains(QUEUE, f"k{i}") for i in range(N)))
        await asyncio.to_thread(server.terminate)
        offers = [awaiting.offer(QUEUE, Draft(f"k{i}", b"")) for i in range(100)]
        assert await asyncio.gather(*offers) == [Outcome.CREATED] * 100
        await asyncio.to_thread(server.restart)
        (lease,) = await awaiting.lease(QUEUE, 1, plain)
        assert await awaiting.ack(QUEUE, [lease.hold]) == [Settled.DONE]
        await awaiting.close()

    asyncio.run(work())


def test_a_server_that_stays_away_is_reported_with_what_to_do(server: FallibleServer) -> None:
    hasty = StoreSettings(patience=Patience(retries=2), connect_for=timedelta(milliseconds=200))
    store = PostgresStore(server.dsn, settings=hasty)
    store.offer(QUEUE, Draft("k", b""))
    server.stop()
    try:
        with pytest.raises(StoreUnavailable, match="also not after 2 more tries") as raised:
            store.offer(QUEUE, Draft("k", b""))
        assert raised.value.hint is not None
    finally:
        server.start()
    assert store.read(QUEUE, "k") is not None
    store.close()


def test_a_real_deadlock_is_tried_again_unnoticed(server: FallibleServer, store: PostgresStore) -> None:
    """Somebody locks our rows by hand, in the wrong order; whichever side the server picks, ours is stored."""
    store.offer_many(QUEUE, [Draft("a", b""), Draft("b", b"")])
    lock = "select from tarry.message where key = %s for update"
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and application_name = 'tarry'"
    with psycopg.connect(server.dsn) as other, ThreadPoolExecutor(1) as pool:
        other.execute("set deadlock_timeout = '10s'")  # so that the other side is the one that notices
        other.execute(lock, ("b",))
        ours = pool.submit(store.offer_many, QUEUE, [Draft("a", b"new"), Draft("b", b"new")])
        with psycopg.connect(server.dsn, autocommit=True) as watcher:
            while watcher.execute(waiting).fetchone() == (0,):
                assert not ours.done()
        other.execute(lock, ("a",))
        other.commit()
        assert ours.result(30) == [Outcome.UPDATED] * 2
