"""Retention of the journal without Spark: whole days that no queue retains, and nothing that a lake lacks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from itertools import count
from time import monotonic
from typing import Any

import psycopg
import pytest

import tarry
from tarry import admin
from tarry.core.journal.positions import GapReason
from tarry.core.maintenance.sweeping import PrunedDay
from tarry.core.settings import QueueSettings, SweeperSettings
from tarry.edges.cli.exit_codes import ExitCode
from tarry.edges.cli.main import main
from tarry.services.sweeper import Sweeper, SweepReport
from tarry.storage.postgres.health import CheckResult
from tarry.testing import MutableClock
from tests.kit.settings import FOR_TESTS

TODAY = datetime.now(UTC).date()
OLD, LATER = TODAY - timedelta(days=45), TODAY - timedelta(days=11)
"""The default retention is 30 days."""


@pytest.fixture
def clock() -> MutableClock:
    return MutableClock(datetime.combine(OLD, time(12), UTC))


@pytest.fixture
def app(database: str, clock: MutableClock) -> Iterator[tarry.App]:
    """With three messages on each of three days."""
    with tarry.connect(database, clock=clock, settings=FOR_TESTS) as app:
        for day in (OLD, LATER, TODAY):
            clock.set(datetime.combine(day, time(12), UTC))
            app.queue("orders").offer_many([tarry.Message(payload=i, key=f"{day}-{i}") for i in range(3)])
        execute(app, "select tarry.journal_partition(%s), tarry.journal_partition(%s)", OLD, LATER)
        yield app


def execute(app: tarry.App, statement: Any, *params: Any) -> list[Any]:
    assert app.dsn is not None
    with psycopg.connect(app.dsn) as conn:
        return conn.execute(statement, params).fetchall()


def days(app: tarry.App) -> list[date]:
    query = "select distinct (at at time zone 'UTC')::date from tarry.event"
    return [day for (day,) in execute(app, query + " order by 1")]


def prune(app: tarry.App) -> list[PrunedDay]:
    while not app.store.run(app.store.rollups.roll_up()).complete:
        pass  # a window of transactions at a time, and earlier tests used any number of them
    return app.store.run(app.store.maintenance.prune_journal())


def test_a_day_goes_when_the_longest_retention_of_all_queues_is_over(app: tarry.App) -> None:
    app.queues.create("audit", QueueSettings(retention_for=timedelta(days=60)))
    assert prune(app) == []
    app.queues.edit("audit", retention_for=timedelta(days=40))
    assert prune(app) == [PrunedDay(OLD, 4)], "three offers, and the queue's creation"
    assert days(app) == [LATER, TODAY]
    assert prune(app) == []
    assert len(app.queue("orders").try_poll_many(10)) == 9, "live messages are no part of the journal"


def test_a_deleted_queue_retains_nothing_once_its_last_event_is_old(app: tarry.App, clock: MutableClock) -> None:
    first = TODAY - timedelta(days=70)
    clock.set(datetime.combine(first, time(12), UTC))
    app.queues.create("audit", QueueSettings(retention_for=timedelta(days=60)))
    app.queues.delete("audit")
    clock.set(datetime.combine(TODAY, time(12), UTC))
    assert [day.day for day in prune(app)] == [first, OLD]


def test_today_is_kept_whatever_the_retention(app: tarry.App) -> None:
    app.queues.edit("orders", retention_for=timedelta(0))
    assert [day.day for day in prune(app)] == [OLD, LATER]
    assert days(app) == [TODAY]


def test_a_day_in_the_overflow_goes_too(app: tarry.App, clock: MutableClock) -> None:
    clock.set(datetime.combine(OLD - timedelta(days=1), time(12), UTC))
    app.queue("orders").offer("earlier", 1)
    clock.set(datetime.combine(TODAY, time(12), UTC))
    assert prune(app) == [PrunedDay(OLD - timedelta(days=1), 1), PrunedDay(OLD, 4)]


def test_a_reader_that_had_not_read_the_day_learns_of_the_gap(database: str, clock: MutableClock) -> None:
    with tarry.connect(database, clock=clock, settings=FOR_TESTS) as app:
        app.queues.create("orders")
        tail = app.store.journal.tail
        before = app.store.run(tail(None)).position
        app.queue("orders").offer("a", 1)
        execute(app, "select tarry.journal_partition(%s)", OLD)
        after = app.store.run(tail(None)).position
        clock.set(datetime.combine(TODAY, time(12), UTC))
        assert [day.day for day in prune(app)] == [OLD]
        assert app.store.run(tail(before)).gap is GapReason.PRUNED
        assert app.store.run(tail(after)).gap is None


def test_an_open_reader_of_the_day_delays_it(app: tarry.App) -> None:
    assert app.dsn is not None
    with psycopg.connect(app.dsn) as reader:
        reader.execute("select count(*) from tarry.event where at < now() - interval '20 days'")
        assert prune(app) == [PrunedDay(OLD, why="it is being read or written")]
    assert prune(app) == [PrunedDay(OLD, 4)]


def sweep(database: str, clock: MutableClock, timer: Callable[[], float] = monotonic) -> SweepReport:
    async def run() -> SweepReport:
        async with tarry.connect_async(database, clock=clock) as awaiting:
            sweeper = Sweeper(awaiting.store, SweeperSettings(lead_for=timedelta(hours=1)), timer=timer)
            report = await sweeper.run_once()
            await sweeper.resign()
            return report

    return asyncio.run(run())


@pytest.mark.usefixtures("app")
def test_a_sweeper_prunes_nothing_before_all_events_are_in_the_rollups(database: str, clock: MutableClock) -> None:
    slow = count(0.0, 10.0)  # each step seems to take longer than `work_for`
    report = sweep(database, clock, lambda: next(slow))
    kept = PrunedDay(OLD, why="its events are not all in the rollups yet")
    assert (report.leading, report.rolled_up, report.pruned) == (True, 0, [kept])
    assert sweep(database, clock).pruned == [PrunedDay(OLD, 4)]


def test_the_command_rolls_up_before_it_prunes(app: tarry.App, database: str) -> None:
    """Also events of a transaction that was running when the rollups passed it."""
    with psycopg.connect(database) as late:
        late.execute(
            "insert into tarry.event select (jsonb_populate_record(e, jsonb_build_object('id', -1, 'xid',"
            " pg_current_xact_id()::text))).* from tarry.event e where e.at < %s and kind = 'offered' limit 1",
            (LATER,),
        )
        app.store.run(app.store.rollups.roll_up())
        late.commit()
    kept = PrunedDay(OLD, why="its events are not all in the rollups yet")
    assert app.store.run(app.store.maintenance.prune_journal()) == [kept]
    assert main(["--dsn", database, "journal", "prune", "-q"]) == ExitCode.OK
    assert days(app) == [LATER, TODAY]
    assert execute(app, "select sum(offered) from tarry.rollup where width = 3600 and queue > 0") == [(10,)]


@pytest.mark.usefixtures("app")
def test_the_sweeper_prunes(database: str, clock: MutableClock) -> None:
    report = sweep(database, clock)
    assert report.pruned == [PrunedDay(OLD, 4)]
    assert report.days_pruned == 1
    assert report.did_something


def test_a_forgotten_lake_is_reported_and_can_be_abandoned(
    app: tarry.App, database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def check() -> CheckResult:
        return next(result for result in admin.diagnose(database) if result.check == "journal retention")

    def abandon(lake: str, *options: str) -> tuple[int, str]:
        return main(["--dsn", database, "pipeline", "abandon", lake, *options]), capsys.readouterr().err

    assert not check().warning
    with psycopg.connect(database) as conn:
        conn.execute(
            "insert into tarry.archive_batch (batch, lake, kind, position, state, system_id, from_edge, to_edge, durable_at) "
            "values (1, '/old', 'archive', 1, 'durable', 's', '{}', '{}', '2026-01-02 03:04Z'), "
            "(2, '/never', 'archive', 2, 'planned', 's', '{}', '{}', null)"
        )
        conn.execute(
            "insert into tarry.archive_day (lake, day, rows, pruned_rows, pruned_xid) values ('/old', %s, 6, 5, '3')",
            (OLD - timedelta(days=1),),
        )
    assert prune(app) == []
    assert check().warning
    assert check().actual == (
        "days that no queue retains: 1, kept for /never (last archived never), /old (last archived 2026-01-02 03:04 UTC)"
    )
    manifest = app.pipeline.manifest
    for job, lock in (("archive", "lake /old"), ("metrics", "metrics /old")):
        with manifest.run(job, exclusive=lock, lake="/old"):
            code, error = abandon("/old", "--yes")
            assert (code, "wait until it has finished" in error) == (ExitCode.CONFLICT, True), error
    assert abandon("/old")[0] == ExitCode.USAGE, "there is no terminal to confirm it on"
    assert prune(app) == []
    assert [abandon(lake, "--yes")[0] for lake in ("/old", "/never", "/old")] == [0, 0, ExitCode.NOT_FOUND]
    assert not check().warning
    assert prune(app) == [PrunedDay(OLD, 4)]
    pruned = execute(app, "select lake, day, pruned_rows from tarry.archive_day order by day")
    assert pruned == [("", OLD - timedelta(days=1), 5), ("", OLD, 4)], "a reader still learns of the gap"
