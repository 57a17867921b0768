"""The caller's own connection, whatever it is like: what Tarry does on it commits and fails with the caller's data."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import class_row, dict_row, kwargs_row, namedtuple_row, scalar_row, tuple_row

from tarry.core.messages.model import Draft, Failure
from tarry.core.messages.outcomes import Outcome, Settled
from tarry.core.settings import QueueSettings
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.store import AsyncPostgresStore
from tests.kit.settings import FOR_TESTS

QUEUE = "theirs"
ROW_FACTORIES = {
    "tuples": tuple_row,
    "dicts": dict_row,
    "named tuples": namedtuple_row,
    "scalars": scalar_row,
    "objects": class_row(lambda **columns: columns),  # pyright: ignore[reportArgumentType]
    "keywords": kwargs_row(lambda **columns: columns),
}


def plain(data: bytes, content_type: str | None) -> bytes:
    return data


@pytest.fixture
def store(database: str) -> Iterator[PostgresStore]:
    store = PostgresStore(database, settings=FOR_TESTS)
    store.run(store.queues.create(QUEUE, QueueSettings(), exist_ok=False))
    with psycopg.connect(database) as conn:
        conn.execute("create table invoice (number int)")
    yield store
    store.close()


def invoices(dsn: str) -> int:
    with psycopg.connect(dsn) as conn:
        row = conn.execute("select count(*) from invoice").fetchone()
    assert row is not None
    return row[0]


def live_through_every_verb(store: PostgresStore, conn: Any) -> None:
    """Each of them once, on the caller's connection, with the answers it must give."""
    assert store.run(store.messages.offer(QUEUE, Draft("a", b"1")), conn=conn) is Outcome.CREATED
    assert store.run(store.messages.offer_many(QUEUE, [Draft("a", b"2"), Draft("b", b"3")]), conn=conn) == [
        Outcome.UPDATED,
        Outcome.CREATED,
    ]
    message = store.run(store.messages.read(QUEUE, "a"), conn=conn)
    assert message is not None
    assert message.payload == b"2"
    assert store.run(store.messages.contains(QUEUE, "b"), conn=conn)
    assert store.run(store.queues.counts(QUEUE), conn=conn).ready.n == 2
    assert len(store.run(store.messages.list(QUEUE), conn=conn)) == 2
    first, second = store.run(store.messages.poll(QUEUE, 2, plain), conn=conn)
    assert store.run(store.messages.touch(QUEUE, [first.lease_id]), conn=conn) == [Settled.DONE]
    assert store.run(store.messages.release(QUEUE, [first.lease_id]), conn=conn) == [Settled.DONE]
    assert store.run(store.messages.nack(QUEUE, [Failure(second.lease_id, "no")]), conn=conn) == [Settled.DONE]
    assert store.run(store.messages.ack(QUEUE, [second.lease_id]), conn=conn) == [Settled.LEASE_LOST]
    (again,) = store.run(store.messages.poll(QUEUE, 1, plain), conn=conn)
    assert store.run(store.messages.bury(QUEUE, [again.lease_id], error="no"), conn=conn) == [Settled.DONE]
    assert [letter.key for letter in store.run(store.dead_letters.list(QUEUE), conn=conn)] == [again.key]
    assert store.run(store.dead_letters.redrive(QUEUE), conn=conn) == 1
    (last,) = store.run(store.messages.poll(QUEUE, 1, plain), conn=conn)
    assert store.run(store.messages.ack(QUEUE, [last.lease_id]), conn=conn) == [Settled.DONE]
    assert store.run(store.messages.ack(QUEUE, [last.lease_id]), conn=conn) == [Settled.GONE]
    assert len(store.run(store.journal.timeline(QUEUE, last.key), conn=conn)) >= 4
    assert store.run(store.messages.drop(QUEUE, second.key), conn=conn)
    assert store.run(store.messages.purge(QUEUE), conn=conn) == 0
    assert store.run(store.queues.info(QUEUE), conn=conn).name == QUEUE
    assert store.run(store.queues.pause(QUEUE), conn=conn).paused
    assert not store.run(store.queues.resume(QUEUE), conn=conn).paused
    assert store.run(store.queues.now(), conn=conn).tzinfo is not None


