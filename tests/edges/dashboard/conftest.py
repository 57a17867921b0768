"""A real Chromium against a real broker on PostgreSQL. One browser and one server per module.

`screen` opens pages and fails the test on a console error or a violated content security policy; `accessible` runs axe.
To see a page while writing it: `TARRY_SHOTS=/tmp/shots pytest …` keeps a screenshot of each page that a test opens.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import APIResponse, Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright
from playwright.sync_api import Error as PlaywrightError

from tarry.app import AsyncApp, connect_async
from tarry.core.settings import StoreSettings
from tarry.edges.dashboard.settings import DashboardSettings
from tarry.edges.http.server import running_broker
from tarry.edges.http.settings import BrokerSettings
from tests.kit.blocking import Blocking, Loop
from tests.kit.servers import Server

AXE = Path(__file__).parent / "vendor" / "axe.min.js"
THEMES = ("light", "dark")
WIDTHS = (1280, 390)
AXE_IN: dict[tuple[str, int], list[str] | None] = {
    ("light", 1280): None,
    ("dark", 390): ["color-contrast", "link-in-text-block", "scrollable-region-focusable", "target-size"],
}
"""The rules of axe: all of them once, and those about colours and places again in the other theme and width."""
IS_TOO_WIDE = """async () => {
    await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    return document.documentElement.scrollWidth > window.innerWidth + 1;
}"""
"""Two frames later: charts are drawn again after the window got another size."""
LARGEST = 150_000
"""Bytes of a page."""
JAVASCRIPT = "--js-flags=--single-threaded --no-maglev --no-turbofan"
"""Scripts of a test end before an optimizing compiler pays off."""
TIMEOUT_MS = 20_000
"""Generous: the machines of tests are busy."""
expect.set_options(timeout=TIMEOUT_MS)


def chromium() -> str:
    """Debian's Chromium, if possible the build without a user interface, which needs a third of the time for a new window.
    Without one, tests are skipped where a developer works, and fail in CI."""
    path = os.environ.get("TARRY_CHROMIUM") or shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if path is None:
        reason = "no Chromium: NO TEST OF THE DASHBOARD RUNS. As root: make system-packages; or set TARRY_CHROMIUM"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return path


# Not for the session: while it runs, this thread has an event loop, and tests of other folders start their own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu", JAVASCRIPT])
        yield browser
        browser.close()


@dataclass
class Served:
    """A broker with a dashboard, and the library on its database."""

    url: str
    """Of the dashboard, without a slash at the end."""
    app: Any
    """A blocking view of the app."""
    dsn: str
    loop: Loop
    own: AsyncApp
    running: ExitStack = field(default_factory=ExitStack)
    closing: ExitStack = field(default_factory=ExitStack)

    def stop(self) -> None:
        """The broker ends; the database and `app` stay."""
        self.running.close()

    def start(self, broker: BrokerSettings, pages: DashboardSettings) -> None:
        """A broker at the same address as before, if there was one."""
        running = running_broker(self.own, broker, port=urlsplit(self.url).port or 0, pages=pages)
        self.url = f"{self.loop.run(running.__aenter__())}/dashboard"
        self.running.callback(lambda: self.loop.run(running.__aexit__(None, None, None)))


Serve = Callable[..., Served]


def served(server: Server, loop: Loop, **settings: Any) -> Served:
    """A broker on a database of its own. `settings`: of the dashboard; `keyless=False`: every visitor needs a key."""
    keyless = settings.pop("keyless", True)
    dsn = server.new_database()
    app: AsyncApp = loop.run(_opened(dsn))
    made = Served("", Blocking(app, loop), dsn, loop, app)
    made.closing.callback(lambda: loop.run(app.close()))
    made.closing.callback(made.stop)
    patient = {"environment": "test", "page_for": timedelta(minutes=1)}
    made.start(BrokerSettings(anonymous=keyless), DashboardSettings(**{**patient, **settings}))
    return made


async def _opened(dsn: str) -> AsyncApp:
    return await connect_async(dsn, settings=StoreSettings(pool_size=4))


@pytest.fixture(scope="module")
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.stop()


@pytest.fixture(scope="module")
def dashboard(server: Server, loop: Loop) -> Iterator[Served]:
    """A dashboard without keys, on an empty database of the module."""
    made = served(server, loop)
    yield made
    made.closing.close()


class Screen:
    """Opens pages of one dashboard, and remembers what went wrong on them."""

    def __init__(self, browser: Browser, url: str) -> None:
        self._browser = browser
        self.url = url
        self.errors: list[str] = []
        self._contexts: list[BrowserContext] = []

    def context(self, *, theme: str = "light", width: int = 1280, **options: Any) -> BrowserContext:
        chosen: Any = {"color_scheme": theme, "viewport": {"width": width, "height": 900}, **options}
        context = self._browser.new_context(**chosen)
        context.set_default_timeout(TIMEOUT_MS)
        self._contexts.append(context)
        return context

    @property
    def pages(self) -> list[Page]:
        """Those that are open."""
        return [page for context in self._contexts for page in context.pages]

    def open(self, path: str = "/", context: BrowserContext | None = None, **options: Any) -> Page:
        page = (context or self.context(**options)).new_page()
        self.watch(page)
        page.goto(f"{self.url}{path}")
        if shots := os.environ.get("TARRY_SHOTS"):
            name = path.strip("/").replace("/", "-").split("?")[0] or "overview"
            parts = [name, options.get("theme", "light"), str(options.get("width", 1280))]
            page.screenshot(path=Path(shots) / f"{'-'.join(parts)}.png", full_page=True)
        return page

    def get(self, path: str, **options: Any) -> APIResponse:
        """A request without a page. All of a browser share a context: a new one for each took longer than the request."""
        contexts = [context for context in self._browser.contexts if context not in self._contexts]
        context = contexts[0] if contexts else self._browser.new_context()
        return context.request.get(f"{self.url}{path}", **options)

    def watch(self, page: Page) -> None:
        page.on("console", self._note)
        page.on("pageerror", self._fail)

    def unwatch(self, page: Page) -> None:
        page.remove_listener("console", self._note)
        page.remove_listener("pageerror", self._fail)

    def _fail(self, error: object) -> None:
        self.errors.append(str(error))

    def _note(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def close(self) -> None:
        for context in self._contexts:
            context.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep a screenshot of each page that is open when a test fails."""
    report = yield
    if report.when == "call" and report.failed:
        folder = Path(os.environ.get("TARRY_SHOTS") or item.config.rootpath / ".pytest_cache" / "screenshots")
        screens = [value for value in item.funcargs.values() if isinstance(value, Screen)]
        for number, page in enumerate(page for screen in screens for page in screen.pages):
            path = folder / f"{re.sub(r'[^A-Za-z0-9]+', '-', item.name)[:80]}-{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(PlaywrightError):  # the page has crashed
                page.screenshot(path=path, full_page=True)
            report.sections.append((f"Screenshot of {page.url}", str(path)))
    return report


