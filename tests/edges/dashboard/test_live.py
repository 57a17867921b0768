"""Live refresh: pages change by themselves, keep what the visitor has open, and share one stream."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from tarry.core.messages.outcomes import Settled
from tarry.edges.dashboard.settings import DashboardSettings
from tarry.edges.http.settings import BrokerSettings
from tarry.services.live_events.topics import CLOCK, TOPICS
from tests.edges.dashboard.conftest import Screen, Served, served
from tests.kit.blocking import Loop
from tests.kit.servers import Server


@pytest.fixture
def queue(dashboard: Served, request: pytest.FixtureRequest) -> str:
    name = f"q{abs(hash(request.node.name)) % 10**8}"
    dashboard.app.queues.create(name)
    return name


def is_live(page: Page) -> None:
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "live")


def ready(page: Page) -> str:
    return page.locator(".tile", has_text="Ready").locator(".value").inner_text()


def test_an_offer_appears_without_a_reload(screen: Screen, dashboard: Served, queue: str) -> None:
    page = screen.open(f"/queues/{queue}")
    is_live(page)
    page.evaluate("window.sameDocument = true")
    dashboard.app.queue(queue).offer("new", 1)
    expect(page.locator(".tile", has_text="Ready").locator(".value")).to_have_text("1")
    expect(page.get_by_role("link", name="new")).to_be_visible()
    assert page.evaluate("window.sameDocument"), "the page was loaded again"


def test_a_refresh_keeps_focus_open_panels_and_scroll(screen: Screen, dashboard: Served, queue: str) -> None:
    for number in range(12):
        dashboard.app.queue(queue).offer(f"k{number}", 1)
    page = screen.open(f"/queues/{queue}")
    is_live(page)
    details = page.locator("#chart-rate details")
    details.locator("summary").click()
    link = page.get_by_role("link", name="k0", exact=True)
    link.focus()
    page.evaluate("window.scrollBy({top: 300, behavior: 'instant'})")  # a wheel scrolls later than its call returns
    scrolled = page.evaluate("window.scrollY")
    dashboard.app.queue(queue).offer("more", 1)
    expect(page.locator(".tile", has_text="Ready").locator(".value")).to_have_text("13")
    expect(details).to_have_attribute("open", "")
    expect(link).to_be_focused()
    assert page.evaluate("window.scrollY") == scrolled


def test_an_open_dialog_and_what_is_typed_in_it_stay(screen: Screen, dashboard: Served, queue: str) -> None:
    page = screen.open(f"/queues/{queue}")
    is_live(page)
    page.get_by_role("button", name="Pause").click()
    page.get_by_label("Reason").fill("half a sent")
    dashboard.app.queue(queue).offer("new", 1)
    other = screen.open(f"/queues/{queue}")
    expect(other.locator(".tile", has_text="Ready").locator(".value")).to_have_text("1")
    expect(page.get_by_role("dialog")).to_be_visible()
    expect(page.get_by_label("Reason")).to_have_value("half a sent")
    page.keyboard.press("Escape")
    expect(page.locator(".tile", has_text="Ready").locator(".value")).to_have_text("1")
    expect(page.locator("#pause input[name=reason]")).to_have_value("half a sent")


def test_rows_that_arrive_take_neither_a_selection_nor_a_click(screen: Screen, dashboard: Served, queue: str) -> None:
    """The newest dead letter is the first row: what is selected or pressed moves down, and stays the same letter."""
    queued = dashboard.app.queue(queue)
    for key in ("first", "second", "third"):
        queued.offer(key, 1)
    queued.try_poll().bury("broken")
    page, other = (screen.open(f"/queues/{queue}/dead") for _ in range(2))
    is_live(page)
    page.get_by_label("Select first").check()
    queued.try_poll().bury("broken")
    expect(page.get_by_label("Select second")).not_to_be_checked()
    expect(page.get_by_label("Select first")).to_be_checked()
    page.get_by_label("Select second").hover()
    page.mouse.down()
    queued.try_poll().bury("broken")
    expect(other.get_by_label("Select third")).to_be_visible()
    assert page.get_by_label("Select third").count() == 0, "rows moved below a pressed pointer"
    page.mouse.up()
    expect(page.get_by_label("Select second")).to_be_checked()
    expect(page.get_by_label("Select third")).not_to_be_checked()


def test_paused_pages_stand_still_until_they_are_resumed(screen: Screen, dashboard: Served, queue: str) -> None:
    page = screen.open(f"/queues/{queue}")
    is_live(page)
    page.keyboard.press("p")
    expect(page.locator("[data-live-text]")).to_have_text("Paused")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    dashboard.app.queue(queue).offer("new", 1)
    other = screen.open(f"/queues/{queue}")
    expect(other.locator(".tile", has_text="Ready").locator(".value")).to_have_text("1")
    assert ready(page) == "0"
    assert requests == []
    page.keyboard.press("p")
    expect(page.locator(".tile", has_text="Ready").locator(".value")).to_have_text("1")


def test_nine_tabs_share_one_stream(screen: Screen, dashboard: Served, queue: str) -> None:
    context = screen.context()
    streams: list[str] = []
    context.on("request", lambda request: streams.append(request.url) if request.url.endswith("/live") else None)
    pages = [screen.open(f"/queues/{queue}", context) for _ in range(9)]
    for page in pages:
        is_live(page)
    assert len(streams) == 1
    dashboard.app.queue(queue).offer("new", 1)
    for page in pages:
        expect(page.locator(".tile", has_text="Ready").locator(".value")).to_have_text("1")
    pages[0].close()  # it had the stream: another tab takes over
    dashboard.app.queue(queue).offer("second", 1)
    for page in pages[1:]:
        expect(page.locator(".tile", has_text="Ready").locator(".value")).to_have_text("2")
    assert len(streams) == 2


NOTIFY = """([topic, queues]) => new Promise((received) => {
    const [sender, listener] = [new BroadcastChannel("tarry/dashboard"), new BroadcastChannel("tarry/dashboard")];
    listener.onmessage = () => setTimeout(received);  // the page has received it before
    sender.postMessage({ topics: [topic], queues });
})"""


def test_the_page_of_one_queue_does_not_fetch_itself_for_another(screen: Screen, queue: str) -> None:
    context = screen.context()
    context.route("**/live", lambda _: None)  # never answered: what the page receives comes from this test
    page = screen.open(f"/queues/{queue}", context)
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "connecting")
    refreshes: list[str] = []
    page.on("request", lambda request: refreshes.append(request.url))
    page.evaluate(NOTIFY, ["messages", ["another"]])
    assert refreshes == []
    for queues in ([queue, "another"], []):
        with page.expect_request(f"**/queues/{queue}"):
            page.evaluate(NOTIFY, ["messages", queues])


def test_a_form_does_not_change_under_its_visitor(screen: Screen, queue: str) -> None:
    page = screen.open(f"/queues/{queue}/settings")
    is_live(page)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    for topic in (*TOPICS, CLOCK):
        page.evaluate(NOTIFY, [topic, [queue]])
    assert requests == []


def test_a_refresh_that_is_under_way_leaves_a_field_alone(screen: Screen, dashboard: Served, queue: str) -> None:
    page = screen.open(f"/messages?q=queue:{queue}")
    is_live(page)
    held: list[Route] = []
    page.route("**/messages?**", lambda route: held.append(route))
    with page.expect_request(lambda request: "x-tarry-refresh" in request.headers):
        dashboard.app.queue(queue).offer("new", 1)
    box, options = page.get_by_label("Search with qualifiers"), page.locator("#query-options option")
    box.fill(f"queue:{queue} sta")
    expect(options).to_have_count(1)
    with page.expect_response("**/messages?**") as response:
        held[0].continue_()
    response.value.finished()
    page.evaluate("new Promise((done) => setTimeout(done, 50))")  # it would be shown now
    expect(options).to_have_count(1)
    page.unroute("**/messages?**")
    page.get_by_role("heading", name="Messages").click()  # leaves the field: the refresh is repeated
    expect(page.get_by_role("link", name="new", exact=True)).to_be_visible()


def test_without_web_locks_each_tab_has_a_stream(screen: Screen, queue: str) -> None:
    context = screen.context()
    context.add_init_script("Object.defineProperty(navigator, 'locks', {value: undefined})")
    streams: list[str] = []
    context.on("request", lambda request: streams.append(request.url) if request.url.endswith("/live") else None)
    for _ in range(2):
        is_live(screen.open(f"/queues/{queue}", context))
    assert len(streams) == 2


HIDE = """(hidden) => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_a_hidden_page_gives_its_stream_back_after_half_a_minute(screen: Screen, queue: str) -> None:
    page = screen.open(f"/queues/{queue}")
    is_live(page)
    page.clock.install()
    ended: list[str] = []
    page.on("requestfailed", lambda request: ended.append(request.url))
    page.evaluate(HIDE, True)
    page.clock.fast_forward("00:20")
    assert ended == []
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/live")):
        page.clock.fast_forward("00:11")
    with page.expect_request("**/live"):
        page.evaluate(HIDE, False)


