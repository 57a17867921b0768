"""Who leads, how long it sleeps, who is called: step by step, on a clock that only the test moves."""

from __future__ import annotations

import os
from collections.abc import Generator
from datetime import timedelta
from typing import Any

import pytest

from tarry.core.waiting import Ask, LineKey, Lobby, Look, Park, Step, Waited, waiting

KEY = LineKey("q", None)
ALWAYS = timedelta(days=1)


class Consumer:
    """Runs a plan as a shell would, but stops where it would sleep."""

    def __init__(self, world: World, timeout_s: float | None = None, key: LineKey = KEY) -> None:
        timeout = None if timeout_s is None else timedelta(seconds=timeout_s)
        self.alive = True
        self.woken = False
        self._world = world
        self._plan: Generator[Step, Any, Any] = waiting(world.lobby, key, self, timeout)
        self.result: Any = None
        self.over = False
        self.step: Step | None = None
        self._go(None, first=True)

    def wake(self) -> bool:
        self.woken = True
        return self.alive

    def on(self) -> None:
        """Its park is over."""
        assert isinstance(self.step, Park)
        self.woken = False
        self._go(None)

    def on_if_woken(self) -> None:
        if self.woken:
            self.on()

    @property
    def parked_s(self) -> float:
        assert isinstance(self.step, Park), self.step
        return self.step.seconds

    def leave(self) -> None:
        self._plan.close()

    def _go(self, answer: Any, *, first: bool = False) -> None:
        try:
            self.step = next(self._plan) if first else self._plan.send(answer)
            while not isinstance(self.step, Park):
                self.step = self._plan.send(self._world.answer(self.step))
        except StopIteration as stop:
            self.step, self.result, self.over = None, stop.value, True


class World:
    """A store in which `messages` are ready, and nothing else is due but in `due_in`."""

    def __init__(self, *, hears: bool = True) -> None:
        self.now = 100.0
        self.lobby = Lobby(
            scan_every=timedelta(seconds=0.5), listening_scan_every=timedelta(seconds=60), monotonic=lambda: self.now
        )
        self.lobby.set_hears(hears=hears)
        self.messages: list[str] = []
        self.due_in: timedelta | None = None
        self.rings_for = ALWAYS
        self.looks = 0
        self.asks: list[float] = []

    def answer(self, step: Step) -> Any:
        if isinstance(step, Look):
            self.looks += 1
            return [self.messages.pop(0)] if self.messages else []
        assert isinstance(step, Ask)
        self.asks.append(step.sleep_s)
        return Waited(self.due_in, self.rings_for if self.due_in is None else min(self.rings_for, self.due_in))

    def pass_(self, consumer: Consumer) -> float:
        """Until the consumer's park is over by itself; how long that took."""
        seconds = consumer.parked_s
        self.now += seconds
        consumer.on()
        return seconds


@pytest.fixture
def world() -> World:
    return World()


def test_what_is_there_is_taken_without_asking_anybody(world: World) -> None:
    world.messages.append("a")
    consumer = Consumer(world)
    assert consumer.result == ["a"]
    assert (world.looks, world.asks) == (1, [])
    assert world.lobby.waiting("q") == 0


def test_naps_begin_short_and_grow_to_the_scan_interval(world: World) -> None:
    consumer = Consumer(world)
    naps = [world.pass_(consumer) for _ in range(8)]
    assert naps == pytest.approx([0.01, 0.04, 0.16, 0.64, 2.56, 10.24, 40.96, 60])


def test_without_proof_that_rings_arrive_nobody_sleeps_longer_than_one_scan() -> None:
    world = World(hears=False)
    consumer = Consumer(world)
    assert [world.pass_(consumer) for _ in range(5)] == pytest.approx([0.01, 0.04, 0.16, 0.5, 0.5])


def test_if_nobody_would_have_rung_the_naps_begin_anew(world: World) -> None:
    world.rings_for = timedelta(seconds=0)
    consumer = Consumer(world)
    assert [world.pass_(consumer) for _ in range(3)] == pytest.approx([0.01, 0.01, 0.01])


def test_an_idle_leader_only_asks_and_looks_when_it_is_told_that_something_is_there(world: World) -> None:
    consumer = Consumer(world)
    for _ in range(5):
        world.pass_(consumer)
    assert (world.looks, len(world.asks)) == (1, 6)
    world.messages, world.due_in = ["a"], timedelta(0)
    world.pass_(consumer)
    assert consumer.result == ["a"]
    assert (world.looks, len(world.asks)) == (2, 7)


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
    assert world.lobby.waiting("q") == 0


def test_only_the_leader_asks_and_a_ring_wakes_only_the_leader(world: World) -> None:
    leader, *followers = [Consumer(world, timeout_s=1000) for _ in range(50)]
    assert len(world.asks) == 1
    assert [follower.parked_s for follower in followers] == [1000] * 49
    world.messages.append("a")
    world.lobby.ring(KEY)
    assert [consumer.woken for consumer in (leader, *followers)] == [True] + [False] * 49
    leader.on()
    assert leader.result == ["a"]
    assert [follower.woken for follower in followers] == [True] + [False] * 48


