"""Schedules on every store: what is planned, what is not, and that no tick is ever made twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tarry import Queue
from tarry.app import App
from tarry.core.errors import InvalidState, UnknownSchedule
from tarry.services.cron._sync.api import Cron
from tests.contracts.journal.test_journal import kinds
from tests.kit.backends import new_name
from tests.kit.clocks import START, WatchedClock
from tests.kit.cron import scheduler, ticks_of, verdicts
from tests.kit.steps import HOUR, MINUTE, SECOND, all_at_once, take

DAY = timedelta(days=1)


class TestPlanning:
    def test_the_next_tick_is_planned_at_once(
        self, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        clock.set(datetime(2024, 1, 1, 10, 37, 42, 123_000, tzinfo=UTC))
        installed = cron.install_periodic(name, HOUR, queue=queue.name, payload={"n": 1})
        assert installed.state is not None
        assert installed.state.spec.hash == "4916474562628112070d240d515ba44d"
        eleven = datetime(2024, 1, 1, 11, tzinfo=UTC)
        assert [record.tick for record in cron.schedules.history(name)] == [eleven]
        clock.set(eleven)
        delivery = take(queue)
        assert (delivery.payload, delivery.due_at) == ({"n": 1}, eleven)

    def test_each_tick_makes_one_message(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_cron(name, "*/15 * * * *", zone="UTC", queue=queue.name)
        ticks: list[datetime] = []
        for _ in range(12):
            clock.advance(5 * MINUTE)
            for _ in range(2):  # two schedulers, one after the other
                scheduler(app).run_once()
            ticks += ticks_of(queue)
        assert ticks == [START + n * 15 * MINUTE for n in range(1, 5)]

    def test_daily_by_the_wall_clock_of_its_zone_once_per_date(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        clock.set(datetime(2024, 11, 2, 0, tzinfo=UTC))
        cron.install_daily(name, ["01:30"], zone="America/New_York", queue=queue.name)
        ticks: list[datetime] = []
        for _ in range(72 * 2):
            clock.advance(HOUR / 2)
            scheduler(app).run_once()
            ticks += ticks_of(queue)
        # Saturday, Sunday with its repeated hour, Monday.
        assert [at.isoformat() for at in ticks] == [
            "2024-11-02T05:30:00+00:00",
            "2024-11-03T05:30:00+00:00",
            "2024-11-04T06:30:00+00:00",
        ]

    def test_payloads_may_be_functions_of_the_tick(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        with app.cron() as planning:
            planning.install_daily(
                name, ["09:00"], zone="Europe/Berlin", queue=queue.name, payload=lambda tick: tick.isoformat()
            )
        clock.advance(DAY)
        assert take(queue).payload == "2024-01-01T09:00:00+01:00"

    def test_a_function_needs_a_program_that_plans(self, cron: Cron, queue: Queue[Any], name: str) -> None:
        with pytest.raises(InvalidState, match="not planning"):
            cron.install_periodic(name, HOUR, queue=queue.name, payload=lambda tick: 1)

    def test_far_ahead_where_it_is_wanted(self, cron: Cron, queue: Queue[Any], name: str) -> None:
        cron.install_periodic(name, HOUR, queue=queue.name, in_advance_for=4 * HOUR)
        assert [hour for hour, _, _ in verdicts(cron.schedules.history(name))] == [1, 2, 3, 4]

    def test_jitter_moves_the_message_and_not_the_tick(self, cron: Cron, queue: Queue[Any], name: str) -> None:
        cron.install_periodic(name, HOUR, queue=queue.name, jitter_for=10 * MINUTE, in_advance_for=DAY)
        records = cron.schedules.history(name)
        late = [(record.due_at or START) - record.tick for record in records]
        assert len(set(late)) > 12
        assert all(timedelta(0) <= delay <= 10 * MINUTE for delay in late)

    def test_between_its_dates_only(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_periodic(name, HOUR, queue=queue.name, start_at=START + 2 * HOUR, end_at=START + 4 * HOUR)
        ticks: list[datetime] = []
        for _ in range(8):
            clock.advance(HOUR)
            scheduler(app).run_once()
            ticks += ticks_of(queue)
        assert ticks == [START + n * HOUR for n in (2, 3, 4)]

    def test_a_burst_of_schedulers_makes_each_message_once(
        self, app: App, cron: Cron, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        names = [new_name() for _ in range(20)]
        for name in names:
            cron.install_periodic(name, MINUTE, queue=queue.name)
        for _ in range(3):
            clock.advance(MINUTE)
            all_at_once([lambda: scheduler(app).run_once() for _ in range(4)])
        clock.advance(MINUTE)
        assert len(ticks_of(queue)) == len(names) * 4


class TestChangingIt:
    def test_nothing_of_the_old_configuration_fires_afterwards(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_periodic(name, HOUR, queue=queue.name, payload="old")
        cron.install_periodic(name, HOUR / 2, queue=queue.name, payload="new")
        clock.advance(HOUR)
        scheduler(app).run_once()
        clock.advance(HOUR)
        assert {delivery.payload for delivery in queue.try_poll_many(9)} == {"new"}

    def test_another_payload_of_the_same_times_replaces_what_waits(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_periodic(name, HOUR, queue=queue.name, payload="old")
        clock.advance(HOUR)  # due, and not delivered
        cron.install_periodic(name, HOUR, queue=queue.name, payload="new")
        clock.advance(HOUR)
        assert [delivery.payload for delivery in queue.try_poll_many(9)] == ["new", "new"]

    def test_another_queue_takes_what_waits_along(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        other = app.queue(new_name())
        cron.install_periodic(name, HOUR, queue=queue.name)
        cron.install_periodic(name, HOUR, queue=other.name)
        clock.advance(HOUR)
        assert queue.try_poll() is None
        assert ticks_of(other) == [START + HOUR]

    def test_the_same_again_changes_nothing(self, app: App, cron: Cron, queue: Queue[Any], name: str) -> None:
        for _ in range(3):
            cron.install_cron(name, "0 2 * * *", zone="Europe/Berlin", queue=queue.name, payload=[1])
        cron.install_cron(name, " 0  2 * * * ", zone="Europe/Berlin", queue=queue.name, payload=[1])
        (record,) = cron.schedules.history(name)
        assert kinds(app.store.run(app.store.journal.timeline(queue.name, record.key or ""))) == [
            "offered",
            "cron_planned",
        ]
        assert cron.schedules.get(name).generation == 1

    def test_there_and_back_again_doubles_nothing(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_periodic(name, HOUR, queue=queue.name)
        clock.advance(HOUR)
        assert ticks_of(queue) == [START + HOUR]
        cron.install_periodic(name, 2 * HOUR, queue=queue.name)
        clock.advance(-HOUR / 2)  # by a clock that is behind
        cron.install_periodic(name, HOUR, queue=queue.name)
        clock.advance(HOUR)
        scheduler(app).run_once()
        clock.advance(HOUR)
        assert ticks_of(queue) == [START + 2 * HOUR]

    def test_the_journal_has_events_of_withdrawn_messages(
        self, app: App, cron: Cron, queue: Queue[Any], name: str
    ) -> None:
        cron.install_periodic(name, HOUR, queue=queue.name)
        key = cron.schedules.history(name)[0].key or ""
        assert cron.schedules.delete(name)
        events = app.store.run(app.store.journal.timeline(queue.name, key))
        assert kinds(events) == ["offered", "cron_planned", "cron_replaced"]
        assert len({(event.version, event.attempt, event.priority, event.due_at) for event in events}) == 1
        assert events[1].detail is not None
        assert events[1].detail["schedule"] == name

    def test_a_queue_that_is_renamed_keeps_its_schedules(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_periodic(name, HOUR, queue=queue.name)
        new = new_name()
        app.queues.rename(queue.name, new)
        clock.advance(HOUR)
        scheduler(app).run_once()
        clock.advance(HOUR)
        assert ticks_of(app.queue(new)) == [START + HOUR, START + 2 * HOUR]

    def test_what_is_deleted_is_gone_and_its_history_is_not(self, cron: Cron, queue: Queue[Any], name: str) -> None:
        cron.install_periodic(name, HOUR, queue=queue.name)
        assert cron.schedules.delete(name)
        assert not cron.schedules.delete(name)
        with pytest.raises(UnknownSchedule):
            cron.schedules.get(name)
        assert verdicts(cron.schedules.history(name)) == [(1, "withdrawn", "replaced")]


class TestMisfires:
    def missed(self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock, **how: Any) -> Any:
        """Planned until 01:00, then no scheduler until 05:30."""
        cron.install_periodic(name, HOUR, queue=queue.name, **how)
        clock.advance(5.5 * HOUR)
        scheduler(app).run_once()
        return verdicts(cron.schedules.history(name))[1:]

    def test_once_is_the_default(self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock) -> None:
        assert self.missed(app, cron, queue, name, clock) == [
            (2, "skipped", "coalesced"),
            (3, "skipped", "coalesced"),
            (4, "skipped", "coalesced"),
            (5, "planned", "late"),
            (6, "planned", "on_time"),
        ]
        assert ticks_of(queue) == [START + HOUR, START + 5 * HOUR]

    def test_skip(self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock) -> None:
        records = self.missed(app, cron, queue, name, clock, misfire="skip")
        assert records == [*((n, "skipped", "misfire") for n in (2, 3, 4, 5)), (6, "planned", "on_time")]

    def test_all_within_the_window(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        records = self.missed(app, cron, queue, name, clock, misfire="all", catch_up_for=2 * HOUR)
        assert records == [
            (2, "skipped", "misfire"),
            (3, "skipped", "misfire"),
            (4, "planned", "late"),
            (5, "planned", "late"),
            (6, "planned", "on_time"),
        ]

    def test_a_tick_within_the_grace_was_not_missed(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_periodic(name, 10 * SECOND, queue=queue.name, misfire="skip")
        clock.advance(55 * SECOND)
        scheduler(app).run_once()
        assert ticks_of(queue) == [START + n * 10 * SECOND for n in range(1, 6)]

    def test_a_long_absence_is_one_entry(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_periodic(name, 10 * SECOND, queue=queue.name)
        clock.advance(365 * DAY)
        scheduler(app).run_once()
        records = cron.schedules.history(name)
        assert len(records) < 30
        run = next(record for record in records if record.until is not None)
        assert (run.tick, run.count) == (START + 20 * SECOND, None)
        explanation = cron.schedules.explain(name, START + 100 * DAY)
        assert "a later tick stands for all that were missed; one of more than 1,000 ticks" in explanation


class TestOverlaps:
    def test_a_tick_is_skipped_while_the_one_before_is_live(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_periodic(name, HOUR, queue=queue.name, overlap="skip")
        clock.advance(HOUR)
        scheduler(app).run_once()
        delivery = take(queue, lease_for=3 * HOUR)
        clock.advance(HOUR)
        scheduler(app).run_once()
        delivery.ack()
        clock.advance(HOUR)
        scheduler(app).run_once()
        assert verdicts(cron.schedules.history(name)) == [
            (1, "planned", "on_time"),
            (2, "skipped", "overlap"),
            (3, "planned", "on_time"),
        ]

    def test_ordinarily_they_may_overlap(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        cron.install_periodic(name, HOUR, queue=queue.name)
        for _ in range(3):
            clock.advance(HOUR)
            scheduler(app).run_once()
        assert len(ticks_of(queue)) == 3
