"""At most n in any span, whenever it begins."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry import Rate
from tarry.core.errors import InvalidInput
from tarry.core.rates import Pace


@pytest.mark.parametrize("bad", [0, -1, 100_001, 1.5, True, "5"])
def test_a_rate_is_a_whole_number(bad: Any) -> None:
    with pytest.raises(InvalidInput, match="a rate is a whole number"):
        Rate(bad)


@pytest.mark.parametrize("bad", [timedelta(0), timedelta(seconds=-1), timedelta(days=2), 1])
def test_a_rate_is_per_some_time(bad: Any) -> None:
    with pytest.raises(InvalidInput, match="a rate is per a timedelta"):
        Rate(1, bad)


def test_one_more_may_begin_when_the_first_is_a_span_ago() -> None:
    pace = Pace(Rate(2, timedelta(seconds=10)))
    pace.start(100.0)
    pace.start(103.0)
    assert (pace.free(103.0), pace.wait_s(103.0)) == (0, 7.0)
    assert (pace.free(109.9), pace.free(110.0), pace.wait_s(110.0)) == (0, 1, 0.0)
    assert pace.free(200.0) == 2


@given(st.integers(1, 5), st.lists(st.floats(0, 3), max_size=60))
def test_no_span_ever_sees_more(n: int, gaps: list[float]) -> None:
    pace, now_s, starts = Pace(Rate(n, timedelta(seconds=1))), 0.0, []
    for gap in gaps:
        now_s += gap
        if pace.free(now_s) > 0:
            pace.start(now_s)
            starts.append(now_s)
        else:
            assert pace.wait_s(now_s) > 0
    assert all(later - earlier >= 1 - 1e-9 for earlier, later in zip(starts, starts[n:], strict=False))


@given(st.integers(1, 100), st.integers(1, 50))
def test_consumers_that_share_a_rate_keep_to_it_together(n: int, sharers: int) -> None:
    rate = Rate(n, timedelta(seconds=1))
    share = rate.shared_by(sharers)
    assert sharers * share.n / share.per.total_seconds() <= n * (1 + 1e-6)
