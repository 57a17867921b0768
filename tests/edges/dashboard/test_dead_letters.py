"""Dead letters in the browser: groups first, then letters; selection, filters, discarding, and hostile texts."""

from __future__ import annotations

import csv
import io
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tarry.core.workers.model import WorkerReport
from tests.edges.dashboard.conftest import Screen, Served, accessible
from tests.edges.dashboard.dead_letters import bury

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> {{ 7 * 7 }} \u202e\u0007 '\"&amp;"
HOSTILE_KEY = "../<b>x</b>?a=1&b=#c %2F\"'"


@pytest.fixture(scope="module", autouse=True)
def dead(dashboard: Served) -> None:
    app = dashboard.app
    for name in ("many", "one", "none", "hostile", "trash"):
        app.queues.create(name)
    about: dict[str, Any] = {
        "id": "w",
        "consumer": app.consumer,
        "host": "h",
        "pid": 1,
        "version": "1",
        "concurrency": 1,
    }
    about |= {"queues": ("many",), "at": datetime.now(UTC), "release": "shop 1.4.2"}
    app.store.run(app.store.workers.report(WorkerReport(**about)))
    bury(app, "many", 9_990, "TimeoutError: after 3 s\nTraceback", type="mail", headers={"authorization": "x"})
    bury(app, "many", 10, "KeyError: 'id'", first=9_990, payload={"tenant": "globex", "password": "secret-1"})
    bury(app, "one", 1, None)
    bury(app, "trash", 7, "ValueError: 1")
    queue = app.queue("hostile")
    queue.offer(HOSTILE_KEY, {HOSTILE: HOSTILE}, type="<i>t</i>", headers={"x": HOSTILE})
    queue.leases.bury([delivery.lease_id for delivery in queue.try_poll_many(1)], HOSTILE)


def rows(page: Page, table: str) -> Any:
    return page.locator(f"#{table} tbody tr")


def group_link(page: Page, text: str) -> Any:
    return page.locator("#group-table").get_by_role("link", name=text)


class TestGroups:
    def test_errors_come_first_with_their_counts_queues_and_types(self, screen: Screen) -> None:
        page = screen.open("/dead")
        row = rows(page, "group-table").filter(has_text="TimeoutError: after <n> s")
        expect(row).to_contain_text("9,990")
        expect(row).to_contain_text("many · buried · mail")
        expect(row).to_contain_text("release shop 1.4.2")
        expect(row.get_by_role("img", name="9,990 deaths")).to_have_count(0)  # the newest 5,000 are drawn
        expect(row.get_by_role("img")).to_have_attribute("aria-label", re.compile("deaths? in the last 1h"))

    def test_one_queue_and_the_order_are_in_the_address(self, screen: Screen) -> None:
        page = screen.open("/dead")
        page.get_by_role("navigation", name="Queues").get_by_role("link", name="many").click()
        expect(page).to_have_url(re.compile(r"/dead\?queue=many$"))
        expect(rows(page, "group-table")).to_have_count(2)
        page.get_by_role("link", name="Most").click()
        expect(rows(page, "group-table").first).to_contain_text("TimeoutError")
        expect(page).to_have_url(re.compile("sort=count"))

    def test_a_group_shows_examples_and_what_its_payloads_have_in_common(self, screen: Screen) -> None:
        page = screen.open("/dead?queue=many")
        group_link(page, "KeyError").click()
        facets = page.locator("#facets")
        expect(facets).to_contain_text("of the newest 10")
        expect(facets.get_by_role("listitem").filter(has_text="tenant=globex")).to_contain_text("100 %")
        expect(facets).not_to_contain_text("secret-1")
        expect(facets).to_contain_text(re.compile(r"Releases\s*shop 1.4.2 10"))
        expect(rows(page, "example-table")).to_have_count(10)
        page.get_by_role("link", name="All 10").click()
        expect(page).to_have_url(re.compile(r"/queues/many/dead\?fingerprint=[0-9a-f]{12}$"))
        expect(rows(page, "dead-table")).to_have_count(10)

    def test_of_a_large_group_a_sample_is_read(self, screen: Screen) -> None:
        page = screen.open("/dead?queue=many")
        group_link(page, "TimeoutError").click()
        expect(page.locator("#facets")).to_contain_text("of the newest 200 of 9,990")

    def test_json_and_csv_have_the_same_rows(self, screen: Screen) -> None:
        request = screen.context().request
        groups = request.get(f"{screen.url}/dead.json?queue=many").json()["groups"]
        assert {(group["queue"], group["count"]["n"]) for group in groups} == {("many", 9_990), ("many", 10)}
        text = request.get(f"{screen.url}/dead.csv?queue=many").text()
        assert len(list(csv.DictReader(io.StringIO(text)))) == 2

    def test_without_dead_letters_the_page_explains_what_would_appear(self, screen: Screen) -> None:
        page = screen.open("/dead?queue=none")
        expect(page.locator("main")).to_contain_text("No dead letters in none")
        expect(page.locator(".empty .copy-block").first).to_be_visible()


