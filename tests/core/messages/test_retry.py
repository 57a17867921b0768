"""How long a failed message waits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.core.errors import InvalidInput
from tarry.core.messages.retry import Retry

MS = timedelta(milliseconds=1)
policies = st.builds(
    Retry,
    initial_for=st.timedeltas(timedelta(0), timedelta(days=3653)),
    factor=st.floats(1.0, 10.0),
    cap_for=st.timedeltas(timedelta(0), timedelta(days=3653)),
    jitter=st.floats(0.0, 1.0),
)


def test_delays_double_up_to_the_cap() -> None:
    policy = Retry.exponential(10 * MS, cap_for=100 * MS, jitter=0.0)
    assert [policy.delay(attempt, 0.0) / MS for attempt in range(1, 7)] == [10, 20, 40, 80, 100, 100]


def test_a_fixed_policy_always_waits_the_same() -> None:
    assert {Retry.fixed(7 * MS).delay(attempt, spread) for attempt in (1, 2, 99) for spread in (0.0, 0.9)} == {7 * MS}


def test_at_once_means_at_once() -> None:
    assert Retry.at_once().delay(50, 0.5) == timedelta(0)


def test_jitter_only_ever_shortens() -> None:
    policy = Retry.exponential(100 * MS, jitter=0.25)
    assert [policy.delay(1, spread) / MS for spread in (0.0, 0.5, 1.0)] == [100, 87.5, 75]


def test_the_first_failure_is_number_one_and_nothing_comes_before_it() -> None:
    assert Retry(jitter=0.0).delay(0, 0.0) == Retry(jitter=0.0).delay(1, 0.0) == timedelta(seconds=1)


@given(policies, st.integers(1, 10**9), st.floats(0.0, 1.0, exclude_max=True))
def test_a_delay_is_never_negative_and_never_beyond_the_cap(policy: Retry, attempt: int, spread: float) -> None:
    assert timedelta(0) <= policy.delay(attempt, spread) <= policy.cap_for


@given(policies, st.integers(1, 200))
def test_without_a_spread_delays_never_get_shorter(policy: Retry, attempt: int) -> None:
    assert policy.delay(attempt, 0.0) <= policy.delay(attempt + 1, 0.0)


@pytest.mark.parametrize(
    "bad",
    [
        {"initial_for": timedelta(seconds=-1)},
        {"initial_for": 5},
        {"cap_for": timedelta(days=4000)},
        {"factor": 0.99},
        {"factor": 10.1},
        {"factor": float("nan")},
        {"factor": "two"},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"jitter": float("nan")},
        {"jitter": None},
        {"max_attempts": 0},
        {"max_attempts": 1.5},
    ],
    ids=repr,
)
def test_a_policy_is_valid_at_birth(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Retry(**bad)
