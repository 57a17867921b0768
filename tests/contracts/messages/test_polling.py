"""Polling: what is deliverable, in which order, how many, of which type."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from tarry import Message, Queue, QueueSettings
from tarry.app import App
from tarry.core.messages.states import State
from tests.kit.backends import Backend, new_name
from tests.kit.clocks import START, WatchedClock
from tests.kit.steps import EMPTY, MINUTE, SECOND, keys, numbers, seen, take


class TestWhatIsDeliverable:
    def test_an_empty_queue_gives_nothing(self, queue: Queue[Any]) -> None:
        assert queue.try_poll() is None
        assert queue.try_poll_many(10) == []

    def test_a_message_due_in_the_past_is_delivered(self, queue: Queue[Any]) -> None:
        queue.offer("a", "payload", at=START - 10 * SECOND)
        delivery = take(queue)
        assert (delivery.key, delivery.payload) == ("a", "payload")

    def test_a_message_due_in_the_future_is_not(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1, after=MINUTE)
        assert queue.try_poll() is None

    def test_it_comes_at_its_time_and_not_a_second_before(self, queue: Queue[Any], clock: WatchedClock) -> None:
        queue.offer("a", 1, after=MINUTE)
        clock.advance(MINUTE - SECOND)
        assert queue.try_poll() is None
        clock.advance(SECOND)
        assert take(queue).key == "a"

    def test_messages_become_available_one_by_one_as_time_passes(self, queue: Queue[Any], clock: WatchedClock) -> None:
        for n in (1, 2, 3):
            queue.offer(f"k{n}", n, after=n * MINUTE)
        for n in (1, 2, 3):
            assert queue.try_poll() is None
            clock.advance(MINUTE)
            delivery = take(queue)
            assert delivery.key == f"k{n}"
            delivery.ack()

    def test_of_three_only_the_due_one_is_taken(self, queue: Queue[Any]) -> None:
        queue.offer("due", 1)
        queue.offer("soon", 1, after=SECOND)
        queue.offer("later", 1, after=MINUTE)
        assert keys(queue.try_poll_many(10)) == ["due"]

    def test_a_leased_message_is_not_delivered_twice(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        take(queue)
        assert queue.try_poll() is None

    def test_a_poll_never_changes_the_due_time(self, queue: Queue[Any], clock: WatchedClock) -> None:
        queue.offer("a", 1, at=START - SECOND)
        take(queue)
        assert seen(queue, "a").due_at == START - SECOND
        clock.advance(MINUTE)
        assert take(queue).due_at == START - SECOND

    def test_a_clock_that_is_set_back_takes_what_was_due_with_it(self, queue: Queue[Any], clock: WatchedClock) -> None:
        queue.offer("a", 1, after=MINUTE)
        clock.advance(MINUTE)
        assert seen(queue, "a").state is State.READY
        clock.advance(-SECOND)
        assert seen(queue, "a").state is State.DELAYED
        assert queue.try_poll() is None


class TestOrder:
    def test_by_due_time_however_they_were_offered(self, queue: Queue[Any], clock: WatchedClock) -> None:
        for key, seconds in [("k1", 3), ("k2", 1), ("k3", 2)]:
            queue.offer(key, 1, after=seconds * SECOND)
        clock.advance(4 * SECOND)
        assert [take(queue).key for _ in range(3)] == ["k2", "k3", "k1"]

    def test_equal_due_times_come_out_in_the_order_of_their_offers(self, queue: Queue[Any]) -> None:
        for key in ("key1", "key2", "key3", "another"):
            queue.offer(key, 1, at=START)
        assert keys(queue.try_poll_many(4)) == ["key1", "key2", "key3", "another"]

    def test_an_update_goes_behind_its_equals(self, queue: Queue[Any]) -> None:
        for key in "abc":
            queue.offer(key, 1, at=START)
        queue.offer("a", 2, at=START)
        assert keys(queue.try_poll_many(3)) == ["b", "c", "a"]

    def test_by_priority_first_whatever_the_due_time(self, queue: Queue[Any]) -> None:
        queue.offer("old", 1, at=START - MINUTE)
        queue.offer("urgent", 1, at=START, priority=9)
        queue.offer("middle", 1, at=START - SECOND, priority=4)
        queue.offer("urgent but later", 1, after=SECOND, priority=9)
        assert keys(queue.try_poll_many(9)) == ["urgent", "middle", "old"]

    def test_priority_then_due_time_then_version_over_a_grid(self, queue: Queue[Any]) -> None:
        grid = list(product(range(10), (3, 1, 2), ("x", "y")))
        for priority, seconds, letter in grid:
            queue.offer(f"{priority}.{seconds}.{letter}", 1, at=START - seconds * SECOND, priority=priority)
        expected = sorted(grid, key=lambda case: (-case[0], -case[1], case[2]))
        assert keys(queue.try_poll_many(100)) == [f"{p}.{s}.{x}" for p, s, x in expected]

    def test_the_lowest_priority_may_be_polled_first(self, queue: Queue[Any]) -> None:
        queue.offer_many([Message(key=f"{p}{n}", payload=0, priority=p, type="t") for p in (0, 5, 9) for n in range(2)])
        assert {delivery.priority for delivery in queue.try_poll_many(2, lowest_first=True)} == {0}
        assert keys(queue.try_poll_many(2, lowest_first=True, type="t")) == ["50", "51"]
        assert keys(queue.try_poll_many(9)) == ["90", "91"]

    def test_a_batch_with_the_lowest_priority_first_is_in_that_order(self, queue: Queue[Any]) -> None:
        for n, priority in enumerate((5, 0, 9, 0, 5)):
            queue.offer(f"{priority}{n}", 1, at=START - n * SECOND, priority=priority)
        assert keys(queue.try_poll_many(9, lowest_first=True)) == ["03", "01", "54", "50", "92"]

    def test_one_by_one_gives_the_same_order_as_all_at_once(self, queue: Queue[Any]) -> None:
        for n in range(12):
            queue.offer(f"k{n}", 1, at=START - (n * 7 % 5) * SECOND, priority=n * 5 % 3)
        together = keys(queue.try_poll_many(12))
        for key in together:
            queue.drop(key)
        for n in range(12):
            queue.offer(f"k{n}", 1, at=START - (n * 7 % 5) * SECOND, priority=n * 5 % 3)
        assert [take(queue).key for _ in range(12)] == together

    def test_an_expired_lease_goes_back_to_its_place_not_to_the_end(
        self, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        for key, seconds in [("a", 3), ("b", 2), ("c", 1)]:
            queue.offer(key, 1, at=START - seconds * SECOND)
        assert take(queue).key == "a"
        clock.advance(MINUTE)
        assert keys(queue.try_poll_many(3)) == ["a", "b", "c"]


class TestHowMany:
    def test_two_due_messages_come_together(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        queue.offer("b", 2)
        assert [delivery.payload for delivery in queue.try_poll_many(10)] == [1, 2]

    @pytest.mark.parametrize("n", [1, 2, 5, 9])
    def test_never_more_than_the_limit(self, app: App, queue: Queue[Any], n: int) -> None:
        queue.offer_many([Message(key=f"k{i}", payload=i, priority=i % 3) for i in range(10)])
        assert len(queue.try_poll_many(n)) == n
        assert numbers(app, queue) == (0, 10 - n, n, 0)

    @pytest.mark.parametrize("n", [0, -1, -1000])
    def test_none_or_less_gives_none_and_leases_nothing(self, app: App, queue: Queue[Any], n: int) -> None:
        queue.offer("a", 1)
        queue.offer("b", 2)
        assert queue.try_poll_many(n) == []
        assert queue.leases.ack([]) == []
        assert numbers(app, queue) == (0, 2, 0, 0)
        assert len(queue.try_poll_many(3)) == 2

    def test_fresh_messages_of_a_batch_are_first_deliveries(self, queue: Queue[Any]) -> None:
        queue.offer_many([Message(key=f"k{i}", payload=i) for i in range(5)])
        assert [(d.attempt, d.redelivered) for d in queue.try_poll_many(5)] == [(1, False)] * 5

    def test_each_message_of_a_batch_has_its_own_redelivered_flag(self, queue: Queue[Any], clock: WatchedClock) -> None:
        queue.offer("again", 1)
        take(queue, lease_for=5 * SECOND)
        queue.offer("first", 1)
        clock.advance(6 * SECOND)
        redelivered = {delivery.key: delivery.redelivered for delivery in queue.try_poll_many(10)}
        assert redelivered == {"again": True, "first": False}

    def test_every_lease_of_a_batch_has_a_token_of_its_own(self, queue: Queue[Any]) -> None:
        queue.offer_many([Message(key=f"k{i}", payload=i) for i in range(20)])
        assert len({delivery.token for delivery in queue.try_poll_many(20)}) == 20


class TestTypes:
    def test_a_poll_for_a_type_sees_only_that_type(self, queue: Queue[Any]) -> None:
        for key, kind in [("a", "mail"), ("b", "sms"), ("c", None), ("d", "mail")]:
            queue.offer(key, 1, type=kind)
        assert keys(queue.try_poll_many(9, type="mail")) == ["a", "d"]
        assert queue.try_poll(type="mail") is None
        assert queue.try_poll(type="fax") is None
        assert keys(queue.try_poll_many(9)) == ["b", "c"]

    def test_order_and_limits_apply_within_a_type(self, queue: Queue[Any]) -> None:
        for n in range(6):
            queue.offer(f"k{n}", n, type="even" if n % 2 == 0 else "odd", priority=n // 2, at=START - n * SECOND)
        assert keys(queue.try_poll_many(2, type="odd")) == ["k5", "k3"]
        assert keys(queue.try_poll_many(9, type="odd")) == ["k1"]

    def test_an_update_may_change_the_type(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1, type="old")
        queue.offer("a", 1, type="new")
        assert queue.try_poll(type="old") is None
        assert take(queue, type="new").type == "new"

    def test_a_lease_of_a_type_counts_for_every_consumer(self, queue: Queue[Any], clock: WatchedClock) -> None:
        queue.offer("a", 1, type="t")
        take(queue)
        assert queue.try_poll(type="t") is None
        clock.advance(MINUTE)
        assert take(queue, type="t").attempt == 2
        assert queue.try_poll() is None

    def test_types_are_compared_as_they_are(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1, type="Mail%_")
        assert queue.try_poll(type="mail%_") is None
        assert queue.try_poll(type="Mail__") is None
        assert take(queue, type="Mail%_").key == "a"


class TestLengthOfLeases:
    """Request before message before queue before default."""

    def test_by_default_a_lease_lasts_30_seconds(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        assert take(queue).lease_until == START + 30 * SECOND

    def test_the_queue_decides_where_the_message_does_not(self, app: App) -> None:
        app.queues.create(name := new_name(), QueueSettings(lease_for=MINUTE))
        app.queue(name).offer("a", 1)
        assert take(app.queue(name)).lease_until == START + MINUTE

    def test_the_message_decides_where_the_poll_does_not(self, app: App) -> None:
        app.queues.create(name := new_name(), QueueSettings(lease_for=MINUTE))
        app.queue(name).offer("a", 1, lease_for=2 * MINUTE)
        assert take(app.queue(name)).lease_until == START + 2 * MINUTE

    def test_the_poll_has_the_last_word(self, app: App) -> None:
        app.queues.create(name := new_name(), QueueSettings(lease_for=MINUTE))
        app.queue(name).offer("a", 1, lease_for=2 * MINUTE)
        assert take(app.queue(name), lease_for=3 * MINUTE).lease_until == START + 3 * MINUTE

    @pytest.mark.parametrize("lease_for", [SECOND, timedelta(hours=12), timedelta(seconds=1, microseconds=1)])
    def test_the_shortest_and_the_longest_are_kept_exactly(self, queue: Queue[Any], lease_for: timedelta) -> None:
        queue.offer("a", 1, lease_for=lease_for)
        delivery = take(queue)
        assert delivery.lease_until - delivery.leased_at == lease_for
        assert seen(queue, "a").lease_until == START + lease_for


class TestConsumers:
    def test_the_consumer_is_written_on_the_message(self, backend: Backend, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        take(backend.app("alice").queue(queue.name))
        assert (seen(queue, "a").consumer, seen(queue, "a").state) == ("alice", State.LEASED)

    def test_two_consumers_share_a_queue_without_sharing_a_message(self, backend: Backend, queue: Queue[Any]) -> None:
        queue.offer_many([Message(key=f"k{i}", payload=i) for i in range(10)])
        alice, bob = (backend.app(name).queue(queue.name) for name in ("alice", "bob"))
        got = [keys(consumer.try_poll_many(3)) for consumer in (alice, bob, alice, bob)]
        assert sorted(key for some in got for key in some) == [f"k{i}" for i in range(10)]
        assert numbers(backend.app(), queue) == (0, 0, 10, 0)

    @pytest.mark.usefixtures("queue_exists")
    def test_looking_into_an_empty_queue_finds_nothing_in_any_state(self, app: App, queue: Queue[Any]) -> None:
        assert numbers(app, queue) == EMPTY
        assert app.store.run(app.store.messages.list(queue.name)) == []
