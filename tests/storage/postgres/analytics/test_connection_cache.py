"""Slices of one process are read through one connection, for as long as they follow each other."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest
from adbc_driver_manager import dbapi

from tarry.core.journal.snapshots import Slice
from tarry.storage.postgres.analytics.windows import arrow
from tarry.storage.postgres.analytics.windows.arrow import ConnectionCache
from tests.kit.servers import Server

BACKEND_PID = "select pg_backend_pid() as pid"


@pytest.fixture
def dsn(server: Server) -> Iterator[str]:
    dsn = server.new_database()
    yield dsn
    server.drop_database(dsn)


def pid_of(spare: ConnectionCache, dsn: str, query: str = BACKEND_PID) -> int:
    def fetch(conn: dbapi.Connection) -> int:
        with conn.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchall()[0][0]

    return spare.using(dsn, fetch, dbapi.Error)


def test_the_next_slice_is_read_through_the_same_connection(dsn: str) -> None:
    (first,), (second,) = (list(arrow.batches(dsn, Slice(BACKEND_PID))) for _ in range(2))
    assert first.column("pid") == second.column("pid")


def test_one_that_died_meanwhile_is_replaced(dsn: str) -> None:
    spare = ConnectionCache(arrow.connection)
    died = pid_of(spare, dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("select pg_terminate_backend(%s, 10000)", (died,))
    assert pid_of(spare, dsn) != died


def test_a_wrong_query_raises_and_its_connection_is_closed(dsn: str) -> None:
    spare = ConnectionCache(arrow.connection)
    before = pid_of(spare, dsn)
    with pytest.raises(dbapi.Error, match="no_such_table"):
        pid_of(spare, dsn, "select * from no_such_table")
    assert pid_of(spare, dsn) != before


def test_a_concurrent_reader_has_another_connection(dsn: str) -> None:
    spare = ConnectionCache(arrow.connection)
    both = threading.Barrier(2)
    pids: list[int] = []

    def read() -> None:
        def fetch(conn: dbapi.Connection) -> int:
            both.wait(30)
            with conn.cursor() as cursor:
                cursor.execute(BACKEND_PID)
                return cursor.fetchall()[0][0]

        pids.append(spare.using(dsn, fetch, dbapi.Error))

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(set(pids)) == 2
    assert pid_of(spare, dsn) in pids


def test_an_unused_connection_is_closed(dsn: str) -> None:
    closed = threading.Event()

    class Watched:
        def __init__(self, dsn: str) -> None:
            self.conn = arrow.connection(dsn)

        def close(self) -> None:
            self.conn.close()
            closed.set()

    spare = ConnectionCache(Watched, idle_for_s=0.01)
    spare.using(dsn, lambda watched: watched.conn, dbapi.Error)
    assert closed.wait(30)
