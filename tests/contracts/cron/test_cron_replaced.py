"""A schedule that is replaced while planning is behind: the ticks of the past are decided first, and none vanishes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tarry import Queue
from tarry.app import App
from tarry.core.cron.model import Policy, ScheduleSpec
from tarry.core.cron.schedule_types import Cron as CronSchedule
from tarry.core.cron.schedule_types import Periodic, Schedule
from tarry.services.cron._sync.api import Cron
from tests.kit.clocks import START, WatchedClock
from tests.kit.cron import ticks_of
from tests.kit.steps import MINUTE, SECOND

EVERY_MINUTE = CronSchedule("* * * * *", "UTC")
"""The ticks of `Periodic(MINUTE)`, with another hash."""


def minutes(*numbers: float) -> list[datetime]:
    return [START + n * MINUTE for n in numbers]


def spec(name: str, queue: str, schedule: Schedule, **policy: Any) -> ScheduleSpec:
    return ScheduleSpec(name=name, schedule=schedule, queue=queue, payload=b"1", policy=Policy(**policy))


def decided(app: App, name: str) -> dict[float, tuple[str, str]]:
    """By minute, what the ledger has of single ticks up to now; where there are two entries, that which made a message."""
    records = app.schedules.history(name, until=app.store.run(app.store.queues.now()), limit=1_000)
    records.sort(key=lambda record: record.verdict.value == "planned")
    return {(record.tick - START) / MINUTE: (record.verdict.value, record.reason.value) for record in records}


class TestBehind:
    def test_ticks_that_both_configurations_have_are_made(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        app.schedules.put(spec(name, queue.name, Periodic(MINUTE), misfire="all"))
        clock.advance(5 * MINUTE + SECOND)  # no scheduler runs
        app.schedules.put(spec(name, queue.name, EVERY_MINUTE, misfire="all"))
        assert ticks_of(queue) == minutes(1, 2, 3, 4, 5)
        for tick in minutes(1, 2, 3, 4, 5):
            assert "planned" in app.schedules.explain(name, tick)

    def test_ticks_that_only_the_old_configuration_has_are_recorded_as_withdrawn(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        app.schedules.put(spec(name, queue.name, Periodic(MINUTE), misfire="all"))
        clock.advance(4 * MINUTE + SECOND)
        app.schedules.put(spec(name, queue.name, Periodic(2 * MINUTE), misfire="all"))
        assert ticks_of(queue) == minutes(2, 4)
        assert {minute: verdict for minute, (verdict, _) in decided(app, name).items()} == {
            1: "withdrawn",
            2: "planned",
            3: "withdrawn",
            4: "planned",
        }
        explanation = app.schedules.explain(name, START + 3 * MINUTE)
        assert "withdrawn" in explanation
        assert "changed" in explanation

    def test_ticks_that_only_the_new_configuration_has_are_not_made(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        app.schedules.put(spec(name, queue.name, Periodic(2 * MINUTE), misfire="all"))
        clock.advance(5 * MINUTE + SECOND)
        app.schedules.put(spec(name, queue.name, Periodic(MINUTE), misfire="all"))
        assert ticks_of(queue) == minutes(2, 4)

    @pytest.mark.parametrize(
        ("policy", "expected", "ledger"),
        [
            ({"misfire": "skip"}, [1, 4, 5], {2: ("skipped", "misfire"), 3: ("skipped", "misfire")}),
            ({"misfire": "once"}, [1, 4, 5], {2: ("skipped", "coalesced"), 3: ("skipped", "coalesced")}),
            (
                {"misfire": "all", "catch_up_for": 2.5 * MINUTE},
                [1, 3, 4, 5],
                {2: ("skipped", "misfire"), 3: ("planned", "late")},
            ),
        ],
        ids=["skip", "once", "all"],
    )
    def test_the_misfire_policy_of_the_old_configuration_decides(
        self,
        app: App,
        cron: Cron,
        queue: Queue[Any],
        name: str,
        clock: WatchedClock,
        policy: dict[str, Any],
        expected: list[int],
        ledger: dict[int, tuple[str, str]],
    ) -> None:
        app.schedules.put(spec(name, queue.name, Periodic(MINUTE), grace_for=1.5 * MINUTE, **policy))
        clock.advance(5 * MINUTE)
        app.schedules.put(spec(name, queue.name, EVERY_MINUTE, misfire="all"))
        assert ticks_of(queue) == minutes(*expected)
        decisions = decided(app, name)
        assert sorted(decisions) == [1, 2, 3, 4, 5]
        assert {minute: decisions[minute] for minute in ledger} == ledger

    def test_a_function_that_makes_the_payloads_makes_those_of_the_past(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        with app.cron() as old:
            old.install_periodic(name, MINUTE, queue=queue.name, misfire="all", payload=lambda tick: "old")
        clock.advance(3 * MINUTE + SECOND)
        with app.cron() as new:
            new.install_cron(name, "* * * * *", zone="UTC", queue=queue.name, payload=lambda tick: f"{tick:%M}")
        assert [delivery.payload for delivery in queue.try_poll_many(9)] == ["01", "02", "03"]

    def test_ticks_of_a_program_replace_a_rule(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        app.schedules.put(spec(name, queue.name, Periodic(MINUTE), misfire="all"))
        clock.advance(3 * MINUTE + SECOND)
        cron.install_tick("own", name, [], queue=queue.name)
        assert queue.try_poll() is None
        assert {verdict for verdict, _ in decided(app, name).values()} == {"withdrawn"}
        assert sorted(decided(app, name)) == [1, 2, 3]

    def test_many_are_applied_at_once(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        names = [f"{name}-{n}" for n in range(3)]
        app.schedules.apply([spec(each, queue.name, Periodic(MINUTE), misfire="all") for each in names])
        clock.advance(3 * MINUTE)
        app.schedules.apply([spec(each, queue.name, EVERY_MINUTE) for each in names])
        assert sorted(ticks_of(queue)) == sorted(minutes(1, 2, 3) * 3)

    def test_what_cannot_be_made_in_one_transaction_is_recorded_as_skipped(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tarry.core.cron.schedule_changes.MOST_REPLACED", 3)
        app.schedules.put(spec(name, queue.name, Periodic(MINUTE), misfire="all"))
        clock.advance(7 * MINUTE + SECOND)
        app.schedules.put(spec(name, queue.name, EVERY_MINUTE))
        assert ticks_of(queue) == minutes(1, 2, 3, 4)
        assert {minute: decided(app, name)[minute] for minute in (5, 6, 7)} == dict.fromkeys(
            (5, 6, 7), ("skipped", "replaced")
        )


class TestPaused:
    def test_the_ticks_of_a_pause_are_recorded_when_the_schedule_is_replaced(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        app.schedules.put(spec(name, queue.name, Periodic(MINUTE), misfire="all"))
        app.schedules.pause(name)
        clock.advance(3 * MINUTE)
        app.schedules.put(spec(name, queue.name, EVERY_MINUTE, misfire="all"))
        assert queue.try_poll() is None
        assert {minute: decided(app, name)[minute] for minute in (2, 3)} == dict.fromkeys((2, 3), ("skipped", "paused"))

    def test_a_pause_while_far_behind_loses_no_tick(
        self, app: App, cron: Cron, queue: Queue[Any], name: str, clock: WatchedClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tarry.core.cron.schedule_changes.MOST_REPLACED", 3)
        app.schedules.put(spec(name, queue.name, Periodic(MINUTE), misfire="all"))
        clock.advance(7 * MINUTE + SECOND)
        app.schedules.pause(name)
        app.schedules.resume(name)
        assert ticks_of(queue) == minutes(1, 2, 3, 4)
        assert {minute: decided(app, name)[minute] for minute in (5, 6, 7)} == dict.fromkeys(
            (5, 6, 7), ("skipped", "paused")
        )
