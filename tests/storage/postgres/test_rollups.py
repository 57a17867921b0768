"""Rollups on PostgreSQL: exact while transactions overlap, and old slices go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

import tarry
from tarry.core.limits import PURGE_CONFIRMATION
from tarry.core.rollups.model import WIDTHS, DepthSlice, Measure, RollupWindow, summed
from tarry.services.sweeper import Sweeper
from tarry.storage.postgres.rollups import role
from tests.kit.clocks import START, WatchedClock
from tests.kit.steps import HOUR, MINUTE, SECOND, roll_up


def offered(app: tarry.App) -> int:
    roll_up(app)
    now = app.store.run(app.store.queues.now())
    window = RollupWindow(MINUTE, now - 60 * MINUTE, now + MINUTE)
    return sum(row.offered for row in app.store.run(app.store.rollups.slices(window)))


def test_a_transaction_that_commits_late_counts_once(database: str) -> None:
    with tarry.connect(database) as app, psycopg.connect(database) as late:
        queue = app.queue("orders")
        queue.offer("before", 1)
        queue.offer("late", 1, conn=late)
        queue.offer("after", 1)
        assert offered(app) == 2, "the open transaction is not counted yet"
        late.commit()
        assert offered(app) == 3
        assert offered(app) == 3


def test_the_sums_over_all_queues_are_those_of_its_queues(database: str) -> None:
    with tarry.connect(database) as app:
        for _ in range(2):  # the second time adds to the histograms of the first
            for name in ("orders", "mails"):
                app.queue(name).offer(None, 1)
                app.queue(name).try_poll()
            roll_up(app)
        now = app.store.run(app.store.queues.now())
        window, rollups = RollupWindow(60 * MINUTE, now - 60 * MINUTE, now + MINUTE), app.store.rollups
        own = app.store.run(rollups.times(Measure.LAG, window, whole=True))
        all_queues = app.store.run(rollups.times(Measure.LAG, window, sum_of=["orders", "mails"], whole=True))
        assert summed(all_queues) == summed(own)
        assert sum(row.n for row in own) == 4
        for names, offered in ((["orders", "mails"], 4), (["orders"], 2), ([], 0)):
            rows = app.store.run(rollups.slices(window, sum_of=names))
            assert (sum(row.offered for row in rows), {row.queue for row in rows} <= {""}) == (offered, True)


def test_only_one_process_adds_at_a_time_and_others_do_not_wait(database: str) -> None:
    with tarry.connect(database) as app, psycopg.connect(database) as other:
        app.queue("orders").offer("a", 1)
        other.execute("select from tarry.rollup_head for update")
        assert app.store.run(app.store.rollups.roll_up()) == (0, True)
        other.rollback()
        assert offered(app) == 1


@pytest.fixture
def small_windows(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two transactions, from now on: the database is a copy that may be many thousands behind."""
    with tarry.connect(database) as app:
        roll_up(app)
    monkeypatch.setattr(role, "WINDOW", 2)


@pytest.mark.usefixtures("small_windows")
def test_a_long_absence_is_caught_up_in_windows(database: str) -> None:
    with tarry.connect(database) as app:
        for number in range(10):
            app.queue("orders").offer(f"k{number}", 1)
        steps = 1
        while not app.store.run(app.store.rollups.roll_up()).complete:
            steps += 1
        assert steps > 3
        assert offered(app) == 10
        (row,) = app.store.run(app.store.rollups.standings())
        assert row.live_total == 10


@pytest.mark.usefixtures("small_windows")
def test_a_sweeper_catches_up_through_windows_without_events(database: str) -> None:
    """Transaction ids belong to the cluster: other databases use them up, too."""
    with psycopg.connect(database, autocommit=True) as other:
        for _ in range(20):
            other.execute("select pg_current_xact_id()")

    async def swept() -> int:
        async with tarry.connect_async(database) as app:
            await app.queue("orders").offer("a", 1)
            return (await Sweeper(app.store, holder="test").run_once()).rolled_up

    assert asyncio.run(swept()) == 2, "the queue was created and the message offered"


