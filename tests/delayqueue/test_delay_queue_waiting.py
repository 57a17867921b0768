"""The delay queue in virtual time: a waiter is parked until the queue notifies it or the test moves the clock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from tarry.storage.memory import DelayQueue
from tests.delayqueue.virtual_time import TIMEOUT_S, Interrupted, VirtualTime

R = TypeVar("R")


@pytest.fixture
def virtual() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def queue(virtual: VirtualTime) -> DelayQueue[str]:
    return DelayQueue(monotonic=virtual.monotonic, condition=virtual)


@pytest.fixture
def start(queue: DelayQueue[str]) -> Iterator[Callable[[Callable[[], R]], Future[R]]]:
    with ThreadPoolExecutor(max_workers=16) as threads:
        yield threads.submit
        queue.close()  # a remaining waiter must not keep the test from ending


Start = Callable[[Callable[[], Any]], "Future[Any]"]


def seconds(n: float) -> timedelta:
    return timedelta(seconds=n)


def value(future: Future[R]) -> R:
    return future.result(TIMEOUT_S)


# take


def test_take_gives_what_is_due_without_waiting(queue: DelayQueue[str], virtual: VirtualTime) -> None:
    queue.put("a")
    assert queue.take() == "a"
    assert virtual.waits == []


def test_take_sleeps_for_exactly_the_delay_of_the_head(
    queue: DelayQueue[str], virtual: VirtualTime, start: Start
) -> None:
    queue.put("a", after=seconds(5))
    taken = start(queue.take)
    virtual.until(5.0)
    virtual.advance(4.5)
    assert not taken.done()
    virtual.advance(0.5)
    assert value(taken) == "a"
    assert virtual.waits == [5.0]


def test_take_on_an_empty_queue_is_woken_by_a_put(queue: DelayQueue[str], virtual: VirtualTime, start: Start) -> None:
    taken = start(queue.take)
    virtual.until(None)
    queue.put("a")
    assert value(taken) == "a"


def test_a_put_between_two_looks_is_not_missed(queue: DelayQueue[str], virtual: VirtualTime, start: Start) -> None:
    taken = start(queue.take)
    virtual.until(None)
    queue.put("later", after=seconds(8))
    virtual.until(8.0)
    queue.put("now")
    assert value(taken) == "now"
    assert queue.peek() == "later"


def test_an_earlier_item_put_later_wakes_the_waiter(queue: DelayQueue[str], virtual: VirtualTime, start: Start) -> None:
    queue.put("late", after=seconds(60))
    taken = start(queue.take)
    virtual.until(60.0)
    queue.put("early", after=seconds(10))
    virtual.until(10.0)
    virtual.advance(10)
    assert value(taken) == "early"


def test_a_later_item_wakes_no_waiter(queue: DelayQueue[str], virtual: VirtualTime, start: Start) -> None:
    queue.put("head", after=seconds(10))
    start(queue.take)
    virtual.until(10.0)
    queue.put("later", after=seconds(20))
    queue.put("equal", after=seconds(10))
    virtual.until(10.0)
    assert virtual.waits == [10.0]


def test_a_wake_up_without_a_reason_gives_nothing_early(
    queue: DelayQueue[str], virtual: VirtualTime, start: Start
) -> None:
    queue.put("a", after=seconds(10))
    taken = start(queue.take)
    virtual.until(10.0)
    virtual.advance(4)
    with virtual:
        virtual.notify_all()
    virtual.until(6.0)
    assert not taken.done()
    virtual.advance(6)
    assert value(taken) == "a"


def test_take_gives_none_when_its_timeout_is_over(queue: DelayQueue[str], virtual: VirtualTime, start: Start) -> None:
    queue.put("late", after=seconds(10))
    taken = start(lambda: queue.take(seconds(3)))
    virtual.until(3.0)
    virtual.advance(3)
    assert value(taken) is None
    assert len(queue) == 1


@pytest.mark.parametrize("timeout", [seconds(0), seconds(-1)])
def test_take_without_any_time_is_a_poll(queue: DelayQueue[str], virtual: VirtualTime, timeout: timedelta) -> None:
    assert queue.take(timeout) is None
    queue.put("a")
    assert queue.take(timeout) == "a"
    assert virtual.waits == []


def test_an_item_due_at_the_very_end_of_the_timeout_is_taken(
    queue: DelayQueue[str], virtual: VirtualTime, start: Start
) -> None:
    queue.put("a", after=seconds(3))
    taken = start(lambda: queue.take(seconds(3)))
    virtual.until(3.0)
    virtual.advance(3)
    assert value(taken) == "a"


def test_no_wait_is_longer_than_the_platform_knows(queue: DelayQueue[str], virtual: VirtualTime, start: Start) -> None:
    queue.put("far", after=timedelta.max)
    taken = start(lambda: queue.take(timedelta.max))
    virtual.until(threading.TIMEOUT_MAX)
    virtual.advance(threading.TIMEOUT_MAX)
    virtual.until(threading.TIMEOUT_MAX)
    assert not taken.done()


def test_a_real_condition_takes_the_longest_of_waits() -> None:
    queue: DelayQueue[str] = DelayQueue()
    with ThreadPoolExecutor() as threads:
        queue.put("far", after=timedelta.max)
        taken = threads.submit(queue.take, timedelta.max)
        queue.put("near")
        assert value(taken) == "near"


# leader and followers


def test_one_waiter_sleeps_for_the_head_and_the_others_until_they_are_called(
    queue: DelayQueue[str], virtual: VirtualTime, start: Start
) -> None:
    queue.put("a", after=seconds(5))
    queue.put("b", after=seconds(7))
    takers = [start(queue.take) for _ in range(3)]
    virtual.until(5.0, None, None)
    virtual.advance(5)
    virtual.until(2.0, None)
    virtual.advance(2)
    virtual.until(None)
    queue.put("c")
    assert sorted(value(taker) for taker in takers) == ["a", "b", "c"]


def test_a_burst_of_due_items_reaches_every_waiter(queue: DelayQueue[str], virtual: VirtualTime, start: Start) -> None:
    takers = [start(queue.take) for _ in range(4)]
    virtual.until(None, None, None, None)
    with virtual:  # as if all were put before any waiter had a chance to run
        for item in "abcd":
            queue.put(item)
    assert sorted(value(taker) for taker in takers) == ["a", "b", "c", "d"]


def test_a_leader_that_runs_out_of_time_hands_over(queue: DelayQueue[str], virtual: VirtualTime, start: Start) -> None:
    queue.put("a", after=seconds(5))
    impatient = start(lambda: queue.take(seconds(2)))
    virtual.until(2.0)
    patient = start(queue.take)
    virtual.until(2.0, None)
    virtual.advance(2)
    assert value(impatient) is None
    virtual.until(3.0)
    virtual.advance(3)
    assert value(patient) == "a"


def test_a_leader_that_is_interrupted_hands_over(queue: DelayQueue[str], virtual: VirtualTime, start: Start) -> None:
    queue.put("a", after=seconds(5))
    first = start(queue.take)
    [leader] = virtual.until(5.0)
    second = start(queue.take)
    virtual.until(5.0, None)
    virtual.interrupt(leader)
    assert isinstance(first.exception(TIMEOUT_S), Interrupted)
    virtual.until(5.0)
    virtual.advance(5)
    assert value(second) == "a"


def test_a_follower_that_was_called_and_interrupted_passes_the_call_on(
    queue: DelayQueue[str], virtual: VirtualTime, start: Start
) -> None:
    first = start(queue.take)
    [follower] = virtual.until(None)
    second = start(queue.take)
    virtual.until(None, None)
    with virtual:
        queue.put("a")  # calls the first
        follower.error = Interrupted()
    assert isinstance(first.exception(TIMEOUT_S), Interrupted)
    assert value(second) == "a"


def test_a_leader_that_was_overtaken_leaves_the_new_one_alone(
    queue: DelayQueue[str], virtual: VirtualTime, start: Start
) -> None:
    queue.put("late", after=seconds(10))
    start(queue.take)
    virtual.until(10.0)
    start(queue.take)
    virtual.until(10.0, None)
    with virtual:
        virtual.sleepers.reverse()  # the follower is called first, and leads for the earlier item
    queue.put("early", after=seconds(4))
    virtual.until(10.0, 4.0)
    with virtual:
        virtual.notify(1)  # a spurious wakeup must not make a second leader
    virtual.until(None, 4.0)
    virtual.advance(4)
    virtual.until(6.0)
    assert len(queue) == 1


# remove and close


def test_removing_the_head_makes_a_waiter_wait_for_the_next(
    queue: DelayQueue[str], virtual: VirtualTime, start: Start
) -> None:
    queue.put("head", after=seconds(5))
    queue.put("next", after=seconds(8))
    taken = start(queue.take)
    virtual.until(5.0)
    assert queue.remove("head")
    virtual.advance(5)
    virtual.until(3.0)
    virtual.advance(3)
    assert value(taken) == "next"


def test_closing_wakes_every_waiter(queue: DelayQueue[str], virtual: VirtualTime, start: Start) -> None:
    takers = [start(queue.take) for _ in range(3)]
    virtual.until(None, None, None)
    queue.put("a", after=seconds(5))
    virtual.until(5.0, None, None)
    queue.close()
    assert [value(taker) for taker in takers] == [None, None, None]


def test_closing_wakes_every_waiter_of_an_empty_queue(
    queue: DelayQueue[str], virtual: VirtualTime, start: Start
) -> None:
    takers = [start(queue.take) for _ in range(3)]
    virtual.until(None, None, None)
    queue.close()
    assert [value(taker) for taker in takers] == [None, None, None]
