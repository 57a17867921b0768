"""Leadership, sleep and wakeups of the wait queue: step by step, on a clock that only the test moves."""

from __future__ import annotations

import os
from collections.abc import Generator
from datetime import timedelta
from types import coroutine

import pytest

from tarry.api.waiting import wait_for
from tarry.core.wakeup.wait_queue import WaitHint, WaitKey, WaitQueue
from tests.kit.sleepers import waiting

KEY = WaitKey("q", None)
ALWAYS = timedelta(days=1)


class Consumer:
    """Waits as a task would, but the test decides when each sleep ends."""

    def __init__(self, world: World, timeout_s: float | None = None, key: WaitKey = KEY) -> None:
        timeout = None if timeout_s is None else timedelta(seconds=timeout_s)
        self.alive = True
        self.woken = False
        self.result: list[str] | None = None
        self.over = False
        self._sleep_s: float | None = None
        self._waiting = wait_for(world.wait_queue, key, timeout, world.poll, world.announce, self)
        self._go()

    def wake(self) -> bool:
        self.woken = True
        return self.alive

    async def sleep(self, seconds: float) -> None:
        self._sleep_s = seconds
        await _park()

    def on(self) -> None:
        """Its sleep is over."""
        assert self._sleep_s is not None
        self.woken = False
        self._go()

    def on_if_woken(self) -> None:
        if self.woken:
            self.on()

    @property
    def parked_s(self) -> float:
        assert self._sleep_s is not None
        return self._sleep_s

    def leave(self) -> None:
        self._waiting.close()

    def _go(self) -> None:
        self._sleep_s = None
        try:
            self._waiting.send(None)
        except StopIteration as stop:
            self.result, self.over = stop.value, True


@coroutine
def _park() -> Generator[None]:
    """Return control to the test, which resumes the consumer."""
    yield


class World:
    """A store in which `messages` are ready, and nothing else is due but in `due_in`."""

    def __init__(self, *, is_listening: bool = True) -> None:
        self.now = 100.0
        self.wait_queue = WaitQueue(
            scan_every=timedelta(seconds=0.5),
            listening_scan_every=timedelta(seconds=60),
            monotonic=lambda: self.now,
            random=lambda: 0.5,
        )
        self.wait_queue.is_listening = is_listening
        self.messages: list[str] = []
        self.due_in: timedelta | None = None
        self.notified_for = ALWAYS
        self.looks = 0
        self.announcements: list[float] = []

    async def poll(self) -> list[str]:
        self.looks += 1
        return [self.messages.pop(0)] if self.messages else []

    async def announce(self, sleep_for: timedelta) -> WaitHint:
        self.announcements.append(sleep_for.total_seconds())
        return WaitHint(self.due_in, self.notified_for if self.due_in is None else min(self.notified_for, self.due_in))

    def pass_(self, consumer: Consumer) -> float:
        """Until the consumer's park is over by itself; how long that took."""
        seconds = consumer.parked_s
        self.now += seconds
        consumer.on()
        return seconds


@pytest.fixture
def world() -> World:
    return World()


def test_a_deliverable_message_is_polled_without_an_announcement(world: World) -> None:
    world.messages.append("a")
    consumer = Consumer(world)
    assert consumer.result == ["a"]
    assert (world.looks, world.announcements) == (1, [])
    assert waiting(world.wait_queue, "q") == 0


def test_naps_begin_short_and_grow_to_the_scan_interval(world: World) -> None:
    consumer = Consumer(world)
    sleeps = [world.pass_(consumer) for _ in range(8)]
    assert sleeps == pytest.approx([0.01, 0.04, 0.16, 0.64, 2.56, 10.24, 40.96, 60])


def test_without_proof_that_notifications_arrive_no_leader_sleeps_longer_than_one_scan() -> None:
    world = World(is_listening=False)
    consumer = Consumer(world)
    assert [world.pass_(consumer) for _ in range(5)] == pytest.approx([0.01, 0.04, 0.16, 0.5, 0.5])


def test_without_notifications_every_nap_is_short(world: World) -> None:
    world.notified_for = timedelta(seconds=0)
    consumer = Consumer(world)
    assert [world.pass_(consumer) for _ in range(3)] == pytest.approx([0.01, 0.01, 0.01])


