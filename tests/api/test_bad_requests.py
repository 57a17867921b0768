"""Bad input to everything but offers and polls: settling, looking, queues, settings; and nothing changes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tarry import Delivery, Queue, QueueSettings, Retry, Settled
from tarry.app import App
from tarry.core.errors import InvalidInput, InvalidPayload
from tarry.core.limits import PURGE_CONFIRMATION
from tarry.core.messages.model import Failure
from tarry.core.messages.states import State
from tests.kit.backends import new_name
from tests.kit.clocks import START
from tests.kit.steps import HOUR, MINUTE, SECOND, numbers, seen, take


@pytest.fixture
def delivery(queue: Queue[Any]) -> Delivery[Any]:
    queue.offer("a", 1)
    return take(queue)


class TestSettling:
    @pytest.mark.parametrize("lease_for", [SECOND / 2, 13 * HOUR, -SECOND, timedelta.max, 30])
    def test_a_touch_of_a_senseless_length_leaves_the_lease(
        self, queue: Queue[Any], delivery: Delivery[Any], lease_for: Any
    ) -> None:
        before = seen(queue, "a")
        with pytest.raises(InvalidInput, match="lease_for"):
            delivery.touch(lease_for)
        assert seen(queue, "a") == before

    @pytest.mark.parametrize("delay", [-SECOND, timedelta(days=4000), timedelta.max, 5])
    def test_a_nack_with_a_senseless_delay_leaves_the_lease(
        self, queue: Queue[Any], delivery: Delivery[Any], delay: Any
    ) -> None:
        with pytest.raises(InvalidInput, match="after"):
            delivery.nack("failed", after=delay)
        assert (seen(queue, "a").attempt, delivery.settled) == (1, None)
        assert delivery.ack() is Settled.DONE

    @pytest.mark.parametrize("error", [17, b"bytes", ValueError("an exception")], ids=lambda e: type(e).__name__)
    def test_an_error_is_a_text(self, delivery: Delivery[Any], error: Any) -> None:
        with pytest.raises(InvalidInput, match="error"):
            delivery.nack(error)
        with pytest.raises(InvalidInput, match="error"):
            delivery.bury(error)
        assert delivery.ack() is Settled.DONE

    def test_what_is_settled_is_what_is_held(self, queue: Queue[Any], delivery: Delivery[Any]) -> None:
        wrongs: list[Any] = [delivery, "a", ("a", delivery.token), None]
        for wrong in wrongs:
            for settle in (queue.leases.ack, queue.leases.release, queue.leases.touch, queue.leases.bury):
                with pytest.raises(InvalidInput, match="by a LeaseId"):
                    settle([delivery.lease_id, wrong])
            with pytest.raises(InvalidInput, match="Failure values"):
                queue.leases.nack([Failure(delivery.lease_id), wrong])
        assert delivery.ack() is Settled.DONE

    def test_a_release_with_a_senseless_time_leaves_the_lease(self, queue: Queue[Any], delivery: Delivery[Any]) -> None:
        bads: list[dict[str, Any]] = [
            {"at": START, "after": SECOND},
            {"after": -SECOND},
            {"at": START.replace(tzinfo=None)},
        ]
        for bad in bads:
            with pytest.raises(InvalidInput):
                delivery.release(**bad)
        assert seen(queue, "a").state is State.LEASED

    @pytest.mark.parametrize("retry", ["often", 3], ids=repr)
    def test_a_retry_policy_is_one(self, queue: Queue[Any], delivery: Delivery[Any], retry: Any) -> None:
        with pytest.raises(InvalidInput, match="Retry"):
            queue.leases.nack([Failure(delivery.lease_id)], retry=retry)
        assert delivery.ack() is Settled.DONE


class TestLooking:
    @pytest.mark.parametrize("limit", ["many", 1.5, True, None], ids=repr)
    def test_a_limit_is_a_whole_number(self, app: App, queue: Queue[Any], limit: Any) -> None:
        queue.offer("a", 1)
        letters = queue.dead_letters
        for look in (letters.list, letters.redrive, lambda limit: app.queues.counts(queue.name, limit=limit)):
            with pytest.raises(InvalidInput, match="limit must be a whole number"):
                look(limit=limit)

    @pytest.mark.parametrize("version", ["1", 1.5, True], ids=repr)
    def test_a_version_is_a_whole_number(self, queue: Queue[Any], version: Any) -> None:
        queue.offer("a", 1)
        with pytest.raises(InvalidInput, match="version"):
            queue.drop("a", version=version)
        with pytest.raises(InvalidInput, match="version"):
            queue.dead_letters.redrive([version])
        assert queue.contains("a")


class TestQueues:
    @pytest.mark.parametrize(
        "name", ["", "a b", "q/1", "ü", "x" * 101, "a\n", "a\x00", "'; drop table--", None, 3], ids=repr
    )
    def test_names(self, app: App, name: Any) -> None:
        known = new_name()
        app.queues.create(known)
        calls = [
            lambda: app.queue(name),
            lambda: app.queues.create(name),
            lambda: app.queues.get(name),
            lambda: app.queues.edit(name, max_attempts=3),
            lambda: app.queues.rename(name, "new"),
            lambda: app.queues.rename(known, name),
            lambda: app.queues.delete(name),
            lambda: app.queues.pause(name),
            lambda: app.queues.resume(name),
            lambda: app.queues.counts(name),
        ]
        for call in calls:
            with pytest.raises(InvalidInput, match="A-Z a-z 0-9"):
                call()
        assert app.queues.get(known).name == known

    @pytest.mark.parametrize("path", [".", ".."])
    def test_names_that_are_directories_in_a_path(self, app: App, path: str) -> None:
        known = new_name()
        app.queues.create(known)
        calls = [
            lambda: app.queues.create(path),
            lambda: app.queue(path).offer("a", 1),
            lambda: app.queues.rename(known, path),
        ]
        for call in calls:
            with pytest.raises(InvalidInput):
                call()
        assert path not in [queue.name for queue in app.queues.list()]

    @pytest.mark.parametrize("settings", [{"lease_for": 30}, None, "default"], ids=repr)
    def test_settings_are_settings(self, app: App, settings: Any) -> None:
        name = new_name()
        with pytest.raises(InvalidInput, match="QueueSettings"):
            app.queues.create(name, settings)
        assert name not in [info.name for info in app.queues.list()]

    def test_the_reason_of_a_pause_is_a_text(self, app: App, queue: Queue[Any]) -> None:
        wrong: Any = 17
        app.queues.create(queue.name)
        with pytest.raises(InvalidInput, match="reason"):
            app.queues.pause(queue.name, reason=wrong)
        assert not app.queues.get(queue.name).paused

    @pytest.mark.parametrize(
        "change",
        [
            {"lease_for": SECOND / 2},
            {"lease_for": 30},
            {"max_attempts": 0},
            {"max_attempts": True},
            {"retry": "often"},
            {"retry": None},
            {"retry": Retry(max_attempts=3)},
            {"journal": "events"},
            {"journal": None},
            {"retention_for": -SECOND},
            {"target_lag_for": timedelta(days=4000)},
            {"target_lag_for": None},
        ],
        ids=repr,
    )
    def test_settings_are_checked_before_anything_changes(
        self, app: App, queue: Queue[Any], change: dict[str, Any]
    ) -> None:
        app.queues.create(queue.name)
        with pytest.raises(InvalidInput):
            app.queues.edit(queue.name, **change)
        with pytest.raises(InvalidInput):
            QueueSettings(**change)
        assert app.queues.get(queue.name).settings == QueueSettings()

    def test_an_unknown_setting_is_named_with_those_that_exist(self, app: App, queue: Queue[Any]) -> None:
        app.queues.create(queue.name)
        with pytest.raises(InvalidInput, match=r"lease_time.*lease_for"):
            app.queues.edit(queue.name, lease_time=SECOND)  # pyright: ignore[reportCallIssue]
        assert app.queues.get(queue.name).settings == QueueSettings()

    @pytest.mark.parametrize(
        "confirm", ["", "yes", "Yes, please, I know what I'm doing", PURGE_CONFIRMATION.lower(), None, 1]
    )
    def test_only_the_confirmation_drops_all(self, app: App, queue: Queue[Any], confirm: Any) -> None:
        queue.offer("a", 1)
        with pytest.raises(InvalidInput, match="I know what I'm doing!"):
            queue.purge(confirm)
        assert numbers(app, queue) == (0, 1, 0, 0)


class TestEdits:
    @pytest.mark.parametrize(
        "changes",
        [
            {},
            {"consumer": "b"},
            {"at": START, "after": MINUTE},
            {"at": None},
            {"after": -SECOND},
            {"priority": 10},
            {"priority": None},
            {"type": ""},
            {"headers": {"a": 1}},
            {"max_attempts": 0},
            {"lease_for": timedelta(0)},
            {"retry": 5},
            {"version": "x", "priority": 1},
        ],
        ids=str,
    )
    def test_nothing_changes(self, queue: Queue[Any], changes: Any) -> None:
        queue.offer("a", 1)
        before = seen(queue, "a")
        with pytest.raises(InvalidInput):
            queue.edit("a", **changes)
        assert seen(queue, "a") == before

    def test_a_payload_that_is_too_large(self, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        with pytest.raises(InvalidPayload):
            queue.edit("a", payload="x" * 300_000)


class TestDeadLetters:
    @pytest.mark.parametrize(
        ("where", "words"),
        [
            ({"fingerprint": "short"}, "a fingerprint has 12"),
            ({"fingerprint": 7}, "a fingerprint has 12"),
            ({"died_from": START.replace(tzinfo=None)}, "died_from has no time zone"),
            ({"key_prefix": ""}, "a key must not be empty"),
            ({"versions": ["x"]}, "version must be a whole number"),
            ({"versions": 7}, "versions must be whole numbers in a list or another iterable, not 7"),
            ({"versions": "12"}, "versions must be whole numbers in a list or another iterable, not '12'"),
            ({"reason": "buried"}, "unknown filter of dead letters: reason; allowed are died_from"),
        ],
    )
    def test_what_cannot_be_a_filter(self, queue: Queue[Any], where: Any, words: str) -> None:
        for verb in (queue.dead_letters.list, queue.dead_letters.discard, queue.dead_letters.start_redrive):
            with pytest.raises(InvalidInput, match=words):
                verb(**where)

    @pytest.mark.parametrize("versions", [7, "12", ["x"], [True]])
    def test_what_are_no_versions(self, queue: Queue[Any], versions: Any) -> None:
        with pytest.raises(InvalidInput, match=r"^versions? must be"):
            queue.dead_letters.redrive(versions)

    @pytest.mark.parametrize("rate", [0, -1, 1e-300, True, "fast", float("nan"), float("inf")])
    def test_what_is_no_rate(self, queue: Queue[Any], rate: Any) -> None:
        with pytest.raises(InvalidInput, match="rate must be messages per second"):
            queue.dead_letters.start_redrive(rate=rate)

    @pytest.mark.parametrize("canary", [-1, 1.5, 10_000])
    def test_what_is_no_number_of_canaries(self, queue: Queue[Any], canary: Any) -> None:
        with pytest.raises(InvalidInput, match="canary"):
            queue.dead_letters.start_redrive(canary=canary)


class TestKeys:
    @pytest.mark.parametrize(
        ("actions", "queues"),
        [([], ["*"]), (["fly"], ["*"]), (["read"], []), (["read"], ["a/b"]), (["read"], ["*a"]), (["read"], [""])],
    )
    def test_no_key_is_made(self, app: App, actions: list[str], queues: list[str]) -> None:
        before = app.keys.list()
        with pytest.raises(InvalidInput):
            app.keys.create("shop", actions, queues)
        with pytest.raises(InvalidInput):
            app.keys.create("", ["read"])
        assert app.keys.list() == before
