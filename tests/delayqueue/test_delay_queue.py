"""The delay queue: what is in it and in which order it comes out. How its consumers wait is in the file beside."""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.core.errors import InvalidInput, InvalidState
from tarry.storage.memory import DelayQueue
from tests.delayqueue.virtual_time import TIMEOUT_S, VirtualTime

R = TypeVar("R")


@pytest.fixture
def virtual() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def queue(virtual: VirtualTime) -> DelayQueue[str]:
    return DelayQueue(monotonic=virtual.monotonic, condition=virtual)


def seconds(n: float) -> timedelta:
    return timedelta(seconds=n)


def value(future: Future[R]) -> R:
    return future.result(TIMEOUT_S)


# put, poll, peek, len


def test_put_never_blocks_and_everything_counts_due_or_not(queue: DelayQueue[str], virtual: VirtualTime) -> None:
    for n in range(1000):
        queue.put(str(n), after=seconds(n))
    assert len(queue) == 1000
    assert virtual.waits == []


def test_poll_gives_the_head_from_its_time_on_and_not_before(queue: DelayQueue[str], virtual: VirtualTime) -> None:
    queue.put("a", after=seconds(5))
    assert queue.poll() is None
    virtual.advance(4.999)
    assert queue.poll() is None
    virtual.advance(0.001)
    assert queue.poll() == "a"
    assert queue.poll() is None
    assert virtual.waits == []


def test_peek_sees_a_head_that_is_not_due_and_leaves_it(queue: DelayQueue[str]) -> None:
    assert queue.peek() is None
    queue.put("late", after=seconds(9))
    queue.put("early", after=seconds(3))
    assert queue.peek() == queue.peek() == "early"
    assert len(queue) == 2


def test_without_a_time_or_with_one_in_the_past_an_item_is_due_now(queue: DelayQueue[str]) -> None:
    queue.put("now")
    queue.put("before", at=900.0)
    queue.put("long ago", after=seconds(-200))
    assert [queue.poll(), queue.poll(), queue.poll()] == ["long ago", "before", "now"]


def test_a_time_and_a_delay_together_are_refused(queue: DelayQueue[str]) -> None:
    with pytest.raises(InvalidInput, match="either at or after"):
        queue.put("a", at=1.0, after=seconds(1))
    assert len(queue) == 0


def test_none_is_no_item_because_it_means_nothing_came() -> None:
    queue: DelayQueue[None] = DelayQueue()
    with pytest.raises(InvalidInput):
        queue.put(None)


def test_falsy_items_are_items() -> None:
    queue: DelayQueue[int] = DelayQueue()
    queue.put(0)
    queue.put(0)
    assert queue.take() == 0
    assert queue.drain() == [0]


# order


def test_items_come_out_by_time_and_equal_times_in_the_order_of_put(
    queue: DelayQueue[str], virtual: VirtualTime
) -> None:
    for item, delay in [("c", 3), ("a1", 1), ("b", 2), ("a2", 1), ("a3", 1)]:
        queue.put(item, after=seconds(delay))
    virtual.advance(3)
    assert queue.drain() == ["a1", "a2", "a3", "b", "c"]


def test_items_are_never_compared_with_each_other() -> None:
    queue: DelayQueue[dict[str, int]] = DelayQueue()
    for n in range(5):
        queue.put({"n": n}, at=1.0)
    assert [item["n"] for item in queue.drain()] == [0, 1, 2, 3, 4]


@given(st.lists(st.floats(allow_nan=False)))
def test_every_order_of_any_times_is_total_and_stable(times: list[float]) -> None:
    queue: DelayQueue[int] = DelayQueue(monotonic=lambda: math.inf)
    for number, at in enumerate(times):
        queue.put(number, at=at)
    assert queue.drain() == sorted(range(len(times)), key=lambda number: times[number])


def test_what_is_not_a_number_has_no_place_in_an_order(queue: DelayQueue[str]) -> None:
    with pytest.raises(InvalidInput, match="NaN"):
        queue.put("a", at=math.nan)


@pytest.mark.parametrize("forever", [timedelta.max, timedelta(days=3653)])
def test_very_long_delays_neither_overflow_nor_come_early(forever: timedelta) -> None:
    now = time.monotonic()
    queue: DelayQueue[str] = DelayQueue(monotonic=lambda: now)
    queue.put("far", after=forever)
    queue.put("never", at=math.inf)
    queue.put("near", after=seconds(0))
    queue.put("long gone", after=timedelta.min)
    assert queue.drain() == ["long gone", "near"]
    assert queue.peek() == "far"
    assert len(queue) == 2


