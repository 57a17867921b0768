"""What a delay queue promises whatever its strategy. What each strategy does in its own way is in the second half."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from tarry.core.errors import InvalidInput
from tarry.storage.memory import BusyWait, DelayQueue, Strategy, TimingWheel, WaitNotify, WaitNotifyScan
from tests.delayqueue.virtual_time import TIMEOUT_S, Interrupted, VirtualTime

R = TypeVar("R")
TICK_S = 0.25
SCAN_S = 8.0
SPIN_S = 0.5


@dataclass(frozen=True)
class Case:
    strategy: Callable[[VirtualTime], Strategy]
    late_s: float = 0.0
    """How long after its time an item may come to a waiter."""


CASES = {
    "busy-wait": Case(lambda virtual: BusyWait(timedelta(seconds=SPIN_S), virtual.pause)),
    "wait/notify": Case(lambda _: WaitNotify()),
    "wait/notify + scan": Case(lambda _: WaitNotifyScan(timedelta(seconds=SCAN_S))),
    "timing wheel": Case(lambda _: TimingWheel(timedelta(seconds=TICK_S)), late_s=TICK_S),
}
REAL: dict[str, Strategy] = {
    "busy-wait": BusyWait(),
    "wait/notify": WaitNotify(),
    "wait/notify + scan": WaitNotifyScan(timedelta(milliseconds=50)),
    "timing wheel": TimingWheel(timedelta(milliseconds=2)),
}
Start = Callable[[Callable[[], Any]], "Future[Any]"]


def seconds(n: float) -> timedelta:
    return timedelta(seconds=n)


def value(future: Future[R]) -> R:
    return future.result(TIMEOUT_S)


@pytest.fixture
def virtual() -> VirtualTime:
    return VirtualTime()


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture
def queue(case: Case, virtual: VirtualTime) -> DelayQueue[str]:
    return DelayQueue(strategy=case.strategy(virtual), monotonic=virtual.monotonic, condition=virtual)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(max_workers=16) as threads:
        yield threads


@pytest.fixture
def start(queue: DelayQueue[str], threads: ThreadPoolExecutor) -> Iterator[Start]:
    yield threads.submit
    queue.close()  # a remaining waiter must not keep the test from ending


class TestEveryStrategy:
    """On a clock that only the test moves."""

    def test_an_item_is_never_early_and_one_waiter_gets_it_in_time(
        self, queue: DelayQueue[str], virtual: VirtualTime, start: Start, case: Case
    ) -> None:
        queue.put("a", after=seconds(5))
        taken = start(queue.take)
        for _ in range(19):
            virtual.parked(1)
            assert not taken.done()
            virtual.advance(0.25)
        virtual.parked(1)
        assert not taken.done()
        virtual.advance(0.25 + case.late_s)
        assert value(taken) == "a"

    def test_without_waiting_an_item_is_there_at_its_very_time(
        self, queue: DelayQueue[str], virtual: VirtualTime
    ) -> None:
        queue.put("a", after=seconds(5))
        virtual.advance(4.999)
        assert queue.poll() is None
        virtual.advance(0.001)
        assert queue.poll() == "a"
        assert virtual.waits == []

    def test_what_is_due_is_taken_without_waiting(self, queue: DelayQueue[str], virtual: VirtualTime) -> None:
        queue.put("now")
        queue.put("past", after=seconds(-3))
        assert [queue.take(), queue.take()] == ["past", "now"]
        assert virtual.waits == []

    def test_items_come_by_time_and_equal_times_in_the_order_of_put(
        self, queue: DelayQueue[str], virtual: VirtualTime
    ) -> None:
        for item, delay in [("c", 3.0), ("a1", 1.0), ("b", 1.01), ("a2", 1.0), ("a3", 1.0)]:
            queue.put(item, after=seconds(delay))
        virtual.advance(10)
        assert [queue.take(seconds(1)) for _ in range(5)] == ["a1", "a2", "a3", "b", "c"]

    def test_what_was_cancelled_is_not_taken(self, queue: DelayQueue[str], virtual: VirtualTime, start: Start) -> None:
        gone, _ = queue.put("gone", after=seconds(5)), queue.put("kept", after=seconds(9))
        taken = start(queue.take)
        virtual.parked(1)
        assert queue.cancel(gone)
        assert not queue.cancel(gone)
        virtual.advance(6)
        virtual.parked(1)
        assert not taken.done()
        virtual.advance(4)
        assert value(taken) == "kept"

    def test_what_was_taken_cannot_be_cancelled(self, queue: DelayQueue[str]) -> None:
        timer = queue.put("a")
        assert queue.poll() == "a"
        assert not queue.cancel(timer)

    def test_an_earlier_item_put_later_wakes_the_sleeper(
        self, queue: DelayQueue[str], virtual: VirtualTime, start: Start, case: Case
    ) -> None:
        queue.put("late", after=seconds(600))
        taken = start(queue.take)
        virtual.parked(1)
        queue.put("early", after=seconds(3))
        virtual.parked(1)
        virtual.advance(3 + case.late_s)
        assert value(taken) == "early"

    def test_an_item_that_is_due_at_once_needs_no_time_to_pass(
        self, queue: DelayQueue[str], virtual: VirtualTime, start: Start
    ) -> None:
        queue.put("late", after=seconds(600))
        taken = start(queue.take)
        virtual.parked(1)
        queue.put("now")
        assert value(taken) == "now"

    def test_a_take_that_ran_out_of_time_gives_nothing(
        self, queue: DelayQueue[str], virtual: VirtualTime, start: Start
    ) -> None:
        queue.put("late", after=seconds(9))
        taken = start(lambda: queue.take(seconds(4)))
        virtual.parked(1)
        virtual.advance(4)
        assert value(taken) is None
        assert len(queue) == 1

    def test_waiters_get_one_item_each(
        self, queue: DelayQueue[str], virtual: VirtualTime, start: Start, case: Case
    ) -> None:
        takers = [start(queue.take) for _ in range(4)]
        virtual.parked(4)
        for n, item in enumerate("abcd"):
            queue.put(item, after=seconds(2 + n % 2))
        virtual.parked(4)
        virtual.advance(3 + case.late_s)
        assert sorted(map(value, takers)) == ["a", "b", "c", "d"]

    def test_a_sleeper_that_is_interrupted_hands_over(
        self, queue: DelayQueue[str], virtual: VirtualTime, start: Start, case: Case
    ) -> None:
        queue.put("a", after=seconds(5))
        first = start(queue.take)
        [leader] = virtual.parked(1)
        second = start(queue.take)
        virtual.parked(2)
        virtual.interrupt(leader)
        assert isinstance(first.exception(TIMEOUT_S), Interrupted)
        virtual.parked(1)
        virtual.advance(5 + case.late_s)
        assert value(second) == "a"

    def test_closing_wakes_every_waiter(self, queue: DelayQueue[str], virtual: VirtualTime, start: Start) -> None:
        queue.put("a", after=seconds(0.4))  # so near that one of them waits awake, where there is such a thing
        takers = [start(queue.take) for _ in range(3)]
        virtual.parked(3)
        queue.close()
        assert [value(taker) for taker in takers] == [None, None, None]
        virtual.advance(1)
        assert queue.drain() == ["a"]


@pytest.mark.parametrize("strategy", REAL.values(), ids=REAL)
class TestEveryStrategyInRealTime:
    def test_many_threads_lose_nothing_and_take_nothing_twice_or_early(
        self, strategy: Strategy, threads: ThreadPoolExecutor
    ) -> None:
        queue: DelayQueue[tuple[int, int, float]] = DelayQueue(strategy=strategy)
        producers, consumers, each = 4, 4, 200
        together = threading.Barrier(producers + consumers)
        taken_all = threading.Semaphore(0)

        def produce(producer: int) -> set[int]:
            together.wait(TIMEOUT_S)
            cancelled: set[int] = set()
            for number in range(each):
                due = time.monotonic() + (number * 7919 % 5) / 1000
                timer = queue.put((producer, number, due), at=due)
                if number % 10 == 0 and queue.cancel(timer):
                    cancelled.add(number)
                    taken_all.release()
            return cancelled

        def consume(connection_retry: timedelta | None) -> list[tuple[tuple[int, int, float], float]]:
            mine: list[tuple[tuple[int, int, float], float]] = []
            together.wait(TIMEOUT_S)
            while not queue.closed:
                if (item := queue.take(connection_retry)) is not None:
                    mine.append((item, time.monotonic()))
                    taken_all.release()
            return mine

        # Half of them with a short timeout: leaders that give up in the middle of it all.
        taking = [threads.submit(consume, seconds(0.001) if n % 2 else None) for n in range(consumers)]
        putting = [threads.submit(produce, n) for n in range(producers)]
        cancelled = {(n, number) for n, future in enumerate(putting) for number in value(future)}
        arrived = all(taken_all.acquire(timeout=TIMEOUT_S) for _ in range(producers * each))
        queue.close()
        taken = [entry for future in taking for entry in value(future)]
        assert arrived
        everything = {(p, n) for p in range(producers) for n in range(each)}
        assert sorted(item[:2] for item, _ in taken) == sorted(everything - cancelled)
        assert all(item[2] <= taken_at for item, taken_at in taken)
        assert len(queue) == 0

    def test_a_sleeper_is_woken_by_an_earlier_item(self, strategy: Strategy, threads: ThreadPoolExecutor) -> None:
        queue: DelayQueue[str] = DelayQueue(strategy=strategy)
        queue.put("late", after=timedelta(hours=1))
        taken = threads.submit(queue.take)
        queue.put("soon", after=timedelta(milliseconds=3))
        assert value(taken) == "soon"


# In its own way


def waiting(strategy: Strategy, virtual: VirtualTime) -> DelayQueue[str]:
    return DelayQueue(strategy=strategy, monotonic=virtual.monotonic, condition=virtual)


def test_busy_waiting_sleeps_until_shortly_before_and_only_then_stays_awake(
    virtual: VirtualTime, threads: ThreadPoolExecutor
) -> None:
    queue = waiting(BusyWait(seconds(SPIN_S), virtual.pause), virtual)
    queue.put("a", after=seconds(5))
    taken = threads.submit(queue.take)
    [asleep] = virtual.parked(1)
    assert (asleep.timeout, asleep.awake) == (5 - SPIN_S, False)
    virtual.advance(5 - SPIN_S)
    [awake] = virtual.parked(1)
    assert awake.awake
    virtual.advance(SPIN_S)
    assert value(taken) == "a"


def test_busy_waiting_keeps_no_core_busy_while_there_is_nothing_to_wait_for(
    virtual: VirtualTime, threads: ThreadPoolExecutor
) -> None:
    queue = waiting(BusyWait(seconds(SPIN_S), virtual.pause), virtual)
    taken = threads.submit(queue.take)
    [asleep] = virtual.parked(1)
    assert (asleep.timeout, asleep.awake) == (None, False)
    queue.put("a")
    assert value(taken) == "a"


def test_a_busy_waiter_does_not_block_an_offer(virtual: VirtualTime, threads: ThreadPoolExecutor) -> None:
    queue = waiting(BusyWait(seconds(SPIN_S), virtual.pause), virtual)
    queue.put("a", after=seconds(0.4))
    taken = threads.submit(queue.take)
    virtual.parked(1)
    queue.put("now")
    assert value(taken) == "now"


def test_a_scan_takes_over_from_a_thread_that_died_while_it_slept_for_the_head(
    virtual: VirtualTime, threads: ThreadPoolExecutor
) -> None:
    queue = waiting(WaitNotifyScan(seconds(SCAN_S)), virtual)
    queue.put("a", after=seconds(5))
    dead = threads.submit(queue.take)
    [leader] = virtual.parked(1)
    follower = threads.submit(queue.take)
    virtual.parked(2)
    virtual.lose(leader)
    virtual.advance(5)
    virtual.parked(1)
    assert not follower.done(), "it was not notified"
    virtual.advance(SCAN_S - 5)
    assert value(follower) == "a"
    virtual.interrupt(leader)
    assert isinstance(dead.exception(TIMEOUT_S), Interrupted)


def test_with_every_call_lost_a_scan_finds_the_item(
    virtual: VirtualTime, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = waiting(WaitNotifyScan(seconds(SCAN_S)), virtual)
    taken = threads.submit(queue.take)
    virtual.parked(1)
    monkeypatch.setattr(virtual, "notify", lambda n=1: None)
    queue.put("a")
    virtual.parked(1)
    assert not taken.done()
    virtual.advance(SCAN_S)
    assert value(taken) == "a"


def test_the_wheel_wakes_once_at_the_end_of_the_tick(virtual: VirtualTime, threads: ThreadPoolExecutor) -> None:
    queue = waiting(TimingWheel(seconds(TICK_S)), virtual)
    for item, delay in [("b", 5.2), ("a", 5.1), ("far", 7200.0)]:
        queue.put(item, after=seconds(delay))
    taken = threads.submit(lambda: [queue.take(), queue.take()])
    virtual.until(pytest.approx(5.25))  # pyright: ignore[reportArgumentType]
    virtual.advance(5.25)
    assert value(taken) == ["a", "b"]
    assert virtual.waits == [pytest.approx(5.25)]


def test_the_wheel_sleeps_through_empty_slots_however_many(virtual: VirtualTime, threads: ThreadPoolExecutor) -> None:
    queue = waiting(TimingWheel(timedelta(milliseconds=1)), virtual)
    queue.put("in a week", after=timedelta(days=7))
    taken = threads.submit(queue.take)
    virtual.parked(1)
    virtual.advance(7 * 86_400 + 0.001)
    assert value(taken) == "in a week"
    assert len(virtual.waits) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: BusyWait(seconds(0)),
        lambda: BusyWait(seconds(2)),
        lambda: WaitNotifyScan(seconds(0)),
        lambda: TimingWheel(seconds(-1)),
    ],
)
def test_a_strategy_is_valid_from_birth(make: Callable[[], Strategy]) -> None:
    with pytest.raises(InvalidInput):
        make()
