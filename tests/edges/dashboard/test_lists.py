"""Every list with no row, one row and ten thousand: in pages that stay small and narrow; an empty one explains itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, expect

from benchmarks.dashboard.fill import Sizes, derive, fill, name
from tests.edges.dashboard.conftest import Screen, Served, served
from tests.kit.blocking import Loop
from tests.kit.servers import Server

MANY = 10_000
SINGLE = Sizes(
    messages=1, events=300, dead=1, queues=1, consumers=1, schedules=1, anomalies=1, runs=1, audits=1, redrives=1, bulk_jobs=1
)  # fmt: skip
TEN_THOUSAND = Sizes(
    messages=MANY, events=3 * MANY, dead=MANY, queues=1_000, consumers=MANY, schedules=MANY, anomalies=MANY, runs=MANY,
    audits=MANY, redrives=MANY, bulk_jobs=MANY,
)  # fmt: skip
"""Of queues as many as one page reads."""
OF_ALL = (
    "/queues", "/messages", "/messages/jobs", "/dead", "/redrives", "/schedules", "/consumers", "/anomalies", "/pipeline",
    "/system/audit",
)  # fmt: skip
OF_A_QUEUE = ("/queues/{queue}/dead", "/queues/{queue}/next", "/queues/{queue}/at")
NO_LISTS = ("/", "/calendar", "/archive", "/system")
LISTED = 200
"""Rows of JSON that are read."""
FEW = {"/dead": 5, **dict.fromkeys(OF_A_QUEUE, 10)}
"""Rows of lists that have fewer: groups of errors, and the messages of one of the queues."""
WITHOUT_PAGES = {"/redrives", "/messages/jobs", "/dead", *OF_A_QUEUE}


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


@pytest.fixture(scope="module")
def narrow(browser: Any) -> Iterator[BrowserContext]:
    """One for all pages: it has loaded the scripts and styles."""
    context = browser.new_context(viewport={"width": 390, "height": 900})
    yield context
    context.close()


def rows(screen: Screen, path: str) -> list[Any]:
    """As JSON, which has the same rows as the page, but more of them."""
    listed = screen.get(f"{path}.json?limit={LISTED}").json()
    return next(value for value in listed.values() if isinstance(value, list))


def show(browser: Any, narrow: BrowserContext, dashboard: Served, path: str) -> tuple[int, str]:
    """The number of rows of a list, and the text of the page, which has no error, fits the budget and a narrow screen."""
    screen = Screen(browser, dashboard.url)
    page = screen.open(path, narrow)
    try:
        expect(page.locator("main h1")).to_be_visible()
        assert len(page.content().encode()) <= 150_000
        assert not page.evaluate("document.documentElement.scrollWidth > window.innerWidth + 1"), (
            "wider than the screen"
        )
        assert screen.errors == []
        return 0 if path in NO_LISTS else len(rows(screen, path)), page.locator("main").inner_text()
    finally:
        page.close()
        screen.close()


@pytest.mark.parametrize("path", OF_ALL)
def test_an_empty_list_explains_itself(browser: Any, narrow: BrowserContext, nothing: Served, path: str) -> None:
    count, text = show(browser, narrow, nothing, path)
    assert count == 0
    assert len(text) > 40, text


@pytest.mark.parametrize("path", [*OF_ALL, *OF_A_QUEUE])
def test_a_single_row_is_shown(browser: Any, narrow: BrowserContext, single: Served, path: str) -> None:
    count, _ = show(browser, narrow, single, path.format(queue=name(0)))
    assert count >= 1


@pytest.mark.parametrize("path", [*OF_ALL, *OF_A_QUEUE])
def test_ten_thousand_rows_come_in_pages(browser: Any, narrow: BrowserContext, many: Served, path: str) -> None:
    count, text = show(browser, narrow, many, path.format(queue=name(1)))
    assert count >= FEW.get(path, LISTED)
    assert path in WITHOUT_PAGES or "Next page" in text


@pytest.mark.parametrize("sizes", ["nothing", "single", "many"])
def test_screens_that_are_no_lists_show_any_number(
    browser: Any, narrow: BrowserContext, request: pytest.FixtureRequest, sizes: str
) -> None:
    for path in NO_LISTS:
        _, text = show(browser, narrow, request.getfixturevalue(sizes), path)
        assert len(text) > 40, path
