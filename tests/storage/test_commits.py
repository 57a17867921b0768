"""A commit that was none is an error: the driver says nothing when the server answers COMMIT with ROLLBACK."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tarry.core.errors import CommitLost
from tarry.core.messages import Draft
from tarry.core.settings import StoreSettings
from tarry.storage.postgres import ops, sync
from tarry.storage.postgres.drive import atransaction, transaction
from tarry.storage.postgres.sync import PostgresStore

QUEUE = "committed"


def swallowing(conn: psycopg.Connection[Any]) -> None:
    with contextlib.suppress(psycopg.Error):
        conn.execute("select 1 / 0")


def insert(conn: psycopg.Connection[Any], *values: int, then: Callable[[], object] = lambda: None) -> None:
    with transaction(conn):
        for value in values:
            conn.execute("insert into kept values (%s)", (value,))
        then()


def test_a_swallowed_error_makes_the_commit_fail(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table kept (value int)")
        with pytest.raises(CommitLost, match="COMMIT with ROLLBACK: nothing of this transaction was stored") as lost:
            insert(conn, 1, then=lambda: swallowing(conn))
        assert lost.value.hint is not None
        assert conn.execute("select count(*) from kept").fetchone() == (0,)
        assert conn.info.transaction_status is psycopg.pq.TransactionStatus.IDLE


def test_a_swallowed_error_makes_an_awaited_commit_fail(database: str) -> None:
    async def swallow(conn: psycopg.AsyncConnection[Any]) -> None:
        async with atransaction(conn):
            with contextlib.suppress(psycopg.Error):
                await conn.execute("select 1 / 0")

    async def work() -> None:
        async with await psycopg.AsyncConnection.connect(database, autocommit=True) as conn:
            with pytest.raises(CommitLost):
                await swallow(conn)
            assert conn.info.transaction_status is psycopg.pq.TransactionStatus.IDLE

    asyncio.run(work())


def interrupt() -> None:
    raise KeyboardInterrupt


def test_a_good_transaction_commits_and_a_bad_one_says_what_was_wrong(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create table kept (value int check (value > 0))")
        insert(conn, 1)
        with pytest.raises(psycopg.errors.CheckViolation):
            insert(conn, 2, 0)
        with pytest.raises(KeyboardInterrupt):
            insert(conn, 3, then=interrupt)
        assert conn.execute("select array_agg(value) from kept").fetchone() == ([1],)


def test_a_batch_of_many_steps_that_loses_its_commit_is_not_reported_as_stored(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if somebody, one day, caught an error inside an op."""
    real = sync.drive

    def drive(conn: psycopg.Connection[Any], *args: Any, **kwargs: Any) -> Any:
        answer = real(conn, *args, **kwargs)
        if conn.info.transaction_status is psycopg.pq.TransactionStatus.INTRANS:
            swallowing(conn)
        return answer

    store = PostgresStore(database, settings=StoreSettings.for_tests())
    store.offer(QUEUE, Draft("first", b""))
    monkeypatch.setattr(sync, "drive", drive)
    with pytest.raises(CommitLost):
        store.offer_many(QUEUE, [Draft(f"k{i}", b"", fresh=True) for i in range(ops.COPY_FROM)])
    monkeypatch.undo()
    assert store.counts(QUEUE).ready.n == 1
    store.close()


def test_after_a_lost_commit_the_connection_is_as_good_as_new(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        for _ in range(3):
            with pytest.raises(CommitLost), transaction(conn):
                swallowing(conn)
            with transaction(conn):
                assert conn.execute("select 1").fetchone() == (1,)
