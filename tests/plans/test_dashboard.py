"""What pages of the dashboard read is bounded, however much there is: the rows that a statement scans, and the number of
statements."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import psycopg
import pytest

import tarry
from tarry.core.analytics.port import AnalyticsQuery
from tarry.core.journal.events import EventKind
from tarry.core.messages.states import State
from tarry.core.rollups.model import WIDTHS, RollupWindow
from tarry.core.search.query import Period, Search
from tarry.storage.postgres._sync.runner import drive
from tarry.storage.postgres.connections import configure
from tarry.storage.postgres.journal import recent
from tarry.storage.postgres.rollups.role import PostgresRollups
from tarry.storage.postgres.search.role import STEP, PostgresSearch
from tarry.storage.postgres.statement import Copy, Op, Statement, bind
from tests.plans.explaining import Plan, fresh

MESSAGES = 20_000
"""More than any statement may scan."""


class Seen(NamedTuple):
    """What an operation returned, and its statements."""

    result: Any
    statements: list[Statement[Any]]


class Scene(NamedTuple):
    app: tarry.App
    conn: psycopg.Connection[Any]
    now: datetime

    def run(self, operation: Any) -> Seen:
        return self.drive(operation.start(True))

    def drive(self, op: Op[Any]) -> Seen:
        statements: list[Statement[Any]] = []

        def noted() -> Op[Any]:
            rows: Any = None
            while True:
                try:
                    step = op.send(rows)
                except StopIteration as stop:
                    return stop.value
                assert not isinstance(step, Copy)
                statements.append(step)
                rows = yield step

        with self.conn.transaction():
            return Seen(drive(self.conn, noted()), statements)

    def plans(self, operation: Any) -> list[Plan]:
        return [fresh(self.conn, statement, run=True) for statement in self.run(operation).statements]

    @property
    def search(self) -> PostgresSearch:
        return self.app.store.search  # pyright: ignore[reportReturnType]

    @property
    def rollups(self) -> PostgresRollups:
        return self.app.store.rollups  # pyright: ignore[reportReturnType]


@pytest.fixture(scope="module")
def scene(server: Any) -> Iterator[Scene]:
    """One queue with many messages, half of them due, in two priorities; their events are in a few large transactions."""
    dsn = server.new_database()
    with tarry.connect(dsn) as app, psycopg.connect(dsn, autocommit=True) as conn:
        configure(conn)
        queue = app.queue("many")
        for first in range(0, MESSAGES, 2_500):
            delays = [timedelta(minutes=n) if n % 2 else timedelta(0) for n in range(2_500)]
            queue.offer_many(
                [
                    tarry.Message(key=f"{first + n}", payload=n, after=delay, priority=n % 4 // 2)
                    for n, delay in enumerate(delays)
                ]
            )
        while not app.store.run(app.store.rollups.roll_up()).complete:
            pass
        conn.execute("vacuum (analyze) tarry.message, tarry.event")
        yield Scene(app, conn, app.store.run(app.store.queues.now()))


@pytest.mark.parametrize("limit", [100, 1_000])
def test_the_counts_of_queues_scan_no_more_than_they_count(scene: Scene, limit: int) -> None:
    (plan,) = scene.plans(scene.rollups.standings(limit=limit))
    assert plan.ways() == {"message_order"}
    assert {node.kind for node in plan.scans()} == {"Index Scan"}, "a bitmap has all messages of a queue"
    assert plan.rows() <= 2 * 2 * limit + 10


def test_a_sample_of_the_states_scans_no_more_than_it_counts(scene: Scene) -> None:
    later = scene.now + timedelta(hours=1)  # a slice that has no sample yet
    plan = fresh(scene.conn, bind("rollups/sample", now=later, limit=1_000, least=100), run=True)
    assert 100 < plan.rows() <= 2 * 2 * 1_000 + 100


def test_the_counts_of_one_queue_scan_no_more_than_they_count(scene: Scene) -> None:
    (plan,) = scene.plans(scene.app.store.queues.counts("many", limit=500))
    assert {node.kind for node in plan.scans()} == {"Index Scan"}
    assert plan.rows() <= 2 * 2 * 500 + 10


def test_a_full_page_of_a_search_is_one_short_scan(scene: Scene) -> None:
    (plan,) = scene.plans(scene.search.messages(Search(), ["many"], limit=50))
    assert plan.ways() == {"message_order", "message_key"}
    assert plan.rows() <= 2 * STEP + 2 * 50


def test_a_search_for_what_is_due_later_does_not_read_what_is_due_before(scene: Scene) -> None:
    """The index is read from the lower bound on, not from the first message of the queue."""
    later = Search(state=State.DELAYED, due=Period(scene.now + timedelta(minutes=2_490), None))
    (plan,) = scene.plans(scene.search.messages(later, ["many"], limit=10))
    assert 0 < plan.rows() <= 100
    assert plan.buffers <= 2 * plan.rows() + 100


def test_a_search_that_finds_nothing_goes_on_in_short_scans(scene: Scene) -> None:
    seen = scene.run(scene.search.messages(Search(error="none"), ["many"], limit=50))
    assert 2 <= len(seen.statements) <= 6
    assert seen.result.scanned >= 10_000
    assert max(fresh(scene.conn, statement, run=True).rows() for statement in seen.statements) <= 3 * STEP


def test_messages_that_come_due_are_counted_within_a_bound(scene: Scene) -> None:
    day = timedelta(days=30)
    (plan,) = scene.plans(scene.rollups.due_ahead(scene.now, scene.now + day, timedelta(hours=1), limit=1_000))
    assert plan.rows() <= 2 * 1_000 + 10


def test_what_a_chart_needs_is_summed_in_the_database(scene: Scene) -> None:
    """One row per point, or one histogram, of any number of queues and slices."""
    window = RollupWindow(next(iter(WIDTHS)), scene.now - timedelta(minutes=10), scene.now + timedelta(minutes=1))
    for name in ("other", "third"):
        scene.app.queue(name).offer("k", 1)
        scene.app.queue(name).try_poll()
    scene.app.store.run(scene.app.store.rollups.roll_up())
    names = ["many", "other", "third"]
    rows = scene.run(scene.rollups.slices(window, sum_of=names)).result
    assert len({row.start_at for row in rows}) == len(rows)
    assert sum(row.offered for row in rows) == MESSAGES + 2


class TestTheJournal:
    def test_large_transactions_are_read_in_short_scans(self, scene: Scene) -> None:
        seen = scene.drive(recent.look_back(AnalyticsQuery(limit=10), kinds=[EventKind.NACKED]))
        scans = [statement for statement in seen.statements if "most" in statement.params]
        assert seen.result.rows == []
        assert all(statement.params["most"] in (None, 2 * recent.STEP) for statement in scans)
        assert all(self._events(scene, statement) <= 2 * recent.STEP + 1 for statement in scans)

    def test_transactions_without_events_are_skipped(self, scene: Scene) -> None:
        for _ in range(300):
            scene.conn.execute("select pg_current_xact_id()")
        # One event: how many scans more of them take depends on the tests before this one.
        seen = scene.drive(recent.look_back(AnalyticsQuery(limit=1)))
        assert len(seen.result.rows) == 1
        scans = [statement for statement in seen.statements if "most" in statement.params]
        assert len(scans) <= 3, "none of them for nothing, but the first"
        assert len(seen.statements) <= 8, "the rollups name the last transaction"

    @staticmethod
    def _events(scene: Scene, statement: Statement[Any]) -> int:
        again = bind("journal/recent", list[Any], **statement.params)
        return scene.drive(again.run()).result[0].looked
