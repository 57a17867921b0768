"""Blocking polls: they wait, they wake, they give up in time; and `consume`, which never ends."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from typing import Any

import pytest

from tarry import Message, Queue
from tarry.api import prefetch as prefetching
from tarry.app import App
from tests.kit.backends import where_the_messages_are
from tests.kit.clocks import START, WatchedClock
from tests.kit.steps import HOUR, MINUTE, SECOND, TIMEOUT, TIMEOUT_S, in_background, keys, numbers, seen, take

SHORT = timedelta(milliseconds=50)


def until_it_waits(clock: WatchedClock) -> None:
    """A poll without a message has read the clock for its lease and for the next due time, and begins again."""
    clock.await_looks(clock.looks + 3)


class TestPoll:
    def test_what_is_there_is_given_at_once(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        delivery = queue.poll(timedelta(0))
        assert delivery is not None
        assert delivery.key == "a"

    def test_without_a_message_it_gives_up_in_time(self, queue: Queue[Any]) -> None:
        assert queue.poll(SHORT) is None
        assert queue.poll_many(5, SHORT) == []

    def test_a_timeout_of_nothing_looks_once(self, queue: Queue[Any], clock: WatchedClock) -> None:
        assert queue.poll(timedelta(0)) is None
        assert queue.poll(timedelta(seconds=-5)) is None

    def test_it_waits_until_something_is_offered(self, queue: Queue[Any], clock: WatchedClock) -> None:
        with in_background(queue.poll, TIMEOUT) as waiting:
            until_it_waits(clock)
            assert not waiting.done()
            queue.offer("a", "here")
            assert waiting.result(TIMEOUT_S).payload == "here"

    def test_it_waits_until_something_is_due(self, queue: Queue[Any], clock: WatchedClock) -> None:
        queue.offer("a", 1, after=HOUR)
        with in_background(queue.poll, TIMEOUT) as waiting:
            until_it_waits(clock)
            assert not waiting.done()
            clock.advance(HOUR)
            assert waiting.result(TIMEOUT_S).leased_at == START + HOUR

    def test_it_is_not_fooled_by_a_head_that_is_far_away(self, queue: Queue[Any], clock: WatchedClock) -> None:
        queue.offer("far", 1, after=HOUR)
        with in_background(queue.poll, TIMEOUT) as waiting:
            until_it_waits(clock)
            queue.offer("near", 1)
            assert waiting.result(TIMEOUT_S).key == "near"

    def test_it_waits_for_a_lease_to_run_out(self, queue: Queue[Any], clock: WatchedClock) -> None:
        queue.offer("a", 1)
        take(queue)
        with in_background(queue.poll, TIMEOUT) as waiting:
            until_it_waits(clock)
            clock.advance(MINUTE)
            assert waiting.result(TIMEOUT_S).attempt == 2

    def test_it_waits_for_a_paused_queue_to_go_on(self, app: App, queue: Queue[Any], clock: WatchedClock) -> None:
        queue.offer("a", 1)
        app.queues.pause(queue.name)
        with in_background(queue.poll, TIMEOUT) as waiting:
            until_it_waits(clock)
            app.queues.resume(queue.name)
            assert waiting.result(TIMEOUT_S).key == "a"

    def test_it_waits_for_its_type_only(self, queue: Queue[Any], clock: WatchedClock) -> None:
        queue.offer("other", 1, type="other")
        with in_background(queue.poll, TIMEOUT, type="mine") as waiting:
            until_it_waits(clock)
            queue.offer("mine", 1, type="mine")
            assert waiting.result(TIMEOUT_S).key == "mine"

    def test_the_lease_begins_when_it_is_granted_not_when_the_poll_began(
        self, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        with in_background(queue.poll, TIMEOUT, lease_for=5 * SECOND) as waiting:
            until_it_waits(clock)
            clock.advance(HOUR)
            queue.offer("a", 1)
            assert waiting.result(TIMEOUT_S).lease_until == START + HOUR + 5 * SECOND

    def test_one_message_wakes_one_of_several(self, app: App, queue: Queue[Any], clock: WatchedClock) -> None:
        with in_background(queue.poll, TIMEOUT) as first, in_background(queue.poll, TIMEOUT) as other:
            until_it_waits(clock)
            queue.offer_many([Message(key=key, payload=0) for key in "ab"])
            assert {first.result(TIMEOUT_S).key, other.result(TIMEOUT_S).key} == {"a", "b"}
        assert numbers(app, queue) == (0, 0, 2, 0)


class TestPollMany:
    def test_it_takes_what_is_there_and_does_not_wait_for_more(self, queue: Queue[Any]) -> None:
        queue.offer_many([Message(key=key, payload=0, at=START) for key in "ab"])
        assert len(queue.poll_many(5, TIMEOUT)) == 2

    def test_it_waits_for_the_first(self, queue: Queue[Any], clock: WatchedClock) -> None:
        with in_background(queue.poll_many, 5, TIMEOUT) as waiting:
            until_it_waits(clock)
            queue.offer_many([Message(key=f"k{i}", payload=0) for i in range(3)])
            assert sorted(keys(waiting.result(TIMEOUT_S))) == ["k0", "k1", "k2"]

    @pytest.mark.parametrize("n", [0, -1])
    def test_none_are_given_without_waiting(self, queue: Queue[Any], n: int) -> None:
        assert queue.poll_many(n) == []


class TestConsume:
    def test_it_gives_one_after_the_other(self, app: App, queue: Queue[Any]) -> None:
        for n in range(5):
            queue.offer(f"k{n}", n)
        got: list[int] = []
        for delivery in islice(queue.consume(prefetch=2), 5):
            with delivery:
                got.append(delivery.payload)
        assert got == [0, 1, 2, 3, 4]
        assert numbers(app, queue) == (0, 0, 0, 0)

    def test_it_leases_one_first_and_more_when_it_is_fast(self, app: App, queue: Queue[Any]) -> None:
        queue.offer_many([Message(key=f"k{i:02d}", payload=i) for i in range(50)])
        deliveries = queue.consume()
        got: list[int] = []
        for delivery in deliveries:
            if not got:
                assert numbers(app, queue) == (0, 49, 1, 0)
            with delivery:
                got.append(delivery.payload)
            if len(got) == 40:
                break
        deliveries.close()  # pyright: ignore[reportAttributeAccessIssue]
        assert got == list(range(40))
        assert numbers(app, queue) == (0, 10, 0, 0)

    def test_what_was_leased_ahead_is_given_back_when_the_loop_ends(self, app: App, queue: Queue[Any]) -> None:
        queue.offer_many([Message(key=f"k{i}", payload=i) for i in range(10)])
        deliveries = queue.consume(prefetch=5)
        first: Any = next(iter(deliveries))
        assert numbers(app, queue) == (0, 5, 5, 0)
        deliveries.close()  # pyright: ignore[reportAttributeAccessIssue]
        assert numbers(app, queue) == (0, 9, 1, 0)
        assert seen(queue, "k1").attempt == 0
        assert first.ack().value == "done"

    def test_what_was_leased_ahead_is_given_back_when_the_queue_is_paused(
        self, app: App, queue: Queue[Any], clock: WatchedClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(prefetching, "LOOK_EVERY_S", 0.0)
        queue.offer_many([Message(key=f"k{i}", payload=i) for i in range(3)])
        deliveries = queue.consume(prefetch=3)
        first: Any = next(iter(deliveries))
        app.queues.pause(queue.name)
        with in_background(next, iter(deliveries)) as waiting:
            until_it_waits(clock)
            assert numbers(app, queue) == (0, 2, 1, 0)
            first.ack()
            app.queues.resume(queue.name)
            assert (waiting.result(TIMEOUT_S).key, waiting.result().attempt) == ("k1", 1)
        deliveries.close()  # pyright: ignore[reportAttributeAccessIssue]

    def test_it_waits_for_what_comes_later(self, queue: Queue[Any], clock: WatchedClock) -> None:
        deliveries = queue.consume(type="mine")
        with in_background(next, iter(deliveries)) as waiting:
            until_it_waits(clock)
            queue.offer("other", 1)
            queue.offer("a", 1, type="mine")
            assert waiting.result(TIMEOUT_S).key == "a"
        deliveries.close()  # pyright: ignore[reportAttributeAccessIssue]


@where_the_messages_are
class TestNextDue:
    """What a blocking poll sleeps by."""

    def announce(self, app: App, queue: Queue[Any], **options: Any) -> timedelta | None:
        return app.store.run(app.store.wakeup.announce(queue.name, sleep_for=SECOND, **options)).due_in

    @pytest.mark.usefixtures("queue_exists")
    def test_nothing_waits_in_an_empty_queue(self, app: App, queue: Queue[Any]) -> None:
        assert self.announce(app, queue) is None

    def test_the_earliest_of_all_priorities_counts(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("late but urgent", 1, after=HOUR, priority=9)
        queue.offer("soon", 1, after=MINUTE)
        assert self.announce(app, queue) == MINUTE

    def test_what_is_ready_is_due_in_no_time(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1, at=START - HOUR)
        queue.offer("b", 1, after=HOUR)
        assert self.announce(app, queue) == timedelta(0)

    def test_a_lease_is_due_at_its_end(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        take(queue, lease_for=20 * SECOND)
        assert self.announce(app, queue) == 20 * SECOND
        queue.offer("b", 1, after=10 * SECOND)
        assert self.announce(app, queue) == 10 * SECOND

    def test_a_paused_queue_has_nothing_to_wait_for(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        app.queues.pause(queue.name)
        assert self.announce(app, queue) is None

    def test_one_type_may_be_selected(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1, after=MINUTE, type="x")
        queue.offer("b", 1)
        assert self.announce(app, queue, type="x") == MINUTE
        assert self.announce(app, queue, type="y") is None
