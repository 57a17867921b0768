"""The connection that a pool keeps at hand: no thread waits while it is kept, and it ends with the pool."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg_pool import PoolClosed

from tarry.storage.postgres import spare_pool
from tarry.storage.postgres.connections import pool_now
from tarry.storage.postgres.spare_pool import AsyncSparePool, SparePool
from tests.kit.sleepers import until


@pytest.fixture
def pool(database: str) -> Iterator[SparePool]:
    pool = SparePool(database, kwargs={"autocommit": True}, min_size=0, max_size=2, timeout=30, open=True)
    yield pool
    pool.close()


def pid(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> int:
    return conn.info.backend_pid


def test_the_connection_returned_last_is_given_out_again_without_the_pool(pool: SparePool) -> None:
    conn = pool.getconn()
    pool.putconn(conn)
    calls: list[str] = []
    sys.setprofile(lambda frame, event, _: calls.append(frame.f_code.co_name) if event == "call" else None)
    try:
        again = pool.getconn()
        pool.putconn(again)
    finally:
        sys.setprofile(None)
    assert again is conn
    assert calls == ["getconn", "putconn"]
    counted = pool_now(pool.get_stats())
    assert (counted.open, counted.idle) == (1, 1)


def test_a_thread_that_waits_gets_what_is_returned(pool: SparePool) -> None:
    held = [pool.getconn(), pool.getconn()]
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(pool.getconn)
        until(lambda: pool.get_stats()["requests_waiting"] == 1)
        pool.putconn(held[0])
        assert waiting.result(30) is held[0]
    pool.putconn(held[0])
    pool.putconn(held[1])
    counted = pool_now(pool.get_stats())
    assert (counted.open, counted.idle) == (2, 2)


def test_many_threads_share_few_connections_and_none_is_left_waiting(pool: SparePool) -> None:
    used: set[int] = set()
    together = threading.Barrier(12)

    def work() -> None:
        together.wait(30)
        for _ in range(100):
            with pool.connection() as conn:
                used.add(pid(conn))
                conn.execute("select 1")

    with ThreadPoolExecutor(12) as threads:
        for future in [threads.submit(work) for _ in range(12)]:
            future.result(60)
    assert len(used) <= 2
    counted = pool_now(pool.get_stats())
    assert counted.open == counted.idle == len(used)


def test_it_ends_with_the_pool(pool: SparePool) -> None:
    held, spare = pool.getconn(), pool.getconn()
    pool.putconn(spare)
    pool.close()
    assert spare.closed
    pool.putconn(held)
    assert held.closed
    with pytest.raises(PoolClosed):
        pool.getconn()


def test_a_check_of_the_pool_replaces_it_if_it_is_broken(pool: SparePool, database: str) -> None:
    spare = pool.getconn()
    pool.putconn(spare)
    with psycopg.connect(database, autocommit=True) as admin:
        admin.execute("select pg_terminate_backend(%s, 10000)", (pid(spare),))
    timer = pool._timer
    pool.check()
    assert pool._timer is timer, "an outage must not start one with every retry"
    with pool.connection() as conn:
        assert conn is not spare
        conn.execute("select 1")


def test_one_inside_of_a_transaction_is_not_kept(pool: SparePool) -> None:
    conn = pool.getconn()
    conn.execute("begin")
    pool.putconn(conn)
    with pool.connection() as conn:
        assert conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_it_goes_back_now_and_then_so_that_the_pool_closes_what_is_old_or_idle(
    pool: SparePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spare_pool, "KEEP_FOR_S", 0.01)
    conn = pool.getconn()
    pool.putconn(conn)
    until(lambda: pool._spare is None and pool._timer is None)
    monkeypatch.setattr(spare_pool, "KEEP_FOR_S", 60.0)
    for _ in range(2):
        assert pool.getconn() is conn
        pool.putconn(conn)
        assert pool._spare is conn


def test_its_timer_ends_with_the_pool(pool: SparePool) -> None:
    pool.putconn(pool.getconn())
    timer = pool._timer
    assert timer is not None
    pool.close()
    timer.join(10)
    assert not timer.is_alive()


Awaiting = Callable[[Callable[[AsyncSparePool], Awaitable[None]]], None]


@pytest.fixture
def awaiting(database: str) -> Awaiting:
    """Runs a test with a pool for its event loop."""

    async def in_pool(work: Callable[[AsyncSparePool], Awaitable[None]]) -> None:
        pool = AsyncSparePool(database, kwargs={"autocommit": True}, min_size=0, max_size=2, timeout=30, open=False)
        await pool.open()
        try:
            await asyncio.wait_for(work(pool), 60)
        finally:
            await pool.close()

    return lambda work: asyncio.run(in_pool(work))


def test_awaited_the_connection_returned_last_is_given_out_again_without_the_pool(awaiting: Awaiting) -> None:
    async def work(pool: AsyncSparePool) -> None:
        held, conn = await pool.getconn(), await pool.getconn()
        await pool.putconn(held)
        await pool.putconn(conn)
        calls: list[str] = []
        sys.setprofile(lambda frame, event, _: calls.append(frame.f_code.co_name) if event == "call" else None)
        try:
            again = await pool.getconn()
            await pool.putconn(again)
        finally:
            sys.setprofile(None)
        assert again is held
        assert calls == ["getconn", "putconn"]
        counted = pool_now(pool.get_stats())
        assert (counted.open, counted.idle) == (2, 2)

    awaiting(work)


def test_a_task_that_waits_gets_what_is_returned(awaiting: Awaiting) -> None:
    async def work(pool: AsyncSparePool) -> None:
        held = [await pool.getconn(), await pool.getconn()]
        waiting = asyncio.create_task(pool.getconn())
        while pool.get_stats().get("requests_waiting") != 1:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await pool.putconn(held[0])
        assert await waiting is held[0]
        await pool.putconn(held[0])
        await pool.putconn(held[1])
        counted = pool_now(pool.get_stats())
        assert (counted.open, counted.idle) == (2, 2)

    awaiting(work)


def test_many_tasks_share_few_connections_and_none_is_left_waiting(awaiting: Awaiting) -> None:
    used: set[int] = set()

    async def tasks(pool: AsyncSparePool) -> None:
        async def work() -> None:
            for _ in range(50):
                async with pool.connection() as conn:
                    used.add(pid(conn))
                    await conn.execute("select 1")

        await asyncio.gather(*(work() for _ in range(12)))
        assert len(used) <= 2
        counted = pool_now(pool.get_stats())
        assert counted.open == counted.idle == len(used)

    awaiting(tasks)


def test_awaited_it_ends_with_the_pool(awaiting: Awaiting) -> None:
    async def work(pool: AsyncSparePool) -> None:
        held, spare = await pool.getconn(), await pool.getconn()
        await pool.putconn(spare)
        await pool.close()
        assert spare.closed
        await pool.putconn(held)
        assert held.closed
        with pytest.raises(PoolClosed):
            await pool.getconn()

    awaiting(work)


def test_an_awaited_check_of_the_pool_replaces_it_if_it_is_broken(awaiting: Awaiting, database: str) -> None:
    async def work(pool: AsyncSparePool) -> None:
        spare = await pool.getconn()
        await pool.putconn(spare)
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as admin:
            await admin.execute("select pg_terminate_backend(%s, 10000)", (pid(spare),))
        await pool.check()
        async with pool.connection() as conn:
            assert conn is not spare
            await conn.execute("select 1")

    awaiting(work)


def test_awaited_one_inside_of_a_transaction_is_not_kept(awaiting: Awaiting) -> None:
    async def work(pool: AsyncSparePool) -> None:
        conn = await pool.getconn()
        await conn.execute("begin")
        await pool.putconn(conn)
        async with pool.connection() as conn:
            assert conn.info.transaction_status == psycopg.pq.TransactionStatus.IDLE

    awaiting(work)


def test_awaited_it_goes_back_now_and_then(awaiting: Awaiting, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(pool: AsyncSparePool) -> None:
        monkeypatch.setattr(spare_pool, "KEEP_FOR_S", 0.0)
        conn = await pool.getconn()
        await pool.putconn(conn)
        while pool._spare is not None or pool._timer is not None:  # noqa: ASYNC110
            await asyncio.sleep(0)
        monkeypatch.setattr(spare_pool, "KEEP_FOR_S", 60.0)
        for _ in range(2):
            assert await pool.getconn() is conn
            await pool.putconn(conn)
            assert pool._spare is conn

    awaiting(work)
