"""The ledger belongs to a queue and an installation: a later owner of a name neither sees it nor is decided by it."""

from __future__ import annotations

from typing import Any

from tarry import Queue
from tarry.app import App
from tarry.core.cron.model import Overlap, Policy, ScheduleSpec
from tarry.core.cron.schedule_types import Cron as CronSchedule
from tarry.core.cron.schedule_types import Periodic, Schedule
from tarry.services.cron._sync.api import Cron
from tests.kit.backends import new_name
from tests.kit.clocks import START, WatchedClock
from tests.kit.cron import scheduler, ticks_of
from tests.kit.steps import HOUR, MINUTE, take

PERIODIC = Periodic(HOUR)
EVERY_HOUR = CronSchedule("0 * * * *", "UTC")
FIVE = [START + n * HOUR for n in range(1, 6)]


def put(app: App, name: str, queue: str, schedule: Schedule = EVERY_HOUR, **policy: Any) -> None:
    app.schedules.put(ScheduleSpec(name=name, schedule=schedule, queue=queue, payload=b"1", policy=Policy(**policy)))


def run_for(app: App, queue: str, clock: WatchedClock, hours: int) -> list[Any]:
    ticks: list[Any] = []
    for _ in range(hours):
        clock.advance(HOUR)
        scheduler(app).run_once()
        ticks += ticks_of(app.queue(queue))
    return ticks


def used_before(app: App, name: str, clock: WatchedClock, schedule: Schedule = PERIODIC) -> str:
    """The queue of a first owner that has made five ticks and removed the schedule; the clock is back at its start."""
    first = new_name()
    put(app, name, first, schedule)
    assert run_for(app, first, clock, 5) == FIVE
    app.schedules.delete(name)
    clock.set(START)
    return first


class TestALaterOwner:
    def test_gets_its_ticks_whatever_the_owner_before_has_made(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        used_before(app, name, clock)
        put(app, name, queue.name)
        assert run_for(app, queue.name, clock, 5) == FIVE

    def test_gets_its_ticks_with_the_same_configuration_too(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        used_before(app, name, clock, EVERY_HOUR)
        put(app, name, queue.name)
        assert run_for(app, queue.name, clock, 5) == FIVE

    def test_sees_nothing_of_the_owner_before(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        used_before(app, name, clock)
        clock.set(START + 10 * HOUR)
        put(app, name, queue.name)
        assert {record.tick for record in app.schedules.history(name)} == {START + 11 * HOUR}
        assert app.schedules.missing(name, START + MINUTE, START + 6 * HOUR) == FIVE
        assert "installed later" in app.schedules.explain(name, START + HOUR)
        assert app.schedules.backfill(name, START + MINUTE, START + 6 * HOUR) == FIVE
        assert ticks_of(app.queue(queue.name)) == FIVE

    def test_is_not_kept_waiting_by_a_message_of_the_owner_before(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        first = app.queue(new_name())
        put(app, name, first.name, overlap=Overlap.SKIP)
        clock.advance(HOUR)
        scheduler(app).run_once()
        take(first)  # leased, so it stays
        app.schedules.delete(name)
        put(app, name, queue.name, overlap=Overlap.SKIP)
        assert run_for(app, queue.name, clock, 1) == [START + 2 * HOUR]

    def test_does_not_withdraw_messages_of_the_owner_before(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        first = app.queue(new_name())
        put(app, name, first.name)
        clock.advance(HOUR)
        delivery = take(first)
        app.schedules.delete(name)
        delivery.release()  # undelivered again, and no longer part of any schedule
        put(app, name, queue.name)
        app.schedules.delete(name)
        assert ticks_of(first) == [START + HOUR]


class TestTheSameOwner:
    def test_does_not_make_an_executed_tick_again_after_a_removal(
        self, app: App, cron: Cron, name: str, clock: WatchedClock
    ) -> None:
        first = used_before(app, name, clock)
        put(app, name, first, Periodic(HOUR))
        assert run_for(app, first, clock, 6) == [START + 6 * HOUR]
        assert len(app.schedules.history(name, until=START + 6 * HOUR)) == 6

    def test_does_not_after_another_owner_in_between(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        first = used_before(app, name, clock)
        put(app, name, queue.name)
        app.schedules.delete(name)
        put(app, name, first)
        assert run_for(app, first, clock, 5) == []

    def test_takes_the_ledger_along_to_another_queue(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        first = new_name()
        put(app, name, first)
        assert run_for(app, first, clock, 5) == FIVE
        put(app, name, queue.name)  # replaced, not removed
        assert app.schedules.missing(name, START + MINUTE, START + 6 * HOUR) == []
        app.schedules.delete(name)
        clock.set(START)
        put(app, name, queue.name)
        assert run_for(app, queue.name, clock, 5) == []
        app.schedules.delete(name)
        clock.set(START)
        put(app, name, first)  # it left the ledger to the other queue
        assert run_for(app, first, clock, 5) == FIVE

    def test_keeps_the_ledger_when_its_queue_is_renamed(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        first, renamed = used_before(app, name, clock), new_name()
        app.queues.rename(first, renamed)
        put(app, name, renamed)
        assert run_for(app, renamed, clock, 5) == []

    def test_sees_the_ledger_after_the_removal_until_the_name_is_used_again(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        used_before(app, name, clock)
        assert [record.tick for record in reversed(app.schedules.history(name, until=FIVE[-1]))] == FIVE
