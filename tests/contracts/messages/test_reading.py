"""Looking and removing by hand: read, contains, drop, purge, listings and counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tarry import Message, Outcome, Queue, QueueSettings, Retry, Settled
from tarry.app import App
from tarry.core.limits import PURGE_CONFIRMATION
from tarry.core.messages.model import Counted, Filter, MessagePosition
from tarry.core.messages.states import State
from tests.kit.clocks import START, WatchedClock
from tests.kit.steps import EMPTY, HOUR, MINUTE, SECOND, keys, numbers, seen, take


class TestRead:
    @pytest.mark.usefixtures("queue_exists")
    def test_an_unknown_key_is_not_there(self, queue: Queue[Any]) -> None:
        assert queue.read("absent") is None
        assert not queue.contains("absent")

    def test_a_future_message_can_be_read_and_stays(self, queue: Queue[Any], clock: WatchedClock) -> None:
        queue.offer("a", "payload", after=MINUTE)
        assert seen(queue, "a").payload == "payload"
        assert queue.contains("a")
        clock.advance(MINUTE)
        assert take(queue).payload == "payload"

    def test_reading_leases_nothing_and_counts_no_attempt(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        for _ in range(3):
            seen(queue, "a")
        delivery = take(queue)
        assert (delivery.attempt, delivery.redelivered) == (1, False)

    def test_it_shows_everything_about_a_message(self, queue: Queue[Any], clock: WatchedClock) -> None:
        queue.offer("a", [1], priority=3, type="t", headers={"h": "v"}, max_attempts=4)
        clock.advance(SECOND)
        delivery = take(queue)
        message = seen(queue, "a")
        assert (message.queue, message.key, message.payload, message.version) == (
            queue.name,
            "a",
            [1],
            delivery.version,
        )
        assert (message.state, message.attempt, message.priority, message.type) == (State.LEASED, 1, 3, "t")
        assert (message.headers, message.max_attempts, message.consumer) == ({"h": "v"}, 4, "tester")
        assert (message.due_at, message.created_at, message.lease_until) == (START, START, START + 31 * SECOND)

    def test_own_settings_of_a_message_are_separate_from_the_effective_ones(self, app: App, queue: Queue[Any]) -> None:
        app.queues.create(queue.name, QueueSettings(max_attempts=7))
        queue.offer("a", 1)
        queue.offer("b", 1, lease_for=MINUTE, retry=Retry.exponential(SECOND, factor=3.0, max_attempts=2))
        plain, own = (seen(queue, key) for key in "ab")
        assert (plain.max_attempts, plain.own_max_attempts, plain.lease_for, plain.retry) == (7, None, None, None)
        assert (own.max_attempts, own.own_max_attempts, own.lease_for) == (2, 2, MINUTE)
        assert own.retry == Retry.exponential(SECOND, factor=3.0)
        assert app.store.run(app.store.messages.list(queue.name)) == [
            app.store.run(app.store.messages.read(queue.name, key)) for key in "ab"
        ]

    def test_the_state_follows_the_clock(self, queue: Queue[Any], clock: WatchedClock) -> None:
        queue.offer("a", 1, after=MINUTE)
        states = [seen(queue, "a").state]
        clock.advance(MINUTE)
        states.append(seen(queue, "a").state)
        take(queue)
        states.append(seen(queue, "a").state)
        clock.advance(MINUTE)
        states.append(seen(queue, "a").state)
        assert states == [State.DELAYED, State.READY, State.LEASED, State.READY]


class TestDrop:
    def test_a_live_message_is_dropped_once(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1, after=MINUTE)
        assert queue.drop("a")
        assert not queue.contains("a")
        assert not queue.drop("a")

    @pytest.mark.usefixtures("queue_exists")
    def test_an_unknown_key_is_not_dropped(self, queue: Queue[Any]) -> None:
        assert not queue.drop("absent")

    def test_a_held_message_is_dropped_too(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        delivery = take(queue)
        assert queue.drop("a")
        assert delivery.ack() is Settled.GONE
        assert numbers(app, queue) == EMPTY

    def test_after_a_drop_the_key_is_new(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        queue.drop("a")
        assert queue.offer("a", 1) is Outcome.CREATED

    def test_with_a_version_only_what_was_seen_is_dropped(self, queue: Queue[Any]) -> None:
        for key in ("same", "other payload", "other time"):
            queue.offer(key, "old", after=MINUTE)
        read = {key: seen(queue, key).version for key in ("same", "other payload", "other time")}
        assert queue.read("unknown") is None
        queue.offer("other payload", "new", after=MINUTE)
        queue.offer("other time", "old", after=2 * MINUTE)
        assert [queue.drop(key, version=version) for key, version in read.items()] == [True, False, False]
        assert queue.purge(PURGE_CONFIRMATION) == 2

    def test_a_lease_is_not_a_change(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        version = seen(queue, "a").version
        take(queue).nack(after=0 * SECOND)
        take(queue)
        assert queue.drop("a", version=version)

    def test_keys_are_compared_as_they_are(self, queue: Queue[Any]) -> None:
        for key in ("a%", "ab", "A%", "a_", "a% "):
            queue.offer(key, 1)
        assert queue.drop("a%")
        assert [queue.contains(key) for key in ("a%", "ab", "A%", "a_", "a% ")] == [False, True, True, True, True]


class TestDropAll:
    def test_with_the_exact_confirmation_every_live_message_goes(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        queue.offer("b", 1, after=MINUTE)
        assert queue.purge(PURGE_CONFIRMATION) == 2
        assert (queue.contains("a"), queue.contains("b")) == (False, False)
        assert numbers(app, queue) == EMPTY

    def test_held_ones_too_and_dead_letters_not(self, app: App, queue: Queue[Any]) -> None:
        queue.offer_many([Message(key=key, payload=0) for key in "abc"])
        first, second = queue.try_poll_many(2)
        first.bury()
        assert queue.purge(PURGE_CONFIRMATION) == 2
        assert second.ack() is Settled.GONE
        assert numbers(app, queue) == (0, 0, 0, 1)

    def test_other_queues_are_left_alone(self, app: App, queue: Queue[Any]) -> None:
        other = app.queue(queue.name + "2")
        other.offer("a", 1)
        queue.offer("a", 1)
        assert queue.purge(PURGE_CONFIRMATION) == 1
        assert other.contains("a")


class TestCountsAndListings:
    @pytest.fixture
    def mixed(self, queue: Queue[Any], clock: WatchedClock) -> Queue[Any]:
        """Two delayed, three ready of which one has an expired lease, one leased, one dead."""
        queue.offer("expired", 1, at=START - 9 * SECOND)
        take(queue, lease_for=SECOND)
        clock.advance(SECOND)
        queue.offer("dead", 1, priority=9)
        take(queue).bury()
        queue.offer("leased", 1, priority=9, at=START - SECOND)
        take(queue, lease_for=HOUR)
        queue.offer("ready1", 1, at=START)
        queue.offer("ready2", 1, at=START - 2 * SECOND, priority=3)
        queue.offer("delayed1", 1, after=2 * MINUTE, priority=9)
        queue.offer("delayed2", 1, after=MINUTE)
        return queue

    def test_every_state_is_counted(self, app: App, mixed: Queue[Any]) -> None:
        assert numbers(app, mixed) == (2, 3, 1, 1)

    def test_counting_stops_at_the_limit_and_is_marked_as_such(self, app: App, mixed: Queue[Any]) -> None:
        counts = app.queues.counts(mixed.name, limit=1)
        assert (counts.delayed, counts.ready) == (Counted(1, True), Counted(1, True))
        assert str(counts.ready) == "1+"

    def test_live_messages_are_listed_by_due_time(self, app: App, mixed: Queue[Any]) -> None:
        expected = ["expired", "ready2", "leased", "ready1", "delayed2", "delayed1"]
        assert keys(app.store.run(app.store.messages.list(mixed.name))) == expected
        assert keys(app.store.run(app.store.messages.list(mixed.name, limit=2))) == expected[:2]
        assert app.store.run(app.store.messages.list(mixed.name, limit=0)) == []

    @pytest.mark.parametrize(
        ("state", "expected"),
        [
            (State.DELAYED, ["delayed2", "delayed1"]),
            (State.READY, ["expired", "ready2", "ready1"]),
            (State.LEASED, ["leased"]),
        ],
    )
    def test_one_state_can_be_listed(self, app: App, mixed: Queue[Any], state: State, expected: list[str]) -> None:
        messages = app.store.run(app.store.messages.list(mixed.name, state=state))
        assert keys(messages) == expected
        assert {message.state for message in messages} == {state}

    @pytest.mark.where_the_messages_are
    def test_a_list_without_payloads_has_everything_else(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", "payload", priority=3, headers={"h": "v"})
        (whole,) = app.store.run(app.store.messages.list(queue.name))
        (listed,) = app.store.run(app.store.messages.list(queue.name, filter=Filter(payloads=False)))
        assert whole.payload == b"payload"
        assert listed == replace(whole, payload=b"")

    def test_consecutive_pages_are_complete_whatever_the_priorities(self, app: App, queue: Queue[Any]) -> None:
        queue.offer_many([Message(key=f"{i:02}", payload=0, after=i // 5 * SECOND, priority=i % 4) for i in range(30)])
        listed: list[str] = []
        after: MessagePosition | None = None
        while page := app.store.run(app.store.messages.list(queue.name, limit=7, filter=Filter(after=after))):
            listed += keys(page)
            after = MessagePosition(page[-1].due_at, page[-1].version)
        assert listed == [f"{i:02}" for i in range(30)]
