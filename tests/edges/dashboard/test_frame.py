"""The frame of every page: it is accessible, keeps to its policy, and works without scripts."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tarry.core.cron.model import ScheduleSpec
from tarry.core.cron.schedule_types import Cron
from tarry.core.search.bulk import Verb
from tarry.core.workers.model import WorkerReport
from tarry.edges.dashboard import screens
from tarry.wire.ids import MessageId
from tests.edges.dashboard.conftest import Screen, Served, accessible, served, violations
from tests.edges.dashboard.dead_letters import bury
from tests.kit.blocking import Loop
from tests.kit.servers import Server

PAGES = sorted(part.screen.path for part in screens.PARTS)


@pytest.fixture(scope="module", autouse=True)
def traffic(dashboard: Served) -> None:
    """Some of everything, so that no page is empty."""
    app = dashboard.app
    for name in ("orders", "mails"):
        queue = app.queue(name)
        queue.offer("due", {"n": 1})
        queue.offer("later", {"n": 2}, after=timedelta(minutes=30))
        queue.offer("dead", {"n": 3})
        delivery = queue.poll(timedelta(0))
        assert delivery is not None
        delivery.bury("ValueError: <b>bold</b>")
    store = app.store
    store.run(store.search.start_bulk(Verb.DELIVER, "queue:mails", ["mails"], started_by="tester"))
    app.schedules.put(ScheduleSpec(name="daily", schedule=Cron("0 9 * * *", "UTC"), queue="mails", payload=b"1"))


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_accessible(screen: Screen, bare: Page, path: str) -> None:
    assert accessible(screen, bare, path) == []


def test_pages_below_the_screens_are_accessible(screen: Screen, bare: Page, dashboard: Served) -> None:
    names = {row["name"] for row in screen.get("/consumers.json").json()["consumers"]}
    since, until = "2030-01-01T00:00", "2030-01-03T00:00"
    for path in (
        "/queues/orders",
        "/queues/orders/next",
        "/queues/orders/settings?lease_for=45s",
        "/messages/jobs",
        "/messages/jobs/1",
        f"/consumers/{names.pop()}",
        f"/calendar?at={datetime.now(UTC):%Y-%m-%dT%H:00:00Z}",
        f"/calendar?at={datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:00:00Z}",
        "/schedules/daily/ticks",
        f"/schedules/daily/backfill?since={since}&until={until}",
        "/sign-in",
        "/nothing/here",
    ):
        assert accessible(screen, bare, path) == [], path
    screen.errors[:] = [error for error in screen.errors if "404" not in error]  # the browser reports the status


def test_a_navigation_makes_two_requests_at_most(screen: Screen) -> None:
    """The page and the stream: scripts and styles are in the browser's cache after the first visit. Later refreshes of a page
    that has changed do not count."""
    page = screen.open("/")
    paths = ("/queues", "/queues/orders", "/messages", "/dead", "/calendar", "/consumers", "/system", "/")
    for path in paths:
        page.goto(f"{screen.url}{path}")
    live = expect(page.locator("[data-live]"))
    live.to_have_attribute("data-state", "live")  # the request of this page's stream must not count for the next one
    network, fetched, cached = page.context.new_cdp_session(page), dict[str, str](), set[str]()

    def note(sent: Any) -> None:
        if "x-tarry-refresh" not in sent["request"]["headers"]:
            fetched[sent["requestId"]] = sent["request"]["url"]

    network.on("Network.requestWillBeSent", note)
    network.on("Network.requestServedFromCache", lambda served: cached.add(served["requestId"]))
    network.on(
        "Network.responseReceived",
        lambda received: cached.update([received["requestId"]] if received["response"].get("fromDiskCache") else []),
    )
    network.send("Network.enable")
    for path in paths:
        fetched.clear()
        page.goto(f"{screen.url}{path}")
        live.to_have_attribute("data-state", "live")
        urls = [url for id, url in fetched.items() if id not in cached and not url.startswith("data:")]
        assert len(urls) <= 2, f"{path}: {urls}"


def test_every_page_has_landmarks_and_a_title_and_is_readable_without_scripts(screen: Screen) -> None:
    page = screen.open("/", screen.context(java_script_enabled=False))
    for path in PAGES:
        page.goto(f"{screen.url}{path}")
        expect(page.locator("main h1")).to_be_visible()
        expect(page.locator("main h1")).to_have_count(1)
        expect(page.get_by_role("banner")).to_be_visible()
        expect(page.get_by_role("link", name="Skip to content")).to_have_attribute("href", "#main")


def test_the_navigation_counts_dead_letters(screen: Screen) -> None:
    page = screen.open("/queues")
    count = page.get_by_role("navigation", name="Screens").locator(".count")
    expect(count.or_(page.locator("[data-live][data-state=live]")).first).to_be_visible()  # read in the background
    page.reload()
    expect(count).to_have_text("2")


def test_the_content_security_policy_allows_only_what_is_ours(screen: Screen) -> None:
    response = screen.get("/")
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    assert response.headers["x-content-type-options"] == "nosniff"


def test_help_opens_with_the_keyboard_and_lists_every_screen(screen: Screen) -> None:
    page = screen.open("/")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard")
    expect(dialog).to_be_visible()
    for part in screens.PARTS:
        expect(dialog.get_by_text(part.screen.title, exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()


def test_the_help_is_accessible_in_both_themes(screen: Screen, bare: Page) -> None:
    bare.goto(f"{screen.url}/")
    bare.keyboard.press("?")
    expect(bare.get_by_role("dialog", name="Keyboard")).to_be_visible()
    bare.emulate_media(color_scheme="light")
    light = violations(bare)
    bare.emulate_media(color_scheme="dark")
    assert (light, violations(bare)) == ([], [])


def test_two_keys_lead_to_a_screen_and_one_to_the_search(screen: Screen) -> None:
    page = screen.open("/")
    page.keyboard.press("g")
    page.keyboard.press("q")
    expect(page).to_have_url(re.compile("/queues$"))
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox")).to_be_focused()


def test_single_keys_are_turned_off_in_this_browser(screen: Screen) -> None:
    page = screen.open("/")
    page.keyboard.press("?")
    page.get_by_label("Turn single keys off").check()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_hidden()
    page.reload()
    page.get_by_role("button", name="Keyboard shortcuts").click()
    page.get_by_label("Turn single keys off").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()


def test_the_palette_leads_to_queues_and_screens_and_does_what_the_page_can(screen: Screen) -> None:
    page = screen.open("/queues/orders")
    page.locator("#search").focus()
    page.keyboard.press("Control+k")  # also from a field
    palette = page.get_by_role("dialog", name="Go to, or do")
    expect(palette.get_by_role("combobox")).to_be_focused()
    page.keyboard.type("pau")
    expect(palette.get_by_role("option").first).to_contain_text("Pause")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Pause orders")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.keyboard.type("or")  # a part of several: what begins with it comes first
    expect(palette.get_by_role("option").first).to_have_text(re.compile("^orders"))
    palette.get_by_role("combobox").fill("dail")
    option = palette.get_by_role("option", name="daily schedule")
    expect(option).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowDown")
    expect(palette.get_by_role("option", name="Search messages for dail")).to_have_attribute("aria-selected", "true")
    option.click()
    expect(page).to_have_url(re.compile("/schedules/daily$"))
    assert screen.get("/search.json", params={"q": "OR"}).json()["matches"] == [
        {"kind": "queue", "name": "orders", "path": "/queues/orders"}
    ]


def test_the_palette_is_accessible(screen: Screen, bare: Page) -> None:
    bare.goto(f"{screen.url}/messages")
    bare.keyboard.press("Control+k")
    expect(bare.get_by_role("option").first).to_be_visible()
    assert violations(bare) == []


def test_the_menu_of_a_row_acts_on_this_row_alone(screen: Screen) -> None:
    page = screen.open("/messages?q=queue%3Aorders")
    page.locator("[data-select]").nth(1).check()
    page.keyboard.press(".")  # there is no current row
    expect(page.locator("#palette")).to_be_hidden()
    page.keyboard.press("j")
    key = page.locator("tr[data-current] code").text_content()
    page.keyboard.press(".")
    menu = page.get_by_role("dialog", name=f"Row: {key}")
    expect(menu.get_by_role("option")).to_have_text(
        [
            re.compile(f"Open {key}"),
            re.compile("Open orders"),
            re.compile("Select the row"),
            re.compile("Change"),
            re.compile("Copy"),
        ]
    )
    page.keyboard.type("change")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Change messages")).to_contain_text("The selected rows: 1")
    expect(page.locator("tr[data-current] [data-select]")).to_be_checked()


def test_the_chosen_theme_is_in_the_next_page_from_its_first_byte(screen: Screen) -> None:
    context = screen.context(theme="light")
    page = screen.open("/", context)
    page.get_by_role("button", name="Light or dark").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert 'data-theme="dark"' in context.request.get(f"{screen.url}/queues").text()


def test_the_time_range_is_in_the_address_and_stays_on_the_way(screen: Screen) -> None:
    page = screen.open("/")
    page.get_by_role("link", name="15m", exact=True).click()
    expect(page).to_have_url(re.compile("range=15m"))
    page.get_by_role("navigation", name="Screens").get_by_role("link", name="Queues").click()
    expect(page).to_have_url(re.compile(r"/queues\?range=15m"))


def test_a_time_range_is_dragged_over_a_chart_or_written(screen: Screen) -> None:
    page = screen.open("/")
    chart = page.locator("#chart-rate canvas")
    expect(chart).to_be_visible()
    box = chart.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.4, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, y, steps=4)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"range=\d{4}-\d\d-\d\dT\d\d%3A\d\dZ%2F"))
    expect(page.locator(".chart figcaption").first).to_contain_text(re.compile(r"\d\d:\d\d UTC: \d+ offered"))
    page.get_by_label("Another time range").click()
    page.get_by_role("textbox", name="Time range").fill("3h")
    page.get_by_role("button", name="Show").click()
    expect(page).to_have_url(re.compile(r"range=3h$"))
    expect(page.locator(".chart figcaption").first).to_contain_text("Last 3h:")


def test_times_are_relative_or_exact_and_a_wrong_clock_is_named(screen: Screen) -> None:
    context = screen.context(timezone_id="Asia/Kolkata")
    context.add_init_script("const now = Date.now; Date.now = () => now() + 90_000")
    page = screen.open("/queues/orders/next", context)
    expect(page.locator("[data-skew]")).to_have_text("Clock 1m30s ahead")
    time = page.locator("time[data-when]").first
    expect(time).to_contain_text(re.compile("ago|in "))
    page.keyboard.press("a")
    expect(time).to_have_text(re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$"))
    page.keyboard.press("z")
    expect(time).to_have_text(re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d GMT\+5:30$"))
    page.keyboard.press("z")
    time.click()
    expect(time).to_contain_text(re.compile("ago|in "))
    expect(screen.open("/queues").locator("[data-skew]")).to_be_hidden()


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("orders", "/queues/orders"),
        ("daily", "/schedules/daily"),
        ("ORD", "/queues?q=ORD"),
        (str(MessageId("orders", "later")), "/queues/orders/messages/later"),
        (str(MessageId("no-queue", "later")), f"/messages?q={MessageId('no-queue', 'later')}"),
        ("later", "/messages?q=later"),
        ("state:ready", "/messages?q=state%3Aready"),
    ],
)
def test_the_search_box_finds_queues_schedules_and_messages(screen: Screen, text: str, path: str) -> None:
    response = screen.get("/search", params={"q": text})
    assert (response.status, response.url) == (200, f"{screen.url}{path}")


def test_a_page_is_saved_as_a_view_of_this_browser(screen: Screen) -> None:
    page = screen.open("/messages?q=queue%3Aorders+state%3Aready&range=6h")
    page.get_by_role("button", name="Add this page").click()
    page.get_by_label("Name", exact=True).fill("<b>late</b> orders")
    page.get_by_role("dialog").get_by_role("button", name="Add", exact=True).click()
    page.get_by_role("button", name="Add this page").click()
    page.get_by_label("Name", exact=True).fill("not this one")
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    expect(page.locator(".views li")).to_have_count(1)
    page.goto(f"{screen.url}/system")
    page.get_by_role("link", name="<b>late</b> orders", exact=True).click()
    expect(page).to_have_url(re.compile(r"/messages\?q=queue%3Aorders\+state%3Aready&range=6h$"))
    page.get_by_role("button", name="Forget the view").click()
    expect(page.locator(".views li")).to_have_count(0)
    page.reload()
    expect(page.locator(".views li")).to_have_count(0)


def test_views_are_for_the_key_that_saved_them(browser: Any, server: Server, loop: Loop) -> None:
    made = served(server, loop, keyless=False)
    keys = {name: made.app.keys.create(name, ["read"]).text for name in ("ana", "ben")}
    screen = Screen(browser, made.url)
    context = screen.context()

    def signed_in(name: str) -> Page:
        page = context.new_page()
        page.goto(f"{made.url}/sign-in?to=/messages")
        page.get_by_label("key").fill(keys[name])
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("button", name="Add this page")).to_be_visible()
        return page

    page = signed_in("ana")
    page.get_by_role("button", name="Add this page").click()
    page.get_by_label("Name", exact=True).fill("of ana")
    page.get_by_role("dialog").get_by_role("button", name="Add", exact=True).click()
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(re.compile("/sign-in$"))
    expect(signed_in("ben").locator("[data-views] li")).to_have_count(0)
    expect(signed_in("ana").locator("[data-views] li")).to_have_text(re.compile("of ana"))
    screen.close()
    made.closing.close()


def test_an_unknown_page_is_a_problem_with_a_way_back(screen: Screen) -> None:
    response = screen.get("/nothing/here")
    assert response.status == 404
    assert "there is no such page" in response.text()


def test_a_worker_with_a_wrong_clock_is_named_on_every_page(browser: Any, server: Server, loop: Loop) -> None:
    made = served(server, loop)
    now, store = datetime.now(UTC), made.app.store
    about: dict[str, Any] = {"consumer": "billing", "pid": 1, "version": "1", "queues": ("orders",), "concurrency": 1}
    for host, skew in (("host-a", 90), ("host-b", 0)):
        at = now + timedelta(seconds=skew)
        store.run(store.workers.report(WorkerReport(**about, id=host, host=host, at=at, extensions=0, release=None)))
    screen = Screen(browser, made.url)
    page = screen.open("/queues")
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "live")  # it was read in the background
    page.reload()
    expect(page.get_by_role("banner").get_by_role("link", name=re.compile("^Clock of"))).to_have_text("Clock of host-a")
    screen.close()
    made.closing.close()
    assert screen.errors == []


def test_a_demonstration_lists_first_steps_and_ticks_them(browser: Any, server: Server, loop: Loop) -> None:
    made = served(server, loop, environment="demo")
    made.app.queues.create("orders")
    screen = Screen(browser, made.url)
    bury(made.app, "failing", 1, "ValueError: 1")
    hint = screen.open("/dead").locator("#canary-hint").get_by_role("link", name="redrive a group")
    expect(hint).to_have_attribute("href", re.compile("/queues/failing/dead/groups/[0-9a-f]{12}$"))
    page = screen.open("/queues/orders")
    steps = page.locator("[data-steps]")
    expect(steps.get_by_role("link")).to_have_count(5)
    page.get_by_role("button", name="Offer a message").click()
    page.get_by_role("dialog").get_by_role("button", name="Offer", exact=True).dblclick()
    expect(page.locator(".notice")).to_contain_text("was offered")
    assert made.app.queues.counts("orders").ready.n == 1, "a double click offered twice"
    expect(page.locator("#why-title")).to_be_visible()  # its own page
    expect(steps.get_by_role("link", name=re.compile("done$"))).to_have_text(
        ["Offer a message, done", "Watch its timeline, done"]
    )
    steps.get_by_role("button", name="Hide").click()
    page.reload()
    expect(page.locator("[data-views]")).to_be_visible()
    expect(steps).to_be_hidden()
    screen.close()
    made.closing.close()
    assert screen.errors == []
