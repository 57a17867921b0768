"""Rollups: every event counts once, in the slice of its time, of each width."""

from __future__ import annotations

from typing import Any

from tarry import Queue, QueueSettings
from tarry.app import App
from tarry.core.journal.events import JournalLevel
from tarry.core.rollups.model import Measure, QueueSlice, RollupWindow, Standing, quantile, summed
from tests.kit.backends import where_the_messages_are
from tests.kit.clocks import START, WatchedClock
from tests.kit.steps import HOUR, MINUTE, SECOND, roll_up, take

pytestmark = where_the_messages_are


def slices(app: App, queue: Queue[Any], width: Any = MINUTE) -> list[QueueSlice]:
    roll_up(app)
    window = RollupWindow(width, START - HOUR, START + 3 * HOUR, queue.name)
    return app.store.run(app.store.rollups.slices(window))


def standing(app: App, queue: Queue[Any]) -> Standing:
    roll_up(app)
    return next(row for row in app.store.run(app.store.rollups.standings()) if row.queue == queue.name)


class TestSlices:
    def test_an_event_counts_in_the_slice_of_its_time(self, app: App, queue: Queue[Any], clock: WatchedClock) -> None:
        queue.offer("a", 1)
        clock.advance(MINUTE)
        take(queue).ack()
        first, second = slices(app, queue)
        assert (first.offered, first.leased, first.acked, first.live_delta) == (1, 0, 0, 1)
        assert (second.offered, second.leased, second.acked, second.live_delta) == (0, 1, 1, -1)
        assert second.start_at - first.start_at == MINUTE

    def test_no_event_counts_twice(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        assert slices(app, queue)[0].offered == 1
        queue.offer("b", 1)
        for _ in range(3):
            assert slices(app, queue)[0].offered == 2

    def test_wide_slices_have_the_sums_of_narrow_ones(self, app: App, queue: Queue[Any], clock: WatchedClock) -> None:
        for key in "abc":
            queue.offer(key, 1)
            clock.advance(5 * MINUTE)
        for width in (10 * SECOND, MINUTE, 10 * MINUTE, HOUR):
            assert sum(row.offered for row in slices(app, queue, width)) == 3
        assert len(slices(app, queue, HOUR)) == 1

    def test_dead_letters_come_and_go(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        take(queue).bury("broken")
        assert (standing(app, queue).live_total, standing(app, queue).dead_total) == (0, 1)
        queue.dead_letters.redrive()
        assert (standing(app, queue).live_total, standing(app, queue).dead_total) == (1, 0)
        row = slices(app, queue)[0]
        assert (row.buried, row.redriven, row.live_delta, row.dead_delta) == (1, 1, 1, 0)


class TestTimes:
    def test_the_lag_of_a_first_delivery_is_measured_from_when_it_was_due(
        self, app: App, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        queue.offer("a", 1, after=10 * MINUTE)
        clock.advance(10 * MINUTE + 4 * SECOND)
        take(queue)
        roll_up(app)
        rows = app.store.run(
            app.store.rollups.times(Measure.LAG, RollupWindow(MINUTE, START, START + HOUR, queue.name))
        )
        lag = quantile(summed(rows), 0.95)
        assert lag is not None
        assert 4.0 <= lag < 4.8

    def test_work_is_measured_from_the_lease_to_the_ack(self, app: App, queue: Queue[Any], clock: WatchedClock) -> None:
        queue.offer("a", 1)
        delivery = take(queue)
        clock.advance(2 * SECOND)
        delivery.ack()
        roll_up(app)
        window = RollupWindow(MINUTE, START, START + HOUR, queue.name)
        rows = app.store.run(app.store.rollups.times(Measure.WORK, window))
        work = quantile(summed(rows), 0.5)
        assert work is not None
        assert 2.0 <= work < 2.4
        (consumer,) = app.store.run(app.store.rollups.consumers(window))
        assert (consumer.consumer, consumer.leased, consumer.acked, round(consumer.work_s, 3)) == ("tester", 1, 1, 2.0)


class TestSums:
    def test_slices_and_times_are_summed_over_named_queues(
        self, app: App, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        for name in ("", "-other", "-third"):
            own = app.queue(f"{queue.name}{name}")
            own.offer("a", 1)
            own.offer("b", 1)
        clock.advance(2 * SECOND)
        for name in ("", "-other", "-third"):
            take(app.queue(f"{queue.name}{name}"))
        roll_up(app)
        names, window = [queue.name, f"{queue.name}-other"], RollupWindow(MINUTE, START - HOUR, START + HOUR)
        (row,) = app.store.run(app.store.rollups.slices(window, sum_of=names))
        assert (row.queue, row.offered, row.leased, row.live_delta) == ("", 4, 2, 4)
        (bucket,) = app.store.run(app.store.rollups.times(Measure.LAG, window, sum_of=names))
        assert (bucket.queue, bucket.start_at, bucket.n) == ("", row.start_at, 2)
        assert app.store.run(app.store.rollups.slices(window, sum_of=[])) == []

    def test_the_times_of_a_whole_window_are_one_histogram(
        self, app: App, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        for key in "abc":
            queue.offer(key, 1)
            clock.advance(2 * SECOND)
            take(queue).ack()
            clock.advance(MINUTE)
        roll_up(app)
        since = START - HOUR
        rows = app.store.run(
            app.store.rollups.times(Measure.LAG, RollupWindow(MINUTE, since, START + HOUR, queue.name), whole=True)
        )
        assert [(row.queue, row.start_at, row.n) for row in rows] == [(queue.name, since, 3)]


class TestStandings:
    def test_a_queue_has_its_counts_and_its_exact_totals(
        self, app: App, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        queue.offer("due", 1)
        queue.offer("later", 1, after=HOUR)
        queue.offer("held", 1, priority=0)
        clock.advance(SECOND)
        take(queue)
        row = standing(app, queue)
        assert (row.counts.delayed.n, row.counts.ready.n, row.counts.leased.n, row.counts.dead.n) == (1, 1, 1, 0)
        assert row.counts.lag_for == SECOND
        assert (row.live_total, row.dead_total) == (3, 0)

    def test_counts_stop_at_their_limit_and_totals_do_not(self, app: App, queue: Queue[Any]) -> None:
        for number in range(5):
            queue.offer(f"k{number}", 1)
        standing(app, queue)
        rows = app.store.run(app.store.rollups.standings(limit=3))
        row = next(row for row in rows if row.queue == queue.name)
        assert str(row.counts.ready) == "3+"
        assert row.live_total == 5

    def test_one_queue_is_counted_alone(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("k", 1)
        app.queue(f"{queue.name}-other").offer("k", 1)
        assert standing(app, queue).queue == queue.name
        assert [row.queue for row in app.store.run(app.store.rollups.standings(queue=queue.name))] == [queue.name]
        assert app.store.run(app.store.rollups.standings(queue="no-such-queue")) == []

    def test_messages_due_ahead_are_counted_by_slice(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1, after=MINUTE)
        queue.offer("b", 1, after=MINUTE + SECOND)
        queue.offer("c", 1, after=2 * HOUR)
        due = app.store.run(app.store.rollups.due_ahead(START, START + HOUR, MINUTE, queue=queue.name))
        assert [(row.messages, row.start_at - START) for row in due] == [(2, MINUTE)]


def test_a_queue_without_a_journal_has_no_totals(app: App, queue: Queue[Any]) -> None:
    app.queues.create(f"{queue.name}-off", QueueSettings(journal=JournalLevel.OFF))
    silent = app.queue(f"{queue.name}-off")
    silent.offer("a", 1)
    row = standing(app, silent)
    assert row.counts.ready.n == 1
    assert (row.live_total, row.dead_total) == (None, None)
