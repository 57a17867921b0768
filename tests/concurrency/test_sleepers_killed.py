"""Real processes that sleep for a message, killed while they do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta

import psycopg

from tarry.app import App
from tarry.core.settings import StoreSettings
from tarry.storage.postgres._sync.store import PostgresStore
from tests.kit.sleepers import until
from tests.kit.steps import TIMEOUT, TIMEOUT_S, in_background

QUEUE = "q"
SCAN = timedelta(seconds=2)
GRACE = timedelta(seconds=1)
"""How long a sleeper is woken after its time: it may have looked, and not announced its next sleep yet (offer.sql)."""
SLEEPER = """
import sys
from datetime import timedelta
import tarry
from tarry.core.settings import StoreSettings
settings = StoreSettings(listening_scan_every=timedelta(seconds=2))
with tarry.connect(sys.argv[1], settings=settings) as app:
    app.queue("q").poll(timedelta(minutes=2))
    print("it got the message", flush=True)
"""


def sleepers(dsn: str) -> set[str]:
    return rung_for(dsn, timedelta(0))


def rung_for(dsn: str, grace: timedelta) -> set[str]:
    """Processes that are woken for a message due at once, with `grace` after their own wakeup time."""
    with psycopg.connect(dsn) as conn:
        asleep = conn.execute("select process from tarry.waiter where wakes_at + %s > clock_timestamp()", [grace])
        return {sleeper for (sleeper,) in asleep}


def wait_for_the_head(dsn: str) -> int:
    """How many sleep for exactly the time at which the message is due."""
    with psycopg.connect(dsn) as conn:
        row = conn.execute(
            "select count(*) from tarry.waiter w join tarry.message m on w.wakes_at = m.due_at"
        ).fetchone()
    assert row is not None
    return row[0]


def test_when_one_that_sleeps_for_the_head_is_killed_another_delivers_within_one_scan(database: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", SLEEPER, database], stdout=subprocess.PIPE)
    try:
        store = PostgresStore(database, settings=StoreSettings(listening_scan_every=SCAN))
        with App(store, dsn=database) as app, in_background(app.queue(QUEUE).poll, TIMEOUT) as waiting:
            until(
                lambda: any(f":{process.pid}:" in sleeper for sleeper in sleepers(database)), "it never went to sleep"
            )
            until(lambda: len(sleepers(database)) == 2, "we never went to sleep")
            app.queue(QUEUE).offer("a", 1, after=timedelta(seconds=3))
            until(lambda: wait_for_the_head(database) == 2, "they were not notified")
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            delivery = waiting.result(TIMEOUT_S)
            assert delivery.attempt == 1
            assert timedelta(0) <= delivery.leased_at - delivery.due_at <= SCAN
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        assert process.stdout.read() == b"", "it was meant to be dead by then"
        process.stdout.close()


def test_the_dead_are_rung_for_until_their_time_is_over_and_no_longer(database: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", SLEEPER, database])
    with App(PostgresStore(database), dsn=database) as app, psycopg.connect(database, autocommit=True) as listener:
        until(lambda: any(f":{process.pid}:" in sleeper for sleeper in sleepers(database)), "it never went to sleep")
        process.kill()
        process.wait()
        until(lambda: not rung_for(database, GRACE), "its promise never lapsed")
        listener.execute("listen tarry")
        started = time.monotonic()
        app.queue(QUEUE).offer("a", 1)
        listener.execute("select pg_notify('tarry', 'marker')")
        payloads = [notification.payload for notification in listener.notifies(timeout=30, stop_after=1)]
        assert payloads == ["marker"]
        assert time.monotonic() - started < 30
