"""The memory store waits by any strategy: one suite for all four, and then what each does in its own way."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest

from tarry import Message
from tarry.app import App, AsyncApp
from tarry.core.clock import AuthorityClock
from tarry.core.settings import StoreSettings
from tarry.storage.memory import (
    AsyncMemoryStore,
    BusyWait,
    MemoryStore,
    Strategy,
    TimingWheel,
    WaitNotify,
    WaitNotifyScan,
)
from tarry.testing import MutableClock
from tests.kit.calls import call_of, replace_call
from tests.kit.sleepers import until, until_asleep, until_waiting
from tests.kit.steps import TIMEOUT, TIMEOUT_S, in_background

QUEUE = "q"
TICK = timedelta(milliseconds=20)
STRATEGIES: dict[str, Strategy] = {
    "busy-wait": BusyWait(timedelta(milliseconds=2)),
    "wait/notify": WaitNotify(),
    "wait/notify + scan": WaitNotifyScan(timedelta(milliseconds=20)),
    "timing wheel": TimingWheel(TICK),
}


class Counting:
    """A store that counts the announcements of waiters."""

    def __init__(self, strategy: Strategy | None, clock: AuthorityClock | MutableClock | None = None) -> None:
        self.store = MemoryStore(clock=clock or AuthorityClock(), settings=StoreSettings(), strategy=strategy)
        self.app = App(self.store)
        self.announcements = 0
        wait = call_of(self.store, "wakeup.announce")

        def counted(*args: object, **kwargs: object) -> object:
            self.announcements += 1
            return wait(*args, **kwargs)  # pyright: ignore[reportArgumentType]

        replace_call(self.store, "wakeup.announce", counted)


@pytest.fixture(params=STRATEGIES)
def strategy(request: pytest.FixtureRequest) -> Strategy:
    return STRATEGIES[request.param]


@pytest.fixture
def app(strategy: Strategy) -> App:
    return Counting(strategy).app


class TestEveryStrategy:
    def test_what_is_due_later_comes_then_and_never_before(self, app: App) -> None:
        queue = app.queue(QUEUE)
        for n in range(10):
            queue.offer(f"k{n}", n, after=timedelta(milliseconds=7 * n))
        for _ in range(10):
            delivery = queue.poll(TIMEOUT)
            assert delivery is not None
            assert delivery.leased_at >= delivery.due_at

    def test_an_earlier_offer_wakes_a_waiter_for_a_later_one(self, app: App) -> None:
        queue = app.queue(QUEUE)
        queue.offer("far", 1, after=timedelta(hours=1))
        with in_background(queue.poll, TIMEOUT) as waiting:
            until_asleep(app, QUEUE)
            queue.offer("near", 1)
            assert waiting.result(TIMEOUT_S).key == "near"

    def test_several_are_handed_down_the_line(self, app: App) -> None:
        queue = app.queue(QUEUE)
        with in_background(queue.poll, TIMEOUT) as first, in_background(queue.poll, TIMEOUT) as two:
            until_waiting(app, QUEUE, 2)
            queue.offer_many([Message(key=key, payload=0, after=timedelta(milliseconds=30)) for key in "ab"])
            assert {first.result(TIMEOUT_S).key, two.result(TIMEOUT_S).key} == {"a", "b"}

    def test_without_a_message_it_gives_up_in_time(self, app: App) -> None:
        started = time.monotonic()
        assert app.queue(QUEUE).poll(timedelta(milliseconds=50)) is None
        assert time.monotonic() - started >= 0.05

    def test_a_task_waits_by_it_too(self, strategy: Strategy) -> None:
        async def work() -> None:
            queue = AsyncApp(AsyncMemoryStore(MemoryStore(strategy=strategy))).queue(QUEUE)
            task = asyncio.create_task(queue.poll(TIMEOUT))
            await queue.offer("a", 1, after=timedelta(milliseconds=30))
            delivery = await task
            assert delivery is not None
            assert delivery.leased_at >= delivery.due_at

        asyncio.run(work())

    def test_on_a_clock_that_is_moved_by_hand_it_looks_by_itself(self, strategy: Strategy) -> None:
        clock = MutableClock()
        counting = Counting(strategy, clock)
        queue = counting.app.queue(QUEUE)
        queue.offer("a", 1, after=timedelta(hours=1))
        with in_background(queue.poll, TIMEOUT) as waiting:
            until(lambda: counting.announcements > 1)
            clock.advance(timedelta(hours=1))
            assert waiting.result(TIMEOUT_S).key == "a"


def test_wait_and_notify_never_looks_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.core.wakeup.wait_queue.FIRST_SLEEP_S", 600.0)
    counting = Counting(WaitNotify())
    assert counting.app.queue(QUEUE).poll(timedelta(milliseconds=300)) is None
    assert counting.announcements == 1


def test_with_a_scan_it_looks_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.core.wakeup.wait_queue.FIRST_SLEEP_S", 600.0)
    counting = Counting(WaitNotifyScan(timedelta(milliseconds=10)))
    with in_background(counting.app.queue(QUEUE).poll, TIMEOUT) as waiting:
        until(lambda: counting.announcements >= 5, "it sleeps for longer than its interval")
        counting.app.queue(QUEUE).offer("a", 1)
        assert waiting.result(TIMEOUT_S).key == "a"


def test_a_busy_waiter_is_awake_just_before_the_due_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.core.wakeup.wait_queue.FIRST_SLEEP_S", 600.0)
    looks: list[float] = []
    # So long that a busy machine does not sleep through it.
    spin = timedelta(milliseconds=180)
    queue = Counting(BusyWait(spin, lambda: looks.append(time.monotonic()))).app.queue(QUEUE)
    queue.offer("a", 1, after=timedelta(milliseconds=200))
    started = time.monotonic()
    delivery = queue.poll(TIMEOUT)
    assert delivery is not None
    assert looks, "it slept to the end"
    assert looks[0] - started >= 0.005, "it was awake all the time"


class TestTheWheel:
    def look_in(self, due_in: timedelta) -> timedelta:
        store = MemoryStore(clock=MutableClock(), strategy=TimingWheel(TICK))
        App(store).queue(QUEUE).offer("a", 1, after=due_in)
        pause = store.run(store.wakeup.announce(QUEUE, sleep_for=TIMEOUT)).due_in
        assert pause is not None
        return pause

    @pytest.mark.parametrize("milliseconds", [1, 19, 20, 21, 1_000, 3_600_000])
    def test_it_looks_at_the_end_of_the_tick_in_which_something_is_due(self, milliseconds: int) -> None:
        due_in = timedelta(milliseconds=milliseconds)
        assert due_in <= self.look_in(due_in) <= due_in + TICK + timedelta(milliseconds=1)

    def test_what_is_due_is_not_waited_for(self) -> None:
        assert self.look_in(timedelta(0)) == timedelta(0)

    def test_one_look_serves_all_that_are_due_in_one_tick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tarry.core.wakeup.wait_queue.FIRST_SLEEP_S", 600.0)
        counting = Counting(TimingWheel(timedelta(seconds=2)))
        queue = counting.app.queue(QUEUE)
        # All in the first half of a tick, wherever in a tick we are now.
        into_s = time.monotonic() % 2
        first_s = 0.1 if into_s < 1 else 2.1 - into_s
        queue.offer_many(
            [Message(key=f"k{n}", payload=n, after=timedelta(seconds=first_s + n / 1000)) for n in range(50)]
        )
        assert len(queue.poll_many(50, TIMEOUT)) == 50, "they came one by one"
        assert counting.announcements <= 2
