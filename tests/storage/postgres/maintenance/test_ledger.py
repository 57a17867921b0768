"""Forgetting while others forget, and while others plan."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import psycopg

import tarry
from tarry.app import App
from tarry.core.cron.model import CronMessage
from tests.kit.steps import in_background

LONG_AGO = datetime(2024, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def done(app: App, count: int) -> list[CronMessage]:
    """Ticks of long ago, all of them made and finished."""
    messages = [CronMessage(n, LONG_AGO + n * MINUTE) for n in range(count)]
    app.cron().install_tick("h", "p", messages, queue="q")
    for delivery in app.queue("q").try_poll_many(count):
        delivery.ack()
    return messages


def await_blocked(dsn: str, returned: Callable[[], bool]) -> None:
    """Wait until the other call waits for a lock, or has returned."""
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    with psycopg.connect(dsn, autocommit=True) as conn:
        while not returned() and conn.execute(waiting).fetchone() == (0,):
            pass


def test_concurrent_forgetting_skips_locked_ticks_and_waits_for_no_lock(database: str) -> None:
    with tarry.connect(database) as app, psycopg.connect(database) as theirs:
        done(app, 20)
        before = app.store.run(app.store.queues.now()) + MINUTE
        assert app.store.run(app.store.cron.forget_ticks(before), conn=theirs) == 20
        assert (
            app.store.run(app.store.cron.forget_ticks(before)) == 0
        )  # theirs is not committed, and what it holds is left to it
        theirs.rollback()
        assert app.store.run(app.store.cron.forget_ticks(before)) == 20


def test_a_tick_is_not_made_again_by_a_process_that_waited_for_it_to_be_forgotten(database: str) -> None:
    with tarry.connect(database) as app, psycopg.connect(database) as theirs:
        messages = done(app, 3)
        assert (
            app.store.run(app.store.cron.forget_ticks(app.store.run(app.store.queues.now()) + MINUTE), conn=theirs) == 3
        )
        # Its statement begins before the note of what was forgotten is there, and goes on after it.
        with in_background(app.cron().install_tick, "h", "p", messages, queue="q") as installing:
            await_blocked(database, installing.done)
            assert not installing.done()
            theirs.commit()
        assert app.queue("q").try_poll() is None
        assert app.schedules.history("p") == []
