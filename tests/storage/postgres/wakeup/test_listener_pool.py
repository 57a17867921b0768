"""One connection listens for a process, however many apps of any kind it has. Without scans: only notifications wake."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tarry.app import App, AsyncApp
from tarry.core.errors import InvalidInput, TarryError
from tarry.core.settings import StoreSettings
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.store import AsyncPostgresStore
from tarry.storage.postgres.wakeup import listener_pool
from tarry.storage.postgres.wakeup.listener_pool import LISTENER_POOL, ListenConnection
from tests.kit.blocking import Loop
from tests.kit.sleepers import asleep, until, until_asleep
from tests.kit.steps import TIMEOUT, TIMEOUT_S, in_background

QUEUE = "q"
NEVER = timedelta(minutes=10)
SETTINGS = StoreSettings(scan_every=NEVER, listening_scan_every=NEVER, pool_size=2)

pytestmark = pytest.mark.usefixtures("deep_sleep")


@contextmanager
def blocking(dsn: str) -> Iterator[App]:
    with App(PostgresStore(dsn, settings=SETTINGS), dsn=dsn) as app:
        yield app


@contextmanager
def awaiting(dsn: str) -> Iterator[tuple[AsyncApp, Loop]]:
    """An async app in an event loop of its own, as a program with threads has them."""
    loop = Loop()
    try:
        store = AsyncPostgresStore(dsn, settings=SETTINGS)
        loop.run(store.open())
        app = AsyncApp(store, dsn=dsn)
        yield app, loop
        loop.run(app.close())
    finally:
        loop.stop()


def sessions(dsn: str) -> int:
    with psycopg.connect(dsn) as conn:
        query = "select count(*) from pg_stat_activity where application_name = 'tarry-listen'"
        row = conn.execute(query + " and datname = current_database()").fetchone()
    assert row is not None
    return row[0]


def is_called(app: App, other: App, key: str) -> bool:
    """Whether what another app offers wakes a poll of this one."""
    with in_background(app.queue(QUEUE).poll, TIMEOUT) as waiting:
        until_asleep(app, QUEUE)
        other.queue(QUEUE).offer(key, 1)
        return waiting.result(TIMEOUT_S).key == key


def test_a_blocking_and_an_awaiting_app_listen_by_one_connection_and_each_is_called(database: str) -> None:
    with blocking(database) as app, awaiting(database) as (aapp, loop), blocking(database) as other:
        queue = aapp.queue(QUEUE)
        for n in range(3):
            with (
                in_background(loop.run, queue.poll(TIMEOUT, type="async")) as poll,
                in_background(app.queue(QUEUE).poll, TIMEOUT, type="sync") as waiting,
            ):
                until_asleep(app, QUEUE)
                until(lambda: asleep(aapp.store.wakeup.wait_queue, QUEUE) == 1, "the task did not go to sleep")
                assert sessions(database) == 1
                other.queue(QUEUE).offer(f"a{n}", 1, type="async")
                other.queue(QUEUE).offer(f"s{n}", 1, type="sync")
                assert (poll.result(TIMEOUT_S).key, waiting.result(TIMEOUT_S).key) == (f"a{n}", f"s{n}")


@pytest.mark.parametrize("leaves_first", ["the first", "the second"])
def test_an_app_that_closes_does_not_close_the_shared_listener(database: str, leaves_first: str) -> None:
    with blocking(database) as other:
        apps = [App(PostgresStore(database, settings=SETTINGS), dsn=database) for _ in range(2)]
        for n, app in enumerate(apps):
            assert is_called(app, other, f"before {n}")
        leaver, stays = apps if leaves_first == "the first" else reversed(apps)
        leaver.close()
        assert is_called(stays, other, "after")
        assert sessions(database) == 1
        stays.close()
        assert sessions(database) == 0


def test_an_awaiting_app_that_ends_with_its_loop_leaves_the_others_hearing(database: str) -> None:
    with blocking(database) as app, blocking(database) as other:
        with awaiting(database) as (aapp, loop):
            # It was first, so it has opened the listener.
            with in_background(loop.run, aapp.queue(QUEUE).poll(TIMEOUT)) as poll:
                until(lambda: asleep(aapp.store.wakeup.wait_queue, QUEUE) == 1, "the task did not go to sleep")
                other.queue(QUEUE).offer("a", 1)
                assert poll.result(TIMEOUT_S).key == "a"
            assert is_called(app, other, "b")
        assert is_called(app, other, "c")
        assert sessions(database) == 1


def test_what_one_app_waits_for_is_not_forgotten_because_another_goes(database: str) -> None:
    """Each has a row of its own in tarry.waiter: their sleeps differ, and so do their ends."""
    with blocking(database) as app, blocking(database) as other:
        leaver = App(PostgresStore(database, settings=SETTINGS), dsn=database)
        with in_background(app.queue(QUEUE).poll, TIMEOUT) as waiting:
            until_asleep(app, QUEUE)
            with in_background(leaver.queue(QUEUE).poll, timedelta(milliseconds=300)) as gave_up:
                until_asleep(leaver, QUEUE)
                assert gave_up.result(TIMEOUT_S) is None
            leaver.close()
            with psycopg.connect(database, autocommit=True) as conn:
                until(
                    lambda: conn.execute("select from tarry.waiter").rowcount == 1,
                    "the process that left is still notified",
                )
            other.queue(QUEUE).offer("a", 1)
            assert waiting.result(TIMEOUT_S).key == "a"


def test_an_address_in_other_words_is_the_same_address(database: str) -> None:
    words: dict[str, Any] = conninfo_to_dict(database)
    same = make_conninfo(**dict(reversed(words.items())))
    with blocking(database) as app, blocking(same) as other:
        assert is_called(app, other, "a")
        assert is_called(other, app, "b")
        assert sessions(database) == 1


def test_when_the_connection_is_cut_all_apps_come_back_by_one(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_pool, "LONGEST_PAUSE_S", 0.2)
    with blocking(database) as first_app, blocking(database) as two, blocking(database) as other:
        with (
            in_background(first_app.queue(QUEUE).poll, TIMEOUT, type="one") as first,
            in_background(two.queue(QUEUE).poll, TIMEOUT, type="two") as second,
        ):
            until_asleep(first_app, QUEUE)
            until_asleep(two, QUEUE)
            with psycopg.connect(database, autocommit=True) as conn:
                conn.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'tarry-listen'"
                )
            other.queue(QUEUE).offer("1", 1, type="one")
            other.queue(QUEUE).offer("2", 1, type="two")
            assert (first.result(TIMEOUT_S).key, second.result(TIMEOUT_S).key) == ("1", "2")
        until(lambda: sessions(database) == 1, "there is no new listener")
        assert is_called(first_app, other, "3")
        assert is_called(two, other, "4")


def test_apps_that_come_and_go_all_the_time_leave_nothing(database: str) -> None:
    def visit(n: int) -> None:
        with blocking(database) as app:
            assert app.queue(QUEUE).poll(timedelta(milliseconds=20), type=f"{n}") is None

    with blocking(database) as app:
        app.queue(QUEUE).offer("a", 1)  # the queue is there
    with ThreadPoolExecutor(8) as pool:
        for visited in [pool.submit(visit, n) for n in range(40)]:
            visited.result(TIMEOUT_S)
    assert sessions(database) == 0
    with psycopg.connect(database) as conn:
        assert conn.execute("select from tarry.waiter").rowcount == 0


def test_an_address_that_is_none_is_refused_and_its_password_not_quoted() -> None:
    with pytest.raises(InvalidInput) as refused:
        LISTENER_POOL.join("postgresql://u:secret@host:port/x y", None)  # pyright: ignore[reportArgumentType]
    assert "secret" not in str(refused.value)
    assert isinstance(refused.value, TarryError)


FORKING = """
import os, sys, threading
from datetime import timedelta
import psycopg
import tarry
from tarry.core.errors import InvalidState
from tarry.core.settings import StoreSettings

