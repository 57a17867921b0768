"""A commit that was none is an error: the driver raises nothing when the server answers COMMIT with ROLLBACK."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tarry.core.errors import CommitLost
from tarry.core.messages.model import Draft, Failure, LeaseId
from tarry.core.messages.states import State
from tarry.storage.postgres._sync import store as sync
from tarry.storage.postgres._sync.runner import transaction
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.messages import operations as ops
from tarry.storage.postgres.runner import transaction as awaited_transaction
from tests.kit.settings import FOR_TESTS

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
        async with awaited_transaction(conn):
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


def test_a_good_transaction_commits_and_a_bad_one_raises_its_error(database: str) -> None:
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
    """As if an operation caught an error of its own."""
    real = sync.drive

    def drive(conn: psycopg.Connection[Any], *args: Any, **kwargs: Any) -> Any:
        result = real(conn, *args, **kwargs)
        if conn.info.transaction_status is psycopg.pq.TransactionStatus.INTRANS:
            swallowing(conn)
        return result

    store = PostgresStore(database, settings=FOR_TESTS)
    store.run(store.messages.offer(QUEUE, Draft("first", b"")))
    monkeypatch.setattr(sync, "drive", drive)
    with pytest.raises(CommitLost):
        store.run(store.messages.offer_many(QUEUE, [Draft(f"k{i}", b"", fresh=True) for i in range(ops.COPY_FROM)]))
    monkeypatch.undo()
    assert store.run(store.queues.counts(QUEUE)).ready.n == 1
    store.close()


def test_after_a_lost_commit_the_connection_is_as_good_as_new(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as conn:
        for _ in range(3):
            with pytest.raises(CommitLost), transaction(conn):
                swallowing(conn)
            with transaction(conn):
                assert conn.execute("select 1").fetchone() == (1,)


SETTLES: dict[str, Callable[[PostgresStore, list[LeaseId]], object]] = {
    "ack": lambda store, lease_ids: store.run(store.messages.ack(QUEUE, lease_ids)),
    "nack": lambda store, lease_ids: store.run(
        store.messages.nack(QUEUE, [Failure(lease_id) for lease_id in lease_ids])
    ),
    "touch": lambda store, lease_ids: store.run(store.messages.touch(QUEUE, lease_ids, lease_for=timedelta(hours=1))),
    "release": lambda store, lease_ids: store.run(store.messages.release(QUEUE, lease_ids)),
    "bury": lambda store, lease_ids: store.run(store.messages.bury(QUEUE, lease_ids)),
}


@pytest.mark.parametrize("verb", SETTLES)
def test_a_batch_that_is_settled_in_pieces_is_settled_whole_or_not_at_all(
    database: str, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setattr(ops, "CHUNK", 2)
    store = PostgresStore(database, settings=FOR_TESTS)
    store.run(store.messages.offer_many(QUEUE, [Draft(f"k{i}", b"") for i in range(5)]))
    leases = store.run(store.messages.poll(QUEUE, 5, lambda data, content_type: data))
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("create function no() returns trigger language plpgsql as 'begin raise ''no''; end'")
        conn.execute(
            "create trigger no before update or delete on tarry.message for each row when (old.key = 'k4') "
            "execute function no()"
        )
    with pytest.raises(psycopg.errors.RaiseException):
        SETTLES[verb](store, [lease.lease_id for lease in leases])
    held = {message.key: message.lease_until for message in store.run(store.messages.list(QUEUE, state=State.LEASED))}
    assert held == {lease.key: lease.lease_until for lease in leases}
    store.close()
