"""The structures of timers: one contract for both, a model that they must agree with, and what is the wheel's own."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.core.errors import InvalidInput
from tarry.delayqueue.timers import LEVELS, SLOTS, Timer, TimerHeap, TimerWheel

TICKS = {"wheel of µs": 1e-6, "wheel of ms": 0.001, "wheel of 0.3 s": 0.3, "wheel of minutes": 60.0}
STRUCTURES: dict[str, Callable[[], TimerHeap[Any]]] = {
    "heap": TimerHeap,
    **{name: lambda tick=tick: TimerWheel(tick) for name, tick in TICKS.items()},
}
TICK_OF = {"heap": 0.0, **TICKS}
NOW = 1000.0


@pytest.fixture(params=STRUCTURES)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def timers(name: str) -> TimerHeap[Any]:
    return STRUCTURES[name]()


def due_items(timers: TimerHeap[Any], now: float) -> list[Any]:
    items: list[Any] = []
    while (timer := timers.pop_due(now)) is not None:
        assert timer.due <= now
        items.append(timer.item)
    return items


class TestEveryStructure:
    def test_nothing_comes_out_before_its_time_and_everything_at_it(self, timers: TimerHeap[Any]) -> None:
        timers.start("a", NOW + 5, NOW)
        assert timers.pop_due(math.nextafter(NOW + 5, 0)) is None
        assert due_items(timers, NOW + 5) == ["a"]
        assert len(timers) == 0

    def test_equal_times_come_out_in_the_order_of_start(self, timers: TimerHeap[Any]) -> None:
        for item, delay in [("c", 3), ("a1", 1), ("b", 2), ("a2", 1), ("a3", 1)]:
            timers.start(item, NOW + delay, NOW)
        assert due_items(timers, NOW + 3) == ["a1", "a2", "a3", "b", "c"]

    def test_items_are_never_compared(self, timers: TimerHeap[Any]) -> None:
        for n in range(5):
            timers.start({"n": n}, NOW, NOW)
        assert [item["n"] for item in due_items(timers, NOW)] == [0, 1, 2, 3, 4]

    def test_what_is_cancelled_never_comes_out(self, timers: TimerHeap[Any]) -> None:
        kept, gone = timers.start("kept", NOW + 5, NOW), timers.start("gone", NOW + 4, NOW)
        assert timers.cancel(gone)
        assert not timers.cancel(gone)
        assert (len(timers), timers.first(), list(timers)) == (1, kept, [kept])
        assert due_items(timers, NOW + 5) == ["kept"]
        assert not timers.cancel(kept)

    def test_what_time_has_reached_can_still_be_cancelled(self, timers: TimerHeap[Any]) -> None:
        first, second = timers.start("first", NOW + 1, NOW), timers.start("second", NOW + 1, NOW)
        assert timers.pop_due(NOW + 1) is first
        assert timers.cancel(second)
        assert timers.pop_due(NOW + 1) is None
        assert timers.wake_at() == math.inf

    def test_a_timer_of_another_structure_is_left_alone(self, name: str, timers: TimerHeap[Any]) -> None:
        other = STRUCTURES[name]()
        soon, late = other.start("soon", NOW, NOW), other.start("late", NOW + 1e6, NOW)
        timers.start("mine", NOW, NOW)
        assert not timers.cancel(soon)
        assert not timers.cancel(late)
        assert (len(timers), len(other)) == (1, 2)

    def test_the_first_is_seen_due_or_not_and_stays(self, timers: TimerHeap[Any]) -> None:
        assert timers.first() is None
        timers.start("late", NOW + 5000, NOW)
        early = timers.start("early", NOW + 3, NOW)
        assert timers.first() is timers.first() is early
        assert len(timers) == 2

    def test_a_sleep_until_the_next_useful_look_ends_with_an_item_and_not_late(
        self, name: str, timers: TimerHeap[Any]
    ) -> None:
        delays = [0.0, 0.0004, 0.0011, 0.5, 2.0, 2.0, 59.0, 3_600.0, 1e6, 1e8]
        for delay in delays:
            timers.start(delay, NOW + delay, NOW)
        due: list[float] = []
        while (wake_at := timers.wake_at()) != math.inf:
            items = due_items(timers, wake_at)
            assert items, "it woke in vain"
            assert all(NOW + delay <= wake_at <= NOW + delay + TICK_OF[name] + 1e-6 for delay in items)
            due += items
        assert due == delays

    def test_without_timers_there_is_nothing_to_wake_for(self, timers: TimerHeap[Any]) -> None:
        assert timers.wake_at() == math.inf
        timers.cancel(timers.start("a", NOW + 77, NOW))
        assert timers.wake_at() == math.inf

    @pytest.mark.parametrize("due", [math.inf, 1e308, 1e300, 1e18])
    def test_what_is_far_away_neither_overflows_nor_comes_early(self, timers: TimerHeap[Any], due: float) -> None:
        timers.start("far", due, NOW)
        assert timers.pop_due(1e17) is None
        assert timers.wake_at() >= due
        timers.start("near", NOW, NOW)
        assert due_items(timers, NOW) == ["near"]
        assert due_items(timers, due) == ["far"]

    def test_the_past_is_due_now(self, timers: TimerHeap[Any]) -> None:
        timers.start("now", NOW, NOW)
        timers.start("before", NOW - 100, NOW)
        timers.start("ever", -math.inf, NOW)
        assert due_items(timers, NOW) == ["ever", "before", "now"]

    def test_a_clock_that_stood_still_or_went_back_changes_no_order(self, timers: TimerHeap[Any]) -> None:
        timers.start("b", NOW + 10, NOW)
        assert timers.pop_due(NOW + 5) is None
        timers.start("a", NOW + 2, NOW + 1)
        timers.start("c", NOW + 11, NOW + 1)
        assert due_items(timers, NOW + 1) == []
        assert due_items(timers, NOW + 2) == ["a"]
        assert due_items(timers, NOW + 11) == ["b", "c"]

    def test_what_was_cancelled_does_not_fill_the_memory(self, timers: TimerHeap[Any]) -> None:
        class Item: ...

        def started() -> tuple[Timer[Any], weakref.ref[Item]]:
            item = Item()
            return timers.start(item, NOW + 3600, NOW), weakref.ref(item)

        refs: list[weakref.ref[Item]] = []
        for _ in range(2000):
            timer, ref = started()
            refs.append(ref)
            timers.cancel(timer)
            del timer
        gc.collect()
        assert sum(ref() is not None for ref in refs) <= 65
        assert list(timers) == []


steps = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.floats(-10, 10) | st.floats(0, 5000) | st.floats(0, 1e9)),
        st.tuples(st.just("cancel"), st.integers(0, 50)),
        st.tuples(st.just("pass"), st.floats(0, 3) | st.floats(0, 4000) | st.floats(0, 1e8)),
        st.tuples(st.just("pop"), st.just(0)),
    ),
    max_size=60,
)


@pytest.mark.parametrize("name", STRUCTURES)
@given(steps=steps)
def test_it_agrees_with_a_sorted_list_whatever_happens(name: str, steps: list[tuple[str, Any]]) -> None:
    timers, tick, now = STRUCTURES[name](), TICK_OF[name], NOW
    model: list[tuple[float, int]] = []
    started: list[Timer[Any]] = []
    for step, value in steps:
        if step == "start":
            number = len(started)
            started.append(timers.start(number, now + value, now))
            model.append((now + value, number))
        elif step == "cancel" and value < len(started):
            alive = next((entry for entry in model if entry[1] == value), None)
            assert timers.cancel(started[value]) == (alive is not None)
            model = [entry for entry in model if entry[1] != value]
        elif step == "pass":
            now += value
        elif step == "pop":
            due = sorted(entry for entry in model if entry[0] <= now)
            assert due_items(timers, now) == [number for _, number in due]
            model = [entry for entry in model if entry[0] > now]
        assert len(timers) == len(model)
        assert {timer.item for timer in timers} == {number for _, number in model}
        first = timers.first()
        assert (None if first is None else (first.due, first.item)) == min(model, default=None)
        if model:
            head = min(model)[0]
            assert timers.wake_at() <= max(head + tick, math.nextafter(head + tick, math.inf))
    assert due_items(timers, math.inf) == [number for _, number in sorted(model)]


# The wheel's own


def test_a_long_delay_costs_one_wake_up_and_not_one_per_turn() -> None:
    wheel: TimerWheel[str] = TimerWheel(0.001)
    wheel.start("in a month", NOW + 30 * 86_400, NOW)
    wake_at = wheel.wake_at()
    assert NOW + 30 * 86_400 <= wake_at <= NOW + 30 * 86_400 + 0.0011
    assert due_items(wheel, wake_at) == ["in a month"]


def test_all_timers_of_a_tick_are_served_by_one_wake_up() -> None:
    wheel: TimerWheel[int] = TimerWheel(0.01)
    for n in range(100):
        wheel.start(n, NOW + 5.0001 + n * 0.00009, NOW)
    assert due_items(wheel, wheel.wake_at()) == list(range(100))


def test_a_look_in_the_middle_of_a_tick_returns_what_is_due_by_then() -> None:
    wheel: TimerWheel[str] = TimerWheel(1.0)
    wheel.start("early", NOW + 0.25, NOW)
    wheel.start("late", NOW + 0.75, NOW)
    assert due_items(wheel, NOW + 0.5) == ["early"]


def test_after_a_cancel_at_most_one_wakeup_is_in_vain() -> None:
    wheel: TimerWheel[str] = TimerWheel(0.001)
    gone = wheel.start("gone", NOW + 3600.0, NOW)
    wheel.start("kept", NOW + 3600.9, NOW)  # the same slot of a coarse level
    wheel.cancel(gone)
    in_vain = wheel.wake_at()
    assert due_items(wheel, in_vain) == []
    assert due_items(wheel, wheel.wake_at()) == ["kept"]


def test_every_level_and_both_sides_of_its_edges_are_right() -> None:
    wheel: TimerWheel[int] = TimerWheel(1.0)
    distances = sorted({SLOTS**level + offset for level in range(1, LEVELS + 1) for offset in (-1, 0, 1)})
    for distance in distances:
        wheel.start(distance, 7.0 + distance, 7.0)
    due: list[int] = []
    for distance in distances:
        assert due_items(wheel, 7.0 + distance - 0.5) == []
        due += due_items(wheel, 7.0 + distance)
    assert due == distances


@pytest.mark.parametrize("tick", [0.0, -1.0, math.inf, math.nan])
def test_a_tick_that_is_no_duration_is_refused(tick: float) -> None:
    with pytest.raises(InvalidInput, match="tick"):
        TimerWheel(tick)
