"""One leader at a time, by the store's clock, and a number that tells the leader of yesterday from that of today."""

from __future__ import annotations

from typing import Any

import pytest

from tarry import Queue
from tarry.app import App
from tests.kit.backends import new_name
from tests.kit.clocks import START, WatchedClock
from tests.kit.steps import MINUTE, SECOND, all_at_once, take


@pytest.fixture
def name() -> str:
    return new_name()


def test_the_first_to_ask_leads_and_the_next_does_not(app: App, name: str) -> None:
    held = app.store.lead(name, "alice", MINUTE)
    assert held == (name, "alice", 1, START + MINUTE)
    assert app.store.lead(name, "bob", MINUTE) is None
    assert app.store.leader(name) == held


def test_a_leader_stays_one_for_as_long_as_it_says_so_in_time(app: App, name: str, clock: WatchedClock) -> None:
    held = app.store.lead(name, "alice", MINUTE)
    assert held is not None
    clock.advance(59 * SECOND)
    longer = app.store.lead_on(held, MINUTE)
    assert longer == (name, "alice", 1, START + 119 * SECOND)
    clock.advance(59 * SECOND)
    assert app.store.lead(name, "bob", MINUTE) is None
    clock.advance(SECOND)
    assert app.store.lead_on(held, MINUTE) is None, "too late, even if nobody else leads yet"
    assert app.store.leader(name) is None


def test_the_number_grows_with_every_change_of_hands(app: App, name: str, clock: WatchedClock) -> None:
    fences: list[int] = []
    for holder in ("alice", "bob", "bob", "alice"):
        held = app.store.lead(name, holder, MINUTE)
        assert held is not None
        fences.append(held.fence)
        clock.advance(MINUTE)
    assert fences == [1, 2, 3, 4]


def test_who_asks_twice_leads_under_the_newer_number(app: App, name: str) -> None:
    """The answer to the first may have been lost; then nobody writes under its number."""
    first, second = app.store.lead(name, "alice", MINUTE), app.store.lead(name, "alice", MINUTE)
    assert first is not None
    assert second is not None
    assert (first.fence, second.fence) == (1, 2)
    assert app.store.lead_on(first, MINUTE) is None


def test_who_steps_down_makes_room_and_can_do_it_once(app: App, name: str) -> None:
    held = app.store.lead(name, "alice", MINUTE)
    assert held is not None
    assert app.store.lead_end(held)
    assert not app.store.lead_end(held)
    successor = app.store.lead(name, "bob", MINUTE)
    assert successor is not None
    assert successor.fence == 2
    assert not app.store.lead_end(held), "the leader of yesterday cannot end the reign of today's"
    assert app.store.leader(name) == successor


def test_names_are_separate(app: App, name: str) -> None:
    assert app.store.lead(name, "alice", MINUTE)
    assert app.store.lead(name + "-other", "bob", MINUTE)


def test_of_many_who_ask_at_once_one_leads(app: App, name: str) -> None:
    answers = all_at_once([lambda i=i: app.store.lead(name, f"holder-{i}", MINUTE) for i in range(8)])
    assert len([answer for answer in answers if answer is not None]) == 1


class TestFencing:
    """A leader that slept through the end of its lease changes nothing when it wakes."""

    def test_a_deposed_leader_sweeps_nothing(self, app: App, queue: Queue[Any], name: str, clock: WatchedClock) -> None:
        held = app.store.lead(name, "alice", MINUTE)
        queue.offer("a", 1, max_attempts=1)
        take(queue)
        clock.advance(2 * MINUTE)
        assert app.store.sweep(queue.name, lead=held).expired == 0, "its lease has run out"
        successor = app.store.lead(name, "bob", MINUTE)
        assert app.store.sweep(queue.name, lead=held).expired == 0, "somebody else leads"
        assert queue.dead_letters.list() == []
        swept = app.store.sweep(queue.name, lead=successor)
        assert (swept.expired, swept.buried) == (1, 1)

    def test_a_deposed_leader_carries_no_job_on(
        self, app: App, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        held = app.store.lead(name, "alice", MINUTE)
        queue.offer("a", 1)
        take(queue).bury("x")
        redrive = queue.dead_letters.start_redrive()
        clock.advance(MINUTE)
        app.store.advance_redrive(redrive.id, lead=held)
        assert (redrive.refresh().redriven, redrive.job.ended) == (0, False)
        successor = app.store.lead(name, "bob", MINUTE)
        app.store.advance_redrive(redrive.id, lead=held)
        assert redrive.refresh().redriven == 0
        app.store.advance_redrive(redrive.id, lead=successor)
        assert redrive.refresh().redriven == 1

    def test_a_deposed_leader_passes_no_verdict(
        self, app: App, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        held = app.store.lead(name, "alice", MINUTE)
        queue.offer("a", 1)
        take(queue).bury("x")
        redrive = queue.dead_letters.start_redrive(canary=1)
        redrive.advance()
        take(queue).ack()
        clock.advance(MINUTE)
        phase = redrive.refresh().phase
        app.store.advance_redrive(redrive.id, lead=held)
        assert redrive.refresh().phase is phase
