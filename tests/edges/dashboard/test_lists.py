"""Every list with no row, one row and ten thousand: in pages that stay small and narrow; an empty one explains itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from playwright.sync_api import expect

from benchmarks.dashboard.fill import Sizes, derive, fill, name
from tarry.edges.dashboard.screen import PAGE_ROWS
from tests.edges.dashboard.conftest import Screen, Served, served
from tests.kit.blocking import Loop
from tests.kit.servers import Server

MANY = 10_000
SINGLE = Sizes(
    messages=1,
    events=3,
    dead=1,
    queues=1,
    consumers=1,
    schedules=1,
    anomalies=1,
    runs=1,
    audits=1,
    redrives=1,
    bulk_jobs=1,
)
TEN_THOUSAND = Sizes(
    messages=MANY, events=3 * MANY, dead=MANY, queues=1_000, consumers=MANY, schedules=MANY, anomalies=MANY, runs=MANY,
    audits=MANY, redrives=MANY, bulk_jobs=MANY,
)  # fmt: skip
"""Of queues as many as one page reads."""
OF_ALL = (
    "/queues", "/messages", "/messages/jobs", "/dead", "/redrives", "/schedules", "/consumers", "/anomalies", "/pipeline",
    "/system/audit",
)  # fmt: skip
OF_A_QUEUE = (f"/queues/{name(0)}/dead", f"/queues/{name(0)}/next", f"/queues/{name(0)}/at")
SHORT = {"/dead": 5, "/messages/jobs": 200, OF_A_QUEUE[1]: 10, OF_A_QUEUE[2]: 10, OF_A_QUEUE[0]: 10}
"""Lists that have at least so many rows, whatever the number of messages."""


def _served(server: Server, loop: Loop, sizes: Sizes | None) -> Iterator[Served]:
    made = served(server, loop)
    if sizes is not None:
        fill(made.dsn, sizes)
        with ThreadPoolExecutor(1) as thread:  # this one has the loop of the browser
            thread.submit(asyncio.run, derive(made.dsn, sizes)).result()
    yield made
    made.closing.close()


@pytest.fixture(scope="module")
def nothing(server: Server, loop: Loop) -> Iterator[Served]:
    yield from _served(server, loop, None)


@pytest.fixture(scope="module")
def single(server: Server, loop: Loop) -> Iterator[Served]:
    yield from _served(server, loop, SINGLE)


@pytest.fixture(scope="module")
def many(server: Server, loop: Loop) -> Iterator[Served]:
    yield from _served(server, loop, TEN_THOUSAND)


def rows(screen: Screen, path: str) -> list[Any]:
    """As JSON, which has the same rows as the page, but more of them."""
    listed = screen.get(f"{path}.json").json()
    return next(value for value in listed.values() if isinstance(value, list))


def show(browser: Any, dashboard: Served, path: str) -> tuple[int, str]:
    """The number of rows, and the text of the page, which has no error, fits the budget and a narrow screen."""
    screen = Screen(browser, dashboard.url)
    try:
        page = screen.open(path, width=390)
        expect(page.locator("main h1")).to_be_visible()
        assert len(page.content().encode()) <= 150_000
        assert not page.evaluate("document.documentElement.scrollWidth > window.innerWidth + 1"), (
            "wider than the screen"
        )
        assert screen.errors == []
        return len(rows(screen, path)), page.locator("main").inner_text()
    finally:
        screen.close()


@pytest.mark.parametrize("path", OF_ALL)
def test_an_empty_list_explains_itself(browser: Any, nothing: Served, path: str) -> None:
    count, text = show(browser, nothing, path)
    assert count == 0
    assert len(text) > 40, text


@pytest.mark.parametrize("path", [*OF_ALL, *OF_A_QUEUE])
def test_a_single_row_is_shown(browser: Any, single: Served, path: str) -> None:
    count, _ = show(browser, single, path)
    assert count >= 1


@pytest.mark.parametrize("path", [*OF_ALL, *OF_A_QUEUE])
def test_ten_thousand_rows_come_in_pages(browser: Any, many: Served, path: str) -> None:
    count, text = show(browser, many, path)
    assert count >= SHORT.get(path, 20 * PAGE_ROWS)
    assert path in SHORT or "Next page" in text
