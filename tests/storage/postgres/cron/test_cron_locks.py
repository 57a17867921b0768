"""Cron beside transactions that other clients leave open: a locked row is left out or waited for, and never misreported."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import LiteralString

import psycopg
import pytest

from tarry.app import App
from tarry.core.cron.model import CronMessage
from tarry.services.cron._sync.scheduler import Scheduler
from tarry.storage.postgres._sync.store import PostgresStore
from tests.kit.clocks import START, WatchedClock
from tests.kit.cron import ticks_of, verdicts
from tests.kit.steps import HOUR, MINUTE, TIMEOUT_S, in_background, take

BLOCKED = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"


@pytest.fixture
def clock() -> WatchedClock:
    clock = WatchedClock()
    clock.set(START)
    return clock


@pytest.fixture
def app(database: str, clock: WatchedClock) -> Iterator[App]:
    with App(PostgresStore(database, clock=clock), dsn=database) as app:
        yield app


def await_row(dsn: str, sql: LiteralString) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    with psycopg.connect(dsn, autocommit=True) as conn:
        while conn.execute(sql).fetchone() is None:
            assert time.monotonic() < deadline, f"no row: {sql}"


def test_a_tick_that_was_leased_and_released_while_its_withdrawal_waited_does_not_fire(app: App, database: str) -> None:
    cron, queue = app.cron(), app.queue("q")
    cron.install_tick("h", "p", [CronMessage(n, START - n * MINUTE) for n in (2, 1)], queue="q")
    first, second = (record.key or "" for record in reversed(app.schedules.history("p")))
    with psycopg.connect(database) as other:
        other.execute("select from tarry.message where key = %s for update", (first,))
        with in_background(app.schedules.delete, "p") as deleting:
            await_row(database, BLOCKED)
            delivery = take(queue)  # the first one is locked
            assert delivery.key == second
            delivery.release()
            other.rollback()
        assert deleting.result()
    assert queue.try_poll() is None
    assert {record.verdict.value for record in app.schedules.history("p")} == {"withdrawn"}
    for key in (first, second):
        assert app.store.run(app.store.journal.timeline("q", key))[-1].kind.value == "cron_replaced"


def test_a_tick_that_was_leased_while_its_withdrawal_waited_is_not_recorded_as_withdrawn(
    app: App, database: str
) -> None:
    cron, queue = app.cron(), app.queue("q")
    cron.install_tick("h", "p", [CronMessage(n, START - n * MINUTE) for n in (2, 1)], queue="q")
    first, second = (record.key or "" for record in reversed(app.schedules.history("p")))
    with psycopg.connect(database) as other:
        other.execute("select from tarry.message where key = %s for update", (first,))
        with in_background(app.schedules.delete, "p"):
            await_row(database, BLOCKED)
            delivery = take(queue)
            other.rollback()
    assert delivery.key == second
    assert sorted((record.key, record.verdict.value) for record in app.schedules.history("p")) == [
        (first, "withdrawn"),
        (second, "planned"),
    ]
    assert delivery.ack().value == "done"


def test_a_schedule_in_an_open_transaction_does_not_delay_the_planning_of_others(
    app: App, database: str, clock: WatchedClock
) -> None:
    cron = app.cron()
    for name in ("a", "b", "c"):
        cron.install_periodic(name, HOUR, queue=name)
    clock.advance(HOUR)
    with psycopg.connect(database) as other:
        app.schedules.pause("b", conn=other)
        with in_background(Scheduler(app.store).run_once) as running:
            ran = running.result(TIMEOUT_S)
        assert (ran.planned, ran.outrun, ran.failed) == (2, 1, {})
        other.rollback()
    assert Scheduler(app.store).run_once().planned == 1
    clock.advance(HOUR)
    for name in ("a", "b", "c"):
        assert ticks_of(app.queue(name)) == [START + HOUR, START + 2 * HOUR]


def test_locked_schedules_do_not_take_the_places_of_others(
    app: App, database: str, clock: WatchedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.services.cron._sync.scheduler.AT_ONCE", 2)
    for n in range(6):
        app.cron().install_periodic(f"p{n}", HOUR, queue="q")
    clock.advance(HOUR)
    with psycopg.connect(database) as other:
        other.execute("select from tarry.schedule where name <> 'p5' for update")
        scheduler = Scheduler(app.store)
        for _ in range(4):
            scheduler.cycle()
        assert verdicts(app.schedules.history("p5"))[-1] == (2, "planned", "on_time")
        other.rollback()


def test_a_run_by_hand_waits_for_a_schedule_in_an_open_transaction(app: App, database: str) -> None:
    app.cron().install_periodic("p", HOUR, queue="q")
    with psycopg.connect(database) as other:
        other.execute("select from tarry.schedule for update")
        with in_background(app.schedules.trigger, "p") as triggering:
            await_row(database, BLOCKED)
            other.rollback()
        assert triggering.result() - START < MINUTE
