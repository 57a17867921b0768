"""Messages changed by hand: what an edit changes, what it leaves alone, and whose lease it ends."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from tarry import Conflict, Queue, QueueSettings, Retry, Settled
from tarry.app import App
from tarry.core.journal.events import JournalLevel
from tarry.core.messages.outcomes import Edited, Outcome
from tarry.core.messages.states import State
from tests.kit.backends import where_the_messages_are
from tests.kit.clocks import START, WatchedClock
from tests.kit.steps import HOUR, MINUTE, SECOND, all_at_once, keys, numbers, seen, take


class TestWhatChanges:
    @pytest.mark.parametrize(
        ("changes", "field", "expected"),
        [
            ({"payload": {"n": 2}}, "payload", {"n": 2}),
            ({"payload": "text"}, "payload", "text"),
            ({"payload": b"\x00\xff"}, "payload", b"\x00\xff"),
            ({"at": START + HOUR}, "due_at", START + HOUR),
            ({"after": MINUTE}, "due_at", START + MINUTE),
            ({"at": START - HOUR}, "due_at", START - HOUR),
            ({"priority": 9}, "priority", 9),
            ({"type": "other"}, "type", "other"),
            ({"type": None}, "type", None),
            ({"headers": {"b": "2"}}, "headers", {"b": "2"}),
            ({"headers": None}, "headers", None),
            ({"headers": {}}, "headers", None),
            ({"max_attempts": 7}, "max_attempts", 7),
            ({"max_attempts": None}, "max_attempts", None),
            ({"retry": Retry.fixed(SECOND, max_attempts=4)}, "max_attempts", 4),
        ],
        ids=str,
    )
    def test_what_is_named_changes_and_the_rest_stays(
        self, queue: Queue[Any], changes: Any, field: str, expected: Any
    ) -> None:
        queue.offer("a", {"n": 1}, priority=3, type="t", headers={"a": "1"}, max_attempts=2, after=SECOND)
        before = seen(queue, "a")
        assert queue.edit("a", **changes) is Edited.UPDATED
        after = seen(queue, "a")
        assert getattr(after, field) == expected
        assert after.version > before.version
        for name in ("payload", "due_at", "priority", "type", "headers", "max_attempts", "attempt", "created_at"):
            assert name == field or getattr(after, name) == getattr(before, name)

    def test_a_lease_and_a_pause_of_its_own_are_kept_to(self, queue: Queue[Any], clock: WatchedClock) -> None:
        queue.offer("a", 1)
        queue.edit("a", lease_for=5 * MINUTE, retry=Retry.fixed(HOUR))
        delivery = take(queue)
        assert delivery.lease_until == START + 5 * MINUTE
        delivery.nack("no")
        assert seen(queue, "a").due_at == START + HOUR

    def test_it_is_delivered_where_its_new_time_and_priority_put_it(
        self, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        for key in "abc":
            queue.offer(key, 0, after=HOUR)
        queue.edit("b", at=START - SECOND)
        queue.edit("c", after=timedelta(0), priority=9)
        assert keys(queue.try_poll_many(5)) == ["c", "b"]

    def test_attempts_and_the_last_error_go_on(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1, max_attempts=3)
        take(queue).nack("no", after=timedelta(0))
        assert queue.edit("a", payload=2) is Edited.UPDATED
        message = seen(queue, "a")
        assert (message.attempt, message.last_error) == (1, "no")
        assert take(queue).attempt == 2

    def test_nothing_to_change_changes_nothing(self, queue: Queue[Any]) -> None:
        queue.offer("a", {"n": 1}, at=START + HOUR, priority=3, headers={"a": "1"}, type="t")
        version = seen(queue, "a").version
        same: Any = {"payload": {"n": 1}, "at": START + HOUR, "priority": 3, "headers": {"a": "1"}, "type": "t"}
        assert queue.edit("a", **same) is Edited.IGNORED
        assert queue.edit("a", **same, version=version - 1) is Edited.IGNORED
        assert seen(queue, "a").version == version

    @pytest.mark.usefixtures("queue_exists")
    def test_what_is_not_there_is_gone(self, queue: Queue[Any]) -> None:
        assert queue.edit("nothing", priority=1) is Edited.GONE
        queue.offer("a", 1)
        take(queue).ack()
        assert queue.edit("a", priority=1) is Edited.GONE
        assert not queue.contains("nothing")

    def test_with_a_version_only_that_version(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        version = seen(queue, "a").version
        assert queue.edit("a", priority=1, version=version + 10**9) is Edited.CHANGED
        assert queue.edit("a", priority=1, version=version) is Edited.UPDATED
        assert queue.edit("a", priority=2, version=version) is Edited.CHANGED
        assert seen(queue, "a").priority == 1

    def test_an_offer_like_the_edited_message_is_ignored_and_a_debounce_begins_anew(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1, after=MINUTE, conflict=Conflict.debounce(HOUR))
        queue.edit("a", at=START + 5 * HOUR)
        assert queue.offer("a", 1, at=START + 5 * HOUR) is Outcome.IGNORED
        queue.offer("a", 2, after=2 * HOUR, conflict=Conflict.debounce(3 * HOUR))
        assert seen(queue, "a").due_at == START + 2 * HOUR


class TestLeases:
    def test_a_leased_message_is_not_edited(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        delivery = take(queue)
        assert queue.edit("a", payload=2) is Edited.LEASED
        assert queue.drop("a", unless_leased=True) is False
        assert seen(queue, "a").payload == 1
        assert delivery.ack() is Settled.DONE

    def test_forced_it_ends_the_lease_and_the_stale_token_settles_nothing(self, app: App, queue: Queue[Any]) -> None:
        for verb in ("ack", "nack", "touch", "release", "bury"):
            queue.offer(verb, 1, max_attempts=1)
            stale = take(queue)
            assert queue.edit(verb, force=True, payload=2) is Edited.UPDATED
            before = seen(queue, verb)
            assert (before.payload, before.attempt, before.state) == (2, 0, State.READY)
            assert (before.lease_until, before.consumer) == (None, None)
            assert getattr(stale, verb)() is Settled.LEASE_LOST
            assert seen(queue, verb) == before
            again = take(queue)
            assert (again.payload, again.attempt) == (2, 1)
            assert again.ack() is Settled.DONE

    def test_a_lease_that_ran_out_needs_no_force_and_is_void_all_the_same(
        self, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        queue.offer("a", 1)
        late = take(queue)
        clock.advance(HOUR)
        assert queue.edit("a", payload=2) is Edited.UPDATED
        assert late.ack() is Settled.LEASE_LOST
        assert (seen(queue, "a").attempt, take(queue).attempt) == (1, 2)

    def test_an_edit_that_changes_nothing_leaves_the_lease(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        delivery = take(queue)
        assert queue.edit("a", payload=1) is Edited.IGNORED
        assert queue.edit("a", payload=1, force=True) is Edited.IGNORED
        assert delivery.ack() is Settled.DONE

    def test_a_drop_spares_a_leased_message_only_on_request(self, queue: Queue[Any], clock: WatchedClock) -> None:
        for key in "ab":
            queue.offer(key, 1)
            take(queue)
        assert queue.drop("a") is True
        assert queue.drop("b", unless_leased=True) is False
        clock.advance(HOUR)
        assert queue.drop("b", unless_leased=True) is True

    def test_an_edit_and_an_ack_that_meet_leave_one_winner(self, app: App, queue: Queue[Any]) -> None:
        for turn in range(30):
            queue.offer("a", turn)
            delivery = take(queue)
            edited, settled = all_at_once([lambda: queue.edit("a", priority=5, force=True), delivery.ack])
            assert (edited, settled) in [(Edited.UPDATED, Settled.LEASE_LOST), (Edited.GONE, Settled.DONE)]
            assert queue.drop("a") is (edited is Edited.UPDATED)

    def test_edits_that_meet_are_done_one_after_the_other(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 0)
        jobs = [lambda n=n: [queue.edit("a", headers={"n": f"{n}-{i}"}) for i in range(20)] for n in range(3)]
        assert {outcome for some in all_at_once(jobs) for outcome in some} == {Edited.UPDATED}
        kinds = [event.kind.value for event in app.store.run(app.store.journal.timeline(queue.name, "a"))]
        assert kinds == ["offered"] + ["edited"] * 60
        assert numbers(app, queue) == (0, 1, 0, 0)


class TestJournal:
    def test_an_edit_is_an_event_with_what_it_changed(self, app: App, queue: Queue[Any]) -> None:
        app.queues.create(queue.name, QueueSettings(journal=JournalLevel.PAYLOADS))
        queue.offer("a", 1)
        queue.edit("a", payload=[1, 2], after=MINUTE, priority=4)
        event = app.store.run(app.store.journal.timeline(queue.name, "a"))[-1]
        message = seen(queue, "a")
        assert (event.kind.value, event.at, event.version) == ("edited", START, message.version)
        assert (event.attempt, event.priority, event.due_at) == (0, 4, START + MINUTE)
        assert (event.size, event.payload) == (5, b"[1,2]")
        assert event.detail == {"fields": ["due_at", "payload", "priority"]}

    def test_what_was_not_edited_leaves_no_event(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        take(queue)
        queue.edit("a", payload=1)
        queue.edit("a", payload=2)
        assert [event.kind.value for event in app.store.run(app.store.journal.timeline(queue.name, "a"))] == [
            "offered",
            "leased",
        ]


@where_the_messages_are
class TestGivingUp:
    """Not over HTTP: there it is Relay's move, and a worker buries what it holds."""

    @pytest.mark.parametrize("after", [timedelta(0), HOUR], ids=["ready", "delayed"])
    def test_what_waits_becomes_a_dead_letter_with_the_reason(
        self, app: App, queue: Queue[Any], after: timedelta
    ) -> None:
        queue.offer("a", {"n": 1}, after=after, priority=3, type="t")
        assert app.store.run(app.store.messages.bury_by_key(queue.name, "a", error="wrong address")) is Edited.UPDATED
        assert numbers(app, queue) == (0, 0, 0, 1)
        (letter,) = queue.dead_letters.list()
        assert (letter.key, letter.payload, letter.error, letter.reason) == ("a", {"n": 1}, "wrong address", "buried")
        assert (letter.attempt, letter.priority, letter.type, letter.consumer) == (0, 3, "t", None)
        last = app.store.run(app.store.journal.timeline(queue.name, "a"))[-1]
        assert (last.kind.value, last.error, last.detail) == ("buried", "wrong address", {"reason": "buried"})
        assert (last.leased_at, last.consumer) == (None, None)
        assert queue.dead_letters.redrive() == 1
        assert take(queue).payload == {"n": 1}

    def test_what_is_leased_must_be_forced_and_then_the_lease_is_void(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        delivery = take(queue)
        assert app.store.run(app.store.messages.bury_by_key(queue.name, "a")) is Edited.LEASED
        assert app.store.run(app.store.messages.bury_by_key(queue.name, "a", force=True)) is Edited.UPDATED
        assert delivery.ack() is Settled.GONE
        assert numbers(app, queue) == (0, 0, 0, 1)

    def test_an_error_of_before_is_kept_where_none_is_given(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        take(queue).nack("card declined")
        assert app.store.run(app.store.messages.bury_by_key(queue.name, "a")) is Edited.UPDATED
        assert [letter.error for letter in queue.dead_letters.list()] == ["card declined"]
        assert [group.example_key for group in queue.dead_letters.groups()] == ["a"]

    def test_only_the_version_that_was_seen(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        version = seen(queue, "a").version
        queue.offer("a", 2)
        assert app.store.run(app.store.messages.bury_by_key(queue.name, "a", version=version)) is Edited.CHANGED
        assert app.store.run(app.store.messages.bury_by_key(queue.name, "a", version=-1)) is Edited.CHANGED
        assert app.store.run(app.store.messages.bury_by_key(queue.name, "b")) is Edited.GONE
        assert queue.contains("a")

    def test_concurrent_burials_bury_once(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        outcomes = all_at_once(
            [lambda: app.store.run(app.store.messages.bury_by_key(queue.name, "a")) for _ in range(8)]
        )
        assert Counter(outcomes) == {Edited.UPDATED: 1, Edited.GONE: 7}
        assert numbers(app, queue) == (0, 0, 0, 1)