def test_changes_of_state_are_announced_at_most_twice_a_minute(screen: Screen, queue: str) -> None:
    page = screen.open(f"/queues/{queue}")
    is_live(page)
    page.clock.install()
    spoken = page.locator("#announce")
    page.clock.fast_forward("00:31")
    for _ in range(3):
        page.keyboard.press("p")
        expect(spoken).to_have_text("Live updates: Paused")
    page.clock.fast_forward("00:31")
    page.keyboard.press("p")
    expect(spoken).to_have_text("Live updates: Live")


@pytest.fixture
def restartable(server: Server, loop: Loop) -> Iterator[Served]:
    made = served(server, loop)
    yield made
    made.closing.close()


def test_a_page_survives_a_restart_of_the_server_and_misses_nothing(browser: Any, restartable: Served) -> None:
    """What happened while the server was away is shown as soon as it is back, and so is what happens at that moment."""
    queue = restartable.app.queue("orders")
    queue.offer("before", 1)
    screen = Screen(browser, restartable.url)
    page = screen.open("/queues/orders")
    page.clock.install()
    chip, value = page.locator("[data-live-text]"), page.locator(".tile", has_text="Ready").locator(".value")
    is_live(page)
    page.evaluate("window.sameDocument = true")
    restartable.stop()
    expect(chip).to_have_text(re.compile(r"^Reconnecting [1-5] s$"))
    page.clock.fast_forward("00:15")
    expect(chip).to_contain_text("Offline since")
    queue.offer("during", 1)
    restartable.start(BrokerSettings(anonymous=True), DashboardSettings(environment="test"))
    expect(chip).to_have_text("Live")
    for number in range(5):
        queue.offer(f"after-{number}", 1)
    expect(value).to_have_text("7")
    assert page.evaluate("window.sameDocument"), "the page was loaded again"
    screen.close()
    assert [error for error in screen.errors if "ERR_CONNECTION" not in error and "INCOMPLETE" not in error] == []