def test_an_idle_leader_only_announces_and_looks_when_a_message_is_reported(world: World) -> None:
    consumer = Consumer(world)
    for _ in range(5):
        world.pass_(consumer)
    assert (world.looks, len(world.announcements)) == (1, 6)
    world.messages, world.due_in = ["a"], timedelta(0)
    world.pass_(consumer)
    assert consumer.result == ["a"]
    assert (world.looks, len(world.announcements)) == (2, 7)


def test_it_sleeps_until_the_head_is_due_and_not_longer(world: World) -> None:
    world.due_in = timedelta(seconds=0.003)
    consumer = Consumer(world)
    assert consumer.parked_s == pytest.approx(0.003)
    world.messages.append("a")
    world.pass_(consumer)
    assert consumer.result == ["a"]


def test_a_timeout_is_kept_and_the_last_look_is_at_its_end(world: World) -> None:
    consumer = Consumer(world, timeout_s=0.03)
    assert world.pass_(consumer) == pytest.approx(0.01)
    assert world.looks == 1
    assert world.pass_(consumer) == pytest.approx(0.02)
    assert world.looks == 2
    assert consumer.over
    assert consumer.result == []
    assert waiting(world.wait_queue, "q") == 0


def test_only_the_leader_announces_and_a_notification_wakes_only_the_leader(world: World) -> None:
    leader, *followers = [Consumer(world, timeout_s=1000) for _ in range(50)]
    assert len(world.announcements) == 1
    assert [follower.parked_s for follower in followers] == [1000] * 49
    world.messages.append("a")
    world.wait_queue.notify(KEY)
    assert [consumer.woken for consumer in (leader, *followers)] == [True] + [False] * 49
    leader.on()
    assert leader.result == ["a"]
    assert [follower.woken for follower in followers] == [True] + [False] * 48


def test_the_next_leader_looks_at_once_and_pauses_before_it_announces(world: World) -> None:
    leader, follower = Consumer(world), Consumer(world)
    world.messages += ["a"]
    world.wait_queue.notify(KEY)
    leader.on()
    announced, looks = len(world.announcements), world.looks
    follower.on_if_woken()
    assert world.looks == looks + 1
    assert len(world.announcements) == announced
    assert follower.parked_s == pytest.approx(0.005)
    world.messages += ["b"]
    world.pass_(follower)
    assert follower.result == ["b"]
    assert len(world.announcements) == announced, "under load no sleep is announced"


def test_a_leader_woken_in_vain_reacts_later_to_the_next_wakeup(world: World) -> None:
    consumer = Consumer(world)
    pauses: list[float] = []
    for _ in range(6):
        before, looks = world.now, world.looks
        world.wait_queue.notify(KEY)
        while world.looks == looks:
            _ = consumer.on() if consumer.woken else world.pass_(consumer)
        pauses.append(world.now - before)
    assert pauses == pytest.approx([0, 0.01, 0.02, 0.04, 0.08, 0.08])


def test_where_others_were_named_a_leader_announces_once_within_the_time_given(world: World) -> None:
    consumer = Consumer(world)
    for _ in range(8):
        world.pass_(consumer)
    announced, looks, started = len(world.announcements), world.looks, world.now
    for _ in range(5):
        world.wait_queue.notify(KEY, within_s=4)
        consumer.on_if_woken()
        world.now += 0.1
    assert (len(world.announcements), world.looks) == (announced, looks)
    assert consumer.parked_s == pytest.approx(2)  # half of the time, from the first notification on
    world.now = started + 2
    consumer.on()
    assert (len(world.announcements), world.looks) == (announced + 1, looks), (
        "one statement, which finds a message, too"
    )


def test_a_leader_that_is_named_does_not_wait_for_the_time_of_the_others(world: World) -> None:
    consumer = Consumer(world)
    world.wait_queue.notify(KEY, within_s=4)
    consumer.on_if_woken()
    world.messages.append("a")
    world.wait_queue.notify(KEY)
    consumer.on_if_woken()
    assert consumer.result == ["a"]


