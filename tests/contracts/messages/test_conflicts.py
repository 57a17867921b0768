"""What an offer does when its key is live: replace, keep, earliest, debounce."""

from __future__ import annotations

from typing import Any

import pytest

from tarry import Conflict, Outcome, Queue, Settled
from tarry.core.messages.states import State
from tests.kit.clocks import START, WatchedClock
from tests.kit.steps import MINUTE, SECOND, seen, take

CREATED, UPDATED, IGNORED = Outcome.CREATED, Outcome.UPDATED, Outcome.IGNORED
EVERY = [Conflict.replace(), Conflict.keep(), Conflict.earliest(), Conflict.debounce(MINUTE)]


@pytest.fixture(params=EVERY, ids=lambda conflict: conflict.rule.value)
def conflict(request: pytest.FixtureRequest) -> Conflict:
    return request.param


class TestEveryPolicy:
    def test_creates_where_the_key_is_free(self, queue: Queue[Any], conflict: Conflict) -> None:
        assert queue.offer("a", 1, after=SECOND, conflict=conflict) is CREATED
        assert seen(queue, "a").due_at == START + SECOND

    def test_ignores_an_identical_offer_and_leaves_its_lease(self, queue: Queue[Any], conflict: Conflict) -> None:
        queue.offer("a", 1, at=START, conflict=conflict)
        delivery = take(queue)
        assert queue.offer("a", 1, at=START, conflict=conflict) is IGNORED
        assert delivery.ack() is Settled.DONE

    def test_the_trace_it_was_offered_in_is_no_difference(self, queue: Queue[Any], conflict: Conflict) -> None:
        first, second = ({"traceparent": f"00-{n:032x}-{n:016x}-01", "tracestate": f"a={n}"} for n in (1, 2))
        queue.offer("a", 1, at=START, conflict=conflict, headers=first)
        delivery = take(queue)
        assert queue.offer("a", 1, at=START, conflict=conflict, headers=second) is IGNORED
        assert queue.offer("a", 1, at=START, conflict=conflict) is IGNORED
        assert delivery.ack() is Settled.DONE

    def test_creates_again_after_an_ack(self, queue: Queue[Any], conflict: Conflict) -> None:
        queue.offer("a", 1, conflict=conflict)
        take(queue).ack()
        assert queue.offer("a", 2, after=SECOND, conflict=conflict) is CREATED
        assert (seen(queue, "a").payload, seen(queue, "a").due_at) == (2, START + SECOND)


class TestReplace:
    def test_the_last_offer_wins_whether_it_is_due_earlier_or_later(self, queue: Queue[Any]) -> None:
        for payload, wait in enumerate([10, 5, 20]):
            queue.offer("a", payload, after=wait * SECOND, conflict=Conflict.replace())
        assert (seen(queue, "a").payload, seen(queue, "a").due_at) == (2, START + 20 * SECOND)


class TestKeep:
    def test_the_first_offer_stays(self, queue: Queue[Any]) -> None:
        queue.offer("a", 0, after=10 * SECOND, conflict=Conflict.keep())
        for payload, wait in [(1, 5), (2, 20)]:
            assert queue.offer("a", payload, after=wait * SECOND, conflict=Conflict.keep()) is IGNORED
        assert (seen(queue, "a").payload, seen(queue, "a").due_at) == (0, START + 10 * SECOND)

    def test_what_was_kept_can_be_replaced(self, queue: Queue[Any]) -> None:
        queue.offer("a", 0, conflict=Conflict.keep())
        assert queue.offer("a", 1) is UPDATED

    def test_can_update_false_means_the_same(self, queue: Queue[Any]) -> None:
        queue.offer("a", 0)
        assert queue.offer("a", 1, conflict=Conflict.keep(), can_update=False) is IGNORED


class TestEarliest:
    def test_only_an_earlier_offer_replaces_the_live_one(self, queue: Queue[Any]) -> None:
        queue.offer("a", "first", after=10 * SECOND, conflict=Conflict.earliest())
        assert queue.offer("a", "later", after=20 * SECOND, conflict=Conflict.earliest()) is IGNORED
        assert queue.offer("a", "same time", after=10 * SECOND, conflict=Conflict.earliest()) is IGNORED
        assert queue.offer("a", "earlier", after=5 * SECOND, conflict=Conflict.earliest()) is UPDATED
        assert (seen(queue, "a").payload, seen(queue, "a").due_at) == ("earlier", START + 5 * SECOND)

    def test_a_retry_does_not_make_the_live_one_later(self, queue: Queue[Any]) -> None:
        queue.offer("a", "first", at=START)
        take(queue).nack(after=MINUTE)
        assert queue.offer("a", "second", at=START + SECOND, conflict=Conflict.earliest()) is IGNORED
        assert seen(queue, "a").due_at == START + MINUTE

    def test_an_earlier_offer_ends_a_lease_and_a_later_one_does_not(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1, at=START)
        delivery = take(queue)
        assert queue.offer("a", 2, at=START + SECOND, conflict=Conflict.earliest()) is IGNORED
        assert delivery.touch() is Settled.DONE
        assert queue.offer("a", 3, at=START - SECOND, conflict=Conflict.earliest()) is UPDATED
        assert delivery.ack() is Settled.LEASE_LOST


