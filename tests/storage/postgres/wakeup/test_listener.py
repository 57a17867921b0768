"""The LISTEN connection of a process and its failures. Its consumers sleep for ten minutes unless they are notified."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import psycopg
import pytest

import tarry
from tarry.app import App, AsyncApp
from tarry.core.errors import InvalidState
from tarry.core.operation import Operation
from tarry.core.settings import RetrySettings, StoreSettings
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.store import AsyncPostgresStore
from tarry.storage.postgres.wakeup import listener, listener_pool
from tarry.storage.postgres.wakeup.listener import Listener
from tests.kit.sleepers import asleep, until, until_asleep, until_waiting, waiting
from tests.kit.steps import TIMEOUT, TIMEOUT_S, in_background
from tests.storage.postgres.bouncers import pgbouncer
from tests.storage.postgres.fallible import fallible_server

R = TypeVar("R")

QUEUE = "q"
NEVER = timedelta(minutes=10)
SOON = timedelta(milliseconds=100)
UNCALLED = StoreSettings(scan_every=NEVER, listening_scan_every=NEVER)
PATIENT = RetrySettings(retries=100, cap_for=timedelta(milliseconds=200), total_for=timedelta(minutes=1))


@contextmanager
def opened(dsn: str, **settings: Any) -> Iterator[App]:
    chosen = {"scan_every": NEVER, "listening_scan_every": NEVER, "pool_size": 4} | settings
    with App(PostgresStore(dsn, settings=StoreSettings(**chosen)), dsn=dsn) as app:
        yield app


def is_listening(app: App) -> bool:
    return app.store.wakeup.wait_queue.is_listening


def waiters(dsn: str) -> int:
    with psycopg.connect(dsn) as conn:
        row = conn.execute("select count(*) from tarry.waiter").fetchone()
    assert row is not None
    return row[0]


def end_listeners(dsn: str) -> int:
    with psycopg.connect(dsn) as conn:
        query = "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'tarry-listen'"
        row = conn.execute(query + " and datname = current_database()").fetchone()
    assert row is not None
    return row[0]


@pytest.mark.usefixtures("deep_sleep")
class TestAcrossProcesses:
    """Two apps: changes of one reach the other by the database alone. (tests/concurrency has processes.)"""

    def test_what_one_offers_calls_the_other(self, database: str) -> None:
        with (
            opened(database) as sleeper,
            opened(database) as other,
            in_background(sleeper.queue(QUEUE).poll, TIMEOUT) as waiting,
        ):
            until_asleep(sleeper, QUEUE)
            other.queue(QUEUE).offer("a", 1)
            assert waiting.result(TIMEOUT_S).key == "a"

    def test_an_awaiting_consumer_is_called_too(self, database: str) -> None:
        async def work() -> None:
            store = AsyncPostgresStore(database, settings=StoreSettings(scan_every=NEVER))
            await store.open()
            async with AsyncApp(store, dsn=database) as app:
                task = asyncio.create_task(app.queue(QUEUE).poll(TIMEOUT))
                while asleep(store.wakeup.wait_queue, QUEUE) == 0:  # noqa: ASYNC110 - state of the wait queue, which has no event for it
                    await asyncio.sleep(0.002)
                with opened(database) as other:
                    await asyncio.to_thread(other.queue(QUEUE).offer, "a", 1)
                delivery = await task
                assert delivery is not None
                assert delivery.key == "a"

        asyncio.run(work())

    def test_a_lease_that_runs_out_is_waited_for_and_not_a_moment_less(self, database: str) -> None:
        with opened(database) as app:
            queue = app.queue(QUEUE)
            queue.offer("a", 1)
            held = queue.try_poll(lease_for=timedelta(seconds=1))
            assert held is not None
            again = queue.poll(TIMEOUT)
            assert again is not None
            assert again.leased_at >= held.lease_until
            assert again.leased_at < held.lease_until + timedelta(seconds=5)

    def test_every_waiting_process_is_notified_and_one_gets_the_message(self, database: str) -> None:
        with opened(database) as first_app, opened(database) as two:
            with (
                in_background(first_app.queue(QUEUE).poll, timedelta(seconds=2)) as first,
                in_background(two.queue(QUEUE).poll, timedelta(seconds=2)) as second,
            ):
                until_asleep(first_app, QUEUE)
                until_asleep(two, QUEUE)
                first_app.queue(QUEUE).offer("a", 1)
                got = [first.result(TIMEOUT_S), second.result(TIMEOUT_S)]
            assert sorted(delivery.key for delivery in got if delivery is not None) == ["a"]

    def test_where_the_named_processes_are_gone_another_delivers(self, database: str) -> None:
        with (
            psycopg.connect(database, autocommit=True) as conn,
            opened(database) as app,
            in_background(app.queue(QUEUE).poll, TIMEOUT) as waiting,
        ):
            until_asleep(app, QUEUE)
            conn.execute(
                "insert into tarry.waiter (queue, type, process, wakes_at) select id, '', 'gone' || n, 'infinity' "
                "from tarry.queue, generate_series(1, 40) n where name = %s",
                (QUEUE,),
            )
            app.queue(QUEUE).offer("a", 1)
            delivery = waiting.result(TIMEOUT_S)
        assert delivery is not None


@pytest.mark.usefixtures("deep_sleep")
class TestListenConnection:
    def test_a_listener_is_trusted_only_after_it_has_received_its_own_notification(self, database: str) -> None:
        with opened(database, scan_every=SOON) as app, in_background(app.queue(QUEUE).poll, TIMEOUT) as waiting:
            until(lambda: is_listening(app), "it never received its own probe")
            app.queue(QUEUE).offer("a", 1)
            assert waiting.result(TIMEOUT_S).key == "a"

    def test_a_program_that_only_offers_has_no_listener(self, database: str) -> None:
        with opened(database) as app:
            app.queue(QUEUE).offer("a", 1)
            assert app.queue(QUEUE).poll(TIMEOUT) is not None
            assert end_listeners(database) == 0

    def test_a_closed_store_starts_no_listener(self, database: str) -> None:
        with opened(database) as app:
            pass
        before = threading.enumerate()
        with pytest.raises(InvalidState, match="this store is closed"):
            app.store.run(app.store.wakeup.announce(QUEUE, sleep_for=SOON))
        assert [thread.name for thread in threading.enumerate() if thread not in before] == []

    def test_when_its_connection_is_ended_it_comes_back_and_nothing_is_missed(
        self, database: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING, "tarry.listen")
        with opened(database, scan_every=SOON) as app, opened(database) as other:
            for round in range(3):
                with in_background(app.queue(QUEUE).poll, TIMEOUT) as waiting:
                    # The app may not have noticed yet that an earlier connection was ended; the server knows.
                    until(lambda: end_listeners(database) == 1, "it is not listening")
                    other.queue(QUEUE).offer(f"k{round}", 1)
                    assert waiting.result(TIMEOUT_S).key == f"k{round}"
                with in_background(app.queue(QUEUE).poll, TIMEOUT) as waiting:
                    until(lambda: is_listening(app), "it never came back")
                    other.queue(QUEUE).offer(f"again{round}", 1)
                    assert waiting.result(TIMEOUT_S).key == f"again{round}"
        assert "the LISTEN connection was lost" in caplog.text
        assert not any("\n" in record.getMessage() for record in caplog.records)

    def test_a_server_that_restarts_finds_its_sleepers_again(self) -> None:
        with (
            fallible_server() as server,
            opened(server.dsn, scan_every=SOON, connection_retry=PATIENT) as app,
            in_background(app.queue(QUEUE).poll, timedelta(minutes=1)) as waiting,
        ):
            until(lambda: is_listening(app), "it is not listening")
            server.restart()
            server.await_ready()
            until(lambda: is_listening(app) and asleep(app.store.wakeup.wait_queue, QUEUE) == 1, "it never came back")
            app.queue(QUEUE).offer("a", 1)
            assert waiting.result(TIMEOUT_S).key == "a"

    def test_with_every_notification_lost_only_latency_grows_and_one_warning_is_logged(
        self, database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(Listener, "receive", lambda self, payload: None)
        monkeypatch.setattr(listener, "RECEIVED_WITHIN_S", 0.1)
        monkeypatch.setattr(listener_pool, "TICK_S", 0.02)
        monkeypatch.setattr(listener, "PROBE_EVERY_S", 0.1)
        caplog.set_level(logging.WARNING, "tarry.listen")
        with opened(database, scan_every=SOON) as app, opened(database) as other:
            for n in range(5):
                with in_background(app.queue(QUEUE).poll, TIMEOUT) as waiting:
                    until_waiting(app, QUEUE, 1)
                    other.queue(QUEUE).offer(f"k{n}", n)
                    assert waiting.result(TIMEOUT_S).key == f"k{n}"
            with in_background(app.queue(QUEUE).poll, timedelta(seconds=2)):
                until(lambda: "do not arrive" in caplog.text, "it never noticed")
                until(
                    lambda: waiters(database) == 0 or not asleep(app.store.wakeup.wait_queue, QUEUE),
                    "others still notify it",
                )
        assert not is_listening(app)
        assert caplog.text.count("do not arrive") == 1

    def test_a_process_that_left_is_soon_no_longer_notified(self, database: str) -> None:
        with opened(database) as app, opened(database) as other:
            with in_background(app.queue(QUEUE).poll, TIMEOUT) as waiting:
                until_asleep(app, QUEUE)
                other.queue(QUEUE).offer("a", 1)
                waiting.result(TIMEOUT_S)
            assert waiters(database) == 1
            until(lambda: waiters(database) == 0, "every offer would notify a process that is gone")

    def test_a_poll_that_waits_when_its_store_is_closed_raises(self, database: str) -> None:
        app = App(PostgresStore(database, settings=StoreSettings(scan_every=NEVER)), dsn=database)
        with ThreadPoolExecutor(2) as pool:
            polls = [pool.submit(app.queue(QUEUE).poll, TIMEOUT) for _ in range(2)]
            until_waiting(app, QUEUE, 2)
            until_asleep(app, QUEUE)
            app.close()
            for poll in polls:
                with pytest.raises(InvalidState, match="closed"):
                    poll.result(TIMEOUT_S)

    def test_closing_leaves_nothing_behind(self, database: str) -> None:
        with opened(database) as app, in_background(app.queue(QUEUE).poll, timedelta(milliseconds=500)):
            until_asleep(app, QUEUE)
            assert waiters(database) == 1
        assert waiters(database) == 0
        assert end_listeners(database) == 0


@pytest.mark.usefixtures("deep_sleep")
class TestBehindPgBouncer:
    """In transaction mode it lets notifications out, and none in."""

    def test_it_scans_at_intervals_and_logs_why(self, database: str, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING, "tarry.listen")
        with pgbouncer(database) as pooled, opened(pooled, scan_every=SOON) as app:
            for n in range(3):
                with in_background(app.queue(QUEUE).poll, TIMEOUT) as waiting:
                    until_waiting(app, QUEUE, 1)
                    app.queue(QUEUE).offer(f"k{n}", n)
                    assert waiting.result(TIMEOUT_S).key == f"k{n}"
            until(lambda: "behind a pooler" in caplog.text, "it never logged a warning")
            assert not is_listening(app)
            assert waiters(database) == 0
        assert caplog.text.count("behind a pooler") == 1

    def test_with_a_direct_address_to_listen_it_is_called(self, database: str) -> None:
        with pgbouncer(database) as pooled, opened(pooled, listen_dsn=database) as app:
            for n in range(3):
                with in_background(app.queue(QUEUE).poll, TIMEOUT) as waiting:
                    until_asleep(app, QUEUE)
                    app.queue(QUEUE).offer(f"k{n}", n)
                    assert waiting.result(TIMEOUT_S).key == f"k{n}"

    def test_the_environment_may_know_the_direct_address_of_its_database(
        self, database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TARRY_LISTEN_DSN", database)
        with pgbouncer(database) as pooled:
            monkeypatch.setenv("TARRY_DSN", pooled)
            with tarry.connect(settings=UNCALLED) as app, in_background(app.queue(QUEUE).poll, TIMEOUT) as waiting:
                until_asleep(app, QUEUE)
                app.queue(QUEUE).offer("a", 1)
                assert waiting.result(TIMEOUT_S).key == "a"

    def test_a_direct_address_of_another_database_is_left_alone(
        self, database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TARRY_LISTEN_DSN", "postgresql://elsewhere/other")
        monkeypatch.setenv("TARRY_DSN", "postgresql://elsewhere/pooled")
        with (
            tarry.connect(database, settings=UNCALLED) as app,
            in_background(app.queue(QUEUE).poll, TIMEOUT) as waiting,
        ):
            until_asleep(app, QUEUE)
            app.queue(QUEUE).offer("a", 1)
            assert waiting.result(TIMEOUT_S).key == "a"


def test_a_transaction_that_was_open_when_the_wait_began_is_found_all_the_same(database: str) -> None:
    """It could not see the sleeper, so it does not notify. The first sleeps are short because of this."""
    with opened(database) as app, psycopg.connect(database) as conn:
        queue = app.queue(QUEUE)
        queue.offer("open", 1, conn=conn)
        with in_background(queue.poll, TIMEOUT) as waiting:
            until_asleep(app, QUEUE)
            conn.commit()
            committed = time.monotonic()
            assert waiting.result(TIMEOUT_S).key == "open"
            assert time.monotonic() - committed < 10, "it slept for ten minutes unless it was called"


def test_fifty_idle_consumers_announce_once_and_a_message_wakes_one_of_them(
    database: str, deep_sleep: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[str] = []

    class Counting(PostgresStore):
        def run(self, operation: Operation[R], conn: Any = None) -> R:
            statements.append("statement")
            return super().run(operation, conn)

    store = Counting(database, settings=StoreSettings(scan_every=NEVER, listening_scan_every=NEVER))
    with App(store, dsn=database) as app:
        queue = app.queue(QUEUE)
        queue.offer("first", 1)
        assert queue.try_poll() is not None
        polls = [in_background(queue.poll, TIMEOUT) for _ in range(50)]
        waiting = [poll.__enter__() for poll in polls]
        until_waiting(app, QUEUE, 50)
        until_asleep(app, QUEUE)
        # Each has looked once; the first has announced, and once more when the listener was open.
        assert 50 <= len(statements) - 2 <= 54
        before = len(statements)
        with tarry.connect(database) as other:
            other.queue(QUEUE).offer("a", 1)
        until(lambda: sum(poll.done() for poll in waiting) == 1)
        until_asleep(app, QUEUE)
        assert len(statements) - before <= 4, (
            "one that got it, one that leads now: it looked, paused, looked and announced"
        )
        queue.offer_many([tarry.Message(payload=n) for n in range(49)])
        for poll, future in zip(polls, waiting, strict=True):
            assert future.result(TIMEOUT_S) is not None
            poll.__exit__(None, None, None)
        assert app.queues.counts(QUEUE).ready.n == 0


def test_cancelled_polls_lease_nothing_and_block_no_other_poll(database: str) -> None:
    async def work() -> None:
        async with tarry.connect_async(database) as app:
            queue = app.queue(QUEUE)
            got: list[str] = []

            async def consume() -> None:
                while delivery := await queue.poll(TIMEOUT):
                    got.append(delivery.key)

            tasks = [asyncio.create_task(consume()) for _ in range(20)]
            for n, task in enumerate(tasks):
                await queue.offer(f"k{n}", n)
                if n % 2:
                    task.cancel()
            rest = [task for n, task in enumerate(tasks) if not n % 2]
            while (await app.queues.counts(QUEUE)).ready.n or len(got) < 20:  # noqa: ASYNC110 - state of the database
                await asyncio.sleep(0.005)
            for task in rest:
                task.cancel()
            await asyncio.wait(tasks)
            assert waiting(app.store.wakeup.wait_queue, QUEUE) == 0
            assert (await app.queues.counts(QUEUE)).leased.n == len(got) == 20

    asyncio.run(work())
