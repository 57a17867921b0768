"""When a process counts the messages of a queue that has a limit."""

from __future__ import annotations

import pytest

from tarry.core.errors import QueueFull
from tarry.storage.postgres.messages.depth import DepthBudget


class Timer:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def timer() -> Timer:
    return Timer()


@pytest.fixture
def budget(timer: Timer) -> DepthBudget:
    return DepthBudget(timer)


def test_a_tenth_of_the_free_capacity_is_offered_without_a_count_for_a_second(
    budget: DepthBudget, timer: Timer
) -> None:
    assert not budget.take("q", 1)
    budget.counted("q", 1, 1_000, 899, 0, took_s=0.001)
    assert [budget.take("q", n) for n in (6, 4, 1)] == [True, True, False]
    budget.counted("q", 1, 1_000, 899, 0, took_s=0.001)
    timer.now += 1.1
    assert not budget.take("q", 1)


def test_near_the_limit_every_offer_counts(budget: DepthBudget) -> None:
    budget.counted("q", 1, 1_000, 995, 0, took_s=0.001)
    assert not budget.take("q", 1)


def test_new_keys_are_refused_without_a_count_for_ten_times_as_long_as_it_took(
    budget: DepthBudget, timer: Timer
) -> None:
    budget.require("q")
    with pytest.raises(QueueFull):
        budget.counted("q", 1, 1_000, 1_000, 0, took_s=0.5)
    timer.now += 4.9
    with pytest.raises(QueueFull):
        budget.require("q")
    timer.now += 0.2
    budget.require("q")


def test_a_batch_that_is_too_large_refuses_no_smaller_one(budget: DepthBudget) -> None:
    with pytest.raises(QueueFull):
        budget.counted("q", 20, 1_000, 990, 0, took_s=0.5)
    budget.require("q")


def test_live_keys_fit_into_a_full_queue(budget: DepthBudget) -> None:
    budget.counted("q", 2, 1_000, 1_000, 2, took_s=0.5)
    budget.require("q")