class TestList:
    def test_a_list_is_read_page_by_page(self, screen: Screen) -> None:
        page = screen.open("/queues/many/dead")
        expect(rows(page, "dead-table")).to_have_count(50)
        expect(page.locator(".page-head")).to_contain_text("10,000 dead letters")
        assert len(page.content().encode()) <= 150_000
        first = rows(page, "dead-table").first.inner_text()
        page.get_by_role("link", name="Next page").click()
        expect(rows(page, "dead-table").first).not_to_have_text(first)
        page.get_by_role("link", name="First page").click()
        expect(rows(page, "dead-table").first).to_contain_text("many-09999")

    def test_a_filter_is_in_the_address_and_survives_a_reload(self, screen: Screen) -> None:
        page = screen.open("/queues/many/dead")
        page.get_by_label("Key begins with").fill("many-0000")
        page.get_by_role("button", name="Filter").click()
        expect(page).to_have_url(re.compile("key_prefix=many-0000"))
        expect(rows(page, "dead-table")).to_have_count(10)
        page.reload()
        expect(page.get_by_label("Key begins with")).to_have_value("many-0000")
        expect(page.locator("main")).to_contain_text("searched for in 10,000 dead letters")

    def test_a_wrong_filter_is_a_problem_with_a_reason(self, screen: Screen) -> None:
        response = screen.get("/queues/many/dead?died_from=yesterdayish")
        assert response.status == 422
        assert "died since" in response.text()

    def test_one_letter_links_to_its_history_and_hides_what_the_rules_name(self, screen: Screen) -> None:
        page = screen.open("/queues/many/dead")
        page.get_by_role("link", name="many-09999").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("many-09999")
        expect(page.locator("#payload")).to_contain_text("«hidden»")
        expect(page.locator("#payload")).not_to_contain_text("secret-1")
        link = page.get_by_role("link", name="History of this message")
        expect(link).to_have_attribute("href", re.compile("/queues/many/messages/many-09999$"))

    def test_files_hide_what_the_page_hides(self, screen: Screen) -> None:
        request = screen.context().request
        for format in ("json", "csv"):
            text = request.get(f"{screen.url}/queues/many/dead.{format}?limit=20").text()
            assert "globex" in text
            assert "secret-1" not in text

    def test_one_letter_without_an_error_is_shown(self, screen: Screen) -> None:
        page = screen.open("/queues/one/dead")
        expect(rows(page, "dead-table")).to_have_count(1)
        expect(rows(page, "dead-table")).to_contain_text("no error text")

    def test_a_letter_that_is_gone_is_a_problem_with_a_reason(self, screen: Screen) -> None:
        response = screen.get("/queues/many/dead/letters/999999999")
        assert response.status == 404
        assert "redriven or discarded" in response.text()

    def test_every_list_and_action_can_be_copied(self, screen: Screen) -> None:
        page = screen.open("/queues/many/dead?type=mail")
        page.get_by_text("Copy as…").click()
        expect(page.locator("main .popover")).to_contain_text("/v1/queues/many/dead?type=mail")
        expect(page.locator("main .popover")).to_contain_text("tarry dlq list many --type mail")
        expect(page.locator("main .popover")).to_contain_text("dead.list(type='mail')")


