"""The ear of a process, with everything that can happen to it. Its consumers sleep for ten minutes unless they are called."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

import tarry
from tarry.app import App, AsyncApp
from tarry.core.errors import Refused
from tarry.core.settings import Patience, StoreSettings
from tarry.storage.postgres import ears, listen
from tarry.storage.postgres.aio import AsyncPostgresStore
from tarry.storage.postgres.listen import Listener
from tarry.storage.postgres.sync import PostgresStore
from tests.kit.sleepers import until, until_asleep, until_waiting
from tests.kit.steps import PATIENCE, PATIENCE_S, in_background
from tests.storage.bouncers import pgbouncer
from tests.storage.fallible import fallible_server

QUEUE = "q"
NEVER = timedelta(minutes=10)
SOON = timedelta(milliseconds=100)
UNCALLED = StoreSettings(scan_every=NEVER, listening_scan_every=NEVER)
PATIENT = Patience(retries=100, cap_for=timedelta(milliseconds=200), total_for=timedelta(minutes=1))


@contextmanager
def opened(dsn: str, **settings: Any) -> Iterator[App]:
    chosen = {"scan_every": NEVER, "listening_scan_every": NEVER, "pool_size": 4} | settings
    with App(PostgresStore(dsn, settings=StoreSettings(**chosen)), dsn=dsn) as app:
        yield app


def hears(app: App) -> bool:
    return app.store.lobby.hears


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
    """Two apps: what one does, the other hears of by the database alone. (tests/concurrency has processes.)"""

    def test_what_one_offers_calls_the_other(self, database: str) -> None:
        with (
            opened(database) as sleeper,
            opened(database) as other,
            in_background(sleeper.queue(QUEUE).poll, PATIENCE) as waiting,
        ):
            until_asleep(sleeper, QUEUE)
            other.queue(QUEUE).offer("a", 1)
            assert waiting.result(PATIENCE_S).key == "a"

    def test_an_awaiting_consumer_is_called_too(self, database: str) -> None:
        async def work() -> None:
            store = AsyncPostgresStore(database, settings=StoreSettings(scan_every=NEVER))
            await store.open()
            async with AsyncApp(store, dsn=database) as app:
                task = asyncio.create_task(app.queue(QUEUE).poll(PATIENCE))
                while store.lobby.asleep(QUEUE) == 0:  # noqa: ASYNC110 - asked of the lobby, which is not ours to change
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
            again = queue.poll(PATIENCE)
            assert again is not None
            assert again.leased_at >= held.lease_until
            assert again.leased_at < held.lease_until + timedelta(seconds=5)

    def test_everyone_who_waits_is_called_and_one_gets_it(self, database: str) -> None:
        with opened(database) as one, opened(database) as two:
            with (
                in_background(one.queue(QUEUE).poll, timedelta(seconds=2)) as first,
                in_background(two.queue(QUEUE).poll, timedelta(seconds=2)) as second,
            ):
                until_asleep(one, QUEUE)
                until_asleep(two, QUEUE)
                one.queue(QUEUE).offer("a", 1)
                got = [first.result(PATIENCE_S), second.result(PATIENCE_S)]
            assert sorted(delivery.key for delivery in got if delivery is not None) == ["a"]


@pytest.mark.usefixtures("deep_sleep")
class TestTheEar:
    def test_it_hears_itself_before_it_is_believed(self, database: str) -> None:
        with opened(database, scan_every=SOON) as app, in_background(app.queue(QUEUE).poll, PATIENCE) as waiting:
            until(lambda: hears(app), "it never heard its own probe")
            app.queue(QUEUE).offer("a", 1)
            assert waiting.result(PATIENCE_S).key == "a"

    def test_nobody_listens_in_a_program_that_only_offers(self, database: str) -> None:
        with opened(database) as app:
            app.queue(QUEUE).offer("a", 1)
            assert app.queue(QUEUE).poll(PATIENCE) is not None
            assert end_listeners(database) == 0

    def test_who_is_woken_by_the_end_of_a_store_starts_no_ear_that_nobody_stops(self, database: str) -> None:
        with opened(database) as app:
            pass
        before = threading.enumerate()
        with pytest.raises(Refused, match="this store is closed"):
            app.store.wait(QUEUE, sleep_for=SOON)
        assert [thread.name for thread in threading.enumerate() if thread not in before] == []

    def test_when_its_connection_is_ended_it_comes_back_and_nothing_is_missed(
        self, database: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.WARNING, "tarry.listen")
        with opened(database, scan_every=SOON) as app, opened(database) as other:
            for round in range(3):
                with in_background(app.queue(QUEUE).poll, PATIENCE) as waiting:
                    until(lambda: hears(app), "it does not hear")
                    assert end_listeners(database) == 1
                    other.queue(QUEUE).offer(f"k{round}", 1)
                    assert waiting.result(PATIENCE_S).key == f"k{round}"
                with in_background(app.queue(QUEUE).poll, PATIENCE) as waiting:
                    until(lambda: hears(app), "it never came back")
                    other.queue(QUEUE).offer(f"again{round}", 1)
                    assert waiting.result(PATIENCE_S).key == f"again{round}"
        assert "the connection that listens was lost" in caplog.text

    def test_a_server_that_restarts_finds_its_sleepers_again(self) -> None:
        with (
            fallible_server() as server,
            opened(server.dsn, scan_every=SOON, patience=PATIENT) as app,
            in_background(app.queue(QUEUE).poll, timedelta(minutes=1)) as waiting,
        ):
            until(lambda: hears(app), "it does not hear")
            server.restart()
            server.await_answer()
            until(lambda: hears(app) and app.store.lobby.asleep(QUEUE) == 1, "it never came back")
            app.queue(QUEUE).offer("a", 1)
            assert waiting.result(PATIENCE_S).key == "a"

    def test_with_every_notification_lost_only_latency_grows_and_it_says_so_once(
        self, database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(Listener, "hear", lambda self, payload: None)
        monkeypatch.setattr(listen, "HEARD_WITHIN_S", 0.1)
        monkeypatch.setattr(ears, "TICK_S", 0.02)
        monkeypatch.setattr(listen, "PROBE_EVERY_S", 0.1)
        caplog.set_level(logging.WARNING, "tarry.listen")
        with opened(database, scan_every=SOON) as app, opened(database) as other:
            for n in range(5):
                with in_background(app.queue(QUEUE).poll, PATIENCE) as waiting:
                    until_waiting(app, QUEUE, 1)
                    other.queue(QUEUE).offer(f"k{n}", n)
                    assert waiting.result(PATIENCE_S).key == f"k{n}"
            with in_background(app.queue(QUEUE).poll, timedelta(seconds=2)):
                until(lambda: "did not arrive" in caplog.text, "it never noticed")
                until(lambda: waiters(database) == 0 or not app.store.lobby.asleep(QUEUE), "others still ring for it")
        assert not hears(app)
        assert caplog.text.count("did not arrive") == 1

    def test_who_leaves_is_not_rung_for_much_longer(self, database: str) -> None:
        with opened(database) as app, opened(database) as other:
            with in_background(app.queue(QUEUE).poll, PATIENCE) as waiting:
                until_asleep(app, QUEUE)
                other.queue(QUEUE).offer("a", 1)
                waiting.result(PATIENCE_S)
            assert waiters(database) == 1
            until(lambda: waiters(database) == 0, "everybody would ring for nobody")

    def test_who_still_waits_when_the_store_is_closed_is_told(self, database: str) -> None:
        app = App(PostgresStore(database, settings=StoreSettings(scan_every=NEVER)), dsn=database)
        with ThreadPoolExecutor(2) as pool:
            polls = [pool.submit(app.queue(QUEUE).poll, PATIENCE) for _ in range(2)]
            until_waiting(app, QUEUE, 2)
            until_asleep(app, QUEUE)
            app.close()
            for poll in polls:
                with pytest.raises(Refused, match="closed"):
                    poll.result(PATIENCE_S)

    def test_who_closes_leaves_nothing_behind(self, database: str) -> None:
        with opened(database) as app, in_background(app.queue(QUEUE).poll, timedelta(milliseconds=500)):
            until_asleep(app, QUEUE)
            assert waiters(database) == 1
        assert waiters(database) == 0
        assert end_listeners(database) == 0


@pytest.mark.usefixtures("deep_sleep")
class TestBehindPgBouncer:
    """In transaction mode it lets notifications out, and none in."""

    def test_it_looks_every_so_often_and_says_why(self, database: str, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING, "tarry.listen")
        with pgbouncer(database) as pooled, opened(pooled, scan_every=SOON) as app:
            for n in range(3):
                with in_background(app.queue(QUEUE).poll, PATIENCE) as waiting:
                    until_waiting(app, QUEUE, 1)
                    app.queue(QUEUE).offer(f"k{n}", n)
                    assert waiting.result(PATIENCE_S).key == f"k{n}"
            until(lambda: "behind a pooler" in caplog.text, "it never said so")
            assert not hears(app)
            assert waiters(database) == 0
        assert caplog.text.count("behind a pooler") == 1

    def test_with_a_direct_address_to_listen_it_is_called(self, database: str) -> None:
        with pgbouncer(database) as pooled, opened(pooled, listen_dsn=database) as app:
            for n in range(3):
                with in_background(app.queue(QUEUE).poll, PATIENCE) as waiting:
                    until_asleep(app, QUEUE)
                    app.queue(QUEUE).offer(f"k{n}", n)
                    assert waiting.result(PATIENCE_S).key == f"k{n}"

    def test_the_environment_may_know_the_direct_address_of_its_database(
        self, database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TARRY_LISTEN_DSN", database)
        with pgbouncer(database) as pooled:
            monkeypatch.setenv("TARRY_DSN", pooled)
            with tarry.connect(settings=UNCALLED) as app, in_background(app.queue(QUEUE).poll, PATIENCE) as waiting:
                until_asleep(app, QUEUE)
                app.queue(QUEUE).offer("a", 1)
                assert waiting.result(PATIENCE_S).key == "a"

    def test_a_direct_address_of_another_database_is_left_alone(
        self, database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TARRY_LISTEN_DSN", "postgresql://elsewhere/other")
        monkeypatch.setenv("TARRY_DSN", "postgresql://elsewhere/pooled")
        with (
            tarry.connect(database, settings=UNCALLED) as app,
            in_background(app.queue(QUEUE).poll, PATIENCE) as waiting,
        ):
            until_asleep(app, QUEUE)
            app.queue(QUEUE).offer("a", 1)
            assert waiting.result(PATIENCE_S).key == "a"


def test_a_transaction_that_was_open_when_the_wait_began_is_found_all_the_same(database: str) -> None:
    """It could not see the sleeper, so it does not ring. The first naps are short because of this."""
    with opened(database) as app, psycopg.connect(database) as conn:
        queue = app.queue(QUEUE)
        queue.offer("open", 1, conn=conn)
        with in_background(queue.poll, PATIENCE) as waiting:
            until_asleep(app, QUEUE)
            conn.commit()
            committed = time.monotonic()
            assert waiting.result(PATIENCE_S).key == "open"
            assert time.monotonic() - committed < 10, "it slept for ten minutes unless it was called"


def test_fifty_idle_consumers_ask_once_and_a_message_wakes_one_of_them(
    database: str, deep_sleep: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Counting(PostgresStore):
        def _run(self, make: Any, conn: Any, **options: Any) -> Any:
            asked.append("statement")
            return super()._run(make, conn, **options)

    store = Counting(database, settings=StoreSettings(scan_every=NEVER, listening_scan_every=NEVER))
    with App(store, dsn=database) as app:
        queue = app.queue(QUEUE)
        queue.offer("first", 1)
        assert queue.try_poll() is not None
        polls = [in_background(queue.poll, PATIENCE) for _ in range(50)]
        waiting = [poll.__enter__() for poll in polls]
        until_waiting(app, QUEUE, 50)
        until_asleep(app, QUEUE)
        # Each has looked once; the first has asked, and once more when the ear was open.
        assert 50 <= len(asked) - 2 <= 54
        before = len(asked)
        with tarry.connect(database) as other:
            other.queue(QUEUE).offer("a", 1)
        until(lambda: sum(poll.done() for poll in waiting) == 1)
        until_asleep(app, QUEUE)
        assert len(asked) - before <= 4, "one that got it, one that leads now: it looked, breathed, looked and asked"
        queue.offer_many([tarry.Message(payload=n) for n in range(49)])
        for poll, future in zip(polls, waiting, strict=True):
            assert future.result(PATIENCE_S) is not None
            poll.__exit__(None, None, None)
        assert app.queues.counts(QUEUE).ready.n == 0


def test_cancelled_polls_hold_nothing_and_stand_in_nobodys_way(database: str) -> None:
    async def work() -> None:
        async with tarry.connect_async(database) as app:
            queue = app.queue(QUEUE)
            got: list[str] = []

            async def consume() -> None:
                while delivery := await queue.poll(PATIENCE):
                    got.append(delivery.key)

            tasks = [asyncio.create_task(consume()) for _ in range(20)]
            for n, task in enumerate(tasks):
                await queue.offer(f"k{n}", n)
                if n % 2:
                    task.cancel()
            rest = [task for n, task in enumerate(tasks) if not n % 2]
            while (await app.queues.counts(QUEUE)).ready.n or len(got) < 20:  # noqa: ASYNC110 - asked of the database
                await asyncio.sleep(0.005)
            for task in rest:
                task.cancel()
            await asyncio.wait(tasks)
            assert app.store.lobby.waiting(QUEUE) == 0
            assert (await app.queues.counts(QUEUE)).leased.n == len(got) == 20

    asyncio.run(work())
