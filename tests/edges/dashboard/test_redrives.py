"""Redrives in the browser: the wizard, the page of a job with its controls, live progress, and permissions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tarry.core.settings import SweeperSettings
from tests.edges.dashboard.conftest import Screen, Served, accessible, served
from tests.edges.dashboard.dead_letters import bury
from tests.kit.blocking import Loop
from tests.kit.servers import Server

SWEEPING = SweeperSettings(every=timedelta(milliseconds=100))
SLOW_MS = 60_000
"""Ten thousand messages on a busy machine."""


@pytest.fixture(scope="module", autouse=True)
def sweeper(dashboard: Served) -> Iterator[None]:
    sweeper = dashboard.app.sweeper(SWEEPING)
    dashboard.loop.run(sweeper.__aenter__())
    yield
    dashboard.loop.run(sweeper.__aexit__(None, None, None))


def job_of(page: Page) -> int:
    expect(page).to_have_url(re.compile(r"/redrives/\d+$"))
    return int(page.url.rsplit("/", 1)[1])


def ended(dashboard: Served, page: Page) -> Any:
    expect(page.locator(".page-head .state")).to_have_text(re.compile("done|cancelled"), timeout=SLOW_MS)
    return dashboard.app.redrives.get(job_of(page)).job


def test_the_wizard_leads_from_a_group_to_a_job_whose_canaries_decide(screen: Screen, dashboard: Served) -> None:
    app = dashboard.app
    bury(app, "hooks", 30, "ConnectionError: refused")
    bury(app, "hooks", 5, "KeyError: 'id'", first=30)
    page = screen.open("/dead?queue=hooks")
    page.get_by_role("row", name="ConnectionError").get_by_role("link", name="Redrive…").click()
    plan = page.locator("#plan")
    expect(plan).to_contain_text("30 dead letters")
    expect(plan).to_contain_text("5 canaries")
    page.get_by_label("Canaries first").fill("2")
    page.get_by_label("Messages per second").fill("100")
    expect(plan).to_contain_text("2 canaries")  # without a click
    expect(plan).to_contain_text("100/s")
    page.get_by_role("button", name="Start: redrive 30").click()
    expect(page.locator("main")).to_contain_text("job")
    expect(page.locator(".page-head .state")).to_have_text("waiting for canaries")
    assert app.redrives.get(job_of(page)).job.redriven == 2
    hooks = app.queue("hooks")
    for _ in range(2):
        delivery = hooks.poll(timedelta(seconds=10))
        delivery.ack()
    job = ended(dashboard, page)
    assert (job.state.value, job.redriven, job.canary, job.rate) == ("done", 30, 2, 100.0)
    expect(page.locator(".tile").filter(has_text="Succeeded")).to_contain_text("2")
    assert hooks.dead_letters.count().letters.n == 5


def test_a_canary_that_dies_again_pauses_the_job_and_its_page_shows_the_error(
    screen: Screen, dashboard: Served
) -> None:
    app = dashboard.app
    bury(app, "broken", 10, "ConnectionError: refused")
    page = screen.open("/queues/broken/dead/redrive?canary=1&rate=")
    page.get_by_role("button", name="Start: redrive 10").click()
    expect(page.locator(".page-head .state")).to_have_text("waiting for canaries")
    app.queue("broken").poll(timedelta(seconds=10)).bury("<b>still</b> refused")
    expect(page.locator(".refusal")).to_contain_text("1 of 1 canaries died again", timeout=SLOW_MS)
    expect(page.locator(".refusal")).to_contain_text("<b>still</b> refused")
    expect(page.locator(".tile").filter(has_text="Died again")).to_contain_text("1")
    page.get_by_role("button", name="Resume").click()
    assert ended(dashboard, page).state.value == "done"


def test_a_selection_is_redriven_and_nothing_else(screen: Screen, dashboard: Served) -> None:
    bury(dashboard.app, "some", 5, "x")
    page = screen.open("/queues/some/dead")
    page.get_by_label("Select some-00001").check()
    page.get_by_label("Select some-00003").check()
    page.get_by_role("button", name="Redrive selected…").click()
    expect(page.locator("#plan")).to_contain_text("2 dead letters")
    page.get_by_label("Canaries first").fill("0")
    expect(page.locator("#plan")).not_to_contain_text("canar")
    page.get_by_role("button", name="Start: redrive 2").click()
    ended(dashboard, page)
    left = {letter.key for letter in dashboard.app.queue("some").dead_letters.list()}
    assert left == {"some-00000", "some-00002", "some-00004"}


def test_a_plan_that_changes_under_a_pressed_button_does_not_lose_the_click(screen: Screen, dashboard: Served) -> None:
    bury(dashboard.app, "pressed", 3, "x")
    page = screen.open("/queues/pressed/dead/redrive?canary=0&rate=")
    page.get_by_role("button", name="Start: redrive 3").hover()
    page.mouse.down()
    page.get_by_label("Messages per second").evaluate(
        "field => { field.value = '70'; field.dispatchEvent(new Event('input', { bubbles: true })) }"
    )
    expect(page.locator("#plan")).to_contain_text("70/s")
    page.mouse.up()
    assert ended(dashboard, page).rate == 70.0


def test_to_another_queue_and_back_what_was_not_delivered(screen: Screen, dashboard: Served) -> None:
    app = dashboard.app
    bury(app, "broken-hooks", 3, "ConnectionError: refused")
    app.queues.create("repaired")
    page = screen.open("/queues/broken-hooks/dead/redrive?canary=0&rate=")
    page.get_by_label("Queue", exact=True).fill("no-such-queue")
    page.get_by_role("button", name="Update the plan").click()
    expect(page.locator(".problem")).to_contain_text("no-such-queue")
    screen.errors.clear()  # the browser logs the status 404
    page.goto(f"{screen.url}/queues/broken-hooks/dead/redrive?canary=0&rate=&target=repaired")
    expect(page.locator("#plan")).to_contain_text("to repaired")
    page.locator("#plan .copy-as summary").click()
    expect(page.locator("#plan .copy-as")).to_contain_text("--target repaired")
    page.locator("#plan .copy-as summary").click()
    page.get_by_role("button", name="Start: redrive 3").click()
    assert ended(dashboard, page).target == "repaired"
    app.queue("repaired").poll(timedelta(seconds=10)).ack()
    page.reload()
    page.get_by_role("button", name="Undo").click()
    page.get_by_role("button", name="Bury them again").click()
    expect(page.locator(".notice")).to_contain_text("2 undelivered messages are dead again")
    letters = list(app.queue("repaired").dead_letters.list())
    assert {letter.error for letter in letters} == {f"redrive job {job_of(page)} was undone"}
    assert not list(app.queue("broken-hooks").dead_letters.list())


def test_attempts_spread_and_the_share_that_stops_are_those_of_the_form(screen: Screen, dashboard: Served) -> None:
    bury(dashboard.app, "chosen", 3, "x")
    page = screen.open("/queues/chosen/dead/redrive?canary=0&rate=")
    page.get_by_label("Attempts").fill("2")
    page.get_by_label("Stop above, percent").fill("35")
    page.get_by_label("Spread over").fill("30s")
    page.get_by_label("Begin after").fill("10m")
    for text in ("Wait for 10m", "each due within 30s", "Each has 2 attempts", "Pause if more than 35 %"):
        expect(page.locator("#plan")).to_contain_text(text)
    page.get_by_role("button", name="Start: redrive 3").click()
    job = dashboard.app.redrives.get(job_of(page)).job
    assert (job.max_attempts, job.stop_above, job.jitter) == (2, 0.35, timedelta(seconds=30))
    expect(page.locator(".job")).to_contain_text(re.compile("It begins in (9m|10m)"))
    job = dashboard.app.redrives.get(job.id)
    job.cancel()


def test_the_same_form_sent_twice_starts_one_job(screen: Screen, dashboard: Served) -> None:
    bury(dashboard.app, "twice", 3, "x")
    context = screen.context()
    page = screen.open("/queues/twice/dead/redrive", context)
    fields = page.locator("#plan form input").all()
    form: dict[str, str | float | bool] = {
        field.get_attribute("name") or "": field.get_attribute("value") or "" for field in fields
    }
    url = f"{screen.url}/queues/twice/dead/redrive"
    locations = [context.request.post(url, form=form, max_redirects=0).headers["location"] for _ in range(2)]
    assert locations[0] == locations[1]
    assert len(dashboard.app.redrives.list("twice")) == 1


def test_without_scripts_the_wizard_works_too(screen: Screen, dashboard: Served) -> None:
    bury(dashboard.app, "plain", 4, "x")
    page = screen.open("/queues/plain/dead/redrive", screen.context(java_script_enabled=False))
    page.get_by_label("Canaries first").fill("0")
    page.get_by_role("button", name="Update the plan").click()
    expect(page).to_have_url(re.compile("canary=0"))
    page.get_by_role("button", name="Start: redrive 4").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Redrive job")


def test_ten_thousand_are_redriven_at_a_rate_paused_resumed_and_cancelled(screen: Screen, dashboard: Served) -> None:
    app = dashboard.app
    bury(app, "bulk", 10_000, "TimeoutError: after 3 s")
    page = screen.open("/queues/bulk/dead")
    page.get_by_role("link", name="Redrive all 10,000…").click()
    page.get_by_label("Canaries first").fill("0")
    page.get_by_label("Messages per second").fill("100")
    expect(page.locator("#plan")).to_contain_text("at 100/s: about 1m40s")
    page.get_by_role("button", name="Start: redrive 10,000").click()
    number = job_of(page)
    big = page.locator(".job .big")
    first = big.inner_text()
    expect(big).not_to_have_text(first)  # live, without a reload
    expect(page.locator(".tile").filter(has_text="Time left")).to_contain_text(re.compile(r"\d+s"))
    page.get_by_role("button", name="Pause").click()
    dialog = page.get_by_role("dialog", name=f"Pause job {number}")
    dialog.get_by_label("Reason").fill("the <i>database</i> is busy")
    dialog.get_by_role("button", name="Pause").click()
    expect(page.locator(".page-head .state")).to_have_text("paused")
    expect(page.locator(".refusal")).to_have_text("the <i>database</i> is busy")
    paused = app.redrives.get(number).job
    assert 0 < paused.redriven < 10_000
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".page-head .state")).to_have_text("running")
    expect(big).not_to_contain_text(f"{paused.redriven:,} of")
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the job").click()
    expect(page.locator(".page-head .state")).to_have_text("cancelled")
    job = app.redrives.get(number).job
    assert paused.redriven < job.redriven < 10_000
    assert app.queue("bulk").dead_letters.count().letters.n == 10_000 - job.redriven
    seconds = (job.ended_at - job.created_at).total_seconds()
    assert job.redriven <= 100 * seconds + 100  # the rate was kept
    expect(page.locator("main")).to_contain_text(f"{10_000 - job.redriven:,} stay dead")


def test_many_steps_without_a_rate_reach_the_end(screen: Screen, dashboard: Served) -> None:
    bury(dashboard.app, "fast", 2_000, "x")
    page = screen.open("/queues/fast/dead/redrive?canary=0&rate=")
    expect(page.locator("#plan")).to_contain_text("as fast as possible")
    page.get_by_role("button", name="Start: redrive 2,000").click()
    job = ended(dashboard, page)
    assert (job.state.value, job.redriven) == ("done", 2_000)
    expect(page.locator(".tile").filter(has_text="Open")).to_contain_text("2,000")


def test_jobs_are_listed_also_as_json_and_csv(screen: Screen, dashboard: Served) -> None:
    bury(dashboard.app, "listed", 1, "x")
    job = dashboard.app.queue("listed").dead_letters.start_redrive()
    page = screen.open("/redrives")
    expect(page.locator(f"#job-{job.id}")).to_contain_text("listed")
    request = screen.context().request
    assert any(row["id"] == job.id for row in request.get(f"{screen.url}/redrives.json").json()["redrives"])
    assert request.get(f"{screen.url}/redrives.csv").text().startswith("id,queue,state")


def test_pages_of_redrives_are_accessible(screen: Screen, bare: Page, dashboard: Served) -> None:
    bury(dashboard.app, "seen", 3, "x")
    job = dashboard.app.queue("seen").dead_letters.start_redrive(canary=1)
    for path in ("/redrives?limit=5", f"/redrives/{job.id}", "/queues/seen/dead/redrive"):
        assert accessible(screen, bare, path) == [], path
    job.cancel()


ROLES = {
    "viewer": (["read"], ["*"]),
    "operator": (["read", "produce", "consume"], ["*"]),
    "admin": (["read", "produce", "consume", "admin"], ["*"]),
    "admin of another queue": (["read", "admin"], ["other"]),
}


@pytest.fixture(scope="module")
def guarded(server: Server, loop: Loop) -> Iterator[Served]:
    made = served(server, loop, keyless=False)
    bury(made.app, "orders", 4, "x")
    bury(made.app, "other", 1, "x")
    yield made
    made.closing.close()


@pytest.fixture(scope="module")
def keys(guarded: Served) -> dict[str, str]:
    return {
        name: guarded.app.keys.create(name.replace(" ", "-"), actions, queues=queues).text
        for name, (actions, queues) in ROLES.items()
    }


class TestPermissions:
    @pytest.mark.parametrize("role", ROLES)
    def test_only_an_administrator_of_the_queue_may_act_on_its_dead_letters(
        self, browser: Browser, guarded: Served, keys: dict[str, str], role: str
    ) -> None:
        job = guarded.app.queue("orders").dead_letters.start_redrive(rate=0.001, versions=[1])
        request = Screen(browser, guarded.url).context().request
        headers = {"authorization": f"Bearer {keys[role]}"}
        posts = {
            "/queues/orders/dead/redrive": {"request": "0d6e9f4e-7b34-4f0a-9d37-6f7f3f8a3f6b", "fingerprint": "0" * 12},
            "/queues/orders/dead/discard": {"confirm": "orders", "fingerprint": "0" * 12},
            f"/redrives/{job.id}/pause": {},
            f"/redrives/{job.id}/resume": {},
            f"/redrives/{job.id}/cancel": {},
        }
        allowed = role == "admin"
        for path, form in posts.items():
            response = request.post(f"{guarded.url}{path}", form=form, headers=headers, max_redirects=0)
            assert response.status == (303 if allowed else 403), (path, response.text())
        state = guarded.app.redrives.get(job.id).job.state.value
        assert state == ("cancelled" if allowed else "running")
        for path in ("/queues/orders/dead/redrive", "/queues/orders/dead/discard"):
            assert request.get(f"{guarded.url}{path}", headers=headers).status == (200 if allowed else 403)
        reads = 403 if role == "admin of another queue" else 200
        for path in ("/queues/orders/dead", f"/redrives/{job.id}"):
            assert request.get(f"{guarded.url}{path}", headers=headers).status == reads, path

    def test_pages_over_all_queues_leave_out_what_a_key_may_not_read(
        self, browser: Browser, guarded: Served, keys: dict[str, str]
    ) -> None:
        request = Screen(browser, guarded.url).context().request
        headers = {"authorization": f"Bearer {keys['admin of another queue']}"}
        groups = request.get(f"{guarded.url}/dead.json", headers=headers).json()["groups"]
        assert {group["queue"] for group in groups} == {"other"}
        guarded.app.queue("orders").dead_letters.start_redrive(rate=0.001, versions=[1])
        jobs = request.get(f"{guarded.url}/redrives.json", headers=headers).json()["redrives"]
        assert jobs == []
        assert request.get(f"{guarded.url}/redrives?queue=orders", headers=headers).status == 403

    def test_a_viewer_is_offered_no_action(self, browser: Browser, guarded: Served, keys: dict[str, str]) -> None:
        screen = Screen(browser, guarded.url)
        context = screen.context(extra_http_headers={"authorization": f"Bearer {keys['viewer']}"})
        page = screen.open("/queues/orders/dead", context)
        expect(page.locator("#dead-table tbody tr")).to_have_count(4)
        expect(page.get_by_role("button", name=re.compile("Redrive|Discard"))).to_have_count(0)
        expect(page.get_by_role("link", name=re.compile("Redrive all|Discard all"))).to_have_count(0)
        screen.close()

    def test_a_form_of_another_site_is_refused(self, browser: Browser, dashboard: Served) -> None:
        bury(dashboard.app, "guarded", 1, "x")
        request = Screen(browser, dashboard.url).context().request
        url = f"{dashboard.url}/queues/guarded/dead/discard"
        response = request.post(url, form={"confirm": "guarded"}, max_redirects=0)
        assert response.status == 403
        assert dashboard.app.queue("guarded").dead_letters.count().letters.n == 1