@pytest.mark.parametrize("rows", ROW_FACTORIES)
def test_every_verb_works_whatever_rows_the_connection_makes(database: str, store: PostgresStore, rows: str) -> None:
    with psycopg.connect(database, row_factory=ROW_FACTORIES[rows]) as conn:  # pyright: ignore[reportCallIssue, reportArgumentType]
        live_through_every_verb(store, conn)


@pytest.mark.parametrize("autocommit", [False, True])
@pytest.mark.parametrize("cursors", [psycopg.Cursor, psycopg.ClientCursor, psycopg.RawCursor])
def test_every_verb_works_whatever_cursors_the_connection_makes(
    database: str, store: PostgresStore, cursors: type[psycopg.Cursor[Any]], autocommit: bool
) -> None:
    with psycopg.connect(database, cursor_factory=cursors, autocommit=autocommit) as conn:
        live_through_every_verb(store, conn)


@pytest.mark.parametrize("level", psycopg.IsolationLevel)
def test_every_verb_works_at_every_level_of_isolation(
    database: str, store: PostgresStore, level: psycopg.IsolationLevel
) -> None:
    with psycopg.connect(database) as conn:
        conn.isolation_level = level
        live_through_every_verb(store, conn)
        conn.commit()


def test_an_offer_commits_with_the_callers_data_or_not_at_all(database: str, store: PostgresStore) -> None:
    with psycopg.connect(database) as conn:
        for end in (conn.rollback, conn.commit):
            conn.execute("insert into invoice values (17)")
            store.run(store.messages.offer(QUEUE, Draft("remind-17", b"")), conn=conn)
            assert not store.run(store.messages.contains(QUEUE, "remind-17")), "it was seen before it was committed"
            end()
            assert (invoices(database), store.run(store.messages.contains(QUEUE, "remind-17"))) == (
                (0, False),
                (1, True),
            )[end == conn.commit]


def test_an_ack_commits_with_the_callers_data_or_not_at_all(database: str, store: PostgresStore) -> None:
    store.run(store.messages.offer(QUEUE, Draft("k", b"")))
    (lease,) = store.run(store.messages.poll(QUEUE, 1, plain))
    with psycopg.connect(database) as conn:
        for end in (conn.rollback, conn.commit):
            conn.execute("insert into invoice values (17)")
            assert store.run(store.messages.ack(QUEUE, [lease.lease_id]), conn=conn) == [Settled.DONE]
            end()
            assert (invoices(database), store.run(store.messages.contains(QUEUE, "k"))) == ((0, True), (1, False))[
                end == conn.commit
            ]


def test_a_lease_that_was_rolled_back_never_was(database: str, store: PostgresStore) -> None:
    store.run(store.messages.offer(QUEUE, Draft("k", b"")))
    with psycopg.connect(database) as conn:
        (lost,) = store.run(store.messages.poll(QUEUE, 1, plain), conn=conn)
        assert store.run(store.messages.poll(QUEUE, 1, plain)) == [], "it is locked, and others pass by"
        conn.rollback()
    assert store.run(store.messages.ack(QUEUE, [lost.lease_id])) == [Settled.LEASE_LOST]
    (lease,) = store.run(store.messages.poll(QUEUE, 1, plain))
    assert lease.attempt == 1
    assert lease.token != lost.token
    assert store.run(store.messages.ack(QUEUE, [lease.lease_id])) == [Settled.DONE]


def test_an_error_of_ours_leaves_the_callers_savepoint_to_the_caller(database: str, store: PostgresStore) -> None:
    with psycopg.connect(database) as conn:
        conn.execute("insert into invoice values (17)")
        with pytest.raises(psycopg.errors.CheckViolation), conn.transaction():
            store.run(store.messages.offer(QUEUE, Draft("bad", b"", priority=11)), conn=conn)
        store.run(store.messages.offer(QUEUE, Draft("good", b"")), conn=conn)
        conn.commit()
    assert invoices(database) == 1
    assert store.run(store.messages.contains(QUEUE, "good"))


