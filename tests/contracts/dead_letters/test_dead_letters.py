"""What failed for good: kept, listed, redriven, discarded; and payloads that cannot be decoded."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pydantic
import pytest

from tarry import Message, Outcome, Queue, Retry, Settled
from tarry.app import App
from tarry.core.dead_letters.redrive import DeadFilter, DeadPosition
from tarry.core.messages.states import State
from tests.kit.clocks import START, WatchedClock
from tests.kit.steps import EMPTY, MINUTE, SECOND, TIMEOUT, keys, numbers, seen, take


@dataclass
class Order:
    total: int


def bury(queue: Queue[Any], *names: str, payload: Any = 0) -> list[int]:
    """Offer and bury messages one after the other; their versions."""
    versions: list[int] = []
    for key in names:
        queue.offer(key, payload, priority=9)
        delivery = take(queue)
        assert delivery.key == key
        assert delivery.bury(f"{key} is hopeless") is Settled.DONE
        versions.append(delivery.version)
    return versions


def test_dead_letters_are_read_page_by_page(app: App, queue: Queue[Any], clock: WatchedClock) -> None:
    bury(queue, "a", "b", "c")  # at the same moment
    clock.advance(SECOND)
    bury(queue, "d", "e")
    position, seen_keys = None, list[str]()
    while page := app.store.run(app.store.dead_letters.list(queue.name, limit=2, before=position)):
        assert len(page) <= 2
        seen_keys += [letter.key for letter in page]
        position = DeadPosition(page[-1].died_at, page[-1].version)
    assert seen_keys == ["e", "d", "c", "b", "a"]
    (last,) = app.store.run(
        app.store.dead_letters.list(
            queue.name, where=DeadFilter(key_prefix="a"), limit=2, before=DeadPosition(START, 2**62)
        )
    )
    assert last.key == "a"


class TestBury:
    def test_a_buried_message_is_dead_with_its_error(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", {"n": 1}, type="t", headers={"h": "v"}, priority=3)
        delivery = take(queue)
        assert delivery.bury("hopeless") is Settled.DONE
        (letter,) = queue.dead_letters.list()
        assert (letter.key, letter.payload, letter.version) == ("a", {"n": 1}, delivery.version)
        assert (letter.attempt, letter.reason, letter.error) == (1, "buried", "hopeless")
        assert (letter.type, letter.headers, letter.priority) == ("t", {"h": "v"}, 3)
        assert (letter.due_at, letter.died_at, letter.queue) == (START, START, queue.name)
        assert numbers(app, queue) == (0, 0, 0, 1)

    def test_without_an_error_the_last_one_is_kept(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        take(queue).nack("before", after=0 * SECOND)
        take(queue).bury()
        assert [letter.error for letter in queue.dead_letters.list()] == ["before"]

    def test_many_are_buried_with_one_error(self, queue: Queue[Any]) -> None:
        queue.offer_many([Message(key=key, payload=0) for key in "ab"])
        lease_ids = [delivery.lease_id for delivery in queue.try_poll_many(2)]
        assert queue.leases.bury(lease_ids, "both") == [Settled.DONE] * 2
        assert {letter.error for letter in queue.dead_letters.list()} == {"both"}

    def test_its_key_is_free_and_keys_of_dead_letters_may_repeat(self, queue: Queue[Any]) -> None:
        bury(queue, "a", "a")
        assert queue.offer("a", 3) is Outcome.CREATED
        assert keys(queue.dead_letters.list()) == ["a", "a"]

    def test_it_is_out_of_reach_of_read_drop_and_poll(self, queue: Queue[Any], clock: WatchedClock) -> None:
        bury(queue, "a")
        clock.advance(MINUTE)
        assert (queue.read("a"), queue.contains("a"), queue.drop("a"), queue.try_poll()) == (None, False, False, None)
        assert len(queue.dead_letters.list()) == 1


class TestList:
    def test_the_newest_comes_first_up_to_the_requested_limit(self, queue: Queue[Any], clock: WatchedClock) -> None:
        for key in "abc":
            bury(queue, key)
            clock.advance(SECOND)
        assert keys(queue.dead_letters.list()) == ["c", "b", "a"]
        assert keys(queue.dead_letters.list(limit=2)) == ["c", "b"]
        assert queue.dead_letters.list(limit=0) == []

    @pytest.mark.usefixtures("queue_exists")
    def test_a_queue_without_any_has_none(self, queue: Queue[Any]) -> None:
        assert queue.dead_letters.list() == []
        assert queue.dead_letters.redrive() == 0
        assert queue.dead_letters.discard() == 0


class TestRedrive:
    def test_a_redriven_message_is_ready_from_the_first_attempt(
        self, app: App, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        (version,) = bury(queue, "a", payload="again")
        clock.advance(MINUTE)
        assert queue.dead_letters.redrive() == 1
        stored = seen(queue, "a")
        assert (stored.state, stored.attempt, stored.due_at, stored.last_error) == (
            State.READY,
            0,
            START + MINUTE,
            None,
        )
        delivery = take(queue)
        assert (delivery.payload, delivery.attempt, delivery.redelivered) == ("again", 1, False)
        assert delivery.version > version
        assert (delivery.ack(), numbers(app, queue)) == (Settled.DONE, EMPTY)

    def test_it_keeps_every_field_of_its_offer(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1, priority=4, type="t", headers={"h": "v"}, lease_for=MINUTE, max_attempts=1)
        take(queue).nack()
        queue.dead_letters.redrive()
        delivery = take(queue)
        assert (delivery.priority, delivery.type, delivery.headers) == (4, "t", {"h": "v"})
        assert delivery.lease_until == START + MINUTE
        delivery.nack()
        assert [letter.reason for letter in queue.dead_letters.list()] == ["exhausted"]

    def test_only_the_versions_that_are_named(self, queue: Queue[Any]) -> None:
        a, _, c = bury(queue, "a", "b", "c")
        assert queue.dead_letters.redrive([a, c, 10**15]) == 2
        assert keys(queue.dead_letters.list()) == ["b"]
        assert queue.dead_letters.redrive([]) == 0

    @pytest.mark.usefixtures("queue_exists")
    def test_only_letters_of_this_queue(self, app: App, queue: Queue[Any]) -> None:
        other = app.queue(queue.name + "-other")
        (version,) = bury(other, "a")
        assert queue.dead_letters.redrive([version]) == 0
        assert len(other.dead_letters.list()) == 1

    def test_the_oldest_first_where_there_is_a_limit(self, queue: Queue[Any], clock: WatchedClock) -> None:
        for key in "cab":
            bury(queue, key)
            clock.advance(SECOND)
        assert queue.dead_letters.redrive(limit=2) == 2
        assert keys(queue.dead_letters.list()) == ["b"]
        assert queue.dead_letters.redrive(limit=0) == 0

    def test_they_are_delivered_in_the_order_in_which_they_died(self, queue: Queue[Any], clock: WatchedClock) -> None:
        for key in "cab":
            bury(queue, key)
            clock.advance(SECOND)
        queue.dead_letters.redrive()
        assert keys(queue.try_poll_many(3)) == ["c", "a", "b"]

    def test_where_the_key_is_live_the_letter_stays_dead(self, queue: Queue[Any]) -> None:
        bury(queue, "a", payload="old")
        queue.offer("a", "new")
        assert queue.dead_letters.redrive() == 0
        assert seen(queue, "a").payload == "new"
        assert len(queue.dead_letters.list()) == 1

    def test_of_two_letters_of_one_key_the_older_one_lives_and_the_other_stays(
        self, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        bury(queue, "a", payload="older")
        clock.advance(SECOND)
        bury(queue, "a", payload="newer")
        assert queue.dead_letters.redrive() == 1
        assert seen(queue, "a").payload == "older"
        assert [letter.payload for letter in queue.dead_letters.list()] == ["newer"]

    def test_a_second_letter_of_a_key_does_not_take_the_place_of_another_key(
        self, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        for key in ("twice", "twice", "once"):
            bury(queue, key)
            clock.advance(SECOND)
        assert queue.dead_letters.redrive(limit=2) == 2
        assert keys(queue.dead_letters.list()) == ["twice"]

    def test_a_letter_that_cannot_live_does_not_keep_others_from_it(
        self, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        bury(queue, "blocked")
        clock.advance(SECOND)
        bury(queue, "free")
        queue.offer("blocked", "live again", after=MINUTE)
        assert queue.dead_letters.redrive(limit=1) == 1
        assert keys(queue.dead_letters.list()) == ["blocked"]

    def test_a_redriven_message_can_die_again(self, queue: Queue[Any]) -> None:
        bury(queue, "a")
        queue.dead_letters.redrive()
        take(queue).bury("again")
        assert [letter.error for letter in queue.dead_letters.list()] == ["again"]


class TestPurge:
    def test_a_purge_removes_every_letter_and_no_live_message(self, app: App, queue: Queue[Any]) -> None:
        bury(queue, "a", "b")
        queue.offer("c", 1)
        assert queue.dead_letters.discard() == 2
        assert numbers(app, queue) == (0, 1, 0, 0)
        assert queue.dead_letters.list() == []


class TestBuriedByItsHolder:
    def test_the_reason_may_be_that_it_could_not_be_read(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        queue.offer("b", 1)
        a, b = queue.try_poll_many(2)
        assert queue.leases.bury([a.lease_id], "not an order", reason="undecodable") == [Settled.DONE]
        b.bury("hopeless")
        letters = {letter.key: (letter.reason, letter.error) for letter in queue.dead_letters.list()}
        assert letters == {"a": ("undecodable", "not an order"), "b": ("buried", "hopeless")}


class TestPoison:
    """A payload that cannot be decoded is dead-lettered with its error, and never blocks the head."""

    def test_it_is_buried_on_the_way_and_the_next_one_is_delivered(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("poison", "not an order", priority=9)
        queue.offer("good", {"total": 4})
        orders = app.queue(queue.name, Order)
        delivery = take(orders)
        assert (delivery.key, delivery.payload) == ("good", Order(4))
        (letter,) = queue.dead_letters.list()
        assert (letter.key, letter.reason, letter.attempt) == ("poison", "undecodable", 1)
        assert letter.error is not None
        assert "Order" in letter.error

    def test_a_poll_fills_its_limit_despite_undecodable_messages(self, app: App, queue: Queue[Any]) -> None:
        payloads: list[Any] = ["poison", {"total": 1}, "poison", "poison", {"total": 2}, {"total": 3}]
        queue.offer_many([Message(key=f"k{i}", payload=p, at=START - (9 - i) * SECOND) for i, p in enumerate(payloads)])
        deliveries = app.queue(queue.name, Order).try_poll_many(2)
        assert [delivery.payload for delivery in deliveries] == [Order(1), Order(2)]
        assert numbers(app, queue) == (0, 1, 2, 3)

    def test_a_queue_of_poison_only_is_emptied_by_one_poll(self, app: App, queue: Queue[Any]) -> None:
        queue.offer_many([Message(key=f"k{i}", payload="poison") for i in range(20)])
        assert app.queue(queue.name, Order).try_poll_many(5) == []
        assert numbers(app, queue) == (0, 0, 0, 20)

    def test_looking_at_it_shows_the_bytes(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", "poison")
        orders = app.queue(queue.name, Order)
        assert seen(orders, "a").payload == b"poison"
        orders.try_poll()
        assert [letter.payload for letter in orders.dead_letters.list()] == [b"poison"]

    def test_redriven_with_the_right_type_it_is_delivered(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", "only text")
        assert app.queue(queue.name, Order).try_poll() is None
        queue.dead_letters.redrive()
        assert take(app.queue(queue.name, str)).payload == "only text"

    @pytest.mark.parametrize("payload", [b"\xff\xfe", b"", b"{", b"[" * 10_000])
    def test_no_bytes_are_too_strange(self, app: App, queue: Queue[Any], payload: bytes) -> None:
        queue.offer("a", payload)
        assert app.queue(queue.name, Order).try_poll() is None
        assert [letter.reason for letter in queue.dead_letters.list()] == ["undecodable"]


class Fragile(pydantic.BaseModel):
    """pydantic turns ValueError and AssertionError into its own error; a KeyError leaves the validator as it is."""

    n: int

    @pydantic.field_validator("n")
    @classmethod
    def known(cls, value: int) -> int:
        return {1: 1, 2: 2, 3: 3}[value]


class TestADecoderThatRaises:
    """An error of the decoder is a failed attempt of that one message; the other messages are delivered."""

    def test_it_does_not_block_the_head_of_the_queue(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("broken", {"n": 0}, priority=9)
        queue.offer_many([Message(key=f"good{n}", payload={"n": n}) for n in (1, 2, 3)])
        fragile = app.queue(queue.name, Fragile)
        assert fragile.try_poll() is None
        assert take(fragile).payload == Fragile(n=1)
        assert [delivery.payload.n for delivery in fragile.try_poll_many(10)] == [2, 3]
        stored = seen(queue, "broken")
        assert (stored.state, stored.attempt) == (State.DELAYED, 1)
        assert stored.last_error is not None
        assert stored.last_error.startswith("KeyError: 0")

    def test_its_attempts_are_counted_and_the_limit_ends_it(
        self, app: App, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        queue.offer("broken", {"n": 0}, max_attempts=2, retry=Retry.fixed(MINUTE))
        fragile = app.queue(queue.name, Fragile)
        assert fragile.try_poll() is None
        assert queue.dead_letters.list() == []
        clock.advance(MINUTE)
        assert fragile.try_poll() is None
        (letter,) = queue.dead_letters.list()
        assert (letter.key, letter.attempt, letter.reason) == ("broken", 2, "exhausted")
        assert letter.error is not None
        assert letter.error.startswith("KeyError: 0")

    def test_one_poll_tries_it_once_also_when_it_may_be_retried_at_once(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("broken", {"n": 0}, retry=Retry.at_once())
        queue.offer("good", {"n": 1})
        fragile = app.queue(queue.name, Fragile)
        assert [delivery.key for delivery in fragile.try_poll_many(10)] == ["good"]
        assert (seen(queue, "broken").state, seen(queue, "broken").attempt) == (State.READY, 1)

    def test_a_correct_decoder_is_given_the_message_afterwards(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", {"n": 0}, retry=Retry.at_once())
        assert app.queue(queue.name, Fragile).try_poll() is None
        assert (take(queue).payload, queue.dead_letters.list()) == ({"n": 0}, [])

    def test_a_poll_fails_at_most_as_many_messages_as_its_limit(self, app: App, queue: Queue[Any]) -> None:
        queue.offer_many([Message(key=f"broken{n}", payload={"n": 0}, priority=9) for n in range(100)])
        queue.offer_many([Message(key=f"good{n}", payload={"n": n}) for n in (1, 2, 3)])
        fragile = app.queue(queue.name, Fragile)
        assert fragile.try_poll() is None
        assert numbers(app, queue) == (1, 102, 0, 0)
        assert fragile.try_poll_many(10) == []
        assert numbers(app, queue) == (11, 92, 0, 0)
        assert [delivery.payload.n for delivery in fragile.try_poll_many(91)] == [1, 2], (
            "in the round of the last broken"
        )
        assert take(fragile).payload.n == 3
        assert numbers(app, queue) == (100, 0, 3, 0)
        assert {seen(queue, f"broken{n}").attempt for n in range(100)} == {1}

    def test_undecodable_messages_before_it_are_replaced_and_it_ends_the_poll(
        self, app: App, queue: Queue[Any]
    ) -> None:
        queue.offer("undecodable", {"n": "x"}, priority=9)
        queue.offer("broken", {"n": 0}, priority=8)
        queue.offer("good", {"n": 1})
        fragile = app.queue(queue.name, Fragile)
        assert fragile.try_poll() is None
        assert numbers(app, queue) == (1, 1, 0, 1)
        assert take(fragile).key == "good"

    def test_a_poll_that_waits_goes_on_to_the_messages_behind_it(self, app: App, queue: Queue[Any]) -> None:
        queue.offer_many([Message(key=f"broken{n}", payload={"n": 0}, priority=9) for n in range(5)])
        queue.offer("good", {"n": 1})
        delivery = app.queue(queue.name, Fragile).poll(TIMEOUT)
        assert delivery is not None
        assert delivery.key == "good"
        assert {seen(queue, f"broken{n}").attempt for n in range(5)} == {1}

    def test_a_poll_that_waits_neither_gives_up_early_nor_tries_it_all_the_time(
        self, app: App, queue: Queue[Any]
    ) -> None:
        queue.offer("broken", {"n": 0}, retry=Retry.at_once(), max_attempts=10_000)
        began = time.monotonic()
        assert app.queue(queue.name, Fragile).poll(timedelta(seconds=0.5)) is None
        assert time.monotonic() - began >= 0.5
        assert seen(queue, "broken").attempt <= 60
