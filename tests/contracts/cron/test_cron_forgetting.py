"""The ledger forgets what is long over, and what it has forgotten is not made again. On every store."""

from __future__ import annotations

from typing import Any

import pytest

from tarry import Queue
from tarry.app import App
from tarry.core.cron.model import CronMessage
from tarry.core.errors import InvalidState
from tarry.services.cron._sync.api import Cron
from tests.kit.backends import new_name, where_the_messages_are
from tests.kit.clocks import START, WatchedClock
from tests.kit.cron import scheduler, ticks_of, verdicts
from tests.kit.steps import HOUR, MINUTE, take

pytestmark = where_the_messages_are


def forget_all(app: App, clock: WatchedClock) -> None:
    while app.store.run(app.store.cron.forget_ticks(clock.pinned())):
        pass


class TestForgetting:
    def test_what_is_over_is_forgotten_and_stays_done(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_periodic(name, HOUR, queue=queue.name)
        clock.advance(HOUR)
        scheduler(app).run_once()
        ticks_of(queue)
        clock.advance(HOUR / 2)
        assert app.store.run(app.store.cron.forget_ticks(clock.pinned())) >= 1
        scheduler(app).run_once()
        assert queue.try_poll() is None
        assert [hour for hour, _, _ in verdicts(cron.schedules.history(name))] == [2]

    def test_what_still_lives_or_lies_ahead_is_not_forgotten(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_periodic(name, HOUR, queue=queue.name, in_advance_for=3 * HOUR)
        clock.advance(1.5 * HOUR)
        forget_all(app, clock)
        assert [hour for hour, _, _ in verdicts(cron.schedules.history(name))] == [1, 2, 3]
        assert cron.schedules.get(name).forgotten_until is None

    def test_a_backfill_of_what_was_forgotten_is_refused(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_periodic(name, HOUR, queue=queue.name, misfire="skip")
        for _ in range(3):
            clock.advance(HOUR)
            scheduler(app).run_once()
        assert len(ticks_of(queue)) == 3
        clock.advance(MINUTE)
        forget_all(app, clock)
        clock.advance(3 * HOUR)
        scheduler(app).run_once()  # 04:00 was planned; 05:00 and 06:00 are skipped
        for fill in (cron.schedules.missing, cron.schedules.backfill):
            with pytest.raises(InvalidState, match="which ticks fired is unknown") as error:
                fill(name, START, START + 9 * HOUR)
            assert "03:00:00" in str(error.value)
            assert "start after that" in (error.value.hint or "")
        ticks_of(queue)
        expected = [START + 5 * HOUR, START + 6 * HOUR]
        assert cron.schedules.backfill(name, START + 3.5 * HOUR, START + 9 * HOUR) == expected
        assert ticks_of(queue) == expected
        assert "its entry in the ledger was deleted" in cron.schedules.explain(name, START + HOUR)

    def test_nor_does_another_configuration_reach_it(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_periodic(name, 2 * HOUR, queue=queue.name)
        clock.advance(2 * HOUR)
        ticks_of(queue)
        clock.advance(MINUTE)
        forget_all(app, clock)
        cron.install_periodic(name, HOUR, queue=queue.name)
        with pytest.raises(InvalidState, match="which ticks fired is unknown"):
            cron.schedules.missing(name, START + MINUTE, START + 3 * HOUR)

    def test_a_tick_that_was_done_and_forgotten_is_not_made_by_the_program_that_chose_it(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        done, later = (CronMessage("x", START + n * MINUTE) for n in (10, 20))
        cron.install_tick("h1", name, [done], queue=queue.name)
        clock.advance(15 * MINUTE)
        take(queue).ack()
        forget_all(app, clock)
        assert cron.schedules.history(name) == []
        clock.advance(15 * MINUTE)
        cron.install_tick("h1", name, [done, later], queue=queue.name)
        assert ticks_of(queue) == [later.at]
        assert [record.tick for record in cron.schedules.history(name)] == [later.at]

    def test_another_configuration_has_ticks_of_its_own(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        done = CronMessage("x", START + 10 * MINUTE)
        cron.install_tick("h1", name, [done], queue=queue.name)
        clock.advance(15 * MINUTE)
        take(queue).ack()
        forget_all(app, clock)
        cron.install_tick("h2", name, [done], queue=queue.name)
        assert ticks_of(queue) == [done.at]

    def test_what_waits_since_before_is_still_replaced(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        """A later one was forgotten; itself it is in the ledger, and may be made again with the new payload."""
        cron.install_periodic(name, HOUR, queue=queue.name, payload="old")
        for _ in range(2):
            clock.advance(HOUR)
            scheduler(app).run_once()
        first, second = queue.try_poll_many(2)
        second.ack()
        first.release()
        clock.advance(MINUTE)
        forget_all(app, clock)
        assert cron.schedules.get(name).forgotten_until == START + 2 * HOUR
        cron.install_periodic(name, HOUR, queue=queue.name, payload="new")
        (again,) = queue.try_poll_many(9)
        assert (again.key, again.payload) == (first.key, "new")

    def test_the_ledger_of_a_deleted_queue_is_forgotten(
        self, app: App, cron: Cron, name: str, clock: WatchedClock
    ) -> None:
        own = new_name()
        app.queue(own)
        cron.install_periodic(name, HOUR, queue=own)
        cron.schedules.delete(name)
        app.queues.delete(own, force=True)
        clock.advance(2 * HOUR)
        forget_all(app, clock)
        assert cron.schedules.history(name) == []
