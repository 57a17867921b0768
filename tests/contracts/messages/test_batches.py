"""Many messages at once: outcomes in input order, the same key twice, all or nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tarry import Conflict, Message, Outcome, Queue, Settled
from tarry.app import App
from tarry.core.errors import InvalidInput
from tests.kit.clocks import START, WatchedClock
from tests.kit.steps import EMPTY, MINUTE, SECOND, keys, numbers, seen, take

CREATED, UPDATED, IGNORED, SUPERSEDED = Outcome.CREATED, Outcome.UPDATED, Outcome.IGNORED, Outcome.SUPERSEDED
REPLACE, KEEP, EARLIEST = Conflict.replace(), Conflict.keep(), Conflict.earliest()


def message(key: str | None, payload: Any = 0, seconds: float = 0, conflict: Conflict = REPLACE) -> Message[Any]:
    return Message(key=key, payload=payload, after=seconds * SECOND, conflict=conflict)


class TestOutcomes:
    def test_an_empty_batch_has_no_outcomes(self, queue: Queue[Any]) -> None:
        assert queue.offer_many([]) == []

    def test_new_keys_are_created(self, queue: Queue[Any]) -> None:
        assert queue.offer_many([message("a"), message("b")]) == [CREATED, CREATED]
        assert queue.contains("a")
        assert queue.contains("b")

    def test_one_live_and_one_new_key_are_updated_and_created(self, queue: Queue[Any]) -> None:
        queue.offer("a", "old")
        assert queue.offer_many([message("a", "new"), message("b")]) == [UPDATED, CREATED]
        assert seen(queue, "a").payload == "new"

    def test_every_outcome_stands_where_its_message_stood(self, queue: Queue[Any]) -> None:
        queue.offer_many([message("live"), message("changed"), message("kept")])
        batch = [
            message("z-new"),
            message("live"),
            message("changed", 1),
            message("kept", 1, conflict=KEEP),
            message("a-new"),
        ]
        assert queue.offer_many(batch) == [CREATED, IGNORED, UPDATED, IGNORED, CREATED]

    def test_live_keys_are_kept_where_the_batch_may_not_update(self, queue: Queue[Any]) -> None:
        queue.offer_many([message("a", "old"), message("b", "old")])
        batch = [message(key, "new", conflict=KEEP) for key in "abc"]
        assert queue.offer_many(batch) == [IGNORED, IGNORED, CREATED]
        assert [seen(queue, key).payload for key in "abc"] == ["old", "old", "new"]

    def test_live_keys_are_updated_where_it_may(self, queue: Queue[Any]) -> None:
        queue.offer_many([message("a", "old"), message("b", "old")])
        assert queue.offer_many([message(key, "new") for key in "abc"]) == [UPDATED, UPDATED, CREATED]

    def test_ten_live_keys_among_250_are_ignored_and_keep_their_payload(self, queue: Queue[Any]) -> None:
        queue.offer_many([message(f"k{i:03}", "old") for i in range(0, 250, 25)])
        outcomes = queue.offer_many([message(f"k{i:03}", "new", conflict=KEEP) for i in range(250)])
        assert [i for i, outcome in enumerate(outcomes) if outcome is IGNORED] == list(range(0, 250, 25))
        assert outcomes.count(CREATED) == 240
        assert seen(queue, "k025").payload == "old"

    def test_a_generator_is_as_good_as_a_list(self, queue: Queue[Any]) -> None:
        assert queue.offer_many(message(key) for key in "ab") == [CREATED, CREATED]

    def test_messages_without_a_key_are_all_new(self, app: App, queue: Queue[Any]) -> None:
        assert queue.offer_many([message(None)] * 3) == [CREATED] * 3
        assert numbers(app, queue) == (0, 3, 0, 0)

    def test_every_field_of_a_message_is_stored(self, queue: Queue[Any]) -> None:
        queue.offer_many(
            [
                Message(
                    key="a",
                    payload=[1],
                    at=START,
                    priority=3,
                    type="t",
                    headers={"h": "v"},
                    lease_for=MINUTE,
                    max_attempts=7,
                )
            ]
        )
        delivery = take(queue)
        assert (delivery.payload, delivery.priority, delivery.type, delivery.headers) == ([1], 3, "t", {"h": "v"})
        assert delivery.lease_until == START + MINUTE
        assert seen(queue, "a").max_attempts == 7

    def test_a_changing_batch_ends_leases_and_an_identical_one_does_not(self, queue: Queue[Any]) -> None:
        queue.offer_many([Message(key=key, payload=0, at=START) for key in "ab"])
        first, second = queue.try_poll_many(2)
        outcomes = queue.offer_many([Message(key="a", payload=1, at=START), Message(key="b", payload=0, at=START)])
        assert outcomes == [UPDATED, IGNORED]
        assert [first.ack(), second.ack()] == [Settled.LEASE_LOST, Settled.DONE]


class TestTheSameKeyTwice:
    def test_the_last_offer_of_a_key_wins_and_the_earlier_ones_are_superseded(self, queue: Queue[Any]) -> None:
        batch = [message("a", 1), message("b", 2), message("a", 3), message("a", 4)]
        assert queue.offer_many(batch) == [SUPERSEDED, CREATED, SUPERSEDED, CREATED]
        assert [seen(queue, key).payload for key in "ab"] == [4, 2]

    def test_on_a_live_key_the_last_one_updates(self, queue: Queue[Any]) -> None:
        queue.offer("a", 0)
        assert queue.offer_many([message("a", 1), message("a", 2)]) == [SUPERSEDED, UPDATED]
        assert seen(queue, "a").payload == 2

    def test_the_first_of_two_that_keep_stays(self, queue: Queue[Any]) -> None:
        assert queue.offer_many([message("a", 1, conflict=KEEP), message("a", 2, conflict=KEEP)]) == [CREATED, IGNORED]
        assert seen(queue, "a").payload == 1

    def test_the_earliest_of_several_is_stored(self, queue: Queue[Any]) -> None:
        batch = [message("a", n, seconds, EARLIEST) for n, seconds in enumerate([9, 5, 7])]
        assert queue.offer_many(batch) == [SUPERSEDED, CREATED, IGNORED]
        assert seen(queue, "a").due_at == START + 5 * SECOND

    def test_a_replace_and_an_earlier_one_behind_it_are_not_both_lost(self, queue: Queue[Any]) -> None:
        queue.offer("a", "live", after=SECOND)
        batch = [message("a", "replacing", 9), message("a", "earlier", 5, EARLIEST)]
        assert queue.offer_many(batch) == [SUPERSEDED, UPDATED]
        assert (seen(queue, "a").payload, seen(queue, "a").due_at) == ("earlier", START + 5 * SECOND)

    def test_delays_and_instants_of_one_batch_are_compared_by_the_clock(self, queue: Queue[Any]) -> None:
        batch = [
            Message(key="a", payload="at", at=START + 10 * SECOND),
            Message(key="a", payload="after", after=5 * SECOND, conflict=EARLIEST),
        ]
        assert queue.offer_many(batch) == [SUPERSEDED, CREATED]
        assert seen(queue, "a").payload == "after"

    def test_a_superseded_message_leaves_no_trace_in_the_journal(self, app: App, queue: Queue[Any]) -> None:
        queue.offer_many([message("a", 1), message("a", 2)])
        assert [event.kind.value for event in app.store.run(app.store.journal.timeline(queue.name, "a"))] == ["offered"]


class TestOrder:
    def test_a_batch_comes_out_by_schedule_however_it_went_in(self, queue: Queue[Any], clock: WatchedClock) -> None:
        queue.offer_many([message("a", seconds=3), message("b", seconds=1), message("c", seconds=2)])
        clock.advance(MINUTE)
        assert keys(queue.try_poll_many(3)) == ["b", "c", "a"]

    def test_messages_of_one_batch_that_are_due_together_come_out_as_they_went_in(self, queue: Queue[Any]) -> None:
        queue.offer_many([message("c"), message("a"), message("b")])
        assert keys(queue.try_poll_many(3)) == ["c", "a", "b"]

    @pytest.mark.parametrize("n", [50, 100, 250])
    def test_a_whole_batch_comes_out_in_order_and_is_acked_at_once(self, app: App, queue: Queue[Any], n: int) -> None:
        at = START - MINUTE
        queue.offer_many([Message(key=f"k{i}", payload=i, at=at + i * SECOND / 10) for i in range(n)])
        deliveries = queue.try_poll_many(n)
        assert [delivery.payload for delivery in deliveries] == list(range(n))
        assert queue.leases.ack([delivery.lease_id for delivery in deliveries]) == [Settled.DONE] * n
        assert queue.try_poll_many(n) == []
        assert numbers(app, queue) == EMPTY


class TestAllOrNothing:
    @pytest.mark.parametrize(
        "bad", [message(""), message("k" * 201), message("ok", float("nan"))], ids=["empty", "long", "nan"]
    )
    @pytest.mark.usefixtures("queue_exists")
    def test_one_bad_message_keeps_the_whole_batch_out(self, app: App, queue: Queue[Any], bad: Message[Any]) -> None:
        with pytest.raises(InvalidInput):
            queue.offer_many([message("a"), bad, message("b")])
        assert numbers(app, queue) == EMPTY


class TestLargeBatches:
    """Beyond the sizes at which a store changes its way of writing."""

    def test_thousands_of_fresh_messages_are_stored_like_few(self, app: App, queue: Queue[Any]) -> None:
        n = 2_500
        assert queue.offer_many([message(None, i, seconds=60 + i) for i in range(n)]) == [CREATED] * n
        listed = app.store.run(app.store.messages.list(queue.name, limit=n))
        assert [item.payload for item in listed] == [str(i).encode() for i in range(n)]
        assert listed[-1].due_at == START + (59 + n) * SECOND
        assert [event.kind.value for event in app.store.run(app.store.journal.timeline(queue.name, listed[7].key))] == [
            "offered"
        ]

    def test_thousands_of_named_messages_update_what_is_live(self, app: App, queue: Queue[Any]) -> None:
        n = 6_000
        queue.offer_many([message(f"k{i}") for i in range(0, n, 1000)])
        outcomes = queue.offer_many([message(f"k{i}", "new") for i in range(n)])
        assert [i for i, outcome in enumerate(outcomes) if outcome is UPDATED] == list(range(0, n, 1000))
        deliveries = queue.try_poll_many(n + 1)
        assert len(deliveries) == n
        assert set(queue.leases.ack([delivery.lease_id for delivery in deliveries])) == {Settled.DONE}
        assert numbers(app, queue) == EMPTY
