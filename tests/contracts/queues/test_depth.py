"""The limit of live messages per queue: offers of new keys beyond it are refused, and nothing of them is stored."""

from __future__ import annotations

import pytest

from tarry import Message, Outcome, QueueSettings
from tarry.app import App
from tarry.core.errors import QueueFull
from tests.kit.backends import new_name
from tests.kit.steps import HOUR, keys


@pytest.fixture
def name(app: App) -> str:
    name = new_name()
    app.queues.create(name, QueueSettings(max_depth=3, max_attempts=1))
    return name


def batch(*names: str) -> list[Message[int]]:
    return [Message(key=name, payload=1) for name in names]


class TestDepth:
    def test_an_offer_beyond_the_limit_is_refused_and_the_error_names_it(self, app: App, name: str) -> None:
        queue = app.queue(name)
        assert [queue.offer(key, 1) for key in "abc"] == [Outcome.CREATED] * 3
        with pytest.raises(QueueFull, match=rf"{name}.*max_depth of 3"):
            queue.offer("d", 1)
        assert not queue.contains("d")
        with pytest.raises(QueueFull):
            queue.offer(None, 1)  # a generated key

    def test_live_keys_can_be_updated_in_a_full_queue(self, app: App, name: str) -> None:
        queue = app.queue(name)
        queue.offer_many(batch("a", "b", "c"))
        assert queue.offer("a", 2) is Outcome.UPDATED
        assert queue.offer_many([Message(key="a", payload=3), Message(key="c", payload=3)]) == [Outcome.UPDATED] * 2

    def test_a_batch_that_does_not_fit_is_refused_as_a_whole(self, app: App, name: str) -> None:
        queue = app.queue(name)
        queue.offer_many(batch("a", "b"))
        with pytest.raises(QueueFull):
            queue.offer_many(batch("b", "c", "d"))
        assert not queue.contains("c")
        assert queue.offer_many(batch("b", "c"))[1] is Outcome.CREATED

    def test_the_same_key_twice_in_a_batch_counts_once(self, app: App, name: str) -> None:
        assert app.queue(name).offer_many(batch("a", "a", "b", "b", "c"))[4] is Outcome.CREATED

    def test_delayed_and_leased_messages_count_and_finished_ones_do_not(self, app: App, name: str) -> None:
        queue = app.queue(name)
        queue.offer_many(batch("a", "b"))
        queue.offer("later", 1, after=HOUR)
        deliveries = queue.try_poll_many(2)
        assert keys(deliveries) == ["a", "b"]
        with pytest.raises(QueueFull):
            queue.offer("d", 1)
        deliveries[0].ack()
        assert queue.offer("d", 1) is Outcome.CREATED
        deliveries[1].nack("dead letters do not count")
        assert queue.offer("e", 1) is Outcome.CREATED

    def test_the_limit_can_be_raised_and_removed(self, app: App, name: str) -> None:
        queue = app.queue(name)
        queue.offer_many(batch("a", "b", "c"))
        assert app.queues.edit(name, max_depth=4).settings.max_depth == 4
        queue.offer("d", 1)
        with pytest.raises(QueueFull):
            queue.offer("e", 1)
        assert app.queues.edit(name, max_depth=None).settings.max_depth is None
        assert queue.offer("e", 1) is Outcome.CREATED

    def test_a_limit_below_the_depth_refuses_only_what_is_new(self, app: App, name: str) -> None:
        queue = app.queue(name)
        queue.offer_many(batch("a", "b", "c"))
        app.queues.edit(name, max_depth=1)
        with pytest.raises(QueueFull):
            queue.offer("d", 1)
        assert queue.offer("a", 2) is Outcome.UPDATED

    def test_a_redrive_is_not_refused(self, app: App, name: str) -> None:
        queue = app.queue(name)
        queue.offer("a", 1)
        queue.try_poll_many(1)[0].nack("no attempts left")
        queue.offer_many(batch("b", "c", "d"))
        assert queue.dead_letters.redrive() == 1
        assert queue.contains("a")
