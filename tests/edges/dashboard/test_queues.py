"""The overview's verdict, and the page of a queue: charts, what comes next, settings and their preview."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from playwright.sync_api import expect

from tarry import QueueSettings, Retry
from tests.edges.dashboard.conftest import Screen, Served
from tests.edges.dashboard.dead_letters import bury


@pytest.fixture(scope="module", autouse=True)
def problems(dashboard: Served) -> None:
    app = dashboard.app
    app.queues.create("rested")
    app.queues.pause("rested", reason="deploy")
    app.queues.resume("rested")
    app.queue("alone").offer("waits", 1)
    bury(app, "broken", 9, "TimeoutError: after 3 s")
    bury(app, "broken", 1, "KeyError: 'id'", first=9)
    bury(app, "mixed", 1, "ValueError: 1")
    bury(app, "mixed", 1, "KeyError: 'id'", first=1)
    bury(app, "mixed", 1, "TypeError: x", first=2)


def test_each_problem_of_the_verdict_leads_to_its_cause(screen: Screen) -> None:
    page = screen.open("/")
    verdict = page.get_by_role("region", name="Verdict")
    page.keyboard.press("p")  # a refresh would replace a link that is pressed
    problems, critical = verdict.get_by_role("link"), verdict.get_by_role("link", name="has no consumers")
    assert problems.count() >= 3  # the other tests have queues too
    expect(verdict.get_by_role("heading")).to_have_text(f"{problems.count()} problems, {critical.count()} critical")
    expect(verdict.get_by_role("link", name="mixed has 3 new")).to_have_attribute(
        "href", re.compile(r"/dead\?queue=mixed$")
    )
    verdict.get_by_role("link", name=re.compile("^alone has no consumers; 1 ready")).click()
    expect(page).to_have_url(re.compile(r"/consumers\?queue=alone$"))
    page.go_back()
    verdict.get_by_role("link", name="broken has 10 new dead letters in the last 15m, 90% with one error").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("TimeoutError: after <n> s")


def test_the_page_of_a_queue_has_its_problems_retries_and_last_messages(screen: Screen, dashboard: Served) -> None:
    app = dashboard.app
    app.queues.create("curve", QueueSettings(max_attempts=4, retry=Retry.exponential(timedelta(seconds=1), jitter=0.0)))
    queue = app.queue("curve")
    for key in ("first", "second"):
        queue.offer(key, "x" * 300)
        queue.try_poll().ack()
    queue.offer("later", 1, after=timedelta(hours=1))
    page = screen.open("/queues/curve")
    expect(page.locator("#retries tbody tr")).to_have_text(
        [re.compile(text) for text in ("2.*1s.*1s", "3.*2s.*3s", "4.*4s.*7s")]
    )
    expect(page.locator("#retries")).to_contain_text("Then it is dead, 7s after the first failure")
    attempts, sizes = (page.get_by_role("table", name=name) for name in ("Attempts until the end", "Payload"))
    expect(attempts.locator("tbody tr")).to_have_text(re.compile("1.*2$"))
    expect(sizes.locator("tbody tr")).to_have_text(
        [re.compile(text) for text in ("≤ 64 B.*1$", "≤ 256 B.*0$", "≤ 1 KiB.*2$")]
    )
    expect(page.locator("#next-table tbody tr")).to_contain_text(re.compile("later.*in 59m|later.*in 1h", re.DOTALL))
    expect(page.locator("#lag")).to_contain_text("2 first deliveries")
    assert page.locator("#chart-work").evaluate("chart => chart.plot.bands.map(({series}) => series)") == [[3, 1]]
    data = page.locator("#chart-rate")
    data.get_by_text("Show data").click()
    expect(data.get_by_role("table")).to_be_visible()
    expect(page.locator("figure", has=data)).to_contain_text("3 offered, 2 acked, 0 failed attempts")
    broken = screen.open("/queues/broken").get_by_role("region", name="Findings")
    expect(broken.get_by_role("link")).to_have_attribute("href", re.compile("/queues/broken/dead/groups/[0-9a-f]{12}$"))


def test_what_comes_next_ends_with_the_number_of_the_rest(screen: Screen, dashboard: Served) -> None:
    queue = dashboard.app.queue("many")
    for number in range(23):
        queue.offer(f"k{number}", 1, after=timedelta(hours=1))
    page = screen.open("/queues/many")
    page.keyboard.press("p")
    page.locator("#next").get_by_role("link", name="and 3 more").click()
    expect(page.locator("#message-table tbody tr")).to_have_count(23)


def test_settings_are_changed_after_a_preview_and_the_audit_has_both_values(screen: Screen, dashboard: Served) -> None:
    dashboard.app.queues.create("tuned")
    page = screen.open("/queues/tuned/settings")
    page.get_by_label("Lease", exact=True).fill("45s")
    page.get_by_role("button", name="Preview changes").click()
    changes = page.get_by_role("table", name="Changes")
    expect(changes.locator("tbody tr")).to_have_text(re.compile(r"Lease\s*30s\s*45s"))
    assert dashboard.app.queues.get("tuned").settings.lease_for == timedelta(seconds=30)
    page.get_by_role("button", name="Apply").click()
    expect(page.locator(".notice")).to_have_text("tuned: changed lease_for from 30s to 45s")
    assert dashboard.app.queues.get("tuned").settings.lease_for == timedelta(seconds=45)
    (row,) = dashboard.app.store.run(dashboard.app.store.security.audits(limit=1))
    assert row.detail["result"] == "tuned: changed lease_for from 30s to 45s"


def test_a_pause_that_has_ended_is_marked_in_the_charts(screen: Screen) -> None:
    for path in ("/queues/rested", "/"):
        mark = screen.open(path).locator("#chart-marks").get_by_role("link", name="rested was paused")
        expect(mark).to_have_attribute("href", re.compile("/queues/rested$"))


def test_a_message_is_offered_with_a_lease_and_attempts_of_its_own(screen: Screen, dashboard: Served) -> None:
    dashboard.app.queues.create("own")
    page = screen.open("/queues/own")
    page.get_by_role("button", name="Offer a message").click()
    dialog = page.get_by_role("dialog", name="Offer a message to own")
    dialog.get_by_label("Key").fill("k")
    dialog.get_by_text("More: type, lease, attempts").click()
    dialog.get_by_label("Lease").fill("5m")
    dialog.get_by_label("Attempts").fill("2")
    dialog.get_by_role("button", name="Offer", exact=True).click()
    expect(page.locator(".notice")).to_contain_text("k was offered")
    stored = dashboard.app.queue("own").read("k")
    assert (stored.own_max_attempts, stored.lease_for) == (2, timedelta(minutes=5))


def test_without_scripts_the_actions_of_a_page_are_forms_on_it(screen: Screen, dashboard: Served) -> None:
    dashboard.app.queues.create("scriptless")
    page = screen.open("/queues/scriptless", screen.context(java_script_enabled=False))
    expect(page.get_by_role("button", name="Pause")).to_have_count(1)  # that of the form; none that opens it
    page.get_by_label("Reason").fill("no scripts")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".notice")).to_contain_text("scriptless is paused")
    page.get_by_label("Type scriptless to purge it").fill("wrong")
    page.get_by_role("button", name="Remove all messages").click()
    expect(page.locator("main")).to_contain_text("the confirmation is not the name of the queue; nothing was changed")
    screen.errors.clear()  # the browser reports the status
