"""Bad input to everything but offers and polls: settling, looking, queues, settings. Never an error of the driver's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from tarry import Delivery, Queue, QueueSettings, Retry, Settled
from tarry.app import App
from tarry.core.errors import InvalidInput
from tarry.core.messages import Failure, Hold
from tests.kit.backends import new_name
from tests.kit.steps import HOUR, SECOND, seen, take

TOO_LARGE = [2**31, 10**30]


@contextmanager
def fine_or_refused(word: str) -> Iterator[None]:
    """Both answers are right, as long as a refusal names what is wrong. An error of the driver's is not."""
    try:
        yield
    except InvalidInput as error:
        if word not in str(error):
            raise


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
        with pytest.raises(InvalidInput, match="delay"):
            delivery.nack("failed", delay=delay)
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
            for settle in (queue.ack_many, queue.release_many, queue.touch_many, queue.bury_many):
                with pytest.raises(InvalidInput, match="is a Hold"):
                    settle([delivery.hold, wrong])
            with pytest.raises(InvalidInput, match="is a Failure"):
                queue.nack_many([Failure(delivery.hold), wrong])
        assert delivery.ack() is Settled.DONE

    @pytest.mark.parametrize("retry", ["often", 3], ids=repr)
    def test_a_retry_policy_is_one(self, queue: Queue[Any], delivery: Delivery[Any], retry: Any) -> None:
        with pytest.raises(InvalidInput, match="Retry"):
            queue.nack_many([Failure(delivery.hold)], retry=retry)
        assert delivery.ack() is Settled.DONE

    @pytest.mark.parametrize("key", ["", "k" * 201, "a\x00", "\ud800"], ids=["empty", "long", "NUL", "surrogate"])
    def test_a_key_that_cannot_be_is_not_held(self, queue: Queue[Any], key: str) -> None:
        """A token comes from somewhere else, and so may its key: refused, or gone, but nothing breaks."""
        for settle in (queue.ack_many, queue.release_many, queue.touch_many, queue.bury_many):
            with fine_or_refused("key"):
                assert settle([Hold(key, uuid4())]) == [Settled.GONE]


class TestLooking:
    LOOKS = (
        ("dead letters", lambda app, queue, limit: queue.dead_letters.list(limit=limit)),
        ("redrive", lambda app, queue, limit: queue.dead_letters.redrive(limit=limit)),
        ("counts", lambda app, queue, limit: app.queues.counts(queue.name, limit=limit)),
        ("messages", lambda app, queue, limit: app.store.messages(queue.name, limit=limit)),
        ("timeline", lambda app, queue, limit: app.store.timeline(queue.name, "a", limit=limit)),
    )

    @pytest.mark.parametrize("limit", [-1])
    @pytest.mark.parametrize("look", [look for _, look in LOOKS], ids=[name for name, _ in LOOKS])
    def test_a_negative_limit_is_refused_or_none(self, app: App, queue: Queue[Any], look: Any, limit: int) -> None:
        queue.offer("a", 1)
        with fine_or_refused("limit"):
            look(app, queue, limit)

    @pytest.mark.parametrize("limit", TOO_LARGE)
    @pytest.mark.parametrize("look", [look for _, look in LOOKS], ids=[name for name, _ in LOOKS])
    def test_a_huge_limit_is_refused_or_as_good_as_none(
        self, app: App, queue: Queue[Any], look: Any, limit: int
    ) -> None:
        queue.offer("a", 1)
        with fine_or_refused("limit"):
            look(app, queue, limit)

    @pytest.mark.parametrize("limit", ["many", 1.5, True, None], ids=repr)
    @pytest.mark.parametrize("look", [look for _, look in LOOKS[:3]], ids=[name for name, _ in LOOKS[:3]])
    def test_a_limit_is_a_whole_number(self, app: App, queue: Queue[Any], look: Any, limit: Any) -> None:
        queue.offer("a", 1)
        with pytest.raises(InvalidInput, match="limit must be a whole number"):
            look(app, queue, limit)

    @pytest.mark.parametrize("version", [2**63, -(10**30)])
    def test_a_version_that_cannot_be_drops_nothing(self, queue: Queue[Any], version: int) -> None:
        queue.offer("a", 1)
        with fine_or_refused("version"):
            assert not queue.drop("a", version=version)
        assert queue.contains("a")

    @pytest.mark.parametrize("version", ["1", 1.5, True], ids=repr)
    def test_a_version_is_a_whole_number(self, queue: Queue[Any], version: Any) -> None:
        queue.offer("a", 1)
        with pytest.raises(InvalidInput, match="version"):
            queue.drop("a", version=version)
        with pytest.raises(InvalidInput, match="version"):
            queue.dead_letters.redrive([version])
        assert queue.contains("a")

    @pytest.mark.parametrize("version", [2**63, -1])
    def test_a_version_that_cannot_be_redrives_nothing(self, queue: Queue[Any], version: int) -> None:
        queue.offer("a", 1)
        take(queue).bury()
        with fine_or_refused("version"):
            assert queue.dead_letters.redrive([version]) == 0
        assert len(queue.dead_letters.list()) == 1


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

    @pytest.mark.parametrize(("reason", "kept"), [("a\x00b", "a␀b"), ("half \ud83d", "half ?"), ("x" * 9_000, None)])
    def test_any_text_is_a_reason_and_made_fit_to_be_stored(
        self, app: App, queue: Queue[Any], reason: str, kept: str | None
    ) -> None:
        app.queues.create(queue.name)
        stored = app.queues.pause(queue.name, reason=reason).paused_reason
        assert stored == kept or (kept is None and stored is not None and len(stored) == 8_000)

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