class TestDiscard:
    def test_the_name_must_be_typed_and_the_selection_is_discarded(self, screen: Screen, dashboard: Served) -> None:
        page = screen.open("/queues/trash/dead")
        page.get_by_label("Select trash-00001").check()
        page.get_by_label("Select trash-00002").check()
        page.get_by_role("button", name="Discard selected…").click()
        expect(page.locator("main form")).to_contain_text("2 dead letters will be deleted for good: 2 selected")
        button = page.get_by_role("button", name="Discard 2 dead letters")
        expect(button).to_be_disabled()
        page.get_by_label("Type trash").fill("trash")
        button.click()
        expect(page.get_by_role("status").first).to_contain_text("2 dead letters were discarded")
        left = {letter.key for letter in dashboard.app.queue("trash").dead_letters.list()}
        assert left == {f"trash-{n:05}" for n in (0, 3, 4, 5, 6)}

    def test_a_group_is_named_by_its_error(self, screen: Screen, dashboard: Served) -> None:
        letter = dashboard.app.queue("hostile").dead_letters.list(limit=1)[0]
        for verb, part in (("discard", "main form"), ("redrive", "#plan")):
            page = screen.open(f"/queues/hostile/dead/{verb}?fingerprint={letter.fingerprint}")
            expect(page.locator(part)).to_contain_text("<script>alert(")
            assert page.locator("main img, main script").count() == 0

    def test_the_server_checks_the_name_too(self, screen: Screen, dashboard: Served) -> None:
        context = screen.context()
        page = screen.open("/queues/trash/dead/discard", context)
        token = page.locator("input[name=form]").first.get_attribute("value")
        url = f"{screen.url}/queues/trash/dead/discard"
        response = context.request.post(url, form={"form": token or "", "confirm": "else"}, max_redirects=0)
        assert response.status == 422
        assert dashboard.app.queue("trash").dead_letters.count().letters.n >= 5

    def test_nothing_selected_is_not_everything(self, screen: Screen) -> None:
        for verb in ("Redrive", "Discard"):
            page = screen.open("/queues/trash/dead")
            page.get_by_role("button", name=f"{verb} selected…").click()
            expect(page.locator("main")).to_contain_text("no dead letter is selected")
        screen.errors.clear()  # the browser notes the status of the problem


class TestHostile:
    def test_hostile_texts_are_shown_as_text(self, screen: Screen) -> None:
        page = screen.open("/dead?queue=hostile")
        page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
        expect(rows(page, "group-table")).to_contain_text("<script>alert(<n>)</script><img src=x onerror=alert(<n>)>")
        rows(page, "group-table").get_by_role("link").first.click()
        expect(page.locator("#error pre")).to_contain_text("<script>alert(1)</script>")
        expect(page.locator("main img, main script")).to_have_count(0)
        page.locator("#example-table").get_by_role("link", name="../<b>x</b>?a=1").click()
        expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE_KEY)
        expect(page.locator("#payload pre")).to_contain_text("<script>alert(1)</script>")
        expect(page.locator("#headers")).to_contain_text("{{ 7 * 7 }}")
        expect(page.locator("main img, main script, main b, main i")).to_have_count(0)


def test_pages_of_dead_letters_are_accessible(screen: Screen, bare: Page, dashboard: Served) -> None:
    newest = dashboard.app.queue("many").dead_letters.list(limit=1)[0]
    for path in (
        f"/queues/many/dead/groups/{newest.fingerprint}",
        "/queues/many/dead?limit=5",
        "/queues/none/dead",
        f"/queues/many/dead/letters/{newest.version}",
        "/queues/many/dead/discard",
    ):
        assert accessible(screen, bare, path) == [], path
