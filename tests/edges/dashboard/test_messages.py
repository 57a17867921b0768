"""Messages, one message, a queue at an instant, and consumers, in a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
import pytest
from playwright.sync_api import APIResponse, Browser, Page, expect

import tarry
from tarry import Message, QueueSettings, Settled
from tarry.core.journal.events import JournalLevel
from tarry.core.messages.model import StoredMessage
from tarry.core.messages.states import State
from tarry.core.workers.model import WorkerReport
from tarry.edges.dashboard.screens.consumers import ConsumerRow, peers
from tarry.testing import MutableClock
from tests.edges.dashboard.conftest import Screen, Served, accessible, served
from tests.edges.dashboard.pipeline_results import PAYLOAD, archive_story
from tests.kit.blocking import Loop
from tests.kit.servers import Server

HOSTILE = "<img src=x onerror=alert(1)>/../\"'&?#%2F {{7*7}}"
ERROR = "<script>alert('error')</script> ValueError: ü\u202e"
MANY = 10_000
LATER = timedelta(hours=2)


@pytest.fixture(scope="module", autouse=True)
def traffic(dashboard: Served) -> None:
    app = dashboard.app
    hostile = app.queue("hostile")
    payload = {"html": "</code><script>alert(2)</script>", "big": 12345678901234567890123, "password": "hunter2"}
    hostile.offer(HOSTILE, payload, after=LATER, headers={"x-<b>": "<i>"}, type="<u>")
    hostile.offer("retried", {"n": 1})
    first = hostile.poll(timedelta(0))
    assert first is not None
    first.nack(ERROR, after=timedelta(0))
    second = hostile.poll(timedelta(seconds=5))
    assert second is not None
    second.ack()
    hostile.offer("buried", {"n": 2})
    third = hostile.poll(timedelta(0))
    assert third is not None
    third.bury(ERROR)
    hostile.offer("held", {"n": 3}, priority=9, lease_for=timedelta(hours=1))
    assert hostile.poll(timedelta(0)) is not None
    many = app.queue("many")
    for start in range(0, MANY, 1_000):
        many.offer_many([_message(n) for n in range(start, start + 1_000)])


def _message(n: int) -> Any:
    return Message(key=f"m-{n:05}", payload={"n": n, "user": {"id": n % 100}}, after=LATER + timedelta(seconds=n))


def search_path(query: str) -> str:
    return f"/messages?{urlencode({'q': query})}"


def message(queue: str, key: str) -> str:
    return f"/queues/{queue}/messages/{quote(key, safe='')}"


def rows_of(dashboard: Served, queue: str) -> list[StoredMessage[bytes]]:
    store = dashboard.app.store
    return store.run(store.messages.list(queue))


def get(screen: Screen, path: str) -> APIResponse:
    return screen.get(path)


PAGES = {
    "search": search_path("queue:hostile"),
    "message": message("hostile", HOSTILE),
    "finished": message("hostile", "retried"),
    "past": "/queues/hostile/at?instant=-1s",
    "consumer": "/consumers",
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_accessible(screen: Screen, bare: Page, name: str) -> None:
    assert accessible(screen, bare, PAGES[name]) == []


class TestSearch:
    def test_one_of_ten_thousand_is_found_by_its_key(self, screen: Screen) -> None:
        page = screen.open(search_path("key:m-07777"))
        expect(page.locator("#message-table tbody tr")).to_have_count(1)
        expect(page.get_by_text("1 match", exact=True)).to_be_visible()
        assert len(page.content().encode()) <= 150_000

    def test_many_rows_come_in_pages_that_state_what_was_scanned(self, screen: Screen) -> None:
        page = screen.open(search_path("queue:many"))
        expect(page.locator("#message-table tbody tr")).to_have_count(50)
        expect(page.get_by_text("2,000 live messages of queue many were scanned")).to_be_visible()
        page.get_by_role("link", name="Next page").click()
        expect(page.get_by_role("link", name="m-00050")).to_be_visible()
        assert len(page.content().encode()) <= 150_000

    def test_the_query_is_in_the_address_and_its_terms_can_be_removed(self, screen: Screen) -> None:
        page = screen.open("/messages")
        box = page.get_by_label("Search with qualifiers")
        box.fill("queue:many priority:0")
        box.press("Enter")
        expect(page).to_have_url(re.compile("q=queue%3Amany\\+priority%3A0"))
        page.get_by_role("link", name=re.compile("priority:0 .*remove")).click()
        expect(page.get_by_label("Search with qualifiers")).to_have_value("queue:many")

    def test_columns_are_chosen_in_the_address_and_stay_with_the_next_search(self, screen: Screen) -> None:
        page = screen.open(search_path("queue:many"))
        heads = page.locator("#message-table thead th")
        page.get_by_text("Columns", exact=True).click()
        page.get_by_role("link", name="Version: show").click()
        expect(heads.last).to_have_text("Version")
        page.get_by_role("link", name="Priority: hide").click()
        expect(page).to_have_url(re.compile("columns=queue%2Cstate%2Cat%2Cattempt%2Ctype%2Cconsumer%2Cerror%2Cversion"))
        page.get_by_label("Search with qualifiers").fill("key:m-07777")
        page.get_by_label("Search with qualifiers").press("Enter")
        expect(page.locator("#message-table tbody tr")).to_have_count(1)
        expect(heads).to_have_count(10)  # with that of checkboxes and that of keys
        rows = get(screen, "/messages.json?q=key%3Am-07777&columns=at,unknown").json()["messages"]
        assert [list(row) for row in rows] == [["key", "at"]]

    def test_a_qualifier_that_does_not_exist_is_named(self, screen: Screen) -> None:
        response = get(screen, search_path("colour:red"))
        assert response.status == 422
        assert "colour: there is no such qualifier" in response.text()
        refused = get(screen, "/messages.json?q=colour%3Ared")
        assert refused.status == 422
        assert refused.json()["detail"] == "colour: there is no such qualifier"

    def test_nothing_found_is_a_sentence(self, screen: Screen) -> None:
        expect(screen.open(search_path("key:missing")).get_by_text("No message matches.")).to_be_visible()

    def test_dead_and_finished_messages_are_found_too(self, screen: Screen) -> None:
        dead = get(screen, "/messages.json?" + urlencode({"q": "queue:hostile state:dead"})).json()["messages"]
        done = get(screen, "/messages.json?" + urlencode({"q": "queue:hostile state:done"})).json()["messages"]
        assert [row["key"] for row in dead] == ["buried"]
        assert [row["key"] for row in done] == ["retried"]

    def test_states_are_chips_and_dead_letters_of_all_queues_have_their_own_page(self, screen: Screen) -> None:
        page = screen.open("/messages")
        page.get_by_role("link", name="delayed", exact=True).click()
        expect(page).to_have_url(re.compile("q=state%3Adelayed$"))
        page.get_by_role("link", name="dead", exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Dead letters")
        page.goto(f"{screen.url}{search_path('queue:hostile')}")
        page.get_by_role("link", name=re.compile("^dead")).click()
        expect(page.get_by_role("link", name="buried")).to_be_visible()

    def test_payloads_are_searched_but_not_what_is_hidden(self, screen: Screen) -> None:
        query = urlencode({"q": "queue:many payload.user.id:42"})
        rows = get(screen, f"/messages.json?{query}").json()["messages"]
        assert [row["key"] for row in rows] == ["m-00042", "m-00142", "m-00242", "m-00342", "m-00442"]
        hidden = get(screen, "/messages.json?" + urlencode({"q": "payload.password:hunter2"}))
        assert hidden.json()["detail"] == "payload.password: is hidden here, so it cannot be searched"

    def test_a_row_shows_what_is_late_paused_or_tried_again(self, screen: Screen, dashboard: Served) -> None:
        dashboard.app.queues.create("labelled", QueueSettings(target_lag_for=timedelta(milliseconds=1)))
        queue = dashboard.app.queue("labelled")
        queue.offer("again", 1)
        queue.poll(timedelta(0)).nack("broken", after=LATER)
        queue.offer("late", 1)
        page = screen.open(search_path("queue:labelled"))
        rows = page.locator("#message-table tbody tr")
        expect(rows.filter(has=page.get_by_role("link", name="again"))).to_contain_text("delayed retrying")
        expect(rows.filter(has=page.get_by_role("link", name="late"))).to_contain_text("ready late")
        dashboard.app.queues.pause("labelled")
        page.reload()
        expect(rows.filter(has=page.get_by_role("link", name="late"))).to_contain_text("ready paused")

    def test_json_and_csv_have_the_rows_of_the_search(self, screen: Screen) -> None:
        rows = get(screen, "/messages.json?" + urlencode({"q": "queue:hostile type:<u>"})).json()["messages"]
        assert [row["key"] for row in rows] == [HOSTILE]
        assert "m-00000," in get(screen, "/messages.csv?q=queue%3Amany").text()

    def test_qualifiers_are_suggested_while_typing(self, screen: Screen) -> None:
        page = screen.open("/messages")
        box = page.get_by_label("Search with qualifiers")
        box.type("queue:many sta")
        expect(page.locator("#query-options option")).to_have_attribute("value", "queue:many state:")
        box.fill("queue:many state:le")
        expect(page.locator("#query-options option")).to_have_attribute("value", "queue:many state:leased")

    def test_selected_rows_are_made_due(self, screen: Screen, dashboard: Served) -> None:
        queue = dashboard.app.queue("selected")
        for n in range(3):
            queue.offer(f"s-{n}", {"n": n}, after=LATER)
        page = screen.open(search_path("queue:selected"))
        for key in "jx":
            page.keyboard.press(key)
        expect(page.get_by_text("1 selected", exact=True)).to_be_visible()
        queue.offer("s-3", {"n": 3}, after=LATER)
        expect(page.locator("#message-table tbody tr")).to_have_count(4)
        for key in "jX":  # a refresh keeps the row of the keyboard and the selection, which this extends
            page.keyboard.press(key)
        expect(page.get_by_text("2 selected", exact=True)).to_be_visible()
        page.get_by_role("button", name="Change messages").click()
        page.get_by_role("button", name="Apply").click()
        expect(page.get_by_text("2 of 2 were made due now")).to_be_visible()
        assert dashboard.app.queues.counts("selected").ready.n == 2

    def test_all_that_match_are_dropped_by_a_job_after_a_typed_confirmation(
        self, screen: Screen, dashboard: Served
    ) -> None:
        queue = dashboard.app.queue("dropped")
        queue.offer_many([_message(n) for n in range(450)])
        page = screen.open(search_path("queue:dropped"))
        _drop_matching(page, "")
        expect(
            page.get_by_role("heading", name="type drop to drop all that match: nothing was changed")
        ).to_be_visible()
        screen.errors.clear()  # the browser reports the status 422
        page.goto(f"{screen.url}{search_path('queue:dropped')}")
        _drop_matching(page, "drop")
        expect(page.get_by_role("heading", name="drop all that match")).to_be_visible()
        expect(page.get_by_text("450", exact=True)).to_be_visible(timeout=30_000)
        assert dashboard.app.queues.counts("dropped").delayed.n == 0


def _drop_matching(page: Page, typed: str) -> None:
    page.get_by_role("button", name="Change messages").click()
    page.get_by_role("radio", name="Drop: they are removed").check()
    page.get_by_role("radio", name="All that match").check()
    page.get_by_label("To bury or drop all that match").fill(typed)
    page.get_by_role("button", name="Apply").click()


class TestInspector:
    def test_hostile_text_is_shown_as_text(self, screen: Screen) -> None:
        page = screen.open(message("hostile", HOSTILE))
        expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
        expect(page.locator("#payload")).to_contain_text("</code><script>alert(2)</script>")
        expect(page.locator("#payload")).to_contain_text("12345678901234567890123")
        expect(page.locator("#payload")).not_to_contain_text("hunter2")
        link = page.get_by_role("link", name="Download").get_attribute("href") or ""
        file = get(screen, link.removeprefix("/dashboard"))
        assert file.headers["content-disposition"].startswith("attachment; filename=")
        assert ("hunter2" in file.text(), "12345678901234567890123" in file.text()) == (False, True)
        exact = get(screen, "/queues/hostile/message/payload?key=buried")
        assert exact.body() == b'{"n":2}'
        assert page.locator("main img, main script").count() == 0

    def test_the_page_of_an_absent_message_offers_it_and_becomes_its_page(
        self, screen: Screen, dashboard: Served, bare: Page
    ) -> None:
        key = f"soon {HOSTILE}"
        assert accessible(screen, bare, message("hostile", key)) == []
        screen.errors.clear()  # the status 404
        page = screen.open("/")
        assert (page.goto(f"{screen.url}{message('hostile', key)}") or pytest.fail("no response")).status == 404
        expect(page.get_by_role("heading", level=1)).to_contain_text("has no message 'soon ")
        copied = page.locator(".copy-block code")
        expect(copied).to_have_count(3)
        expect(copied.nth(2)).to_contain_text(f"offer({key!r}, ")
        expect(page.locator("[data-live]")).to_have_attribute("data-state", "live")
        dashboard.app.queue("hostile").offer(key, 1, after=timedelta(hours=1))
        expect(page.get_by_role("heading", level=1)).to_have_text(key)
        expect(page.locator(".why")).to_contain_text("it is due in ")
        dashboard.app.queue("hostile").drop(key)
        # The browser reports the status of the page, and of each time that it refreshed itself before the offer.
        screen.errors[:] = [error for error in screen.errors if "404" not in error]

    def test_a_delayed_message_shows_why_it_is_not_delivered(self, screen: Screen) -> None:
        expect(screen.open(message("hostile", HOSTILE)).locator(".why")).to_contain_text("it is due in ")

    def test_a_finished_message_has_its_attempts_as_bars(self, screen: Screen) -> None:
        page = screen.open(message("hostile", "retried"))
        expect(page.locator("svg.history rect")).to_have_count(2)
        expect(page.locator(".events")).to_contain_text(ERROR)
        page.get_by_role("link", name="Compact").click()
        expect(page.locator("#event-table tbody tr")).to_have_count(5)
        page.get_by_role("link", name="Raw JSON").click()
        expect(page.locator("#history pre")).to_contain_text('"kind": "acked"')

    def test_its_attempts_fit_a_phone(self, screen: Screen) -> None:
        bars = screen.open(message("hostile", "retried"), width=390).locator("svg.history rect")
        expect(bars).to_have_count(2)
        boxes = [bar.bounding_box() for bar in bars.all()]
        assert all(box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in boxes)

    def test_heartbeats_in_a_row_are_one_event_of_the_timeline(self, screen: Screen, dashboard: Served) -> None:
        dashboard.app.queue("touched").offer("long", 1)
        delivery = dashboard.app.queue("touched").poll(timedelta(0))
        for _ in range(3):
            delivery.touch()
        delivery.ack()
        page = screen.open(message("touched", "long"))
        expect(page.locator(".events .kind")).to_have_text(["offered", "leased", "touched ×3", "acked"])

    def test_a_dead_message_shows_its_reason_and_payload(self, screen: Screen) -> None:
        page = screen.open(message("hostile", "buried"))
        expect(page.locator(".why")).to_contain_text("It is dead: buried")
        expect(page.locator("#payload")).to_contain_text('"n": 2')

    def test_a_message_of_a_queue_without_a_journal_has_a_page(self, screen: Screen, dashboard: Served) -> None:
        dashboard.app.queues.create("quiet", QueueSettings(journal=JournalLevel.OFF), exist_ok=True)
        dashboard.app.queue("quiet").offer("unrecorded", {"n": 1}, after=LATER)
        assert get(screen, message("quiet", "unrecorded")).status == 200

    def test_a_leased_message_names_its_extensions_and_a_paused_queue_its_actor(
        self, screen: Screen, dashboard: Served
    ) -> None:
        queue = dashboard.app.queue("halted")
        queue.offer("held", 1)
        delivery = queue.poll(timedelta(0))
        for _ in range(2):
            delivery.touch()
        queue.offer("waits", 1)
        page = screen.open("/queues/halted")
        page.get_by_role("button", name="Pause").click()
        page.get_by_role("dialog").get_by_role("button", name="Pause").click()
        expect(page.locator(".notice")).to_contain_text("halted is paused")
        page.goto(f"{screen.url}{message('halted', 'waits')}")
        expect(page.locator(".why")).to_contain_text("queue halted is paused")
        expect(page.locator(".why")).to_contain_text(re.compile("Paused .* by anonymous"))
        page.goto(f"{screen.url}{message('halted', 'held')}")
        expect(page.locator(".why")).to_contain_text("Its consumer has extended the lease 2 times")

    def test_a_trace_leads_to_its_page_in_the_tool_of_the_settings(
        self, browser: Browser, server: Server, loop: Loop
    ) -> None:
        made = served(server, loop, trace_url="https://traces.test/{trace}?from=tarry")
        trace = "4bf92f3577b34da6a3ce929d0e0e4736"
        made.app.queue("traced").offer("t", 1, headers={"traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
        made.app.queue("traced").offer("odd", 1, headers={"traceparent": '00-"><script>/../x'})
        screen = Screen(browser, made.url)
        page = screen.open(message("traced", "t"))
        link = page.locator("#facts").get_by_role("link", name=trace)
        expect(link).to_have_attribute("href", f"https://traces.test/{trace}?from=tarry")
        page.goto(f"{screen.url}{message('traced', 'odd')}")
        link = page.locator("#facts").get_by_role("link", name="script")
        expect(link).to_have_attribute("href", "https://traces.test/%22%3E%3Cscript%3E%2F..%2Fx?from=tarry")
        screen.close()
        made.closing.close()
        assert screen.errors == []

    def test_an_unknown_key_is_a_problem(self, screen: Screen) -> None:
        assert get(screen, message("hostile", "nothing")).status == 404

    @pytest.mark.parametrize("key", [".", "..", "a/b", "%2e", "x?y#z", "ü 😀"])
    def test_every_key_has_a_page_that_the_list_links(self, screen: Screen, dashboard: Served, key: str) -> None:
        dashboard.app.queue("odd").offer(key, {"n": 1}, after=LATER)
        page = screen.open(search_path(f'queue:odd key:"{key}"'))
        page.get_by_role("link", name=key, exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(key)
        page.goto(f"{screen.url}/queues/odd/next?range=6h")
        page.get_by_role("link", name=key, exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(key)

    def test_a_message_is_edited_rescheduled_and_dropped(self, screen: Screen, dashboard: Served) -> None:
        queue = dashboard.app.queue("reshaped")
        queue.offer("e", {"n": 1}, after=LATER)
        page = screen.open(message("reshaped", "e"))
        page.keyboard.press("e")
        expect(page.get_by_label("Priority, 0 to 9")).to_be_focused()
        page.get_by_label("Priority, 0 to 9").fill("7")
        page.locator("#edit").get_by_label("Payload, JSON").fill('{"n": 1.10}')
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("e is changed: priority from 0 to 7, payload")).to_be_visible()
        expect(page.locator("#payload")).to_contain_text('"n": 1.10')
        page.get_by_role("button", name="Reschedule").click()
        page.get_by_label("When").fill("+5m")
        page.get_by_role("dialog", name="Reschedule it").get_by_role("button", name="Reschedule").click()
        expect(page.get_by_text("e is rescheduled")).to_be_visible()
        expect(page.locator("#audit")).to_contain_text("reschedule a message by anonymous")
        events = page.locator("ol.events li")
        expect(events).to_contain_text(["offered", "edited", "edited"])
        for event, of in ((0, False), (1, True), (2, True)):
            assert ("by the operator anonymous" in events.nth(event).inner_text()) is of
        expect(events.nth(1)).to_contain_text("fields: payload and priority")
        page.get_by_role("button", name="Offer again").click()
        page.get_by_role("dialog", name="Offer it again").get_by_role("button", name="Offer", exact=True).click()
        expect(page.locator(".notice")).to_contain_text("was offered")
        assert [json.loads(row.payload) for row in rows_of(dashboard, "reshaped") if row.key != "e"] == [{"n": 1.1}]
        page.goto(f"{screen.url}{message('reshaped', 'e')}")
        stored = queue.read("e")
        assert (stored.priority, stored.due_at - datetime.now(UTC) < timedelta(minutes=6)) == (7, True)
        page.get_by_role("button", name="Drop").first.click()
        page.get_by_role("dialog", name="Drop it").get_by_role("button", name="Drop").click()
        expect(page.get_by_role("heading", name="It is finished: dropped")).to_be_visible()

    def test_a_leased_message_is_released_and_its_consumer_loses_it(self, screen: Screen, dashboard: Served) -> None:
        queue = dashboard.app.queue("released")
        queue.offer("r", {"n": 1})
        delivery = queue.poll(timedelta(0))
        page = screen.open(message("released", "r"))
        expect(page.get_by_role("button", name="Edit")).to_have_count(0)
        page.get_by_role("button", name="Release").first.click()
        page.get_by_role("dialog", name="Release it").get_by_role("button", name="Release").click()
        expect(page.get_by_text("r is released")).to_be_visible()
        assert delivery.ack() is Settled.LEASE_LOST
        assert (queue.read("r").state, queue.read("r").attempt) == (State.READY, 0)

    def test_a_message_is_moved_to_another_queue(self, screen: Screen, dashboard: Served) -> None:
        queue, other = dashboard.app.queue("taken"), dashboard.app.queue("other")
        dashboard.app.queues.create("other", exist_ok=True)
        queue.offer("m", {"n": 7}, priority=8)
        page = screen.open(message("taken", "m"))
        page.get_by_role("button", name="Move").first.click()
        page.get_by_label("To the queue").select_option("other")
        page.get_by_role("dialog").get_by_role("button", name="Move").click()
        expect(page.get_by_text("m is moved to other")).to_be_visible()
        moved = other.read("m")
        assert (moved.payload, moved.priority, queue.contains("m"), queue.dead_letters.list()) == (
            {"n": 7},
            8,
            False,
            [],
        )
        queue.offer("m", {"n": 8})
        page.goto(f"{screen.url}{message('taken', 'm')}")
        page.get_by_role("button", name="Move").first.click()
        page.get_by_label("To the queue").select_option("other")
        page.get_by_role("dialog").get_by_role("button", name="Move").click()
        expect(page.get_by_text("other has a live message of this key: nothing was changed")).to_be_visible()
        assert (queue.read("m").payload, queue.dead_letters.list()) == ({"n": 8}, [])
        screen.errors.clear()  # the browser reports the status

    def test_a_change_of_an_old_version_changes_nothing(self, screen: Screen, dashboard: Served) -> None:
        queue = dashboard.app.queue("edited")
        queue.offer("old", {"n": 1}, after=LATER)
        page = screen.open(message("edited", "old"))
        page.get_by_role("button", name="Bury").first.click()
        queue.edit("old", priority=3)
        page.get_by_role("dialog", name="Bury it").get_by_role("button", name="Bury").click()
        expect(page.get_by_role("heading", name="nothing was changed")).to_be_visible()
        assert queue.contains("old")
        screen.errors.clear()  # the browser reports the status 409


class TestPast:
    def test_a_queue_is_shown_as_it_was(self, screen: Screen, dashboard: Served) -> None:
        queue = dashboard.app.queue("gone")
        queue.offer("here-then", {"n": 1})
        store = dashboard.app.store
        then = store.run(store.queues.now())
        delivery = queue.poll(timedelta(0))
        assert delivery is not None
        delivery.ack()
        rows = get(screen, f"/queues/gone/at.json?{urlencode({'instant': then.isoformat()})}").json()["messages"]
        assert [(row["key"], row["state"]) for row in rows] == [("here-then", "ready")]
        assert get(screen, "/queues/gone/at.json?instant=-0s").json()["messages"] == []

    def test_the_page_of_a_queue_leads_to_its_past(self, screen: Screen) -> None:
        page = screen.open("/queues/hostile")
        page.get_by_role("link", name="As it was").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("hostile as it was")

    def test_the_bound_is_stated_and_the_future_is_refused(self, screen: Screen) -> None:
        page = screen.open("/queues/hostile/at?instant=-1s")
        expect(page.locator(".bound")).to_contain_text("The journal goes back to")
        assert get(screen, "/queues/hostile/at?instant=%2B1h").status == 422


ARCHIVED_AT = (datetime.now(UTC) - timedelta(days=30)).replace(hour=12, minute=0, second=0, microsecond=0)


@pytest.fixture(scope="module")
def archived(dashboard: Served, tmp_path_factory: pytest.TempPathFactory) -> None:
    dashboard.app.queues.create("archived")
    archive_story(dashboard.dsn, tmp_path_factory.mktemp("lake"), "archived", ARCHIVED_AT)


@pytest.mark.usefixtures("archived")
class TestPastOfTheArchive:
    """Of an instant that is older than the journal."""

    at = ARCHIVED_AT

    def _rows(self, screen: Screen, after: timedelta = timedelta(0)) -> list[tuple[str, str]]:
        query = urlencode({"instant": (self.at + after).isoformat()})
        rows = get(screen, f"/queues/archived/at.json?{query}").json()["messages"]
        return [(row["key"], row["state"]) for row in rows]

    def _text(self, screen: Screen, at: datetime) -> str:
        return get(screen, f"/queues/archived/at?{urlencode({'instant': at.isoformat()})}").text()

    def test_it_is_derived_from_the_archive(self, screen: Screen) -> None:
        assert self._rows(screen) == [("held", "leased"), ("late", "delayed")]
        assert self._rows(screen, timedelta(seconds=-25)) == [
            ("done", "leased"),
            ("held", "ready"),
            ("late", "delayed"),
        ]
        assert self._rows(screen, timedelta(days=2)) == [("next", "ready"), ("late", "ready")]
        text = self._text(screen, self.at)
        assert "1 file of the archive" in text
        assert "What was before was read from the archive" in text

    def test_a_message_that_only_the_archive_has_is_explained(self, screen: Screen) -> None:
        page = screen.open(message("archived", "done"))
        expect(page.locator(".bound")).to_contain_text("3 events of 1 file of the archive")
        expect(page.get_by_role("heading", name="It is finished: acked")).to_be_visible()
        expect(page.locator("svg.history rect")).to_have_count(1)
        assert get(screen, message("archived", "never")).status == 404

    def test_a_message_begins_in_the_archive_and_ends_in_the_journal(self, screen: Screen, dashboard: Served) -> None:
        with psycopg.connect(dashboard.dsn, autocommit=True) as conn:
            conn.execute(
                "insert into tarry.event (at, kind, queue, key, version, attempt, priority, due_at, size) "
                "select clock_timestamp(), 'dropped', id, 'late', 3, 0, 5, clock_timestamp(), 17 from tarry.queue "
                "where name = 'archived'"
            )
            page = screen.open(message("archived", "late"))
            conn.execute("delete from tarry.event where key = 'late'")
        expect(page.locator(".bound")).to_contain_text("1 event of 1 file of the archive, read-only; what is later is")
        expect(page.locator("ol.events .kind")).to_have_text(["offered", "dropped"])

    def test_a_message_of_the_archive_is_offered_again(self, screen: Screen, dashboard: Served) -> None:
        page = screen.open(message("archived", "done"))
        expect(page.locator("#payload")).to_contain_text("from its history")
        page.get_by_role("button", name="Offer again…").click()
        dialog = page.get_by_role("dialog", name="Offer it again")
        expect(dialog.get_by_label("Payload, JSON")).to_have_value(PAYLOAD)
        dialog.get_by_role("button", name="Offer", exact=True).click()
        expect(page.locator(".notice")).to_contain_text("was offered")
        queue = dashboard.app.queue("archived")
        (restored,) = rows_of(dashboard, "archived")
        assert (restored.payload, restored.priority) == (PAYLOAD.encode(), 5)
        queue.drop(restored.key)

    def test_what_was_archived_adds_to_the_journal(self, screen: Screen) -> None:
        query = urlencode({"instant": "-1s"})
        rows = get(screen, f"/queues/archived/at.json?{query}").json()["messages"]
        assert [row["key"] for row in rows][:2] == ["next", "late"]  # a second ago another test had offered one, too

    def test_an_instant_that_neither_has_is_stated(self, screen: Screen) -> None:
        text = self._text(screen, self.at - timedelta(days=30))
        assert "the archive has no events of this queue until then" in text

    def test_an_archive_that_cannot_be_read_is_stated(self, screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tarry.edges.dashboard.lake_sql.find_spec", lambda name: None)
        text = self._text(screen, self.at)
        assert "which was not read: it is read with DuckDB" in text


class TestConsumers:
    def test_a_consumer_is_listed_with_its_leases_and_errors(self, screen: Screen, dashboard: Served) -> None:
        page = screen.open("/consumers")
        rows = page.locator("#consumer-table tbody tr").filter(
            has_not=page.locator("td.name", has_text=re.compile("^(gone|hourly|asleep)$"))  # of other tests
        )
        expect(rows).to_have_count(1)
        rows.get_by_role("link").first.click()
        expect(page.locator("#lease-table")).to_contain_text("held")
        expect(page.locator("#error-table")).to_contain_text("ValueError")
        assert page.locator("main script").count() == 0

    def test_the_history_of_a_consumer_is_what_the_pipeline_computed(
        self, screen: Screen, bare: Page, dashboard: Served
    ) -> None:
        with tarry.connect(dashboard.dsn, consumer="hourly") as consumer:
            consumer.queue("hourly").offer("held", 1)
            assert consumer.queue("hourly").try_poll() is not None
        with psycopg.connect(dashboard.dsn) as conn:
            conn.execute(
                "insert into tarry.consumer_hour select id, date_trunc('hour', now()) - n * interval '1 hour', consumer, "
                "name, 12, 10, 1, 1, 0, 0.8, 1, 0.1, 0.4, 0.5, true, 1, now() from tarry.queue, generate_series(0, 3) n, "
                "unnest(array['hourly', 'other']) consumer where name = 'hourly'"
            )
        page = screen.open("/consumers/hourly")
        expect(page.locator("#history")).to_contain_text(
            re.compile("40 acked, 17.% of the attempts failed, in 12 hours")
        )
        expect(page.locator("#chart-history canvas")).to_be_visible()
        assert accessible(screen, bare, "/consumers/hourly") == []

    def test_the_workers_of_a_consumer_are_shown_and_drained(
        self, screen: Screen, bare: Page, dashboard: Served
    ) -> None:
        store = dashboard.app.store

        def report(at: datetime) -> bool:
            about: dict[str, Any] = {"id": "w1", "consumer": "billing <1>", "host": "host-a", "pid": 4711}
            about |= {
                "version": "0.9.9",
                "queues": ("orders",),
                "concurrency": 8,
                "extensions": 12,
                "at": at,
                "release": "1.4.2",
            }
            return store.run(store.workers.report(WorkerReport(**about)))

        report(datetime.now(UTC) + timedelta(seconds=90))
        assert accessible(screen, bare, "/consumers/billing%20%3C1%3E") == []
        page = screen.open("/consumers")
        row = page.locator("#consumer-table tbody tr").filter(has_text="billing <1>")
        for text in ("host-a", "active", "1.4.2", "12", "1m"):
            expect(row).to_contain_text(text)
        row.get_by_role("link").first.click()
        expect(page.locator("#worker-table")).to_contain_text("process 4711")
        expect(page.locator("#worker-table")).to_contain_text("0.9.9")
        page.get_by_role("button", name="Drain").click()
        page.get_by_role("dialog").get_by_role("button", name="Drain").click()
        expect(page.locator(".notice")).to_contain_text("1 worker of billing <1> to drain")
        expect(page.locator("#worker-table")).to_contain_text("drain requested")
        assert report(datetime.now(UTC)) is True
        store.run(store.workers.leave("w1"))

    def test_what_a_consumer_has_leased_is_released_after_its_name_was_typed(
        self, screen: Screen, dashboard: Served
    ) -> None:
        with tarry.connect(dashboard.dsn, consumer="gone") as other:
            queue = other.queue("left")
            queue.offer("l", {"n": 1})
            delivery = queue.poll(timedelta(0))
            assert delivery is not None
            page = screen.open("/consumers/gone")
            page.get_by_role("button", name="Release its leases").click()
            dialog = page.get_by_role("dialog", name="Release what gone has leased")
            expect(dialog.get_by_role("button", name="Release", exact=True)).to_be_disabled()
            dialog.get_by_label("Type gone").fill("gone")
            dialog.get_by_role("button", name="Release", exact=True).click()
            expect(page.get_by_text("1 lease of gone released")).to_be_visible()
            assert delivery.ack() is Settled.LEASE_LOST
            assert [row.state for row in rows_of(dashboard, "left")] == [State.READY]
            assert dashboard.app.queue("hostile").read("held").state is State.LEASED
            queue.drop("l")

    def test_a_consumer_that_was_not_seen_lately_is_stale(self, screen: Screen, dashboard: Served) -> None:
        clock = MutableClock(datetime.now(UTC) - timedelta(minutes=20))
        with tarry.connect(dashboard.dsn, clock=clock, consumer="asleep") as other:
            other.queue("old").offer("o", 1)
            delivery = other.queue("old").try_poll()
            assert delivery is not None
            delivery.ack()
        row = screen.open("/consumers?queue=old").locator("#consumer-table tbody tr")
        expect(row).to_have_class("is-stale")
        expect(row).to_contain_text("stale")

    def test_a_consumer_is_compared_with_others_of_its_queues(self) -> None:
        rows = [
            ConsumerRow(name, queues={queue}, acked=10, work_s=work_s)
            for name, queue, work_s in (("slow", "a", 30.0), ("one", "a", 9.0), ("two", "a", 11.0), ("three", "b", 1.0))
        ]
        slow, fast, _, alone = rows
        assert peers(slow, rows) == "3.0× slower than the median of 2 other consumers of its queues"
        assert peers(fast, rows) == "2.3× faster than the median of 2 other consumers of its queues"
        assert peers(alone, rows) is None

    def test_an_unknown_consumer_is_a_problem(self, screen: Screen) -> None:
        assert get(screen, "/consumers/unknown").status == 404


@pytest.fixture
def empty(server: Server, loop: Loop) -> Iterator[Served]:
    made = served(server, loop, read_only=True)
    yield made
    made.closing.close()


@pytest.mark.parametrize(
    ("path", "words"), [("/messages", "no live messages"), ("/consumers", "No consumer was active")]
)
def test_an_empty_page_shows_how_to_begin(browser: Browser, empty: Served, path: str, words: str) -> None:
    screen = Screen(browser, empty.url)
    expect(screen.open(path).get_by_text(words)).to_be_visible()
    screen.close()
    assert screen.errors == []


def test_a_read_only_dashboard_offers_and_accepts_no_change(browser: Browser, empty: Served) -> None:
    empty.app.queue("q").offer("k", {"n": 1}, after=LATER)
    screen = Screen(browser, empty.url)
    page = screen.open("/messages")
    expect(page.get_by_role("button", name="Change messages")).to_have_count(0)
    context = page.context
    token = next(cookie.get("value", "") for cookie in context.cookies() if "form" in cookie.get("name", ""))
    form: Any = {"form": token, "verb": "drop", "row-1": '["q","k",1]'}
    assert context.request.post(f"{empty.url}/messages/apply", form=form).status == 403
    screen.close()