def test_the_callers_transaction_is_tried_once(database: str, store: PostgresStore) -> None:
    """We cannot repeat what the caller did before; a broken connection is the caller's to see."""
    with psycopg.connect(database) as conn:
        store.run(store.messages.offer(QUEUE, Draft("k", b"")), conn=conn)
        with psycopg.connect(database, autocommit=True) as other:
            other.execute("select pg_terminate_backend(%s)", (conn.info.backend_pid,))
        with pytest.raises(psycopg.OperationalError):
            store.run(store.messages.offer(QUEUE, Draft("k2", b"")), conn=conn)


def test_nothing_is_prepared_on_the_callers_connection(database: str, store: PostgresStore) -> None:
    with psycopg.connect(database, prepare_threshold=0) as conn:
        for i in range(20):
            store.run(store.messages.offer(QUEUE, Draft(f"k{i}", b"")), conn=conn)
            store.run(store.messages.poll(QUEUE, 1, plain), conn=conn)
        prepared = conn.execute(
            "select statement from pg_prepared_statements where statement like '%tarry%'", prepare=False
        )
        assert prepared.fetchall() == []


def test_settings_of_the_callers_session_stay_what_they_were(database: str, store: PostgresStore) -> None:
    settings = "select name, setting from pg_settings where source not in ('default', 'override') order by 1"
    with psycopg.connect(database, autocommit=True) as conn:
        before = conn.execute(settings).fetchall()
        live_through_every_verb(store, conn)
        assert conn.execute(settings).fetchall() == before
        assert (conn.autocommit, conn.prepare_threshold) == (True, 5)


_EARLY = """
import sys, psycopg
conn = psycopg.connect(sys.argv[1])
conn.execute("select 1")
assert "tarry" not in sys.modules
from tarry.core.messages.model import Draft
from tarry.storage.postgres._sync.store import PostgresStore
store = PostgresStore(sys.argv[1])
store.run(store.messages.offer("theirs", Draft("early", b"")), conn=conn)
conn.commit()
(lease,) = store.run(store.messages.poll("theirs", 1, lambda data, _: data), conn=conn)
print(lease.key, store.run(store.messages.ack("theirs", [lease.lease_id]), conn=conn)[0].value)
conn.commit()
store.close()
"""


def test_a_connection_from_before_tarry_was_imported_is_as_good(database: str, store: PostgresStore) -> None:
    done = subprocess.run([sys.executable, "-c", _EARLY, database], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("early done\n", "")


@pytest.mark.parametrize("rows", ROW_FACTORIES)
def test_an_awaiting_connection_is_as_good(database: str, store: PostgresStore, rows: str) -> None:
    factory: Any = ROW_FACTORIES[rows]

    async def work() -> None:
        awaiting = AsyncPostgresStore(database, settings=FOR_TESTS)
        await awaiting.open()
        async with await psycopg.AsyncConnection.connect(database, row_factory=factory) as conn:
            await conn.execute("insert into invoice values (1)")
            assert await awaiting.run(awaiting.messages.offer(QUEUE, Draft("k", b"x")), conn=conn) is Outcome.CREATED
            await conn.rollback()
            assert not await awaiting.run(awaiting.messages.contains(QUEUE, "k"))
            await awaiting.run(awaiting.messages.offer(QUEUE, Draft("k", b"x")), conn=conn)
            await conn.commit()
            (lease,) = await awaiting.run(awaiting.messages.poll(QUEUE, 1, plain), conn=conn)
            await conn.rollback()
            assert await awaiting.run(awaiting.messages.ack(QUEUE, [lease.lease_id]), conn=conn) == [Settled.LEASE_LOST]
            (lease,) = await awaiting.run(awaiting.messages.poll(QUEUE, 1, plain), conn=conn)
            await conn.execute("insert into invoice values (2)")
            assert await awaiting.run(awaiting.messages.ack(QUEUE, [lease.lease_id]), conn=conn) == [Settled.DONE]
            await conn.commit()
        await awaiting.close()

    asyncio.run(work())
    assert invoices(database) == 1
    assert not store.run(store.messages.contains(QUEUE, "k"))