def test_remaining_counts_down_to_zero_and_knows_no_overflow(queue: DelayQueue[str], virtual: VirtualTime) -> None:
    assert queue.remaining() is None
    queue.put("never", at=math.inf)
    assert queue.remaining() == timedelta.max
    queue.put("soon", after=seconds(10))
    virtual.advance(4)
    assert queue.remaining() == seconds(6)
    virtual.advance(100)
    assert queue.remaining() == seconds(0)


# remove, drain, close


def test_remove_takes_out_the_earliest_equal_item(queue: DelayQueue[str], virtual: VirtualTime) -> None:
    queue.put("x", after=seconds(9))
    queue.put("y", after=seconds(5))
    queue.put("x", after=seconds(1))
    assert queue.remove("x")
    virtual.advance(9)
    assert queue.drain() == ["y", "x"]
    assert not queue.remove("x")


def test_drain_gives_what_is_due_at_most_so_many(queue: DelayQueue[str], virtual: VirtualTime) -> None:
    for n in range(5):
        queue.put(str(n), after=seconds(n))
    virtual.advance(3)
    assert queue.drain(0) == queue.drain(-1) == []
    assert queue.drain(2) == ["0", "1"]
    assert queue.drain() == ["2", "3"]
    assert queue.drain() == []
    assert len(queue) == 1


def test_a_closed_queue_takes_nothing_in_and_still_gives_what_it_has(queue: DelayQueue[str]) -> None:
    queue.put("a")
    queue.put("b")
    queue.close()
    queue.close()
    assert queue.closed
    with pytest.raises(InvalidState, match="closed"):
        queue.put("c")
    assert queue.take() is None
    assert queue.poll() == "a"
    assert queue.drain() == ["b"]


# many threads, real time


def test_every_item_of_a_producer_comes_to_the_consumer_and_none_before_its_time() -> None:
    queue: DelayQueue[tuple[int, float]] = DelayQueue()
    delay_s, n = 0.005, 50

    def produce() -> None:
        for number in range(n):
            queue.put((number, time.monotonic() + delay_s), after=timedelta(seconds=delay_s))

    def consume() -> list[tuple[tuple[int, float] | None, float]]:
        return [(queue.take(seconds(TIMEOUT_S)), time.monotonic()) for _ in range(n)]

    with ThreadPoolExecutor() as threads:
        consumed, produced = threads.submit(consume), threads.submit(produce)
        value(produced)
        taken = value(consumed)
    assert [item[0] for item, _ in taken if item is not None] == list(range(n))
    assert all(item is not None and item[1] <= taken_at for item, taken_at in taken)
    assert len(queue) == 0


def test_many_producers_and_consumers_lose_nothing_and_take_nothing_twice_or_early() -> None:
    queue: DelayQueue[tuple[int, int, float]] = DelayQueue()
    producers, consumers, each = 8, 8, 400
    together = threading.Barrier(producers + consumers)
    taken_all = threading.Semaphore(0)

    def produce(producer: int) -> None:
        together.wait(TIMEOUT_S)
        for number in range(each):
            due = time.monotonic() + (number * 7919 % 5) / 1000
            queue.put((producer, number, due), at=due)

    def consume(connection_retry: timedelta | None) -> list[tuple[tuple[int, int, float], float]]:
        mine: list[tuple[tuple[int, int, float], float]] = []
        together.wait(TIMEOUT_S)
        while not queue.closed:
            if (item := queue.take(connection_retry)) is not None:
                mine.append((item, time.monotonic()))
                taken_all.release()
        return mine

    with ThreadPoolExecutor(max_workers=producers + consumers) as threads:
        # Half of them with a short timeout: leaders that give up in the middle of it all.
        taking = [threads.submit(consume, seconds(0.001) if n % 2 else None) for n in range(consumers)]
        putting = [threads.submit(produce, n) for n in range(producers)]
        for future in putting:
            value(future)
        arrived = all(taken_all.acquire(timeout=TIMEOUT_S) for _ in range(producers * each))
        queue.close()
        taken = [entry for future in taking for entry in value(future)]
    assert arrived
    assert sorted(item[:2] for item, _ in taken) == [(p, n) for p in range(producers) for n in range(each)]
    assert all(item[2] <= taken_at for item, taken_at in taken)
    assert len(queue) == 0


def test_a_thundering_herd_of_waiters_shares_what_comes_one_each() -> None:
    queue: DelayQueue[int] = DelayQueue()
    with ThreadPoolExecutor(max_workers=32) as threads:
        takers = [threads.submit(queue.take) for _ in range(32)]
        for n in range(32):
            queue.put(n, after=timedelta(milliseconds=n % 3))
        assert sorted(value(taker) or 0 for taker in takers) == list(range(32))
