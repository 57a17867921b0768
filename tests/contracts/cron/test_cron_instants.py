"""An instant is one tick of a schedule, whatever its configuration was: made once, also when the clock is set back across it
after a change; and not lost when it waits while the schedule is changed. On every store."""

from __future__ import annotations

from typing import Any

import pytest

from tarry import Queue
from tarry.app import App
from tarry.services.cron._sync.api import Cron
from tests.kit.clocks import START, WatchedClock
from tests.kit.cron import scheduler, ticks_of, verdicts
from tests.kit.steps import HOUR, MINUTE, SECOND, take


class TestAfterAChange:
    def test_a_clock_that_is_set_back_across_a_tick_does_not_make_it_again(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_daily(name, ["02:00"], zone="UTC", queue=queue.name)
        clock.set(START + 2 * HOUR + SECOND)
        assert ticks_of(queue) == [START + 2 * HOUR]
        cron.install_daily(name, ["02:00", "02:30", "14:00"], zone="UTC", queue=queue.name)
        clock.advance(-10 * SECOND)  # 02:00 lies ahead again
        scheduler(app).run_once()
        ticks: list[Any] = []
        for _ in range(14):
            clock.advance(HOUR)
            scheduler(app).run_once()
            ticks += ticks_of(queue)
        assert ticks == [START + 2.5 * HOUR, START + 14 * HOUR]

    def test_nor_does_a_change_that_is_made_by_a_clock_that_is_behind(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_daily(name, ["02:00"], zone="UTC", queue=queue.name)
        clock.set(START + 2 * HOUR)
        delivery = take(queue, lease_for=12 * HOUR)  # begun, and not done yet
        clock.advance(-MINUTE)
        cron.install_daily(name, ["02:00", "14:00"], zone="UTC", queue=queue.name)
        clock.advance(2 * MINUTE)
        scheduler(app).run_once()
        assert queue.try_poll() is None
        assert delivery.ack().value == "done"
        explanation = cron.schedules.explain(name, START + 2 * HOUR)
        assert "planned" in explanation
        assert delivery.key in explanation

    def test_a_tick_that_no_other_configuration_had_is_made(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_daily(name, ["01:00"], zone="UTC", queue=queue.name)
        clock.set(START + 4 * HOUR)
        assert ticks_of(queue) == [START + HOUR]
        cron.install_daily(name, ["01:00", "03:00"], zone="UTC", queue=queue.name)
        clock.set(START + 0.5 * HOUR)  # the hours before were wrong
        scheduler(app).run_once()
        for _ in range(2):
            clock.advance(2 * HOUR)
            scheduler(app).run_once()
        assert ticks_of(queue) == [START + 3 * HOUR]

    def test_a_run_by_hand_does_not_stand_for_the_tick_of_that_instant(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_daily(name, ["01:00"], zone="UTC", queue=queue.name)
        clock.set(START + 2 * HOUR)
        cron.schedules.trigger(name)
        assert ticks_of(queue) == [START + HOUR, START + 2 * HOUR]
        clock.advance(-MINUTE)
        cron.install_daily(name, ["02:00"], zone="UTC", queue=queue.name)
        clock.advance(MINUTE)
        assert ticks_of(queue) == [START + 2 * HOUR]

    def test_what_has_fired_is_not_what_is_skipped_next(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_daily(name, ["02:00"], zone="UTC", queue=queue.name)
        clock.set(START + 2 * HOUR)
        ticks_of(queue)
        clock.advance(-MINUTE)
        cron.install_daily(name, ["02:00", "14:00"], zone="UTC", queue=queue.name)
        assert [fire.verdict and fire.verdict.value for fire in cron.schedules.preview(name, 1)] == ["planned"]
        assert cron.schedules.skip(name) == START + 14 * HOUR

    @pytest.mark.parametrize("verb", ["trigger", "skip", "backfill"])
    def test_what_is_done_by_hand_does_not_hide_from_schedulers_that_the_clock_was_set_back(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock, verb: str
    ) -> None:
        clock.set(START + HOUR)
        cron.install_periodic(name, HOUR, queue=queue.name)  # 01:00 has come before it was there
        clock.set(START + HOUR - MINUTE)
        more = (START - HOUR, START) if verb == "backfill" else ()
        getattr(cron.schedules, verb)(name, *more)
        scheduler(app).run_once()
        clock.advance(MINUTE)
        assert (START + HOUR in ticks_of(queue)) is (verb != "skip")
        scheduler(app).run_once()
        clock.advance(HOUR)
        assert START + 2 * HOUR in ticks_of(queue)


class TestWhatWaits:
    def test_a_shared_tick_continues_under_the_new_configuration(
        self, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        ahead = 4 * HOUR
        cron.install_daily(name, ["02:00", "03:00"], zone="UTC", queue=queue.name, payload="old", in_advance_for=ahead)
        clock.set(START + 3 * HOUR + SECOND)  # both are due, and neither is delivered yet
        cron.install_daily(name, ["02:00", "14:00"], zone="UTC", queue=queue.name, payload="new")
        assert [(delivery.payload, delivery.due_at) for delivery in queue.try_poll_many(9)] == [
            ("new", START + 2 * HOUR)
        ]
        assert sorted(verdicts(cron.schedules.history(name, until=START + 3 * HOUR))) == [
            (2, "planned", "on_time"),
            (2, "withdrawn", "replaced"),
            (3, "withdrawn", "replaced"),
        ]

    def test_and_is_taken_back_if_not(self, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock) -> None:
        cron.install_periodic(name, HOUR, queue=queue.name)
        clock.advance(HOUR)
        cron.install_daily(name, ["14:00"], zone="UTC", queue=queue.name)
        assert queue.try_poll() is None
        assert (1, "withdrawn", "replaced") in verdicts(cron.schedules.history(name))

    def test_a_run_by_hand_of_the_old_configuration_is_taken_back(
        self, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_daily(name, ["01:00"], zone="UTC", queue=queue.name)
        clock.set(START + HOUR / 2)
        cron.schedules.trigger(name)
        cron.install_cron(name, "*/30 * * * *", zone="UTC", queue=queue.name)
        assert queue.try_poll() is None


class TestBackfills:
    def test_leave_out_what_any_configuration_has_made(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_periodic(name, 2 * HOUR, queue=queue.name)
        for _ in range(4):
            clock.advance(HOUR)
            scheduler(app).run_once()
        assert ticks_of(queue) == [START + 2 * HOUR, START + 4 * HOUR]
        cron.install_periodic(name, HOUR, queue=queue.name)
        expected = [START + HOUR, START + 3 * HOUR]
        assert cron.schedules.missing(name, START + MINUTE, START + 5 * HOUR) == expected
        assert cron.schedules.backfill(name, START + MINUTE, START + 5 * HOUR) == expected
        assert ticks_of(queue) == expected
