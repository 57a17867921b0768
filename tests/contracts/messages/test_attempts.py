"""Failing: retries, their delays, and exhausted attempts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tarry import Message, Queue, QueueSettings, Retry, Settled
from tarry.app import App
from tarry.core.messages.model import Failure
from tarry.core.messages.states import State
from tests.kit.backends import new_name
from tests.kit.clocks import START, WatchedClock
from tests.kit.steps import EMPTY, HOUR, MINUTE, SECOND, numbers, seen, take

POLICIES = {
    "default without jitter": Retry(jitter=0.0),
    "at once": Retry.at_once(),
    "fixed": Retry.fixed(90 * SECOND),
    "gentle": Retry.exponential(timedelta(milliseconds=1500), factor=1.5, cap_for=HOUR, jitter=0.0),
    "odd": Retry.exponential(timedelta(microseconds=333_333), factor=1.7, cap_for=timedelta(days=3), jitter=0.0),
    "steep": Retry.exponential(SECOND, factor=10.0, cap_for=timedelta(days=3653), jitter=0.0),
    "cap below the start": Retry.exponential(MINUTE, cap_for=SECOND, jitter=0.0),
    "long and flat": Retry.exponential(timedelta(days=3653), factor=1.0, cap_for=timedelta(days=3653), jitter=0.0),
}


@pytest.fixture
def patient(app: App) -> Queue[Any]:
    """Two attempts per message, each retry at once."""
    app.queues.create(name := new_name(), QueueSettings(max_attempts=2, retry=Retry.at_once()))
    return app.queue(name)


class TestNack:
    def test_a_failed_message_waits_and_remembers_the_error(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        assert take(queue).nack("no luck", after=MINUTE) is Settled.DONE
        stored = seen(queue, "a")
        assert (stored.state, stored.attempt, stored.last_error) == (State.DELAYED, 1, "no luck")
        assert (stored.due_at, stored.lease_until, stored.consumer) == (START + MINUTE, None, None)

    def test_it_is_redelivered_at_its_new_time_with_the_next_attempt(
        self, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        queue.offer("a", 1)
        first = take(queue)
        first.nack(after=MINUTE)
        clock.advance(MINUTE - SECOND)
        assert queue.try_poll() is None
        clock.advance(SECOND)
        again = take(queue)
        assert (again.attempt, again.redelivered, again.version) == (2, True, first.version)
        assert again.token != first.token

    def test_a_delay_of_zero_means_at_once(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        take(queue).nack(after=timedelta(0))
        assert seen(queue, "a").state is State.READY

    def test_a_nack_without_an_error_keeps_the_last_one(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        take(queue).nack("first", after=timedelta(0))
        take(queue).nack(after=timedelta(0))
        assert seen(queue, "a").last_error == "first"

    def test_a_nack_after_expiry_is_accepted_while_no_other_consumer_has_the_lease(
        self, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        queue.offer("a", 1)
        delivery = take(queue)
        clock.advance(HOUR)
        assert delivery.nack("late", after=MINUTE) is Settled.DONE
        assert seen(queue, "a").due_at == START + HOUR + MINUTE

    def test_every_failure_of_a_batch_has_its_own_error_and_delay(self, queue: Queue[Any]) -> None:
        queue.offer_many([Message(key=key, payload=0) for key in "abc"])
        a, b, c = (delivery.lease_id for delivery in queue.try_poll_many(3))
        queue.drop("b")
        outcomes = queue.leases.nack([Failure(c, "C", 3 * SECOND), Failure(b, "B"), Failure(a, "A", SECOND)])
        assert outcomes == [Settled.DONE, Settled.GONE, Settled.DONE]
        assert [(seen(queue, k).last_error, seen(queue, k).due_at - START) for k in "ac"] == [
            ("A", SECOND),
            ("C", 3 * SECOND),
        ]

    @pytest.mark.parametrize(
        ("error", "kept"),
        [
            ("a\x00b", "a␀b"),
            ("half \ud83d of a smile", "half ? of a smile"),
            ("x" * 9_000, "x" * 7_999 + "…"),
            ("", ""),
            ("naïve 😀", "naïve 😀"),
        ],
        ids=["NUL", "surrogate", "long", "empty", "unicode"],
    )
    def test_an_error_is_stored_whatever_its_text(self, queue: Queue[Any], error: str, kept: str) -> None:
        queue.offer("a", 1)
        assert take(queue).nack(error) is Settled.DONE
        assert seen(queue, "a").last_error == kept


class TestRetryDelays:
    @pytest.mark.parametrize("of", ["the message", "the queue"])
    def test_without_jitter_the_delay_is_exactly_that_of_the_policy(
        self, app: App, clock: WatchedClock, of: str
    ) -> None:
        for policy in POLICIES.values():
            clock.set(START)
            queue = app.queue(new_name())
            if of == "the queue":
                app.queues.create(queue.name, QueueSettings(retry=policy))
            queue.offer("a", 1, retry=policy if of == "the message" else None)
            for attempt in range(1, 9):
                take(queue).nack()
                due_at = seen(queue, "a").due_at
                assert due_at - clock.pinned() == policy.delay(attempt, 0.0)
                clock.set(due_at)

    def test_with_jitter_the_wait_is_shortened_within_bounds_and_not_always_the_same(self, queue: Queue[Any]) -> None:
        policy = Retry.exponential(MINUTE, jitter=0.5)
        queue.offer_many([Message(key=f"k{i}", payload=i, retry=policy) for i in range(50)])
        queue.leases.nack([Failure(delivery.lease_id) for delivery in queue.try_poll_many(50)])
        waits = {seen(queue, f"k{i}").due_at - START for i in range(50)}
        assert len(waits) > 40
        assert policy.delay(1, 1.0) <= min(waits) <= max(waits) <= policy.delay(1, 0.0)
        assert max(waits) - min(waits) > 10 * SECOND

    def test_the_default_policy_waits_about_a_second_then_about_two(
        self, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        queue.offer("a", 1)
        for attempt in (1, 2, 3):
            now = clock.pinned()
            take(queue).nack()
            wait = seen(queue, "a").due_at - now
            assert Retry().delay(attempt, 1.0) <= wait <= Retry().delay(attempt, 0.0)
            clock.advance(wait)

    def test_a_given_delay_goes_before_every_policy(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1, retry=Retry.fixed(HOUR))
        take(queue).nack(after=SECOND)
        assert seen(queue, "a").due_at == START + SECOND

    def test_the_message_goes_before_the_queue(self, app: App) -> None:
        app.queues.create(name := new_name(), QueueSettings(retry=Retry.fixed(HOUR)))
        app.queue(name).offer("own", 1, retry=Retry.fixed(SECOND), priority=1)
        app.queue(name).offer("other", 1)
        for _ in range(2):
            take(app.queue(name)).nack()
        assert seen(app.queue(name), "own").due_at == START + SECOND
        assert seen(app.queue(name), "other").due_at == START + HOUR


class TestAPolicyOfTheConsumer:
    """What a worker's handler brings along: it stands in for the queue's, and a message's own wins."""

    def test_it_goes_before_the_queue_and_after_the_message(self, app: App) -> None:
        app.queues.create(name := new_name(), QueueSettings(retry=Retry.fixed(HOUR)))
        queue = app.queue(name)
        queue.offer("own", 1, retry=Retry.fixed(SECOND))
        queue.offer("other", 1)
        failures = [Failure(delivery.lease_id) for delivery in queue.try_poll_many(2)]
        queue.leases.nack(failures, retry=Retry.fixed(MINUTE))
        assert (seen(queue, "own").due_at, seen(queue, "other").due_at) == (START + SECOND, START + MINUTE)

    def test_its_limit_decides_whether_a_failure_was_the_last(self, app: App, patient: Queue[Any]) -> None:
        once, often = Retry.at_once(max_attempts=1), Retry.at_once(max_attempts=9)
        patient.offer("a", 1, max_attempts=3)
        patient.offer("b", 1)
        patient.leases.nack([Failure(delivery.lease_id) for delivery in patient.try_poll_many(2)], retry=once)
        assert (patient.contains("a"), patient.contains("b")) == (True, False)
        patient.offer("c", 1)
        for _ in range(3):
            patient.leases.nack(
                [Failure(delivery.lease_id) for delivery in patient.try_poll_many(2, max_attempts=9)], retry=often
            )
        assert (patient.contains("a"), patient.contains("c")) == (False, True)

    def test_without_a_limit_of_its_own_the_limit_of_the_queue_applies(self, patient: Queue[Any]) -> None:
        patient.offer("a", 1)
        for _ in range(2):
            patient.leases.nack([Failure(take(patient).lease_id)], retry=Retry.at_once())
        assert not patient.contains("a")

    def test_a_poll_with_a_limit_buries_what_its_consumers_died_of(
        self, app: App, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        queue.offer("a", 1)
        queue.offer("b", 1, max_attempts=5)
        for _ in range(2):
            assert len(queue.try_poll_many(2, max_attempts=2)) == 2
            clock.advance(MINUTE)
        assert [delivery.key for delivery in queue.try_poll_many(2, max_attempts=2)] == ["b"]
        (letter,) = queue.dead_letters.list()
        assert (letter.key, letter.attempt, letter.reason) == ("a", 2, "exhausted")


class TestLimits:
    def test_the_last_attempt_that_fails_makes_a_dead_letter(self, app: App, patient: Queue[Any]) -> None:
        patient.offer("a", 1)
        assert take(patient).nack("first") is Settled.DONE
        assert take(patient).nack("second") is Settled.DONE
        assert not patient.contains("a")
        assert numbers(app, patient) == (0, 0, 0, 1)
        (letter,) = patient.dead_letters.list()
        assert (letter.key, letter.attempt, letter.reason, letter.error) == ("a", 2, "exhausted", "second")

    def test_an_expired_last_attempt_becomes_a_dead_letter_at_the_next_poll(
        self, app: App, patient: Queue[Any], clock: WatchedClock
    ) -> None:
        patient.offer("a", 1)
        for attempt in (1, 2):
            assert take(patient).attempt == attempt
            clock.advance(MINUTE)
        assert patient.try_poll() is None
        assert numbers(app, patient) == (0, 0, 0, 1)
        (letter,) = patient.dead_letters.list()
        assert (letter.attempt, letter.reason, letter.died_at) == (2, "exhausted", START + 2 * MINUTE)

    def test_messages_that_die_leave_their_share_of_the_poll_to_others(
        self, patient: Queue[Any], clock: WatchedClock
    ) -> None:
        patient.offer_many([Message(key=f"dying{i}", payload=0, priority=9, max_attempts=1) for i in range(3)])
        patient.try_poll_many(3)
        patient.offer("alive", 1)
        clock.advance(MINUTE)
        assert take(patient).key == "alive"
        assert len(patient.dead_letters.list()) == 3

    def test_an_ack_of_the_last_attempt_is_accepted_until_the_next_poll(
        self, app: App, patient: Queue[Any], clock: WatchedClock
    ) -> None:
        patient.offer("a", 1, max_attempts=1)
        delivery = take(patient)
        clock.advance(MINUTE)
        assert delivery.ack() is Settled.DONE
        assert numbers(app, patient) == EMPTY

    def test_a_released_attempt_does_not_count(self, patient: Queue[Any]) -> None:
        patient.offer("a", 1)
        for _ in range(5):
            take(patient).release()
        assert take(patient).attempt == 1

    def test_the_message_goes_before_the_queue(self, patient: Queue[Any]) -> None:
        patient.offer("more", 1, max_attempts=3)
        patient.offer("fewer", 1, max_attempts=1)
        assert (seen(patient, "more").max_attempts, seen(patient, "fewer").max_attempts) == (3, 1)
        for _ in range(2):
            patient.leases.nack([Failure(delivery.lease_id) for delivery in patient.try_poll_many(2)])
        assert (patient.contains("more"), patient.contains("fewer")) == (True, False)

    def test_a_retry_policy_may_bring_the_limit_along(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1, retry=Retry.at_once(max_attempts=1))
        queue.offer("b", 1, retry=Retry.at_once(max_attempts=1), max_attempts=4)
        assert (seen(queue, "a").max_attempts, seen(queue, "b").max_attempts) == (1, 4)
        take(queue).nack()
        assert not queue.contains("a")

    def test_an_edited_limit_counts_from_the_next_poll_or_failure_on(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1, retry=Retry.at_once())
        for _ in range(3):
            take(queue).nack()
        app.queues.edit(queue.name, max_attempts=4)
        delivery = take(queue)
        assert delivery.attempt == 4
        app.queues.edit(queue.name, max_attempts=2)
        assert (seen(queue, "a").max_attempts, queue.contains("a")) == (2, True)
        delivery.nack()
        assert [letter.attempt for letter in queue.dead_letters.list()] == [4]

    def test_an_update_gives_all_attempts_back(self, patient: Queue[Any]) -> None:
        patient.offer("a", 1)
        take(patient).nack()
        patient.offer("a", 2)
        assert take(patient).nack() is Settled.DONE
        assert patient.contains("a")
