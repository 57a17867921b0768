"""One leader at a time, by the store's clock, with a fencing token against former leaders."""

from __future__ import annotations

from typing import Any

import pytest

from tarry import Queue
from tarry.app import App
from tests.kit.backends import new_name, where_the_messages_are
from tests.kit.clocks import START, WatchedClock
from tests.kit.steps import MINUTE, SECOND, all_at_once, take

pytestmark = where_the_messages_are


@pytest.fixture
def name() -> str:
    return new_name()


def test_the_first_candidate_leads_and_the_next_does_not(app: App, name: str) -> None:
    held = app.store.run(app.store.maintenance.acquire(name, "alice", MINUTE))
    assert held == (name, "alice", 1, START + MINUTE)
    assert app.store.run(app.store.maintenance.acquire(name, "bob", MINUTE)) is None
    assert app.store.run(app.store.maintenance.leader(name)) == held


def test_a_leader_that_renews_in_time_keeps_the_leadership(app: App, name: str, clock: WatchedClock) -> None:
    held = app.store.run(app.store.maintenance.acquire(name, "alice", MINUTE))
    assert held is not None
    clock.advance(59 * SECOND)
    longer = app.store.run(app.store.maintenance.renew(held, MINUTE))
    assert longer == (name, "alice", 1, START + 119 * SECOND)
    clock.advance(59 * SECOND)
    assert app.store.run(app.store.maintenance.acquire(name, "bob", MINUTE)) is None
    clock.advance(SECOND)
    assert app.store.run(app.store.maintenance.renew(held, MINUTE)) is None, (
        "too late, even if no other process leads yet"
    )
    assert app.store.run(app.store.maintenance.leader(name)) is None


def test_the_number_grows_with_every_change_of_hands(app: App, name: str, clock: WatchedClock) -> None:
    fences: list[int] = []
    for holder in ("alice", "bob", "bob", "alice"):
        held = app.store.run(app.store.maintenance.acquire(name, holder, MINUTE))
        assert held is not None
        fences.append(held.fence)
        clock.advance(MINUTE)
    assert fences == [1, 2, 3, 4]


def test_a_second_acquisition_by_the_leader_has_a_newer_fencing_token(app: App, name: str) -> None:
    """The reply to the first may have been lost; then its fencing token is not used."""
    first, second = (
        app.store.run(app.store.maintenance.acquire(name, "alice", MINUTE)),
        app.store.run(app.store.maintenance.acquire(name, "alice", MINUTE)),
    )
    assert first is not None
    assert second is not None
    assert (first.fence, second.fence) == (1, 2)
    assert app.store.run(app.store.maintenance.renew(first, MINUTE)) is None


def test_a_resignation_frees_the_leadership_and_is_accepted_once(app: App, name: str) -> None:
    held = app.store.run(app.store.maintenance.acquire(name, "alice", MINUTE))
    assert held is not None
    assert app.store.run(app.store.maintenance.resign(held))
    assert not app.store.run(app.store.maintenance.resign(held))
    successor = app.store.run(app.store.maintenance.acquire(name, "bob", MINUTE))
    assert successor is not None
    assert successor.fence == 2
    assert not app.store.run(app.store.maintenance.resign(held)), (
        "the leader of yesterday cannot end the reign of today's"
    )
    assert app.store.run(app.store.maintenance.leader(name)) == successor


def test_names_are_separate(app: App, name: str) -> None:
    assert app.store.run(app.store.maintenance.acquire(name, "alice", MINUTE))
    assert app.store.run(app.store.maintenance.acquire(name + "-other", "bob", MINUTE))


def test_one_of_many_concurrent_candidates_leads(app: App, name: str) -> None:
    terms = all_at_once(
        [lambda i=i: app.store.run(app.store.maintenance.acquire(name, f"holder-{i}", MINUTE)) for i in range(8)]
    )
    assert len([outcome for outcome in terms if outcome is not None]) == 1


class TestFencing:
    """A leader that slept through the end of its lease changes nothing when it wakes."""

    def test_a_deposed_leader_sweeps_nothing(self, app: App, queue: Queue[Any], name: str, clock: WatchedClock) -> None:
        held = app.store.run(app.store.maintenance.acquire(name, "alice", MINUTE))
        queue.offer("a", 1, max_attempts=1)
        take(queue)
        clock.advance(2 * MINUTE)
        assert app.store.run(app.store.maintenance.sweep(queue.name, leadership=held)).expired == 0, (
            "its lease has run out"
        )
        successor = app.store.run(app.store.maintenance.acquire(name, "bob", MINUTE))
        assert app.store.run(app.store.maintenance.sweep(queue.name, leadership=held)).expired == 0, (
            "another process leads"
        )
        assert queue.dead_letters.list() == []
        swept = app.store.run(app.store.maintenance.sweep(queue.name, leadership=successor))
        assert (swept.expired, swept.buried) == (1, 1)

    def test_a_deposed_leader_carries_no_job_on(
        self, app: App, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        held = app.store.run(app.store.maintenance.acquire(name, "alice", MINUTE))
        queue.offer("a", 1)
        take(queue).bury("x")
        redrive = queue.dead_letters.start_redrive()
        clock.advance(MINUTE)
        app.store.run(app.store.dead_letters.advance_redrive(redrive.id, leadership=held))
        assert (redrive.refresh().redriven, redrive.job.ended) == (0, False)
        successor = app.store.run(app.store.maintenance.acquire(name, "bob", MINUTE))
        app.store.run(app.store.dead_letters.advance_redrive(redrive.id, leadership=held))
        assert redrive.refresh().redriven == 0
        app.store.run(app.store.dead_letters.advance_redrive(redrive.id, leadership=successor))
        assert redrive.refresh().redriven == 1

    def test_a_deposed_leader_passes_no_verdict(
        self, app: App, queue: Queue[Any], name: str, clock: WatchedClock
    ) -> None:
        held = app.store.run(app.store.maintenance.acquire(name, "alice", MINUTE))
        queue.offer("a", 1)
        take(queue).bury("x")
        redrive = queue.dead_letters.start_redrive(canary=1)
        redrive.advance()
        take(queue).ack()
        clock.advance(MINUTE)
        phase = redrive.refresh().phase
        app.store.run(app.store.dead_letters.advance_redrive(redrive.id, leadership=held))
        assert redrive.refresh().phase is phase