def test_the_next_in_line_looks_at_once_and_takes_a_breath_before_it_asks_to_be_called(world: World) -> None:
    leader, follower = Consumer(world), Consumer(world)
    world.messages += ["a"]
    world.lobby.ring(KEY)
    leader.on()
    asks, looks = len(world.asks), world.looks
    follower.on_if_woken()
    assert world.looks == looks + 1
    assert len(world.asks) == asks
    assert follower.parked_s == pytest.approx(0.005)
    world.messages += ["b"]
    world.pass_(follower)
    assert follower.result == ["b"]
    assert len(world.asks) == asks, "under load nobody is asked to ring"


def test_who_is_called_in_vain_answers_the_next_call_later(world: World) -> None:
    consumer = Consumer(world)
    pauses: list[float] = []
    for _ in range(6):
        before, looks = world.now, world.looks
        world.lobby.ring(KEY)
        while world.looks == looks:
            _ = consumer.on() if consumer.woken else world.pass_(consumer)
        pauses.append(world.now - before)
    assert pauses == pytest.approx([0, 0.01, 0.02, 0.04, 0.08, 0.08])


def test_what_somebody_else_has_locked_is_looked_for_again_but_not_all_the_time(world: World) -> None:
    world.due_in = timedelta(0)
    consumer = Consumer(world)
    assert world.looks == 2, "it may have come just now"
    assert [world.pass_(consumer) for _ in range(6)] == pytest.approx([0.01, 0.01, 0.02, 0.04, 0.08, 0.08])


def test_what_came_between_looking_and_asking_is_looked_for_at_once(world: World) -> None:
    world.due_in = timedelta(0)

    class Late(World):
        def answer(self, step: Step) -> Any:
            if isinstance(step, Ask):
                self.messages.append("a")
            return super().answer(step)

    late = Late()
    late.due_in = timedelta(0)
    assert Consumer(late).result == ["a"]


def test_who_is_called_because_the_head_is_nearer_now_was_not_called_in_vain(world: World) -> None:
    world.due_in = timedelta(seconds=50)
    consumer = Consumer(world)
    for seconds in (40, 30, 20, 10, 5):
        world.due_in = timedelta(seconds=seconds)
        world.lobby.ring(KEY)
        consumer.on_if_woken()
    looks = world.looks
    world.lobby.ring(KEY)
    consumer.on_if_woken()
    assert world.looks == looks + 1, "it was deaf to a call that mattered"


def test_a_ring_before_the_sleep_begins_is_not_lost(world: World) -> None:
    class Rung(World):
        def answer(self, step: Step) -> Any:
            answer = super().answer(step)
            if isinstance(step, Ask) and len(self.asks) == 1:
                self.messages.append("a")
                self.lobby.ring(KEY)
            return answer

    consumer = Consumer(Rung())
    assert consumer.result == ["a"]


def test_what_comes_for_later_than_the_leader_sleeps_wakes_nobody(world: World) -> None:
    consumer = Consumer(world)
    world.lobby.ring(KEY, due_in=timedelta(seconds=0.01))
    assert not consumer.woken
    world.lobby.ring(KEY, due_in=timedelta(seconds=0.005))
    assert consumer.woken


def test_a_line_whose_leader_left_is_led_by_the_next(world: World) -> None:
    leader, follower = Consumer(world), Consumer(world)
    leader.leave()
    assert follower.woken
    asks = len(world.asks)
    follower.on()
    assert len(world.asks) == asks + 1


def test_a_leader_whose_loop_is_gone_is_passed_over(world: World) -> None:
    leader, follower = Consumer(world), Consumer(world)
    leader.alive = False
    world.messages.append("a")
    world.lobby.ring(KEY)
    follower.on_if_woken()
    assert follower.result == ["a"]


def test_other_queues_and_types_have_lines_of_their_own(world: World) -> None:
    mine = Consumer(world, key=LineKey("q", "mine"))
    world.lobby.ring(LineKey("q", None))
    world.lobby.ring(LineKey("q", "other"))
    world.lobby.ring(LineKey("p", "mine"))
    assert not mine.woken
    world.lobby.ring(LineKey("q", "mine"))
    assert mine.woken


def test_when_rings_are_no_longer_heard_everybody_is_told(world: World) -> None:
    consumers = [Consumer(world, key=LineKey("q", type)) for type in (None, "x")]
    world.lobby.set_hears(hears=False)
    world.lobby.ring_all()
    assert all(consumer.woken for consumer in consumers)


def test_lines_in_which_nobody_sleeps_any_more_are_named_once(world: World) -> None:
    asleep, gone = Consumer(world, key=LineKey("q", "asleep")), Consumer(world, key=LineKey("q", "gone"))
    gone.leave()
    assert world.lobby.unwanted(1.0) == [], "it may come back at once"
    world.now += 2
    assert world.lobby.unwanted(1.0) == [LineKey("q", "gone")]
    assert world.lobby.unwanted(1.0) == []
    assert not asleep.woken


def test_in_a_forked_child_nobody_stands_in_line_but_its_own(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    Consumer(world)
    child = os.getpid() + 1
    monkeypatch.setattr(os, "getpid", lambda: child)
    asks = len(world.asks)
    Consumer(world)
    assert len(world.asks) == asks + 1, "it would wait for a leader that is in another process"
