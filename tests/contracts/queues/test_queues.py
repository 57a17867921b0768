"""Queues as a whole: created on first use, created by hand, edited, renamed, paused, deleted."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from tarry import Message, Outcome, Queue, QueueSettings, Retry, Settled
from tarry.app import App
from tarry.core.errors import InvalidState, UnknownQueue
from tarry.core.journal.events import JournalLevel
from tarry.core.messages.model import LeaseId
from tests.kit.backends import SETTINGS, Backend, new_name
from tests.kit.clocks import START, WatchedClock
from tests.kit.steps import EMPTY, HOUR, MINUTE, SECOND, all_at_once, keys, numbers, take

SPECIAL = QueueSettings(
    lease_for=timedelta(minutes=5, microseconds=1),
    max_attempts=7,
    retry=Retry.exponential(timedelta(milliseconds=250), factor=1.5, cap_for=HOUR, jitter=0.25),
    journal=JournalLevel.PAYLOADS,
    retention_for=timedelta(days=90),
    target_lag_for=timedelta(milliseconds=1500),
    max_depth=1_000,
    description="Orders – paid and unpaid",
    handler_max_attempts=5,
)


VERBS_OF_MESSAGES: dict[str, Any] = {
    "offer": lambda q: q.offer("a", 1),
    "offer_many": lambda q: q.offer_many([Message(key="a", payload=1)]),
    "try_poll": lambda q: q.try_poll(),
    "poll": lambda q: q.poll(SECOND),
    "read": lambda q: q.read("a"),
    "contains": lambda q: q.contains("a"),
    "drop": lambda q: q.drop("a"),
    "purge": lambda q: q.purge("Yes, please, I know what I'm doing!"),
    "dead letters": lambda q: q.dead_letters.list(),
    "redrive": lambda q: q.dead_letters.redrive(),
    "discard": lambda q: q.dead_letters.discard(),
}


@pytest.fixture
def name() -> str:
    return new_name()


class TestCreation:
    def test_a_queue_comes_into_being_when_it_is_first_used(self, app: App, name: str) -> None:
        with pytest.raises(UnknownQueue):
            app.queues.get(name)
        app.queue(name).offer("a", 1)
        info = app.queues.get(name)
        assert (info.name, info.settings, info.created_at) == (name, QueueSettings(), START)
        assert not info.paused

    def test_a_handle_alone_creates_nothing(self, app: App, name: str) -> None:
        app.queue(name)
        with pytest.raises(UnknownQueue):
            app.queues.get(name)

    def test_every_setting_is_kept_exactly(self, app: App, name: str) -> None:
        created = app.queues.create(name, SPECIAL)
        assert created.settings == SPECIAL
        assert app.queues.get(name) == created

    def test_numbers_of_a_retry_policy_may_be_whole(self, app: App, name: str) -> None:
        retry = Retry(factor=3, jitter=0)
        assert app.queues.create(name, QueueSettings(retry=retry)).settings.retry == retry

    def test_an_http_queue_gives_up_after_three_attempts(self, app: App, name: str) -> None:
        assert app.queues.create(name, QueueSettings.for_relay()).settings.max_attempts == 3

    def test_a_taken_name_is_refused_and_nothing_changed(self, app: App, name: str) -> None:
        app.queues.create(name, SPECIAL)
        with pytest.raises(InvalidState, match=name):
            app.queues.create(name)
        assert app.queues.get(name).settings == SPECIAL

    def test_or_accepted_where_that_is_fine_and_still_nothing_changed(self, app: App, name: str) -> None:
        app.queues.create(name, SPECIAL)
        assert app.queues.create(name, exist_ok=True).settings == SPECIAL

    def test_names_of_all_allowed_kinds_work(self, app: App) -> None:
        for odd in ("a", "A.b_c-9", "-", "...", "..a", ".-", "9" * 100, "_", "select"):
            assert app.queues.create(odd, exist_ok=True).name == odd
            assert app.queue(odd).offer("a", 1) is Outcome.CREATED
            app.queues.delete(odd, force=True)

    def test_names_differ_by_case(self, app: App, name: str) -> None:
        app.queue(name.lower()).offer("a", 1)
        app.queue(name.upper()).offer("b", 1)
        assert not app.queue(name.upper()).contains("a")

    def test_many_first_uses_at_once_make_one_queue(self, app: App, name: str) -> None:
        outcomes = all_at_once([lambda n=n: app.queue(name).offer(f"k{n}", n) for n in range(8)])
        assert outcomes == [Outcome.CREATED] * 8
        assert numbers(app, app.queue(name)) == (0, 8, 0, 0)

    def test_the_list_is_sorted_by_name(self, app: App, name: str) -> None:
        made = [f"{name}-{suffix}" for suffix in ("b", "B", "a", "_", ".")]
        for made_name in made:
            app.queues.create(made_name)
        listed = [info.name for info in app.queues.list() if info.name.startswith(name + "-")]
        assert listed == sorted(made)


class TestLag:
    @pytest.mark.usefixtures("queue_exists")
    def test_it_is_the_age_of_the_oldest_that_could_be_delivered(
        self, app: App, queue: Queue[Any], clock: WatchedClock
    ) -> None:
        def lag() -> timedelta:
            return app.queues.counts(queue.name).lag_for

        assert lag() == timedelta(0)
        queue.offer("later", 1, after=timedelta(hours=1))
        assert lag() == timedelta(0), "nothing is due"
        queue.offer("low", 1)
        clock.advance(timedelta(seconds=5))
        queue.offer("high", 1, priority=9)
        clock.advance(timedelta(seconds=2))
        assert lag() == timedelta(seconds=7)
        assert queue.try_poll_many(1, lowest_first=True)
        assert lag() == timedelta(seconds=2), "the oldest is leased"
        assert queue.try_poll() is not None
        assert lag() == timedelta(0), "each of them is leased"
        clock.advance(timedelta(hours=1))
        assert lag() == timedelta(hours=1, seconds=7), "the leases have run out"


class TestUnknownQueues:
    """Where a store may not create queues by itself, and what never creates one."""

    @pytest.mark.parametrize("verb", VERBS_OF_MESSAGES)
    def test_every_verb_reports_an_unknown_queue(self, backend: Backend, name: str, verb: str) -> None:
        settings = dataclasses.replace(SETTINGS, create_queues=False)
        with backend.own_app(settings) as app, pytest.raises(UnknownQueue, match=name) as caught:
            VERBS_OF_MESSAGES[verb](app.queue(name))
        assert caught.value.hint is not None

    @pytest.mark.parametrize(
        "operation",
        [
            lambda app, name: app.queues.counts(name),
            lambda app, name: app.store.run(app.store.messages.list(name)),
            lambda app, name: app.store.run(app.store.journal.timeline(name, "a")),
        ],
        ids=["counts", "messages", "timeline"],
    )
    def test_so_does_every_look(self, backend: Backend, name: str, operation: Any) -> None:
        settings = dataclasses.replace(SETTINGS, create_queues=False)
        with backend.own_app(settings) as app, pytest.raises(UnknownQueue, match=name):
            operation(app, name)

    @pytest.mark.parametrize(
        "verb", [verb for verb in VERBS_OF_MESSAGES if not verb.startswith(("offer", "try", "poll"))]
    )
    def test_only_an_offer_or_a_poll_creates_its_queue(self, app: App, name: str, verb: str) -> None:
        with pytest.raises(UnknownQueue, match=name):
            VERBS_OF_MESSAGES[verb](app.queue(name))
        with pytest.raises(UnknownQueue):
            app.queues.get(name)

    @pytest.mark.parametrize("verb", ["ack", "nack", "touch", "release", "bury"])
    def test_a_settle_in_a_deleted_queue_returns_gone_and_creates_nothing(
        self, app: App, queue: Queue[Any], verb: str
    ) -> None:
        queue.offer("a", 1)
        delivery = take(queue)
        app.queues.delete(queue.name, force=True)
        assert getattr(delivery, verb)() is Settled.GONE
        with pytest.raises(UnknownQueue):
            app.queues.get(queue.name)

    @pytest.mark.parametrize(
        "operation",
        [
            lambda queues, name: queues.get(name),
            lambda queues, name: queues.edit(name, max_attempts=3),
            lambda queues, name: queues.rename(name, name + "2"),
            lambda queues, name: queues.delete(name),
            lambda queues, name: queues.delete(name, force=True),
            lambda queues, name: queues.pause(name),
            lambda queues, name: queues.resume(name),
        ],
        ids=["get", "edit", "rename", "delete", "force", "pause", "resume"],
    )
    def test_what_is_done_to_a_queue_never_creates_it(self, app: App, name: str, operation: Any) -> None:
        with pytest.raises(UnknownQueue, match=name):
            operation(app.queues, name)
        with pytest.raises(UnknownQueue):
            app.queues.get(name)


class TestEdit:
    def test_only_what_is_named_changes(self, app: App, name: str) -> None:
        app.queues.create(name, SPECIAL)
        edited = app.queues.edit(name, lease_for=MINUTE, max_attempts=None)
        assert edited.settings == dataclasses.replace(SPECIAL, lease_for=MINUTE, max_attempts=None)
        assert app.queues.get(name) == edited

    def test_concurrent_edits_keep_the_fields_of_each_other(self, app: App, name: str) -> None:
        app.queues.create(name)
        for n in range(1, 11):
            all_at_once(
                [
                    partial(app.queues.edit, name, lease_for=n * MINUTE),
                    partial(app.queues.edit, name, max_attempts=n),
                    partial(app.queues.edit, name, target_lag_for=n * SECOND),
                ]
            )
            settings = app.queues.get(name).settings
            assert (settings.lease_for, settings.max_attempts, settings.target_lag_for) == (n * MINUTE, n, n * SECOND)

    def test_it_counts_from_the_next_poll_on(self, app: App, queue: Queue[Any]) -> None:
        queue.offer_many([Message(key=key, payload=0) for key in "ab"])
        assert take(queue).lease_until == START + 30 * SECOND
        app.queues.edit(queue.name, lease_for=MINUTE)
        assert take(queue).lease_until == START + MINUTE


class TestPause:
    def test_a_paused_queue_hands_out_nothing(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        info = app.queues.pause(queue.name, reason="maintenance")
        assert (info.paused, info.paused_at, info.paused_reason) == (True, START, "maintenance")
        assert queue.try_poll() is None
        assert queue.try_poll_many(5, type="t") == []

    def test_what_is_held_can_be_settled(self, app: App, queue: Queue[Any]) -> None:
        queue.offer_many([Message(key=key, payload=0) for key in "ab"])
        first, second = queue.try_poll_many(2)
        app.queues.pause(queue.name)
        assert [first.ack(), second.touch(), second.nack()] == [Settled.DONE] * 3

    def test_after_the_resume_everything_goes_on(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        app.queues.pause(queue.name)
        info = app.queues.resume(queue.name)
        assert (info.paused, info.paused_at, info.paused_reason) == (False, None, None)
        assert take(queue).key == "a"

    def test_a_repeated_pause_keeps_the_first_reason(self, app: App, queue: Queue[Any], clock: WatchedClock) -> None:
        app.queues.create(queue.name)
        app.queues.pause(queue.name, reason="first")
        clock.advance(HOUR)
        info = app.queues.pause(queue.name, reason="second")
        assert (info.paused_at, info.paused_reason) == (START, "first")
        assert app.queues.resume(queue.name) == app.queues.resume(queue.name)

    def test_an_edit_does_not_resume(self, app: App, queue: Queue[Any]) -> None:
        app.queues.create(queue.name)
        app.queues.pause(queue.name, reason="stays")
        assert app.queues.edit(queue.name, max_attempts=3).paused_reason == "stays"


class TestRename:
    def test_messages_dead_letters_and_leases_move_with_the_queue(self, app: App, queue: Queue[Any], name: str) -> None:
        queue.offer_many([Message(key=key, payload=0, at=START - n * SECOND) for n, key in enumerate("abc")])
        dying, held = queue.try_poll_many(2)
        dying.bury()
        assert app.queues.rename(queue.name, name).name == name
        renamed = app.queue(name)
        assert numbers(app, renamed) == (0, 1, 1, 1)
        assert renamed.leases.ack([held.lease_id]) == [Settled.DONE]
        assert keys(renamed.dead_letters.list()) == ["c"]
        assert take(renamed).key == "a"
        with pytest.raises(UnknownQueue):
            app.queues.get(queue.name)

    @pytest.mark.parametrize("verb", ["ack", "nack", "touch", "release", "bury"])
    @pytest.mark.parametrize("old_name_is_used_again", [False, True])
    def test_a_settle_in_flight_is_done_and_creates_no_queue(
        self, app: App, queue: Queue[Any], name: str, verb: str, *, old_name_is_used_again: bool
    ) -> None:
        queue.offer("a", 1)
        delivery = take(queue)
        app.queues.rename(queue.name, name)
        if old_name_is_used_again:
            queue.offer("a", 2, after=HOUR)
        assert getattr(delivery, verb)() is Settled.DONE
        settled = {
            "ack": EMPTY,
            "nack": (1, 0, 0, 0),
            "touch": (0, 0, 1, 0),
            "release": (0, 1, 0, 0),
            "bury": (0, 0, 0, 1),
        }
        assert numbers(app, app.queue(name)) == settled[verb]
        if old_name_is_used_again:
            assert numbers(app, queue) == (1, 0, 0, 0)
        else:
            with pytest.raises(UnknownQueue):
                app.queues.get(queue.name)

    def test_a_batch_is_settled_wherever_its_messages_are(self, app: App, queue: Queue[Any], name: str) -> None:
        queue.offer_many([Message(key=key, payload=1) for key in "ab"])
        a, b = (delivery.lease_id for delivery in queue.try_poll_many(2))
        app.queues.rename(queue.name, name)
        queue.offer("c", 1)
        c = take(queue).lease_id
        assert queue.leases.ack([b, c, LeaseId("none", b.token), a, b]) == [
            Settled.DONE,
            Settled.DONE,
            Settled.GONE,
            Settled.DONE,
            Settled.GONE,
        ]

    def test_a_stale_token_settles_nothing_under_either_name(self, app: App, queue: Queue[Any], name: str) -> None:
        queue.offer("a", 1)
        stale = take(queue)
        stale.release()
        take(queue)
        app.queues.rename(queue.name, name)
        assert stale.ack() is Settled.GONE
        assert app.queue(name).leases.ack([stale.lease_id]) == [Settled.LEASE_LOST]

    def test_the_history_follows(self, app: App, queue: Queue[Any], name: str) -> None:
        queue.offer("a", 1)
        app.queues.rename(queue.name, name)
        assert [(event.kind.value, event.queue) for event in app.store.run(app.store.journal.timeline(name, "a"))] == [
            ("offered", name)
        ]

    def test_a_taken_name_is_refused(self, app: App, queue: Queue[Any], name: str) -> None:
        queue.offer("a", 1)
        app.queues.create(name)
        with pytest.raises(InvalidState, match=name):
            app.queues.rename(queue.name, name)
        with pytest.raises(InvalidState):
            app.queues.rename(name, name)
        assert queue.contains("a")

    def test_the_old_name_is_free(self, app: App, queue: Queue[Any], name: str) -> None:
        queue.offer("a", 1)
        app.queues.rename(queue.name, name)
        assert queue.offer("a", 1) is Outcome.CREATED
        assert numbers(app, queue) == (0, 1, 0, 0)


class TestDelete:
    def test_an_empty_queue_is_deleted(self, app: App, name: str) -> None:
        app.queues.create(name)
        app.queues.delete(name)
        with pytest.raises(UnknownQueue):
            app.queues.get(name)
        assert name not in [info.name for info in app.queues.list()]

    @pytest.mark.parametrize("state", ["delayed", "ready", "leased", "dead"])
    def test_one_that_is_not_empty_is_refused(self, app: App, queue: Queue[Any], state: str) -> None:
        queue.offer("a", 1, after=MINUTE if state == "delayed" else None)
        if state in ("leased", "dead"):
            delivery = take(queue)
            if state == "dead":
                delivery.bury()
        before = numbers(app, queue)
        with pytest.raises(InvalidState, match=queue.name):
            app.queues.delete(queue.name)
        assert numbers(app, queue) == before

    def test_unless_forced_and_then_its_messages_go_with_it(self, app: App, queue: Queue[Any]) -> None:
        queue.offer_many([Message(key=key, payload=0) for key in "abc"])
        held, dying = queue.try_poll_many(2)
        dying.bury()
        app.queues.delete(queue.name, force=True)
        assert held.ack() is Settled.GONE
        app.queues.create(queue.name)
        assert numbers(app, queue) == EMPTY

    def test_a_new_queue_of_the_name_starts_afresh(self, app: App, name: str) -> None:
        app.queues.create(name, SPECIAL)
        app.queue(name).offer("a", 1)
        app.queues.delete(name, force=True)
        assert app.queue(name).offer("a", 1) is Outcome.CREATED
        assert app.queues.get(name).settings == QueueSettings()
        assert [event.kind.value for event in app.store.run(app.store.journal.timeline(name, "a"))] == ["offered"]

    def test_a_poll_that_creates_its_queue_logs_it_once(
        self, app: App, name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        app.queue(f"{name}-offered").offer("a", 1)
        assert app.queue(name).try_poll() is None
        assert app.queue(name).try_poll() is None
        warnings = [record.getMessage() for record in caplog.records if record.name == "tarry"]
        assert warnings == [
            f"the queue {name!r} did not exist, and was created by a poll; tarry queue list shows which there are"
        ]
