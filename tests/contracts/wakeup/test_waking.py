"""Wakeups of a sleeping consumer. Without scans: a consumer that wakes was notified."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from tarry import Message, Queue
from tarry.app import App
from tarry.core.settings import StoreSettings
from tests.kit.backends import POSTGRES, Backend, new_name, where_the_messages_are
from tests.kit.calls import replace_call
from tests.kit.sleepers import asleep, until_asleep, until_waiting, waiting
from tests.kit.steps import HOUR, MINUTE, SECOND, TIMEOUT, TIMEOUT_S, in_background, keys, take

pytestmark = [pytest.mark.usefixtures("deep_sleep"), where_the_messages_are]

NEVER = timedelta(minutes=10)


@pytest.fixture
def app(backend: Backend) -> Iterator[App]:
    """Its consumers look again after ten minutes, or when they are called."""
    with backend.own_app(StoreSettings(pool_size=8, scan_every=NEVER), "sleeper") as app:
        yield app


@pytest.fixture
def queue(app: App) -> Queue[Any]:
    return app.queue(new_name())


class TestWhatCalls:
    def test_an_offer_to_an_empty_queue(self, app: App, queue: Queue[Any]) -> None:
        with in_background(queue.poll, TIMEOUT) as waiting:
            until_asleep(app, queue.name)
            queue.offer("a", 1)
            assert waiting.result(TIMEOUT_S).key == "a"

    def test_an_offer_that_is_due_before_the_head(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("far", 1, after=HOUR)
        with in_background(queue.poll, TIMEOUT) as waiting:
            until_asleep(app, queue.name)
            queue.offer("near", 1)
            assert waiting.result(TIMEOUT_S).key == "near"

    def test_an_offer_that_brings_a_live_message_forward(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1, after=HOUR)
        with in_background(queue.poll, TIMEOUT) as waiting:
            until_asleep(app, queue.name)
            queue.offer("a", 2)
            assert waiting.result(TIMEOUT_S).payload == 2

    def test_many_offers_at_once(self, app: App, queue: Queue[Any]) -> None:
        with in_background(queue.poll_many, 10, TIMEOUT) as waiting:
            until_asleep(app, queue.name)
            queue.offer_many([Message(key=key, payload=0) for key in "ab"])
            assert sorted(keys(waiting.result(TIMEOUT_S))) == ["a", "b"]

    def test_one_fresh_offer(self, app: App, queue: Queue[Any]) -> None:
        with in_background(queue.poll, TIMEOUT) as waiting:
            until_asleep(app, queue.name)
            queue.offer(None, "fresh")
            assert waiting.result(TIMEOUT_S).payload == "fresh"

    def test_so_many_fresh_offers_that_they_are_copied(self, app: App, queue: Queue[Any]) -> None:
        with in_background(queue.poll, TIMEOUT) as waiting:
            until_asleep(app, queue.name)
            queue.offer_many([Message(payload=n) for n in range(2_000)])
            assert waiting.result(TIMEOUT_S).payload == 0

    def test_a_nack_without_delay(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        held = take(queue)
        with in_background(queue.poll, TIMEOUT) as waiting:
            until_asleep(app, queue.name)
            held.nack(after=timedelta(0))
            assert waiting.result(TIMEOUT_S).attempt == 2

    def test_a_release(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        held = take(queue)
        with in_background(queue.poll, TIMEOUT) as waiting:
            until_asleep(app, queue.name)
            held.release()
            assert waiting.result(TIMEOUT_S).attempt == 1

    def test_a_redrive(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        take(queue).bury("no")
        with in_background(queue.poll, TIMEOUT) as waiting:
            until_asleep(app, queue.name)
            assert queue.dead_letters.redrive() == 1
            assert waiting.result(TIMEOUT_S).key == "a"

    def test_a_queue_that_goes_on(self, app: App, queue: Queue[Any]) -> None:
        queue.offer("a", 1)
        app.queues.pause(queue.name)
        with in_background(queue.poll, TIMEOUT) as waiting:
            until_asleep(app, queue.name)
            app.queues.resume(queue.name)
            assert waiting.result(TIMEOUT_S).key == "a"

    def test_a_message_of_its_type_and_no_other(self, app: App, queue: Queue[Any]) -> None:
        with in_background(queue.poll, TIMEOUT, type="mine") as waiting:
            until_asleep(app, queue.name)
            queue.offer("other", 1, type="other")
            queue.offer("none", 1)
            assert asleep(app.store.wakeup.wait_queue, queue.name) == 1
            queue.offer("mine", 1, type="mine")
            assert waiting.result(TIMEOUT_S).key == "mine"

    def test_a_message_with_a_type_also_wakes_a_consumer_of_any_type(self, app: App, queue: Queue[Any]) -> None:
        with in_background(queue.poll, TIMEOUT) as any_type, in_background(queue.poll, TIMEOUT, type="x") as one_type:
            until_asleep(app, queue.name, lines=2)
            queue.offer_many([Message(key=key, payload=0, type="x") for key in "ab"])
            assert {any_type.result(TIMEOUT_S).key, one_type.result(TIMEOUT_S).key} == {"a", "b"}

    @pytest.mark.parametrize("backend", POSTGRES, indirect=True)
    def test_the_commit_of_the_callers_own_transaction(self, app: App, backend: Backend, queue: Queue[Any]) -> None:
        with in_background(queue.poll, TIMEOUT) as waiting, backend.caller() as caller:
            until_asleep(app, queue.name)
            queue.offer("a", 1, conn=caller.conn)
            assert asleep(app.store.wakeup.wait_queue, queue.name) == 1
            caller.commit()
            assert waiting.result(TIMEOUT_S).key == "a"

    def test_nothing_else_does(self, app: App, queue: Queue[Any]) -> None:
        """A poll that gives up in time has been left alone until then."""
        queue.offer("far", 1, after=MINUTE)
        queue.offer("held", 1, priority=9)
        held = take(queue)
        with in_background(queue.poll, SECOND) as waiting:
            until_asleep(app, queue.name)
            queue.offer("later", 1, after=HOUR)
            held.touch(HOUR)
            held.ack()
            queue.drop("far")
            assert waiting.result(TIMEOUT_S) is None


class TestLines:
    def test_one_message_is_for_one_of_those_in_line_and_the_others_stay(self, app: App, queue: Queue[Any]) -> None:
        with (
            in_background(queue.poll, TIMEOUT) as first,
            in_background(queue.poll, TIMEOUT) as two,
            in_background(queue.poll, TIMEOUT) as three,
        ):
            until_waiting(app, queue.name, 3)
            for n, left in ((1, 2), (2, 1), (3, 0)):
                until_asleep(app, queue.name)
                queue.offer(f"k{n}", n)
                until_waiting(app, queue.name, left)
            assert {poll.result(TIMEOUT_S).key for poll in (first, two, three)} == {"k1", "k2", "k3"}

    def test_when_the_leader_gives_up_the_next_one_leads(self, app: App, queue: Queue[Any]) -> None:
        with in_background(queue.poll, timedelta(milliseconds=300)) as leader:
            until_asleep(app, queue.name)
            with in_background(queue.poll, TIMEOUT) as follower:
                until_waiting(app, queue.name, 2)
                assert leader.result(TIMEOUT_S) is None
                until_asleep(app, queue.name)
                queue.offer("a", 1)
                assert follower.result(TIMEOUT_S).key == "a"

    def test_a_follower_times_out_without_effect_on_the_others(self, app: App, queue: Queue[Any]) -> None:
        with in_background(queue.poll, TIMEOUT) as leader:
            until_asleep(app, queue.name)
            assert queue.poll(timedelta(milliseconds=50)) is None
            assert waiting(app.store.wakeup.wait_queue, queue.name) == 1
            queue.offer("a", 1)
            assert leader.result(TIMEOUT_S).key == "a"

    def test_several_messages_at_once_are_handed_down_the_line(self, app: App, queue: Queue[Any]) -> None:
        with in_background(queue.poll, TIMEOUT) as first, in_background(queue.poll, TIMEOUT) as two:
            until_waiting(app, queue.name, 2)
            until_asleep(app, queue.name)
            queue.offer_many([Message(key=key, payload=0) for key in "ab"])
            assert {first.result(TIMEOUT_S).key, two.result(TIMEOUT_S).key} == {"a", "b"}

    def test_a_consumer_of_one_type_does_not_wait_behind_another(self, app: App, queue: Queue[Any]) -> None:
        with in_background(queue.poll, TIMEOUT, type="x") as x, in_background(queue.poll, TIMEOUT, type="y") as y:
            until_asleep(app, queue.name, lines=2)
            queue.offer("y", 1, type="y")
            assert y.result(TIMEOUT_S).key == "y"
            queue.offer("x", 1, type="x")
            assert x.result(TIMEOUT_S).key == "x"

    def test_a_consumer_that_fails_leaves_the_wait_queue(
        self, app: App, queue: Queue[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As the store is away: the poll raises, and nothing of it stays."""
        store = getattr(app.store, "_target", app.store)

        def broken(*args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("away")

        replace_call(store, "wakeup.announce", broken)
        with pytest.raises(RuntimeError, match="away"):
            queue.poll(TIMEOUT)
        assert waiting(app.store.wakeup.wait_queue, queue.name) == 0
