"""The journal: one event per change, in order, with all that the timeline of a message needs."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import pytest

from tarry import Message, Queue, QueueSettings
from tarry.app import App
from tarry.core.journal.events import Event, JournalLevel
from tarry.core.limits import PURGE_CONFIRMATION
from tests.kit.backends import Backend, new_name
from tests.kit.clocks import START, WatchedClock
from tests.kit.steps import MINUTE, SECOND, take


def timeline(app: App, queue: Queue[Any], key: str = "a") -> list[Event]:
    return app.store.run(app.store.journal.timeline(queue.name, key))


def kinds(events: Sequence[Event]) -> list[str]:
    return [event.kind.value for event in events]


class TestOneEventPerChange:
    def test_a_quiet_life(self, app: App, queue: Queue[Any], clock: WatchedClock) -> None:
        queue.offer("a", "x", after=MINUTE, priority=4)
        clock.advance(MINUTE)
        delivery = take(queue)
        clock.advance(SECOND)
        delivery.touch()
        clock.advance(SECOND)
        delivery.ack()
        events = timeline(app, queue)
        assert kinds(events) == ["offered", "leased", "touched", "acked"]
        assert [event.at - START for event in events] == [0 * SECOND, MINUTE, 61 * SECOND, 62 * SECOND]
        assert [event.attempt for event in events] == [0, 1, 1, 1]
        assert {(event.version, event.priority, event.due_at) for event in events} == {
            (delivery.version, 4, START + MINUTE)
        }
        assert {(event.queue, event.key) for event in events} == {(queue.name, "a")}

    def test_an_unlucky_life(self, app: App, queue: Queue[Any], clock: WatchedClock) -> None:
        queue.offer("a", 1, max_attempts=3)
        take(queue).nack("first", after=MINUTE)
        clock.advance(MINUTE)
        take(queue)
        clock.advance(MINUTE)
        take(queue).nack("third")
        events = timeline(app, queue)
        assert kinds(events) == ["offered", "leased", "nacked", "leased", "expired", "leased", "nacked", "buried"]
        assert [event.attempt for event in events] == [0, 1, 1, 2, 2, 3, 3, 3]
        assert [event.error for event in events if event.error] == ["first", "third", "third"]
        assert events[2].due_at == START + MINUTE
        assert events[-1].detail == {"reason": "exhausted"}

    def test_a_death_by_expiry(self, app: App, queue: Queue[Any], clock: WatchedClock) -> None:
        queue.offer("a", 1, max_attempts=1)
        take(queue)
        clock.advance(MINUTE)
        assert queue.try_poll() is None
        events = timeline(app, queue)
        assert kinds(events) == ["offered", "leased", "expired", "buried"]
        assert [event.attempt for event in events] == [0, 1, 1, 1]
        assert events[-1].detail == {"reason": "exhausted"}

    def test_a_payload_that_cannot_be_decoded(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", "poison")
        app.queue(queue.name, int).try_poll()
        events = timeline(app, queue)
        assert kinds(events) == ["offered", "leased", "buried"]
        assert (events[-1].detail, events[-1].attempt) == ({"reason": "undecodable"}, 1)
        assert events[-1].error

    def test_a_limit_that_was_lowered_below_the_attempts_made(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        for _ in range(2):
            take(queue).nack(after=0 * SECOND)
        app.queues.edit(queue.name, max_attempts=1)
        assert queue.try_poll() is None
        events = timeline(app, queue)
        assert kinds(events) == ["offered", "leased", "nacked", "leased", "nacked", "buried"]
        assert events[-1].attempt == 2

    def test_giving_back_changing_and_dropping(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        take(queue).release()
        queue.offer("a", 2)
        queue.drop("a")
        events = timeline(app, queue)
        assert kinds(events) == ["offered", "leased", "released", "updated", "dropped"]
        assert [event.attempt for event in events] == [0, 1, 0, 0, 0]
        versions = [event.version for event in events]
        assert versions[0] == versions[1] == versions[2] != versions[3] == versions[4]

    def test_burying_redriving_and_purging(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        take(queue).bury("why")
        queue.dead_letters.redrive()
        take(queue).bury()
        queue.dead_letters.discard()
        events = timeline(app, queue)
        assert kinds(events) == ["offered", "leased", "buried", "redriven", "leased", "buried", "discarded"]
        assert (events[2].detail, events[2].error) == ({"reason": "buried"}, "why")
        assert events[3].detail == {"from_version": events[0].version}
        assert (events[3].attempt, events[3].version) == (0, events[4].version)

    def test_dropping_all_leaves_an_event_for_each(self, app: App, queue: Queue[Any]) -> None:
        queue.offer_many([Message(key=key, payload=0) for key in "ab"])
        queue.purge(PURGE_CONFIRMATION)
        assert [kinds(timeline(app, queue, key)) for key in "ab"] == [["offered", "dropped"]] * 2

    def test_what_changes_nothing_is_not_an_event(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1, at=START)
        queue.offer("a", 1, at=START)
        queue.offer("a", 2, can_update=False)
        there = queue.read("a")
        assert there is not None
        queue.drop("a", version=there.version + 1)
        take(queue).ack()
        assert kinds(timeline(app, queue)) == ["offered", "leased", "acked"]

    def test_a_settle_without_the_lease_is_marked_as_refused_and_nothing_else(
        self, app: App, queue: Queue[Any]
    ) -> None:
        queue.offer("a", 1)
        delivery = take(queue)
        queue.offer("a", 2)
        delivery.ack()
        delivery.touch()
        events = timeline(app, queue)
        assert kinds(events) == ["offered", "leased", "updated", "refused", "refused"]
        assert [event.detail for event in events[-2:]] == [{"verb": "ack"}, {"verb": "touch"}]


class TestEventFields:
    def test_an_event_has_the_consumer_and_the_duration_of_the_lease(self, backend: Backend, queue: Queue[Any]) -> None:
        app = backend.app("alice")
        alice = app.queue(queue.name)
        queue.offer("a", 1)
        delivery = take(alice)
        delivery.touch(MINUTE)
        delivery.ack()
        _, leased, touched, acked = timeline(app, queue)
        assert [event.consumer for event in (leased, touched, acked)] == ["alice"] * 3
        assert [event.leased_at for event in (leased, touched, acked)] == [START] * 3
        assert [event.lease_until for event in (leased, touched, acked)] == [START + 30 * SECOND, *[START + MINUTE] * 2]

    @pytest.mark.parametrize("verb", ["nack", "release", "bury"])
    def test_an_event_has_the_consumer_that_nacked_or_released(
        self, backend: Backend, queue: Queue[Any], verb: str
    ) -> None:
        queue.offer("a", 1)
        getattr(take(backend.app("alice").queue(queue.name)), verb)()
        assert timeline(backend.app(), queue)[-1].consumer == "alice"

    def test_an_expiry_names_the_former_consumer_and_not_the_next(
        self, backend: Backend, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        queue.offer("a", 1, max_attempts=2)
        take(backend.app("alice").queue(queue.name))
        clock.advance(MINUTE)
        bob = backend.app("bob").queue(queue.name)
        take(bob)
        clock.advance(MINUTE)
        assert backend.app("carol").queue(queue.name).try_poll() is None
        events = timeline(backend.app(), queue)
        assert kinds(events) == ["offered", "leased", "expired", "leased", "expired", "buried"]
        assert events[2].consumer in ("alice", None)
        assert events[4].consumer in ("bob", None)
        assert events[5].consumer in ("bob", None)

    def test_size_and_hash_of_the_payload(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", "payload")
        queue.offer("a", "another")
        offered, updated = timeline(app, queue)
        assert [(event.size, event.payload_hash) for event in (offered, updated)] == [
            (7, sha256(b"payload").digest()[:8]),
            (7, sha256(b"another").digest()[:8]),
        ]

    def test_batches_have_the_same_events_as_single_calls(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("one", "payload", after=MINUTE, priority=2)
        queue.offer_many([Message(key="many", payload="payload", after=MINUTE, priority=2)])
        single, many = timeline(app, queue, "one")[0], timeline(app, queue, "many")[0]
        for field in ("kind", "at", "attempt", "priority", "due_at", "size", "payload_hash", "payload", "consumer"):
            assert getattr(single, field) == getattr(many, field)

    def test_ids_grow_along_a_life(self, app: App, queue: Queue[Any]) -> None:
        for n in range(5):
            queue.offer("a", n)
        ids = [event.id for event in timeline(app, queue)]
        assert ids == sorted(set(ids))


class TestLevels:
    def play(self, app: App, level: JournalLevel) -> list[Event]:
        app.queues.create(name := new_name(), QueueSettings(journal=level))
        queue = app.queue(name)
        queue.offer("a", "first")
        queue.offer("a", "second")
        take(queue).ack()
        return timeline(app, queue)

    def test_events_never_carry_the_payload(self, app: App) -> None:
        events = self.play(app, JournalLevel.EVENTS)
        assert kinds(events) == ["offered", "updated", "leased", "acked"]
        assert {event.payload for event in events} == {None}

    def test_payloads_go_with_offers_and_updates(self, app: App) -> None:
        events = self.play(app, JournalLevel.PAYLOADS)
        assert [event.payload for event in events] == [b"first", b"second", None, None]

    def test_with_a_payload_goes_what_is_needed_to_read_and_to_route_it(self, app: App) -> None:
        app.queues.create(name := new_name(), QueueSettings(journal=JournalLevel.PAYLOADS))
        queue = app.queue(name)
        queue.offer("a", "17", type="invoice", headers={"tenant": "x"})
        queue.offer("a", 17)
        queue.edit("a", payload="18", type="bill")
        offered, updated, edited = timeline(app, queue)
        assert offered.detail == {"type": "invoice", "content_type": "text/plain", "headers": {"tenant": "x"}}
        assert updated.detail is None
        assert edited.detail == {"fields": ["payload", "type"], "type": "bill", "content_type": "text/plain"}

    @pytest.mark.parametrize("n", [1, 2_000], ids=["few", "copied"])
    def test_also_where_the_keys_are_new(self, app: App, n: int) -> None:
        app.queues.create(name := new_name(), QueueSettings(journal=JournalLevel.PAYLOADS))
        queue = app.queue(name)
        queue.offer_many([Message(payload="17") for _ in range(n)])
        (event,) = [event for event in timeline(app, queue, take(queue).key) if event.kind.value == "offered"]
        assert event.detail == {"content_type": "text/plain"}

    def test_off_means_nothing_is_written(self, app: App) -> None:
        assert self.play(app, JournalLevel.OFF) == []

    def test_a_changed_level_counts_from_now_on(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        app.queues.edit(queue.name, journal=JournalLevel.OFF)
        queue.offer("a", 2)
        app.queues.edit(queue.name, journal=JournalLevel.EVENTS)
        take(queue).ack()
        assert kinds(timeline(app, queue)) == ["offered", "leased", "acked"]


class TestTimelines:
    def test_a_key_that_never_was_has_none(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        assert timeline(app, queue, "b") == []

    def test_the_last_ones_are_given_oldest_first(self, app: App, queue: Queue[Any]) -> None:
        for n in range(5):
            queue.offer("a", n)
        whole = timeline(app, queue)
        assert app.store.run(app.store.journal.timeline(queue.name, "a", limit=2)) == whole[-2:]
        assert app.store.run(app.store.journal.timeline(queue.name, "a", limit=0)) == []

    def test_it_is_read_backwards_page_by_page(self, app: App, queue: Queue[Any]) -> None:
        for n in range(5):
            queue.offer("a", n)
        whole = timeline(app, queue)
        assert app.store.run(app.store.journal.timeline(queue.name, "a", limit=2, before=whole[-2].id)) == whole[1:3]
        assert app.store.run(app.store.journal.timeline(queue.name, "a", before=whole[0].id)) == []

    def test_it_survives_the_message(self, app: App, queue: Queue[Any]) -> None:
        for payload in (1, 2):
            queue.offer("a", payload)
            take(queue).ack()
        assert kinds(timeline(app, queue)) == ["offered", "leased", "acked"] * 2

    def test_it_is_of_one_queue_only(self, app: App, queue: Queue[Any]) -> None:
        other = app.queue(queue.name + "2")
        other.offer("a", 1)
        queue.offer("a", 1)
        assert len(timeline(app, queue)) == 1