@pytest.fixture
def screen(browser: Browser, dashboard: Served) -> Iterator[Screen]:
    screen = Screen(browser, dashboard.url)
    yield screen
    screen.close()
    assert screen.errors == [], "errors in the browser's console"


@pytest.fixture(scope="module")
def bare(browser: Browser) -> Iterator[Page]:
    """A page for axe, without the content security policy, which forbids to add it, and without live updates: a refresh would
    replace elements that axe is looking at. One for the module: the next path takes a third of the time of a new page."""
    context = browser.new_context(bypass_csp=True, reduced_motion="reduce")
    context.set_default_timeout(TIMEOUT_MS)
    context.add_init_script("sessionStorage.setItem('tarry-paused', '1')")
    yield context.new_page()
    context.close()


def accessible(screen: Screen, page: Page, path: str) -> list[str]:
    """What is wrong with a path: violations that axe finds, once in each theme and once in each width; a page that is wider
    than the screen, in each of both; one that is too large."""
    screen.watch(page)
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": max(WIDTHS), "height": 900})
    page.goto(f"{screen.url}{path}")
    problems = [] if len(page.content().encode()) <= LARGEST else [f"the page is larger than {LARGEST:,} bytes"]
    page.add_script_tag(content=AXE.read_text())
    for theme, width in product(THEMES, WIDTHS):
        page.emulate_media(color_scheme=cast("Any", theme))
        page.set_viewport_size({"width": width, "height": 900})
        violations = _axe(page, AXE_IN[theme, width]) if (theme, width) in AXE_IN else []
        if page.evaluate(IS_TOO_WIDE):
            violations.append("the page is wider than the screen")
        problems += [f"{theme}, {width} pixels: {violation}" for violation in violations]
    screen.unwatch(page)
    return problems


def violations(page: Page) -> list[str]:
    """What axe finds in a page as it is now."""
    page.add_script_tag(content=AXE.read_text())
    return _axe(page, None)


def _axe(page: Page, rules: list[str] | None) -> list[str]:
    only = {} if rules is None else {"runOnly": {"type": "rule", "values": rules}}
    result = page.evaluate("options => axe.run(document, options)", {"resultTypes": ["violations"], **only})
    return [f"{problem['id']}: {problem['nodes'][0]['html'][:200]}" for problem in result["violations"]]
