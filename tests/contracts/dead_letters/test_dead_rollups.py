"""What pages about dead letters read: when they died, and what became of those that a job has redriven."""

from __future__ import annotations

from typing import Any

from tarry import Queue
from tarry.app import App
from tarry.core.dead_letters.redrive import RedriveOutcome
from tarry.core.messages.model import Counted
from tarry.core.rollups.model import DeathSlice
from tests.kit.backends import where_the_messages_are
from tests.kit.clocks import START, WatchedClock
from tests.kit.steps import MINUTE, SECOND, take

pytestmark = [where_the_messages_are]


def die(queue: Queue[Any], key: str, error: str) -> str:
    queue.offer(key, 0)
    delivery = take(queue)
    delivery.bury(error)
    return queue.dead_letters.groups()[0].fingerprint


class TestDeaths:
    def test_deaths_are_counted_by_fingerprint_and_time(self, app: App, queue: Queue[Any], clock: WatchedClock) -> None:
        first = die(queue, "a", "x 1")
        clock.advance(SECOND)
        die(queue, "b", "x 2")
        clock.advance(MINUTE)
        other = die(queue, "c", "y")
        slices = app.store.run(app.store.rollups.deaths(queue.name, MINUTE, START, START + 2 * MINUTE))
        assert {(part.fingerprint, part.start_at, part.deaths) for part in slices} == {
            (first, START, 2),
            (other, START + MINUTE, 1),
        }

    def test_those_outside_of_the_window_have_no_start(self, app: App, queue: Queue[Any]) -> None:
        name = die(queue, "a", "x")
        slices = app.store.run(app.store.rollups.deaths(queue.name, MINUTE, START + MINUTE, START + 2 * MINUTE))
        assert [part._replace(consumers=()) for part in slices] == [DeathSlice(name, None, 1, ())]

    def test_only_the_newest_are_read(self, app: App, queue: Queue[Any], clock: WatchedClock) -> None:
        die(queue, "a", "x")
        clock.advance(SECOND)
        name = die(queue, "b", "y")
        slices = app.store.run(app.store.rollups.deaths(queue.name, MINUTE, START, START + MINUTE, limit=1))
        assert [(part.fingerprint, part.deaths) for part in slices] == [(name, 1)]

    def test_an_unknown_queue_has_none(self, app: App) -> None:
        assert app.store.run(app.store.rollups.deaths("nowhere", MINUTE, START, START + MINUTE)) == []


class TestOutcome:
    def test_what_was_redriven_is_live_then_done_or_dead_again(
        self, app: App, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        for key in ("a", "b", "c"):
            die(queue, key, "x")
        clock.advance(SECOND)
        job = queue.dead_letters.start_redrive()
        job.advance()
        assert self._outcome(app, job.id) == RedriveOutcome(Counted(0), Counted(3))
        take(queue).ack()
        take(queue).bury("again")
        assert self._outcome(app, job.id) == RedriveOutcome(Counted(1), Counted(1))

    def test_what_died_without_a_redrive_is_not_counted(self, app: App, queue: Queue[Any], clock: WatchedClock) -> None:
        die(queue, "a", "x")
        clock.advance(SECOND)
        job = queue.dead_letters.start_redrive()
        die(queue, "b", "x")
        assert self._outcome(app, job.id) == RedriveOutcome(Counted(0), Counted(0))

    def test_an_unknown_job_has_none(self, app: App) -> None:
        assert self._outcome(app, 2**40) == RedriveOutcome(Counted(0), Counted(0))

    def _outcome(self, app: App, job: int) -> RedriveOutcome:
        return app.store.run(app.store.rollups.redrive_outcome(job))