never = timedelta(minutes=10)
settings = StoreSettings(scan_every=never, listening_scan_every=never)
dsn, timeout = sys.argv[1], timedelta(seconds=30)

def is_woken(app, name):
    # An app without notifications would sleep for ten minutes.
    for turn in range(20):  # on a busy machine the message may be there before the poll listens
        thread = threading.Timer(0.3, lambda: app.queue(name).offer(f"{name}-{turn}", 1))
        thread.start()
        found = app.queue(name).poll(timeout)
        thread.join()
        if found is None or app.store.wakeup.wait_queue.is_listening:
            return found is not None
    return False

def pids(app):
    with psycopg.connect(dsn) as conn:
        names = "select pid from pg_stat_activity where application_name like 'tarry%' and datname = current_database()"
        return {pid for pid, in conn.execute(names).fetchall()}

with tarry.connect(dsn, settings=settings) as app:
    assert is_woken(app, "parent")
    before = pids(app)
    child = os.fork()
    if child == 0:
        try:
            with tarry.connect(dsn, settings=settings) as own:
                assert is_woken(own, "child")
            for use in (lambda: app.queue("q").offer("a", 1), lambda: app.queue("q").poll(timeout)):
                try:
                    use()
                except InvalidState as refused:
                    assert "another process" in str(refused)
                else:
                    raise AssertionError("two processes speak on one connection")
            app.close()
        except BaseException as error:
            print("child:", repr(error), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "the child is not notified"
    # Sessions of the child may take a moment to end.
    assert pids(app) >= before, f"the child has closed its parent's connections: {before} {pids(app)}"
    assert is_woken(app, "again"), "the child closed the parent's listener"
"""


def test_a_forked_child_opens_its_own_listener_and_leaves_its_parents_alone(database: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING, database],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_connection_that_fails_as_it_is_stopped_ends() -> None:
    """The driver raises the error that ended a statement instead of the cancellation."""
    listening = threading.Event()

    class Failing(ListenConnection):
        async def _listen(self) -> None:
            listening.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise psycopg.OperationalError("terminated") from None

    connection = Failing("")
    connection.start()
    assert listening.wait(10)
    connection.stop()
    assert not connection.is_alive