def test_a_message_locked_by_another_transaction_is_looked_for_again_with_pauses(world: World) -> None:
    world.due_in = timedelta(0)
    consumer = Consumer(world)
    assert world.looks == 2, "it may have come just now"
    assert [world.pass_(consumer) for _ in range(6)] == pytest.approx([0.01, 0.01, 0.02, 0.04, 0.08, 0.08])


def test_a_message_between_look_and_announcement_is_looked_for_at_once(world: World) -> None:
    world.due_in = timedelta(0)

    class Late(World):
        async def announce(self, sleep_for: timedelta) -> WaitHint:
            self.messages.append("a")
            return await super().announce(sleep_for)

    late = Late()
    late.due_in = timedelta(0)
    assert Consumer(late).result == ["a"]


def test_a_wakeup_for_an_earlier_head_is_not_in_vain(world: World) -> None:
    world.due_in = timedelta(seconds=50)
    consumer = Consumer(world)
    for seconds in (40, 30, 20, 10, 5):
        world.due_in = timedelta(seconds=seconds)
        world.wait_queue.notify(KEY)
        consumer.on_if_woken()
    looks = world.looks
    world.wait_queue.notify(KEY)
    consumer.on_if_woken()
    assert world.looks == looks + 1, "it was deaf to a call that mattered"


def test_a_notification_before_the_sleep_begins_is_not_lost(world: World) -> None:
    class Rung(World):
        async def announce(self, sleep_for: timedelta) -> WaitHint:
            hint = await super().announce(sleep_for)
            if len(self.announcements) == 1:
                self.messages.append("a")
                self.wait_queue.notify(KEY)
            return hint

    consumer = Consumer(Rung())
    assert consumer.result == ["a"]


def test_a_message_due_after_the_sleep_wakes_no_leader(world: World) -> None:
    consumer = Consumer(world)
    world.wait_queue.notify(KEY, due_in=timedelta(seconds=0.01))
    assert not consumer.woken
    world.wait_queue.notify(KEY, due_in=timedelta(seconds=0.005))
    assert consumer.woken


def test_a_line_whose_leader_left_is_led_by_the_next(world: World) -> None:
    leader, follower = Consumer(world), Consumer(world)
    leader.leave()
    assert follower.woken
    announced = len(world.announcements)
    follower.on()
    assert len(world.announcements) == announced + 1


def test_a_leader_whose_loop_is_gone_is_passed_over(world: World) -> None:
    leader, follower = Consumer(world), Consumer(world)
    leader.alive = False
    world.messages.append("a")
    world.wait_queue.notify(KEY)
    follower.on_if_woken()
    assert follower.result == ["a"]


def test_other_queues_and_types_have_lines_of_their_own(world: World) -> None:
    mine = Consumer(world, key=WaitKey("q", "mine"))
    world.wait_queue.notify(WaitKey("q", None))
    world.wait_queue.notify(WaitKey("q", "other"))
    world.wait_queue.notify(WaitKey("p", "mine"))
    assert not mine.woken
    world.wait_queue.notify(WaitKey("q", "mine"))
    assert mine.woken


def test_when_the_listener_stops_every_waiter_is_woken(world: World) -> None:
    consumers = [Consumer(world, key=WaitKey("q", type)) for type in (None, "x")]
    world.wait_queue.is_listening = False
    world.wait_queue.notify_all()
    assert all(consumer.woken for consumer in consumers)


def test_wait_queues_without_a_sleeper_are_listed_once(world: World) -> None:
    asleep, gone = Consumer(world, key=WaitKey("q", "asleep")), Consumer(world, key=WaitKey("q", "gone"))
    gone.leave()
    assert world.wait_queue.expired_notifications(1.0) == [], "it may come back at once"
    world.now += 2
    assert world.wait_queue.expired_notifications(1.0) == [WaitKey("q", "gone")]
    assert world.wait_queue.expired_notifications(1.0) == []
    assert not asleep.woken


def test_the_wait_queue_of_a_forked_child_has_only_its_own_waiters(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    Consumer(world)
    child = os.getpid() + 1
    monkeypatch.setattr(os, "getpid", lambda: child)
    announced = len(world.announcements)
    Consumer(world)
    assert len(world.announcements) == announced + 1, "it would wait for a leader that is in another process"
