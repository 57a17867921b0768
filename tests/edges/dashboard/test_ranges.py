"""Time ranges of pages: named ones, and those that a visitor writes or drags."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from tarry.edges.dashboard.ranges import time_range
from tarry.edges.dashboard.screens.consumers import slice_width
from tarry.services.overview import queue_rows, time_series
from tarry.testing import MutableClock, async_memory_app

NOW = datetime(2030, 5, 1, 12, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "since", "until", "width_s", "is_past"),
    [
        ("15m", "2030-05-01T11:45:40", "2030-05-01T12:00:40", 10, False),
        ("3h", "2030-05-01T09:00", "2030-05-01T12:01", 60, False),
        ("2030-05-01T10:00Z/2030-05-01T10:20Z", "2030-05-01T10:00", "2030-05-01T10:20", 10, True),
        ("2030-05-01T12:00+02:00/2030-05-01T13:00", "2030-05-01T10:00", "2030-05-01T12:01", 60, False),
        ("2030-04-20T00:00Z/2030-04-27T00:00Z", "2030-04-20T00:00", "2030-04-27T00:00", 3_600, True),
    ],
)
def test_a_range_has_the_narrowest_slices_that_are_kept_for_so_long(
    text: str, since: str, until: str, width_s: int, is_past: bool
) -> None:
    chosen = time_range(text, NOW)
    assert chosen.since == datetime.fromisoformat(since).replace(tzinfo=UTC)
    assert chosen.until == datetime.fromisoformat(until).replace(tzinfo=UTC)
    assert (chosen.name, chosen.width.total_seconds(), chosen.is_past) == (text, width_s, is_past)


@pytest.mark.parametrize(
    "text", [None, "", "soon", "5s", "400d", "2030-05-01T10:00Z/2030-05-01T09:00Z", "2029-01-01/2029-01-02", "/", "<b>"]
)
def test_any_other_text_is_the_last_hour(text: str | None) -> None:
    assert time_range(text, NOW).name == "1h"


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("1h", timedelta(minutes=1)),
        ("24h", timedelta(hours=1)),
        ("2030-04-30T10:00Z/2030-04-30T11:00Z", timedelta(minutes=1)),
        ("2030-04-28T10:00Z/2030-04-28T11:00Z", timedelta(hours=1)),  # minutes are kept for two days
    ],
)
def test_consumers_have_slices_that_are_still_kept(text: str, width: timedelta) -> None:
    assert slice_width(time_range(text, NOW), NOW) == width


def test_the_depth_of_a_past_time_is_counted_back_from_now() -> None:
    async def story() -> None:
        clock = MutableClock(NOW - timedelta(hours=1))
        app = async_memory_app(clock)
        await app.queue("orders").offer("early", 1)
        clock.set(NOW)
        await app.queue("orders").offer("late", 1)
        await app.store.run(app.store.rollups.roll_up())
        rows = await queue_rows(app.store, NOW, lambda _: True)
        chosen = time_range("2030-05-01T10:50Z/2030-05-01T11:10Z", NOW)
        series = await time_series(app.store, chosen.starts, chosen.width, rows, until=NOW)
        assert (series.live[0], series.live[-1]) == (0, 1)

    asyncio.run(story())