def test_a_restored_database_begins_anew(database: str) -> None:
    with tarry.connect(database) as app, psycopg.connect(database, autocommit=True) as admin:
        admin.execute("update tarry.rollup_head set snapshot = '9000000000:9000000000:'")
        assert app.store.run(app.store.rollups.roll_up()).complete
        app.queue("orders").offer("a", 1)
        assert offered(app) == 1


def test_old_slices_are_deleted_by_their_width(database: str) -> None:
    def widths(admin: psycopg.Connection[Any]) -> set[int]:
        return {row[0] for row in admin.execute("select distinct width from tarry.rollup").fetchall()}

    with tarry.connect(database) as app, psycopg.connect(database, autocommit=True) as admin:
        app.queue("orders").offer("a", 1)
        assert offered(app) == 1
        assert widths(admin) == {int(width.total_seconds()) for width in WIDTHS}
        admin.execute("update tarry.rollup set start_at = start_at - interval '3 days'")
        while app.store.run(app.store.rollups.forget()):
            pass
        assert widths(admin) == {600, 3600}


class TestDepths:
    """Messages by state, at the ends of slices."""

    @pytest.fixture
    def clock(self) -> WatchedClock:
        return WatchedClock(START + 5 * SECOND)

    @pytest.fixture
    def app(self, database: str, clock: WatchedClock) -> Iterator[tarry.App]:
        with tarry.connect(database, clock=clock) as app:
            yield app

    def depths(self, app: tarry.App, width: timedelta, *queues: str) -> list[DepthSlice]:
        roll_up(app)
        window = RollupWindow(width, START - 2 * HOUR, START + 2 * HOUR)
        return app.store.run(app.store.rollups.depths(window, queues))

    def test_they_are_sampled_once_soon_after_the_end_of_a_slice(self, app: tarry.App, clock: WatchedClock) -> None:
        orders, mails = app.queue("orders"), app.queue("mails")
        for key in ("taken", "ready", "ready, too"):
            orders.offer(key, 1)
        orders.offer("later", 1, after=HOUR)
        orders.try_poll()
        mails.offer("ready", 1)
        for width in WIDTHS:
            assert self.depths(app, width, "orders") == [DepthSlice(START - width, 1, 2, 1)]
            assert self.depths(app, width, "orders", "mails") == [DepthSlice(START - width, 1, 3, 1)]
        clock.advance(10 * SECOND)
        mails.purge(PURGE_CONFIRMATION)
        assert self.depths(app, 10 * SECOND, "mails")[1:] == [DepthSlice(START, 0, 0, 0)]
        assert len(self.depths(app, MINUTE, "mails")) == 1, "its slice goes on"
        clock.advance(11 * MINUTE)
        assert len(self.depths(app, 10 * SECOND, "mails")) == 3
        assert len(self.depths(app, 10 * MINUTE, "mails")) == 1, "a sample would be of another time"

    def test_what_is_too_much_to_count_follows_from_the_total(
        self, app: tarry.App, clock: WatchedClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(role, "SAMPLED", 2)
        monkeypatch.setattr(role, "LEAST_DUE_COUNTED", 2)
        orders = app.queue("orders")
        orders.offer_many([tarry.Message(key=f"ready-{n}", payload=n) for n in range(5)])
        orders.offer("later-0", 1, after=HOUR)
        assert self.depths(app, MINUTE, "orders") == [DepthSlice(START - MINUTE, 1, 5, 0)]
        orders.offer("later-1", 1, after=HOUR)
        clock.advance(MINUTE)
        assert self.depths(app, MINUTE, "orders")[1:] == [DepthSlice(START, None, None, 0)]


def test_the_head_moves_on(database: str) -> None:
    with tarry.connect(database) as app, psycopg.connect(database, autocommit=True) as admin:

        def moved_at() -> datetime:
            row = admin.execute("select at from tarry.rollup_head").fetchone()
            assert row is not None
            return row[0]

        before = moved_at()
        offered(app)
        assert moved_at() > before
