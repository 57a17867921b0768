"""Statements on sessions of our own: prepared once, sent without a cursor, interrupted like those of the driver."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, LiteralString

import psycopg
import pytest

from tarry.core.errors import LockTimeout
from tarry.core.messages.model import Draft, Lease
from tarry.core.messages.outcomes import Settled
from tarry.core.settings import StoreSettings
from tarry.storage.postgres import prepared
from tarry.storage.postgres._sync.runner import drive, transaction
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.connections import KEYWORDS, configure
from tarry.storage.postgres.messages.operations import COPY_FROM
from tarry.storage.postgres.operation import PostgresOperation
from tarry.storage.postgres.statement import Statement, value
from tarry.storage.postgres.store import AsyncPostgresStore
from tests.kit.settings import FOR_TESTS

Q = "q"


@pytest.fixture
def own(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, **KEYWORDS) as conn:
        configure(conn)
        yield conn


@pytest.fixture
def store(database: str) -> Iterator[PostgresStore]:
    store = PostgresStore(database, settings=FOR_TESTS)
    yield store
    store.close()


def run(conn: psycopg.Connection[Any], sql: LiteralString, **params: Any) -> Any:
    return drive(conn, Statement(sql, params, value).run())


def sleep_for(seconds: float) -> PostgresOperation[Any]:
    statement = Statement("select pg_sleep(%(s)s::float8)", {"s": seconds}, value)
    return PostgresOperation(lambda own: statement.run())


def names(conn: psycopg.Connection[Any]) -> list[str]:
    return [
        name for (name,) in conn.execute("select name from pg_prepared_statements order by prepare_time").fetchall()
    ]


def test_a_statement_is_prepared_once_whatever_is_null(own: psycopg.Connection[Any]) -> None:
    for number in (1, 2**40, None, 3):
        assert run(own, "select %(n)s::bigint + %(n)s::bigint", n=number) == (number and 2 * number)
    assert names(own) == ["tarry_0"]
    assert run(own, "select format('%%s', %(a)s::text)", a="x") == "x"


def test_what_only_the_driver_can_adapt_is_prepared_for_each_list_of_types(own: psycopg.Connection[Any]) -> None:
    for day in (date(2030, 1, 1), date(2030, 1, 2), None):
        assert run(own, "select %(day)s::date", day=day) == day
    assert names(own) == ["tarry_0", "tarry_1"]
    assert run(own, "select %(n)s::bigint", n=Decimal(7)) == 7


SENT = {
    "text": ["", "grün", "x" * 100_000],
    "bytea": [b"", b"\x00\xff", bytes(1_000_000)],
    "bigint": [0, -(2**63), 2**63 - 1],
    "int": [0, -(2**31), 2**31 - 1],
    "smallint": [0, -(2**15), 2**15 - 1],
    "float8": [0.0, -1.5, 1e300],
    "boolean": [True, False],
    "timestamptz": [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2030, 1, 1, 12, 30, 5, 17, tzinfo=timezone(timedelta(hours=5))),
    ],
    "interval": [timedelta(), timedelta(days=-1, microseconds=1), timedelta(days=4_000, seconds=86_399)],
    "tid": ["(0,1)", "(4294967295,65535)"],
    "jsonb": ['{"a": [1, null]}'],
}


@pytest.mark.parametrize("type_name", SENT)
def test_a_value_is_stored_as_the_driver_would(own: psycopg.Connection[Any], type_name: str) -> None:
    same = f"select (%(a)s::{type_name})::text"
    for a in [*SENT[type_name], None]:
        for _ in range(2):  # prepared by the driver's way, then sent by ours
            assert run(own, same, a=a) == own.execute(same, {"a": a}).fetchone()[0]  # type: ignore[index]
    assert names(own) == ["tarry_0"]


def test_a_value_out_of_range_is_an_error_of_the_server(own: psycopg.Connection[Any]) -> None:
    assert run(own, "select %(n)s::int", n=1) == 1
    with pytest.raises(psycopg.errors.NumericValueOutOfRange):
        run(own, "select %(n)s::int", n=2**40)
    assert run(own, "select %(n)s::int", n=2) == 2
    assert run(own, "select %(a)s::text", a="a") == "a"
    with pytest.raises(psycopg.DataError):
        run(own, "select %(a)s::text", a="\0")
    assert run(own, "select %(at)s::timestamptz", at=datetime(2030, 1, 1)) == datetime(2030, 1, 1, tzinfo=UTC)  # noqa: DTZ001


def test_what_was_prepared_outlives_a_rollback(own: psycopg.Connection[Any]) -> None:
    """The driver deallocates everything after one, if it has prepared anything itself."""
    with pytest.raises(psycopg.errors.DivisionByZero), transaction(own):
        run(own, "select 1 / (%(n)s::int - 1)", n=1)
    with transaction(own):
        assert run(own, "select 1 / (%(n)s::int - 1)", n=2) == 1
    assert run(own, "select 1 / (%(n)s::int - 1)", n=0) == -1
    assert names(own) == ["tarry_0"]


def test_a_closed_connection_is_freed_with_what_it_prepared(database: str) -> None:
    with psycopg.connect(database, **KEYWORDS) as conn:
        configure(conn)
        assert run(conn, "select %(n)s::int", n=1) == 1
    left = weakref.ref(conn)
    del conn
    gc.collect()
    assert left() is None


def test_a_session_prepares_only_so_many(own: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "MOST", 2)
    texts: tuple[LiteralString, ...] = ("select %(n)s::int", "select 1 + %(n)s::int", "select 2 + %(n)s::int")
    assert [run(own, text, n=1) for text in texts for _ in range(2)] == [1, 1, 2, 2, 3, 3]
    assert names(own) == ["tarry_0", "tarry_1"]


def test_a_statement_whose_preparation_was_interrupted_is_prepared_again(
    own: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(prepared, "_check_prepared", lambda result: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(own, "select %(n)s::int", n=1)  # the server has prepared it, and we do not know
    assert run(own, "select %(n)s::int", n=1) == 1
    assert names(own) == ["tarry_0", "tarry_1"]


def test_an_error_is_the_drivers_and_the_session_goes_on(own: psycopg.Connection[Any]) -> None:
    for _ in range(2):
        with pytest.raises(psycopg.errors.DivisionByZero) as caught:
            run(own, "select 1 / %(n)s::int", n=0)
        assert caught.value.diag.message_primary == "division by zero"
    with pytest.raises(psycopg.errors.UndefinedTable):
        run(own, "select * from missing where %(n)s::int = 0", n=0)
    assert run(own, "select 1 / %(n)s::int", n=1) == 1


@pytest.mark.parametrize(
    "change",
    ["deallocate all", "discard all", "alter table tarry.message alter column type type varchar(300)"],
)
def test_a_session_whose_statements_are_lost_or_outdated_is_replaced(
    store: PostgresStore, change: LiteralString
) -> None:
    def deliver() -> list[Settled]:
        store.run(store.messages.offer(Q, Draft("k", b"1", type="t")))
        store.run(store.messages.offer_many(Q, [Draft(f"k{i}", b"1") for i in range(COPY_FROM)]))  # in a transaction
        store.run(store.messages.purge(Q))
        store.run(store.messages.offer(Q, Draft("k", b"1", type="t")))
        (lease,) = poll_one(store)
        return store.run(store.messages.ack(Q, [lease.lease_id]))

    assert deliver() == [Settled.DONE]
    with store._pool.connection() as conn:
        conn.execute(change)
    assert [deliver() for _ in range(2)] == [[Settled.DONE]] * 2


def test_an_error_of_the_commit_follows_the_rows_and_is_raised(own: psycopg.Connection[Any]) -> None:
    own.execute("create table late (n int unique deferrable initially deferred)")
    store_one = "insert into late values (%(n)s::int) returning n"
    assert run(own, store_one, n=1) == 1
    for _ in range(2):
        with pytest.raises(psycopg.errors.UniqueViolation):
            run(own, store_one, n=1)
    assert run(own, store_one, n=2) == 2


def test_what_does_not_fit_into_the_socket_is_sent_when_the_server_reads(own: psycopg.Connection[Any]) -> None:
    big = bytes(30_000_000)
    for _ in range(2):
        assert run(own, "select length(%(data)s::bytea)", data=big) == len(big)


def test_a_session_that_the_server_ends_raises_with_the_reason(own: psycopg.Connection[Any], database: str) -> None:
    ending = "select pg_terminate_backend(%(pid)s::int, 5000)"
    assert run(own, ending, pid=0) is False
    with pytest.raises(psycopg.errors.AdminShutdown):
        run(own, ending, pid=own.info.backend_pid)
    assert own.closed


def test_a_connection_that_another_thread_closes_fails(own: psycopg.Connection[Any]) -> None:
    sleep: LiteralString = "select pg_sleep(%(s)s::float8)"
    run(own, sleep, s=0.0)
    closer = threading.Timer(0.2, own.close)
    closer.start()
    with pytest.raises(psycopg.OperationalError):
        run(own, sleep, s=60.0)
    closer.join()


def test_ctrl_c_ends_a_statement_at_once(store: PostgresStore) -> None:
    store.run(sleep_for(0))
    ctrl_c = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    started = time.monotonic()
    ctrl_c.start()
    with pytest.raises(KeyboardInterrupt):
        store.run(sleep_for(60))
    assert time.monotonic() - started < 20
    ctrl_c.join()
    store.run(sleep_for(0))


def test_ctrl_c_ends_a_statement_that_fails_meanwhile(database: str) -> None:
    """The driver has not yet read that the lock was not granted, and raises this instead of the interrupt."""
    store = PostgresStore(database, settings=StoreSettings(lock_for=timedelta(milliseconds=500)))
    ours = "select 1 from pg_stat_activity where application_name = 'tarry' and datname = current_database()"
    store.run(store.messages.offer(Q, Draft("k", b"1")))
    with psycopg.connect(database, autocommit=True) as admin, psycopg.connect(database) as holder:
        holder.execute("select 1 from tarry.message for update")

        def interrupt_once_failed(*signal: Any) -> None:
            while admin.execute(ours + " and state = 'active'").fetchone():
                pass
            raise KeyboardInterrupt

        def press_once_blocked() -> None:
            with psycopg.connect(database, autocommit=True) as watcher:
                while not watcher.execute(ours + " and wait_event_type = 'Lock'").fetchone():
                    pass
            os.kill(os.getpid(), signal.SIGINT)

        ctrl_c = threading.Thread(target=press_once_blocked)
        handler = signal.signal(signal.SIGINT, interrupt_once_failed)
        try:
            ctrl_c.start()
            with pytest.raises(KeyboardInterrupt):
                store.run(store.messages.drop(Q, "k"))
        finally:
            signal.signal(signal.SIGINT, handler)
            ctrl_c.join()
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:  # cleaning up after it is not interrupted
            with pytest.raises(LockTimeout):
                store.run(store.messages.drop(Q, "k"))
    assert store.run(store.messages.contains(Q, "k"))
    store.close()


def test_a_cancelled_task_ends_its_statement_and_the_connection_is_used_again(database: str) -> None:
    asyncio.run(cancel_one(database))


async def cancel_one(database: str) -> None:
    store = AsyncPostgresStore(database, settings=StoreSettings(pool_size=1))
    await store.open()
    await store.run(sleep_for(0))
    task = asyncio.create_task(store.run(sleep_for(60)))
    await asyncio.sleep(0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(store.run(sleep_for(0)), 20)
    await store.close()


def calls(work: Callable[[], Any]) -> int:
    """How many Python functions it calls, generators resumed included."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def poll_one(store: PostgresStore) -> list[Lease[bytes]]:
    return store.run(store.messages.poll(Q, 1, lambda data, _: data))


def test_one_message_takes_few_calls(store: PostgresStore) -> None:
    """With a cursor of the driver, and a context manager around each try, it was four times as many, of 1 µs each."""
    for key in "abc":
        store.run(store.messages.offer(Q, Draft(key, b"1", fresh=True)))
        (lease,) = poll_one(store)
        store.run(store.messages.ack(Q, [lease.lease_id]))
    store.run(store.messages.offer(Q, Draft("d", b"1", fresh=True)))
    (lease,) = poll_one(store)
    assert calls(lambda: store.run(store.messages.ack(Q, [lease.lease_id]))) <= 45  # with a cursor it was 165
    assert calls(lambda: store.run(store.messages.offer(Q, Draft("e", b"1", fresh=True)))) <= 40  # 190
    # The fewest of several: a poll that took longer than 2 ms, on a busy machine, is compared with others.
    for key in "fghi":
        store.run(store.messages.offer(Q, Draft(key, b"1", fresh=True)))
    assert min(calls(lambda: poll_one(store)) for _ in range(5)) <= 50  # 182
