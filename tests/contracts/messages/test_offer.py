"""Offering one message: what is created, updated and ignored, and when it becomes deliverable."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from tarry import Outcome, Queue, Retry, Settled
from tarry.app import App
from tarry.core.messages.states import State
from tests.kit.backends import new_name
from tests.kit.clocks import START, WatchedClock
from tests.kit.steps import EMPTY, HOUR, MINUTE, SECOND, keys, numbers, seen, take

CREATED, UPDATED, IGNORED = Outcome.CREATED, Outcome.UPDATED, Outcome.IGNORED


class TestNewKeys:
    def test_an_offer_of_a_new_key_is_created(self, queue: Queue[Any]) -> None:
        assert queue.offer("a", {"n": 1}, after=MINUTE) is CREATED
        assert queue.contains("a")

    def test_an_offer_if_absent_of_a_new_key_is_created(self, queue: Queue[Any]) -> None:
        assert queue.offer("a", 1, after=MINUTE, can_update=False) is CREATED
        assert queue.contains("a")

    def test_without_a_time_a_message_is_ready_at_once(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        assert seen(queue, "a").state is State.READY
        assert seen(queue, "a").due_at == START

    def test_a_message_for_later_is_delayed_and_exactly_due_then(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1, after=10 * SECOND)
        queue.offer("b", 1, at=START + 20 * SECOND)
        assert [seen(queue, key).state for key in "ab"] == [State.DELAYED] * 2
        assert [seen(queue, key).due_at - START for key in "ab"] == [10 * SECOND, 20 * SECOND]

    def test_a_past_time_is_legal_and_means_now(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1, at=START - timedelta(days=400))
        assert seen(queue, "a").state is State.READY
        assert take(queue).due_at == START - timedelta(days=400)

    def test_times_are_kept_to_the_microsecond(self, queue: Queue[Any], clock: WatchedClock) -> None:
        microsecond = timedelta(microseconds=1)
        queue.offer("after", 1, after=microsecond)
        queue.offer("at", 2, at=START + 2 * microsecond)
        assert queue.try_poll() is None
        clock.advance(microsecond)
        assert take(queue).key == "after"
        assert queue.try_poll() is None
        clock.advance(microsecond)
        assert take(queue).due_at == START + 2 * microsecond

    def test_the_longest_delay_is_kept_to_the_microsecond(self, queue: Queue[Any]) -> None:
        longest = timedelta(days=3653)
        queue.offer("a", 1, after=longest)
        queue.offer("b", 1, after=longest - timedelta(microseconds=1))
        assert seen(queue, "a").due_at == START + longest
        assert seen(queue, "b").due_at == START + longest - timedelta(microseconds=1)

    def test_the_zone_of_a_time_does_not_matter_only_the_instant(self, queue: Queue[Any], clock: WatchedClock) -> None:
        queue.offer("a", 1, at=datetime(2024, 1, 1, 3, tzinfo=timezone(timedelta(hours=2))))
        queue.offer("b", 1, at=datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")))
        assert seen(queue, "a").due_at == START + HOUR
        assert seen(queue, "b").due_at.timestamp() == datetime(2024, 10, 27, 1, 30, tzinfo=START.tzinfo).timestamp()
        clock.advance(HOUR)
        assert keys(queue.try_poll_many(9)) == ["a"]

    def test_without_a_key_each_offer_gets_a_fresh_sortable_one(self, queue: Queue[Any]) -> None:
        assert [queue.offer(None, "same") for _ in range(3)] == [CREATED] * 3
        fresh = keys(queue.try_poll_many(9))
        assert fresh == sorted(set(fresh))
        assert {UUID(key).version for key in fresh} == {7}

    def test_any_text_of_up_to_200_characters_is_a_key(self, queue: Queue[Any]) -> None:
        for key in ("k" * 200, "ключ/一/é\t\n", "😀" * 200, " ", "%_\\'\";--", "a" * 199 + "\U0010ffff"):
            assert queue.offer(key, 1) is CREATED
            assert queue.contains(key)
            delivery = take(queue)
            assert delivery.key == key
            assert delivery.ack() is Settled.DONE

    def test_every_field_of_an_offer_comes_with_the_delivery(self, queue: Queue[Any]) -> None:
        headers = {"trace": "00-ab", "empty": "", "Ünïcode": "😀"}
        queue.offer("a", [1, 2], priority=7, type="mail", headers=headers, at=START - SECOND)
        delivery = take(queue)
        assert (delivery.key, delivery.payload, delivery.priority, delivery.type) == ("a", [1, 2], 7, "mail")
        assert (delivery.headers, delivery.due_at, delivery.queue) == (headers, START - SECOND, queue.name)
        assert (delivery.attempt, delivery.redelivered, delivery.leased_at) == (1, False, START)


class TestLiveKeys:
    def test_another_payload_and_time_update_the_message(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1, after=10 * SECOND)
        assert queue.offer("a", 2, after=20 * SECOND) is UPDATED
        assert (seen(queue, "a").payload, seen(queue, "a").due_at) == (2, START + 20 * SECOND)

    def test_an_identical_offer_is_ignored(self, queue: Queue[Any]) -> None:
        queue.offer("a", {"x": 1, "y": 2}, at=START + SECOND)
        version = seen(queue, "a").version
        assert queue.offer("a", {"y": 2, "x": 1}, at=START + SECOND) is IGNORED
        assert seen(queue, "a").version == version

    def test_identical_means_to_the_microsecond(self, queue: Queue[Any]) -> None:
        at = START + timedelta(microseconds=1_234_567)
        queue.offer("a", 1, at=at)
        assert queue.offer("a", 1, at=at) is IGNORED
        assert queue.offer("a", 1, at=at + timedelta(microseconds=1)) is UPDATED

    @pytest.mark.parametrize(
        "change",
        [
            {"payload": 2},
            {"payload": "1"},
            {"payload": b"1"},
            {"at": START + 2 * SECOND},
            {"priority": 1},
            {"type": "other"},
            {"headers": {"a": "b"}},
            {"lease_for": MINUTE},
            {"max_attempts": 5},
            {"retry": Retry.at_once()},
        ],
        ids=lambda change: next(iter(change)),
    )
    def test_every_part_of_an_offer_can_be_changed(self, queue: Queue[Any], change: dict[str, Any]) -> None:
        first: dict[str, Any] = {"payload": 1, "at": START + SECOND}
        queue.offer("a", **first)
        assert queue.offer("a", **(first | change)) is UPDATED
        assert queue.offer("a", **(first | change)) is IGNORED
        assert queue.offer("a", **first) is UPDATED

    def test_an_offer_if_absent_of_a_live_key_is_ignored(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1, after=10 * SECOND)
        assert queue.offer("a", 2, after=20 * SECOND, can_update=False) is IGNORED
        assert seen(queue, "a").payload == 1

    def test_every_accepted_offer_makes_a_higher_version_also_after_a_drop(self, queue: Queue[Any]) -> None:
        versions: list[int] = []
        for payload in range(3):
            queue.offer("a", payload)
            versions.append(seen(queue, "a").version)
        queue.drop("a")
        queue.offer("a", 0)
        versions.append(seen(queue, "a").version)
        assert versions == sorted(set(versions))

    def test_an_update_keeps_the_day_of_creation(self, queue: Queue[Any], clock: WatchedClock) -> None:
        queue.offer("a", 1)
        clock.advance(HOUR)
        queue.offer("a", 2)
        assert seen(queue, "a").created_at == START

    def test_an_update_moves_a_ready_message_into_the_future_and_back(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        queue.offer("a", 1, after=MINUTE)
        assert queue.try_poll() is None
        queue.offer("a", 1)
        assert take(queue).key == "a"

    def test_a_key_is_free_again_once_it_was_acked(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        take(queue).ack()
        assert queue.offer("a", 1, can_update=False) is CREATED


class TestWhileLeased:
    def test_a_changing_offer_ends_the_lease_at_once(self, queue: Queue[Any]) -> None:
        queue.offer("a", "v1")
        first = take(queue)
        assert queue.offer("a", "v2") is UPDATED
        second = take(queue)
        assert (second.payload, second.attempt, second.redelivered) == ("v2", 1, False)
        assert first.ack() is Settled.LEASE_LOST
        assert queue.contains("a")
        assert second.ack() is Settled.DONE
        assert not queue.contains("a")

    def test_an_identical_offer_leaves_the_lease(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1, at=START)
        delivery = take(queue)
        assert queue.offer("a", 1, at=START) is IGNORED
        assert queue.try_poll() is None
        assert delivery.ack() is Settled.DONE

    def test_an_identical_offer_is_ignored_after_a_retry_moved_the_due_time(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1, at=START)
        take(queue).nack(after=MINUTE)
        assert queue.offer("a", 1, at=START) is IGNORED
        assert seen(queue, "a").due_at == START + MINUTE

    def test_an_offer_if_absent_is_ignored_and_leaves_the_lease(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        delivery = take(queue)
        assert queue.offer("a", 2, can_update=False) is IGNORED
        assert delivery.ack() is Settled.DONE

    def test_an_update_resets_attempts_and_the_last_error(self, queue: Queue[Any], clock: WatchedClock) -> None:
        queue.offer("a", 1)
        for _ in range(3):
            take(queue).nack("no luck", after=timedelta(0))
        queue.offer("a", 2)
        assert (seen(queue, "a").attempt, seen(queue, "a").last_error) == (0, None)
        assert (take(queue).attempt, queue.try_poll()) == (1, None)

    def test_an_update_for_later_takes_the_message_away_from_its_holder(
        self, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        queue.offer("a", 1)
        delivery = take(queue)
        queue.offer("a", 1, after=MINUTE)
        assert seen(queue, "a").state is State.DELAYED
        assert delivery.nack("late") is Settled.LEASE_LOST
        assert delivery.touch() is Settled.LEASE_LOST
        clock.advance(MINUTE)
        assert take(queue).attempt == 1


class TestIsolation:
    def test_the_same_key_lives_independently_in_every_queue(self, app: App) -> None:
        first, other = app.queue(new_name()), app.queue(new_name())
        assert [first.offer("a", 1), other.offer("a", 1)] == [CREATED] * 2
        assert first.offer("a", 2) is UPDATED
        assert (take(first).ack(), numbers(app, first)) == (Settled.DONE, EMPTY)
        assert take(other).payload == 1

    def test_a_paused_queue_accepts_offers(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        app.queues.pause(queue.name)
        assert queue.offer("b", 1) is CREATED
        assert queue.offer("a", 2) is UPDATED
