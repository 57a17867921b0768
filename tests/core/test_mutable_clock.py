from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from tarry.core.clock import Clock
from tarry.core.errors import InvalidInput
from tarry.testing import MutableClock

START = datetime(2024, 1, 1, tzinfo=UTC)


def test_it_is_a_clock_that_starts_with_2024() -> None:
    clock: Clock = MutableClock()
    assert clock.pinned() == START


def test_it_stands_still_until_it_is_moved() -> None:
    clock = MutableClock(START)
    assert clock.pinned() == clock.pinned() == START


def test_it_advances_by_a_duration_and_returns_the_new_time() -> None:
    clock = MutableClock(START)
    assert clock.advance(timedelta(seconds=90)) == START + timedelta(seconds=90)
    assert clock.advance(timedelta(microseconds=1)) == clock.pinned() == START + timedelta(seconds=90, microseconds=1)


def test_it_can_be_set_and_stepped_backward() -> None:
    clock = MutableClock(START)
    clock.set(START - timedelta(days=1))
    clock.advance(-timedelta(hours=1))
    assert clock.pinned() == START - timedelta(days=1, hours=1)


def test_it_returns_utc_whatever_zone_it_was_given() -> None:
    clock = MutableClock(datetime(2024, 1, 1, 5, tzinfo=timezone(timedelta(hours=5))))
    assert clock.pinned() == START
    assert clock.pinned().tzinfo is UTC


@pytest.mark.parametrize("naive", [datetime(2024, 1, 1), "2024-01-01", None])  # noqa: DTZ001 - naive on purpose
def test_it_refuses_anything_but_an_aware_datetime(naive: Any) -> None:
    clock = MutableClock(START)
    with pytest.raises(InvalidInput):
        clock.set(naive)
    with pytest.raises(InvalidInput):
        MutableClock(naive)
    assert clock.pinned() == START


def test_it_refuses_to_advance_by_a_number() -> None:
    by: Any = 5
    with pytest.raises(InvalidInput, match="timedelta"):
        MutableClock().advance(by)


def test_no_advance_of_any_thread_is_lost() -> None:
    clock = MutableClock(START)
    together = threading.Barrier(8)

    def advance() -> None:
        together.wait(10)
        for _ in range(1000):
            clock.advance(timedelta(seconds=1))

    threads = [threading.Thread(target=advance, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert clock.pinned() == START + timedelta(seconds=8000)
