"""Holding and settling: ack, touch, release, expiry, and what a lost lease can still do, which is nothing."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from rich.pretty import pretty_repr

from tarry import Delivery, Message, Outcome, Queue, Settled
from tarry.app import App
from tarry.core.messages.model import Failure, LeaseId
from tarry.core.messages.states import State
from tests.kit.backends import Backend, new_name
from tests.kit.clocks import START, WatchedClock
from tests.kit.steps import EMPTY, MINUTE, SECOND, keys, numbers, seen, take

DONE, LEASE_LOST, GONE = Settled.DONE, Settled.LEASE_LOST, Settled.GONE
SETTLE = {
    "ack": lambda delivery: delivery.ack(),
    "nack": lambda delivery: delivery.nack("failed", after=0 * SECOND),
    "release": lambda delivery: delivery.release(),
    "bury": lambda delivery: delivery.bury("hopeless"),
}
EVERY = SETTLE | {"touch": lambda delivery: delivery.touch()}


@pytest.fixture(params=SETTLE)
def settle(request: pytest.FixtureRequest) -> Any:
    return SETTLE[request.param]


@pytest.fixture(params=EVERY)
def verb(request: pytest.FixtureRequest) -> Any:
    return EVERY[request.param]


@pytest.fixture
def delivery(queue: Queue[Any]) -> Delivery[Any]:
    """Of the message `a`, leased for 30 seconds."""
    queue.offer("a", "first")
    return take(queue)


class TestAck:
    def test_an_ack_removes_the_message_for_good(
        self, app: App, queue: Queue[Any], delivery: Delivery[Any], clock: WatchedClock
    ) -> None:
        assert delivery.ack() is DONE
        assert not queue.contains("a")
        clock.advance(10 * MINUTE)
        assert queue.try_poll() is None
        assert numbers(app, queue) == EMPTY

    def test_a_repeated_ack_changes_nothing_and_returns_gone(self, delivery: Delivery[Any]) -> None:
        assert [delivery.ack(), delivery.ack(), delivery.ack()] == [DONE, GONE, GONE]

    def test_a_repeated_ack_leaves_a_new_message_of_the_key_alone(
        self, queue: Queue[Any], delivery: Delivery[Any]
    ) -> None:
        delivery.ack()
        queue.offer("a", "second")
        assert delivery.ack() is LEASE_LOST
        assert take(queue).payload == "second"

    def test_an_ack_after_expiry_is_accepted_while_no_other_consumer_has_the_lease(
        self, queue: Queue[Any], delivery: Delivery[Any], clock: WatchedClock
    ) -> None:
        clock.advance(10 * MINUTE)
        assert delivery.ack() is DONE
        assert queue.try_poll() is None

    def test_a_batch_is_acked_item_by_item(self, queue: Queue[Any]) -> None:
        queue.offer_many([Message(key=key, payload=0) for key in "abcd"])
        a, b, c, d = (delivery.lease_id for delivery in queue.try_poll_many(4))
        queue.offer("b", 1)
        queue.drop("c")
        forged = LeaseId("d", uuid4())
        assert queue.leases.ack([d, forged, c, b, a]) == [DONE, GONE, GONE, LEASE_LOST, DONE]
        assert [queue.contains(key) for key in "abcd"] == [False, True, False, False]

    def test_nothing_to_settle_is_nothing_settled(self, queue: Queue[Any]) -> None:
        assert queue.leases.ack([]) == queue.leases.nack([]) == queue.leases.touch([]) == []
        assert queue.leases.release([]) == queue.leases.bury([]) == []


class TestLostLeases:
    def test_after_an_update_the_old_lease_changes_nothing(
        self, app: App, queue: Queue[Any], delivery: Delivery[Any], verb: Any
    ) -> None:
        queue.offer("a", "second", at=START)
        before = seen(queue, "a")
        assert verb(delivery) is LEASE_LOST
        assert seen(queue, "a") == before
        assert numbers(app, queue) == (0, 1, 0, 0)

    def test_after_a_second_consumer_took_over_the_first_changes_nothing(
        self, queue: Queue[Any], delivery: Delivery[Any], clock: WatchedClock, verb: Any
    ) -> None:
        clock.advance(30 * SECOND)
        second = take(queue)
        before = seen(queue, "a")
        assert verb(delivery) is LEASE_LOST
        assert seen(queue, "a") == before
        assert second.ack() is DONE

    def test_after_a_drop_the_message_is_gone(self, queue: Queue[Any], delivery: Delivery[Any], verb: Any) -> None:
        queue.drop("a")
        assert verb(delivery) is GONE
        assert not queue.contains("a")

    def test_a_forged_token_settles_nothing(self, queue: Queue[Any], delivery: Delivery[Any]) -> None:
        forged = [LeaseId("a", uuid4())]
        assert queue.leases.ack(forged) == queue.leases.touch(forged) == queue.leases.release(forged) == [LEASE_LOST]
        assert queue.leases.nack([Failure(forged[0])]) == queue.leases.bury(forged) == [LEASE_LOST]
        assert delivery.ack() is DONE

    def test_a_token_is_good_for_its_own_key_only(self, queue: Queue[Any], delivery: Delivery[Any]) -> None:
        queue.offer("b", 1)
        take(queue)
        assert queue.leases.ack([LeaseId("b", delivery.token)]) == [LEASE_LOST]
        assert queue.contains("b")

    def test_a_token_is_good_for_its_own_queue_only(self, app: App, queue: Queue[Any], delivery: Delivery[Any]) -> None:
        other = app.queue(new_name())
        other.offer("a", 1)
        assert other.leases.ack([delivery.lease_id]) == [LEASE_LOST]
        assert delivery.ack() is DONE

    def test_a_settled_delivery_cannot_be_settled_again_otherwise(
        self, queue: Queue[Any], delivery: Delivery[Any], settle: Any, verb: Any
    ) -> None:
        assert settle(delivery) is DONE
        assert verb(delivery) is (LEASE_LOST if queue.contains("a") else GONE)

    def test_two_versions_in_two_hands_only_the_newer_one_settles(self, queue: Queue[Any]) -> None:
        queue.offer("a", "v1")
        first = take(queue)
        queue.offer("a", "v2")
        second = take(queue)
        assert (first.ack(), queue.contains("a")) == (LEASE_LOST, True)
        assert (second.ack(), queue.contains("a")) == (DONE, False)


class TestExpiry:
    def test_what_was_not_settled_in_time_is_delivered_again(
        self, queue: Queue[Any], delivery: Delivery[Any], clock: WatchedClock
    ) -> None:
        assert (delivery.payload, delivery.redelivered) == ("first", False)
        clock.advance(31 * SECOND)
        again = take(queue)
        assert (again.payload, again.redelivered, again.attempt) == ("first", True, 2)
        assert again.version == delivery.version

    def test_a_lease_ends_exactly_at_its_end(
        self, queue: Queue[Any], delivery: Delivery[Any], clock: WatchedClock
    ) -> None:
        clock.set(delivery.lease_until - SECOND / 1_000_000)
        assert (queue.try_poll(), seen(queue, "a").state) == (None, State.LEASED)
        clock.set(delivery.lease_until)
        assert seen(queue, "a").state is State.READY
        assert take(queue).attempt == 2

    def test_one_of_two_expires_and_the_other_is_gone(self, queue: Queue[Any], clock: WatchedClock) -> None:
        queue.offer_many([Message(key=key, payload=key) for key in "ab"])
        kept, _ = queue.try_poll_many(2)
        kept.ack()
        clock.advance(MINUTE)
        queue.offer("c", "c")
        assert [(d.key, d.redelivered) for d in queue.try_poll_many(9)] == [("b", True), ("c", False)]

    def test_without_a_limit_a_message_is_delivered_for_as_long_as_it_expires(
        self, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        queue.offer("a", 1)
        for attempt in range(1, 21):
            assert take(queue).attempt == attempt
            clock.advance(MINUTE)


class TestTouch:
    def test_a_touch_prolongs_the_lease_from_now(
        self, queue: Queue[Any], delivery: Delivery[Any], clock: WatchedClock
    ) -> None:
        clock.advance(20 * SECOND)
        assert delivery.touch() is DONE
        assert seen(queue, "a").lease_until == START + 50 * SECOND
        clock.advance(29 * SECOND)
        assert queue.try_poll() is None
        assert delivery.ack() is DONE

    def test_a_touch_may_have_a_duration(self, queue: Queue[Any], delivery: Delivery[Any]) -> None:
        assert delivery.touch(5 * MINUTE) is DONE
        assert seen(queue, "a").lease_until == START + 5 * MINUTE
        assert delivery.touch(SECOND) is DONE
        assert seen(queue, "a").lease_until == START + SECOND

    def test_without_a_length_the_message_decides(self, queue: Queue[Any], clock: WatchedClock) -> None:
        queue.offer("b", 1, lease_for=2 * MINUTE)
        delivery = take(queue)
        clock.advance(MINUTE)
        delivery.touch()
        assert seen(queue, "b").lease_until == START + 3 * MINUTE

    def test_a_touch_after_expiry_is_refused(
        self, queue: Queue[Any], delivery: Delivery[Any], clock: WatchedClock
    ) -> None:
        clock.set(delivery.lease_until)
        assert delivery.touch(MINUTE) is LEASE_LOST
        assert seen(queue, "a").state is State.READY
        assert take(queue).attempt == 2

    def test_a_touch_does_not_settle_and_counts_no_attempt(self, queue: Queue[Any], delivery: Delivery[Any]) -> None:
        delivery.touch()
        assert delivery.settled is None
        assert seen(queue, "a").attempt == 1


class TestRelease:
    def test_a_released_message_is_ready_at_once_and_burns_no_attempt(
        self, queue: Queue[Any], delivery: Delivery[Any]
    ) -> None:
        assert delivery.release() is DONE
        stored = seen(queue, "a")
        assert (stored.state, stored.attempt, stored.consumer, stored.lease_until) == (State.READY, 0, None, None)
        again = take(queue)
        assert (again.attempt, again.redelivered) == (1, False)

    def test_it_goes_back_to_its_place(self, queue: Queue[Any]) -> None:
        queue.offer_many(
            [Message(key=key, payload=0, at=START - 9 * SECOND + n * SECOND) for n, key in enumerate("abc")]
        )
        first, second = queue.try_poll_many(2)
        first.release()
        assert take(queue).key == "a"
        second.release()
        assert keys(queue.try_poll_many(9)) == ["b", "c"]

    def test_a_release_after_expiry_is_accepted_while_no_other_consumer_has_the_lease(
        self, queue: Queue[Any], delivery: Delivery[Any], clock: WatchedClock
    ) -> None:
        clock.advance(MINUTE)
        assert delivery.release() is DONE
        assert take(queue).attempt == 1


class TestReleaseForLater:
    def test_after_a_while_it_comes_again_and_no_attempt_was_burned(
        self, queue: Queue[Any], delivery: Delivery[Any], clock: WatchedClock
    ) -> None:
        clock.advance(SECOND)
        assert delivery.release(after=MINUTE) is DONE
        stored = seen(queue, "a")
        assert (stored.state, stored.attempt, stored.due_at) == (State.DELAYED, 0, START + SECOND + MINUTE)
        clock.advance(MINUTE - SECOND)
        assert queue.try_poll() is None
        clock.advance(SECOND)
        again = take(queue)
        assert (again.attempt, again.redelivered, again.version) == (1, False, delivery.version)

    def test_at_an_instant_also_one_that_has_passed(
        self, queue: Queue[Any], delivery: Delivery[Any], clock: WatchedClock
    ) -> None:
        assert delivery.release(at=START + MINUTE) is DONE
        assert seen(queue, "a").due_at == START + MINUTE
        clock.advance(MINUTE)
        assert take(queue).release(at=START) is DONE
        assert take(queue).due_at == START

    def test_a_batch_goes_to_the_same_time(self, queue: Queue[Any]) -> None:
        queue.offer_many([Message(key=key, payload=0) for key in "abc"])
        lease_ids = [delivery.lease_id for delivery in queue.try_poll_many(3)]
        assert queue.leases.release(lease_ids, after=MINUTE) == [DONE] * 3
        assert {seen(queue, key).due_at for key in "abc"} == {START + MINUTE}

    def test_a_stale_token_postpones_nothing(self, queue: Queue[Any], delivery: Delivery[Any]) -> None:
        queue.offer("a", "second")
        assert delivery.release(after=MINUTE) is LEASE_LOST
        assert take(queue).payload == "second"

    def test_the_journal_knows_until_when(self, app: App, queue: Queue[Any], delivery: Delivery[Any]) -> None:
        delivery.release(after=MINUTE)
        event = app.store.run(app.store.journal.timeline(queue.name, "a"))[-1]
        assert (event.kind, event.attempt, event.due_at) == ("released", 0, START + MINUTE)

    def test_an_identical_offer_still_changes_nothing(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1, at=START)
        take(queue).release(after=MINUTE)
        assert queue.offer("a", 1, at=START) is Outcome.IGNORED
        assert seen(queue, "a").due_at == START + MINUTE


class TestTheSameLeaseTwiceInOneBatch:
    def test_it_is_settled_as_by_two_calls_in_sequence(self, queue: Queue[Any]) -> None:
        queue.offer_many([Message(key=key, payload=0) for key in "abcd"])
        a, b, c, d = (delivery.lease_id for delivery in queue.try_poll_many(4))
        assert queue.leases.ack([a, a]) == [DONE, GONE]
        assert queue.leases.nack([Failure(b, "one"), Failure(b, "two")]) == [DONE, LEASE_LOST]
        assert queue.leases.release([c, c]) == [DONE, LEASE_LOST]
        assert queue.leases.bury([d, d]) == [DONE, GONE]
        assert seen(queue, "b").last_error == "one"

    def test_a_touch_may_be_repeated(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        lease_id = take(queue).lease_id
        assert queue.leases.touch([lease_id, lease_id], MINUTE) == [DONE, DONE]


class TestAsAContext:
    def test_a_block_that_ends_well_acks(self, queue: Queue[Any], delivery: Delivery[Any]) -> None:
        with delivery as entered:
            assert entered.payload == "first"
        assert delivery.settled is DONE
        assert not queue.contains("a")

    def test_a_block_that_raises_nacks_with_the_error_and_lets_it_pass(
        self, queue: Queue[Any], delivery: Delivery[Any]
    ) -> None:
        with pytest.raises(ZeroDivisionError), delivery:
            _ = 1 / 0
        stored = seen(queue, "a")
        assert (stored.attempt, stored.state) == (1, State.DELAYED)
        assert stored.last_error is not None
        assert stored.last_error.startswith("ZeroDivisionError: division by zero")

    def test_what_is_no_ordinary_error_gives_the_message_back(self, queue: Queue[Any], delivery: Delivery[Any]) -> None:
        with pytest.raises(KeyboardInterrupt), delivery:
            raise KeyboardInterrupt
        assert (seen(queue, "a").state, seen(queue, "a").attempt) == (State.READY, 0)

    def test_what_was_settled_inside_stays_as_it_was_settled(
        self, queue: Queue[Any], delivery: Delivery[Any], settle: Any
    ) -> None:
        with delivery:
            assert settle(delivery) is DONE
        assert delivery.settled is DONE

    def test_a_lost_lease_is_no_error(self, queue: Queue[Any], delivery: Delivery[Any]) -> None:
        with delivery:
            queue.offer("a", "second")
        assert delivery.settled is LEASE_LOST
        assert take(queue).payload == "second"


class TestDiscretion:
    def test_the_repr_of_a_delivery_has_neither_payload_nor_token(self, backend: Backend, queue: Queue[Any]) -> None:
        queue.offer("a", "secret payload")
        delivery = take(queue)
        assert "'a'" in repr(delivery)
        for shown in (repr(delivery), pretty_repr(delivery)):
            assert "secret" not in shown
            assert str(delivery.token) not in shown