class TestDebounce:
    def test_each_offer_pushes_it_back(self, queue: Queue[Any], clock: WatchedClock) -> None:
        debounce = Conflict.debounce(MINUTE)
        queue.offer("a", 0, after=10 * SECOND, conflict=debounce)
        for payload in range(1, 4):
            clock.advance(5 * SECOND)
            assert queue.offer("a", payload, after=10 * SECOND, conflict=debounce) is UPDATED
            assert queue.try_poll() is None
        assert (seen(queue, "a").payload, seen(queue, "a").due_at) == (3, START + 25 * SECOND)

    def test_never_beyond_max_wait_after_the_first(self, queue: Queue[Any], clock: WatchedClock) -> None:
        debounce = Conflict.debounce(20 * SECOND)
        for payload in range(4):
            queue.offer("a", payload, after=10 * SECOND, conflict=debounce)
            clock.advance(5 * SECOND)
        assert seen(queue, "a").due_at == START + 20 * SECOND
        clock.set(START + 20 * SECOND)
        assert take(queue).payload == 3

    def test_a_first_offer_beyond_max_wait_is_cut_to_it(self, queue: Queue[Any]) -> None:
        queue.offer("a", 0, after=MINUTE, conflict=Conflict.debounce(20 * SECOND))
        assert seen(queue, "a").due_at == START + 20 * SECOND

    def test_at_the_limit_an_offer_with_the_same_payload_changes_nothing(self, queue: Queue[Any]) -> None:
        debounce = Conflict.debounce(20 * SECOND)
        queue.offer("a", 0, after=MINUTE, conflict=debounce)
        assert queue.offer("a", 0, after=2 * MINUTE, conflict=debounce) is IGNORED

    def test_a_shorter_max_wait_counts_for_its_own_offer(self, queue: Queue[Any]) -> None:
        queue.offer("a", 0, after=10 * SECOND, conflict=Conflict.debounce(MINUTE))
        queue.offer("a", 1, after=30 * SECOND, conflict=Conflict.debounce(20 * SECOND))
        assert seen(queue, "a").due_at == START + 20 * SECOND

    def test_a_replace_in_between_starts_a_new_row(self, queue: Queue[Any], clock: WatchedClock) -> None:
        debounce = Conflict.debounce(20 * SECOND)
        queue.offer("a", 0, after=10 * SECOND, conflict=debounce)
        clock.advance(15 * SECOND)
        queue.offer("a", 1, after=MINUTE)
        assert seen(queue, "a").due_at == START + 75 * SECOND
        queue.offer("a", 2, after=15 * SECOND, conflict=debounce)
        assert seen(queue, "a").due_at == START + 30 * SECOND

    def test_a_debounce_of_what_was_offered_otherwise_is_limited_from_now(
        self, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        queue.offer("a", 0, after=10 * SECOND)
        clock.advance(5 * SECOND)
        queue.offer("a", 1, after=MINUTE, conflict=Conflict.debounce(20 * SECOND))
        assert seen(queue, "a").due_at == START + 25 * SECOND

    def test_after_the_delivery_a_new_row_begins(self, queue: Queue[Any], clock: WatchedClock) -> None:
        debounce = Conflict.debounce(20 * SECOND)
        queue.offer("a", 0, after=10 * SECOND, conflict=debounce)
        clock.advance(10 * SECOND)
        take(queue).ack()
        clock.advance(MINUTE)
        assert queue.offer("a", 1, after=10 * SECOND, conflict=debounce) is CREATED
        assert seen(queue, "a").state is State.DELAYED

    def test_an_offer_while_it_is_handled_ends_the_lease(self, queue: Queue[Any]) -> None:
        debounce = Conflict.debounce(MINUTE)
        queue.offer("a", 0, conflict=debounce)
        delivery = take(queue)
        assert queue.offer("a", 1, after=10 * SECOND, conflict=debounce) is UPDATED
        assert delivery.ack() is Settled.LEASE_LOST
        assert seen(queue, "a").state is State.DELAYED
