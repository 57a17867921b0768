"""The sweeper, which every queue can do without: it records expiries, and buries on queues that are not polled."""

from __future__ import annotations

from typing import Any

from tarry import Message, Queue, Settled
from tarry.app import App
from tarry.core.messages.model import PollOptions
from tests.kit.backends import where_the_messages_are
from tests.kit.clocks import WatchedClock
from tests.kit.steps import HOUR, MINUTE, SECOND, keys, numbers, take

pytestmark = where_the_messages_are


def kinds(app: App, queue: Queue[Any], key: str = "a") -> list[str]:
    return [event.kind.value for event in app.store.run(app.store.journal.timeline(queue.name, key))]


class TestExpiries:
    def test_an_expired_lease_is_one_event(self, app: App, queue: Queue[Any], clock: WatchedClock) -> None:
        queue.offer("a", 1)
        delivery = take(queue)
        assert app.store.run(app.store.maintenance.sweep(queue.name))[:2] == (0, 0), "it still runs"
        clock.advance(MINUTE)
        assert app.store.run(app.store.maintenance.sweep(queue.name))[:2] == (1, 0)
        assert app.store.run(app.store.maintenance.sweep(queue.name))[:2] == (0, 0)
        assert kinds(app, queue) == ["offered", "leased", "expired"]
        event = app.store.run(app.store.journal.timeline(queue.name, "a"))[-1]
        assert (event.attempt, event.consumer, event.lease_until) == (1, "tester", delivery.lease_until)

    def test_a_queue_with_an_expired_lease_needs_a_sweep(
        self, app: App, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        queue.offer("a", 1)
        take(queue)
        clock.advance(MINUTE)
        assert app.store.run(app.store.maintenance.needing_sweep([queue.name])) == [queue.name]
        assert app.store.run(app.store.maintenance.needing_sweep([])) == []

    def test_the_next_poll_does_not_record_the_expiry_again(
        self, app: App, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        queue.offer("a", 1)
        take(queue)
        clock.advance(MINUTE)
        app.store.run(app.store.maintenance.sweep(queue.name))
        again = take(queue)
        assert (again.attempt, again.redelivered) == (2, True)
        assert kinds(app, queue) == ["offered", "leased", "expired", "leased"]
        clock.advance(MINUTE)
        assert app.store.run(app.store.maintenance.sweep(queue.name)).expired == 1
        assert kinds(app, queue)[-1] == "expired"

    def test_a_poll_records_an_expiry_that_no_sweeper_has_recorded(
        self, app: App, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        queue.offer("a", 1)
        take(queue)
        clock.advance(MINUTE)
        take(queue)
        assert app.store.run(app.store.maintenance.sweep(queue.name)).expired == 0
        assert kinds(app, queue) == ["offered", "leased", "expired", "leased"]

    def test_a_late_ack_counts_also_after_the_expiry_was_recorded(
        self, app: App, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        queue.offer("a", 1)
        delivery = take(queue)
        clock.advance(MINUTE)
        app.store.run(app.store.maintenance.sweep(queue.name))
        assert delivery.touch() is Settled.LEASE_LOST
        assert delivery.ack() is Settled.DONE
        assert kinds(app, queue) == ["offered", "leased", "expired", "refused", "acked"]

    def test_a_late_nack_and_release_count_too(self, app: App, queue: Queue[Any], clock: WatchedClock) -> None:
        for verb in ("nack", "release"):
            queue.offer(verb, 1)
            delivery = take(queue)
            clock.advance(MINUTE)
            app.store.run(app.store.maintenance.sweep(queue.name))
            assert getattr(delivery, verb)() is Settled.DONE
            assert app.store.run(app.store.maintenance.sweep(queue.name)).expired == 0
            queue.drop(verb)

    def test_an_offer_after_the_recorded_expiry_starts_a_new_version(
        self, app: App, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        queue.offer("a", 1)
        take(queue)
        clock.advance(MINUTE)
        app.store.run(app.store.maintenance.sweep(queue.name))
        queue.offer("a", 2)
        take(queue)
        clock.advance(MINUTE)
        assert app.store.run(app.store.maintenance.sweep(queue.name)).expired == 1
        assert kinds(app, queue) == ["offered", "leased", "expired", "updated", "leased", "expired"]

    def test_what_waits_for_its_time_or_its_retry_is_left_alone(
        self, app: App, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        queue.offer("later", 1, after=HOUR)
        queue.offer("failed", 1)
        take(queue).nack("x", after=HOUR)
        queue.offer("ready", 1)
        clock.advance(MINUTE)
        assert app.store.run(app.store.maintenance.sweep(queue.name))[:2] == (0, 0)
        assert numbers(app, queue) == (2, 1, 0, 0)


class TestDeaths:
    def test_the_last_lease_of_an_idle_queue_ends_in_a_dead_letter(
        self, app: App, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        queue.offer("a", 1, max_attempts=2)
        take(queue).nack("first", after=0 * SECOND)
        delivery = take(queue)
        clock.advance(MINUTE)
        assert app.store.run(app.store.maintenance.sweep(queue.name))[:2] == (1, 1)
        (letter,) = queue.dead_letters.list()
        assert (letter.version, letter.attempt, letter.reason) == (delivery.version, 2, "exhausted")
        assert (letter.error, letter.consumer) == ("first", "tester")
        assert delivery.ack() is Settled.GONE
        assert kinds(app, queue) == ["offered", "leased", "nacked", "leased", "expired", "buried"]
        assert app.store.run(app.store.journal.timeline(queue.name, "a"))[-1].detail == {"reason": "exhausted"}
        assert [group.count.n for group in queue.dead_letters.groups()] == [1]

    def test_a_limit_that_was_lowered_below_the_attempts_made(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        for _ in range(2):
            take(queue).nack(after=0 * SECOND)
        app.queues.edit(queue.name, max_attempts=1)
        assert app.store.run(app.store.maintenance.sweep(queue.name))[:2] == (0, 1)
        assert kinds(app, queue)[-2:] == ["nacked", "buried"]

    def test_what_its_handler_would_still_try_is_not_buried_by_the_limit_of_the_queue(
        self, app: App, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        queue.offer("a", 1)
        app.queues.edit(queue.name, max_attempts=1)

        def lease() -> int:
            return len(
                app.store.run(
                    app.store.messages.poll(queue.name, 1, lambda data, kind: data, PollOptions(max_attempts=2))
                )
            )

        assert lease() == 1
        clock.advance(MINUTE)
        assert app.store.run(app.store.maintenance.sweep(queue.name))[:2] == (1, 0)
        assert lease() == 1
        clock.advance(MINUTE)
        assert app.store.run(app.store.maintenance.sweep(queue.name))[:2] == (1, 1)

    def test_a_paused_queue_is_left_alone(self, app: App, queue: Queue[Any], clock: WatchedClock) -> None:
        queue.offer("a", 1, max_attempts=1)
        take(queue)
        clock.advance(MINUTE)
        app.queues.pause(queue.name)
        assert app.store.run(app.store.maintenance.sweep(queue.name))[:2] == (0, 0)
        app.queues.resume(queue.name)
        assert app.store.run(app.store.maintenance.sweep(queue.name))[:2] == (1, 1)


class TestSteps:
    def test_step_by_step_it_comes_to_the_end(self, app: App, queue: Queue[Any], clock: WatchedClock) -> None:
        messages = [Message(key=f"k{i:03}", payload=0, priority=i % 3, max_attempts=1 + i % 2) for i in range(100)]
        queue.offer_many(messages)
        held = queue.try_poll_many(90)
        clock.advance(MINUTE)
        expired = buried = steps = 0
        cursor = None
        while steps == 0 or cursor is not None:
            swept = app.store.run(app.store.maintenance.sweep(queue.name, after=cursor, limit=10))
            expired, buried, cursor = expired + swept.expired, buried + swept.buried, swept.cursor
            steps += 1
        doomed = {delivery.key for delivery in held if int(delivery.key[1:]) % 2 == 0}
        assert (expired, buried) == (90, len(doomed))
        assert steps > 1
        assert set(keys(queue.dead_letters.list())) == doomed
        assert numbers(app, queue) == (0, 100 - len(doomed), 0, len(doomed))

    def test_other_queues_are_none_of_its_business(self, app: App, queue: Queue[Any], clock: WatchedClock) -> None:
        other = app.queue(queue.name + "-other")
        other.offer("a", 1)
        take(other)
        clock.advance(MINUTE)
        assert app.store.run(app.store.maintenance.sweep(queue.name)).expired == 0
        assert app.store.run(app.store.maintenance.sweep(queue.name + "-unknown")) == (0, 0, 0, None)
