"""Looking back into a journal that is longer than one call scans: old windows are found, and what is older ends the scan."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import tarry
from tarry.app import connect_async
from tarry.core.analytics.port import AnalyticsPage, AnalyticsQuery
from tarry.core.journal.events import Event
from tarry.storage.postgres.journal import recent
from tarry.testing import MutableClock
from tests.kit.clocks import START
from tests.kit.steps import roll_up

HOUR = timedelta(hours=1)
HOURS = 40


@pytest.fixture(params=[0, HOURS // 2, HOURS], ids=["not rolled up", "half rolled up", "rolled up"])
def long(database: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Forty hours with ten offers each, in one transaction per offer, for a scan that ends after twenty events. The rollups
    name the transactions of what they have."""
    monkeypatch.setattr(recent, "STEP", 5)
    monkeypatch.setattr(recent, "ENOUGH", 20)
    clock = MutableClock(START)
    with tarry.connect(database, clock=clock) as app:
        for hour in range(HOURS):
            clock.set(START + hour * HOUR)
            for number in range(10):
                app.queue("orders").offer(f"{hour:02}-{number}", 1)
            if hour + 1 == request.param:
                roll_up(app)
    return database


def events(dsn: str, **query: Any) -> AnalyticsPage[Event]:
    async def read() -> AnalyticsPage[Event]:
        async with connect_async(dsn) as app:
            return await app.store.run(app.store.analytics.events(AnalyticsQuery(queue="orders", **query)))

    return asyncio.run(read())


def test_a_window_of_long_ago_is_found(long: str) -> None:
    page = events(long, until=START + 3.5 * HOUR, limit=5)
    assert [event.key for event in page.rows] == [f"03-{number}" for number in (9, 8, 7, 6, 5)]


def test_a_window_in_the_middle_is_found(long: str) -> None:
    for hour in (HOURS // 2 - 2, HOURS // 2, HOURS - 2):
        page = events(long, since=START + (hour - 0.5) * HOUR, until=START + (hour + 0.5) * HOUR, limit=50)
        assert [event.key for event in page.rows] == [f"{hour:02}-{number}" for number in range(9, -1, -1)]


def test_the_pages_after_it_go_on_from_there(long: str) -> None:
    keys, after = list[str | None](), None
    for _ in range(20):
        page = events(long, until=START + 2.5 * HOUR, limit=8, after=after)
        keys += [event.key for event in page.rows]
        if (after := page.next) is None:
            break
    assert keys == [*(f"{hour:02}-{number}" for hour in (2, 1, 0) for number in range(9, -1, -1)), None], (
        "the queue itself"
    )


def test_what_is_older_than_the_window_ends_the_scan(long: str) -> None:
    page = events(long, since=START + (HOURS - 1.5) * HOUR)
    assert (len(page.rows), page.next) == (10, None)


def test_a_window_before_the_journal_is_empty(long: str) -> None:
    page = events(long, until=START - HOUR)
    assert (page.rows, page.next) == ([], None)