def test_a_page_fetches_itself_when_its_stream_is_back(screen: Screen, queue: str) -> None:
    """Without a word of the server: events of that time are not repeated."""
    context = screen.context()
    context.route("**/live", lambda route: route.fulfill(content_type="text/event-stream", body=":\n\n"))
    page = context.new_page()
    with page.expect_request(lambda request: "x-tarry-refresh" in request.headers):
        page.goto(f"{screen.url}/queues/{queue}")


def test_a_stream_begins_with_all_topics_and_then_names_those_of_events(restartable: Served) -> None:
    """Between the answer of a page and the subscription, events may happen that nothing else reports."""
    restartable.app.queues.create("orders")
    orders = restartable.app.queue("orders")
    with httpx.stream("GET", f"{restartable.url}/live", timeout=20) as response:
        notified = (json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: {"))
        first = next(message for message in notified if message["topics"] != [CLOCK])
        assert (set(first["topics"]) - {CLOCK}, first["queues"]) == (TOPICS, [])
        orders.offer("poisoned", 1)
        assert orders.try_poll().bury("no such order") is Settled.DONE
        topics = set[str]()
        while "dead" not in topics:
            message = next(message for message in notified if message["topics"] != [CLOCK])
            assert message["queues"] == ["orders"]
            topics.update(message["topics"])
    assert topics - {CLOCK} == {"messages", "consumers", "dead"}
