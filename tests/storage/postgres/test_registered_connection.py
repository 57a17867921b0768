"""A connection that stays registered with its loop: it registers once, and is gone from the loop before its socket is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
import uvloop
from psycopg import OperationalError

from tarry.core.messages.model import Draft
from tarry.core.settings import StoreSettings
from tarry.storage.postgres.registered_connection import RegisteredConnection
from tarry.storage.postgres.store import AsyncPostgresStore

Work = Callable[[RegisteredConnection], Awaitable[None]]
LARGE = 20_000_000


class CountingLoop(asyncio.SelectorEventLoop):
    """Counts the changes of its registrations."""

    changes = 0

    def __init__(self) -> None:
        self.registered: set[int] = set()
        super().__init__()

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:
        self.changes += 1
        self.registered.add(fd)
        super().add_reader(fd, callback, *args)

    def remove_reader(self, fd: Any) -> bool:
        self.changes += 1
        self.registered.discard(fd)
        return super().remove_reader(fd)


@pytest.fixture(params=[CountingLoop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest, database: str) -> Callable[[Work], None]:
    def run(work: Work) -> None:
        async def connected() -> None:
            async with open_connection(database) as conn:
                await work(conn)

        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(asyncio.wait_for(connected(), 60))

    return run


@asynccontextmanager
async def open_connection(database: str) -> AsyncGenerator[RegisteredConnection]:
    conn = await RegisteredConnection.connect(database, autocommit=True)
    try:
        yield conn
    finally:
        await conn.close()


async def select_one(conn: RegisteredConnection) -> None:
    assert await (await conn.execute("select 1")).fetchone() == (1,)


async def end_session(conn: RegisteredConnection) -> None:
    """Returns when the server process has ended."""
    async with await psycopg.AsyncConnection.connect(conn.info.dsn, autocommit=True) as admin:
        await admin.execute("select pg_terminate_backend(%s, 10000)", [conn.info.backend_pid])


def test_awaited_single_offers_change_no_registration(database: str) -> None:
    async def offers() -> int:
        store = AsyncPostgresStore(database, settings=StoreSettings(pool_size=1))
        await store.open()
        for key in "ab":
            await store.run(store.messages.offer("q", Draft(key, b"1", fresh=True)))
        loop = asyncio.get_running_loop()
        assert isinstance(loop, CountingLoop)
        before = loop.changes
        for key in "cdef":
            await store.run(store.messages.offer("q", Draft(key, b"1", fresh=True)))
        changes = loop.changes - before
        await store.close()
        return changes

    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        assert runner.run(offers()) == 0  # two for each statement, as the driver does it


def test_what_does_not_fit_into_the_socket_is_written_by_the_driver(run: Callable[[Work], None]) -> None:
    async def work(conn: RegisteredConnection) -> None:
        await select_one(conn)
        data = b"x" * LARGE
        cursor = await conn.execute("select %s::bytea", [data], binary=True)
        assert await cursor.fetchone() == (data,)
        await select_one(conn)

    run(work)


def test_an_interrupted_statement_is_cancelled_and_the_connection_is_used_again(run: Callable[[Work], None]) -> None:
    async def work(conn: RegisteredConnection) -> None:
        await select_one(conn)
        task = asyncio.create_task(conn.execute("select pg_sleep(60)"))
        await waits(conn)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await select_one(conn)

    run(work)


def test_a_statement_fails_when_another_task_closes_its_connection(run: Callable[[Work], None]) -> None:
    async def work(conn: RegisteredConnection) -> None:
        task = asyncio.create_task(conn.execute("select pg_sleep(60)"))
        await waits(conn)
        await conn.close()
        with pytest.raises(OperationalError):
            await task

    run(work)


async def waits(conn: RegisteredConnection) -> None:
    """Returns when the server executes the statement of the connection."""
    async with await psycopg.AsyncConnection.connect(conn.info.dsn, autocommit=True) as admin:
        query = "select count(*) from pg_stat_activity where pid = %s and wait_event = 'PgSleep'"
        while await (await admin.execute(query, [conn.info.backend_pid])).fetchone() != (1,):
            pass


def test_a_connection_that_the_server_ends_leaves_its_descriptor_to_others(run: Callable[[Work], None]) -> None:
    async def work(conn: RegisteredConnection) -> None:
        await select_one(conn)
        fileno = conn.pgconn.socket
        await end_session(conn)
        with pytest.raises(OperationalError):
            await select_one(conn)
        assert conn.closed
        others = [await RegisteredConnection.connect(conn.info.dsn, autocommit=True) for _ in range(3)]
        assert fileno in [other.pgconn.socket for other in others]
        for other in others:
            await select_one(other)
            await other.close()

    run(work)


def test_an_idle_connection_that_the_server_ends_is_no_longer_registered(database: str) -> None:
    async def idle() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, CountingLoop)
        async with open_connection(database) as conn:
            await select_one(conn)
            fileno = conn.pgconn.socket
            assert fileno in loop.registered
            await end_session(conn)
            # Otherwise the loop would report its last bytes forever.
            while fileno in loop.registered:  # noqa: ASYNC110
                await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        runner.run(asyncio.wait_for(idle(), 60))
