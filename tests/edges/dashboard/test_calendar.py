"""The calendar: what is planned, what was delivered, and which times are likely to be late."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

from tarry.core.cron.model import ScheduleSpec
from tarry.core.cron.schedule_types import Cron
from tarry.edges.dashboard.screens.calendar import late_slices
from tests.edges.dashboard.conftest import Screen, Served, accessible

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
VIEWS = ["/calendar", "/calendar?span=24h", "/calendar?span=30d&failed=1", "/calendar?by=schedule&span=24h"]


@pytest.fixture(scope="module", autouse=True)
def planned(dashboard: Served) -> Served:
    """Before any page is opened: what queues did at their best is remembered for a minute."""
    app = dashboard.app
    queue = app.queue("mails")
    app.queues.create("mails", exist_ok=True)
    for at in range(30):
        queue.offer(f"later-{at}", at, after=timedelta(hours=30))
    queue.offer("now", 1)
    delivery = queue.poll(timedelta(0))
    assert delivery is not None
    delivery.ack()
    queue.offer("again", 1)
    delivery = queue.poll(timedelta(0))
    assert delivery is not None
    delivery.nack("broken", after=timedelta(hours=2))
    times = Cron("* * * * * *", "UTC")
    app.schedules.put(ScheduleSpec(name="each-second", schedule=times, queue="mails", payload=b"1"))
    return dashboard


def test_an_empty_calendar_explains_what_appears_in_it(screen: Screen) -> None:
    page = screen.open("/calendar?queue=unused")
    expect(page.get_by_text("Nothing is planned.")).to_be_visible()


@pytest.mark.parametrize("path", VIEWS)
def test_every_view_is_accessible_and_small(screen: Screen, bare: Page, planned: Served, path: str) -> None:
    assert accessible(screen, bare, path) == []


def test_cells_count_messages_retries_and_ticks(screen: Screen, planned: Served) -> None:
    cells = screen.get("/calendar.json").json()["cells"]
    totals = Counter[str]()
    for cell in cells:
        for name in ("delayed", "retries", "ticks", "delivered"):
            totals[name] += cell[name]
    assert totals["retries"] == 1
    assert totals["delivered"] == 2
    assert totals["delayed"] in (30, 31)  # and the next tick, which is a message already
    whole = [cell["ticks"] for cell in cells if cell["ticks"]][1:]
    assert set(whole) == {3600}


def test_what_is_likely_to_be_late_is_outlined_and_listed(screen: Screen, planned: Served) -> None:
    page = screen.open("/calendar")
    expect(page.locator("svg.calendar path.late")).to_have_count(1)
    expect(page.locator("#late li").first).to_contain_text("mails")


def test_a_click_on_a_cell_lists_what_is_in_it(screen: Screen, planned: Served) -> None:
    page = screen.open("/calendar")
    page.get_by_role("link", name=":00").first.click()
    page.go_back()
    cell = page.locator("svg.calendar .planned rect").nth(30)
    title = cell.locator("title").text_content() or ""
    cell.click()
    expect(page.locator("h1")).to_contain_text(title[:5])
    expect(page.locator("#planned-items")).to_contain_text("each-second")


def test_one_row_for_each_schedule(screen: Screen, planned: Served) -> None:
    page = screen.open("/calendar")
    page.get_by_role("link", name="By schedule").click()
    expect(page.locator("#mark-each-second")).to_contain_text("Every second")


def test_days_and_hours_are_those_of_the_chosen_zone(screen: Screen, planned: Served) -> None:
    page = screen.open("/calendar?zone=Asia/Tokyo")
    expect(page.locator(".page-head .note")).to_contain_text("Asia/Tokyo")
    expect(page.locator("svg.calendar text.now")).to_have_count(1)


@pytest.mark.parametrize("query", ["span=1y", "at=yesterday", "zone=Mars/Olympus", "at=0001-01-01T00:00:00Z"])
def test_a_wrong_query_is_a_problem_and_no_failure(screen: Screen, query: str) -> None:
    assert screen.get(f"/calendar?{query}").status == 422


def test_times_are_late_while_more_is_planned_than_the_queue_does_at_its_best() -> None:
    planned = {
        "q": Counter({NOON: 600, NOON + HOUR: 1_500, NOON + 2 * HOUR: 100, NOON + 4 * HOUR: 600}),
        "idle": Counter({NOON: 9}),
    }  # 100 in ten minutes are 600 an hour
    assert late_slices(planned, {"q": 100}, HOUR) == {"q": [NOON + HOUR, NOON + 2 * HOUR]}
