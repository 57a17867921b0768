"""Schedules: the list, one schedule and its actions, and the editor with its preview."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tarry.core.cron.model import Policy, ScheduleSpec
from tarry.core.cron.schedule_types import Cron, Periodic
from tests.edges.dashboard.conftest import IS_TOO_WIDE, Screen, Served, accessible, served
from tests.kit.blocking import Loop
from tests.kit.servers import Server

HOSTILE = '<img src=x onerror=alert(1)>/"&'
HOUR = timedelta(hours=1)


def spec(name: str, queue: str = "jobs", times: Any = None, payload: Any = None, **policy: Any) -> ScheduleSpec:
    data = json.dumps(payload).encode()
    times = times or Cron("30 2 * * *", "America/New_York")
    return ScheduleSpec(name=name, schedule=times, queue=queue, payload=data, policy=Policy(**policy), source="cli")


@pytest.fixture(scope="module")
def jobs(dashboard: Served) -> Served:
    dashboard.app.queues.create("jobs", exist_ok=True)
    return dashboard


@pytest.fixture
def schedule(jobs: Served) -> Iterator[str]:
    jobs.app.schedules.put(spec("nightly", payload={"n": 1, "api_token": "s3cr3t"}))
    yield "nightly"
    jobs.app.schedules.delete("nightly")


def preview_of(page: Page) -> list[datetime]:
    rows = page.locator("#preview tr[data-tick]")
    return [datetime.fromisoformat(row.get_attribute("data-tick") or "") for row in rows.all()]


class TestList:
    def test_without_schedules_it_shows_how_to_create_one(self, screen: Screen) -> None:
        page = screen.open("/schedules")
        expect(page.get_by_text("There are no schedules yet")).to_be_visible()
        expect(page.get_by_text("tarry cron add hello")).to_be_visible()
        expect(page.get_by_role("link", name="New schedule")).to_be_visible()

    def test_a_row_has_its_meaning_zone_next_ticks_and_last_tick(
        self, jobs: Served, schedule: str, screen: Screen
    ) -> None:
        jobs.app.schedules.trigger(schedule)
        row = screen.open("/schedules").locator("#schedule-nightly")
        expect(row).to_contain_text("At 02:30 every day")
        expect(row).to_contain_text("America/New_York")
        expect(row).to_contain_text("triggered")
        expect(row).to_contain_text("active")
        expect(row.locator(".fires time")).to_have_count(3)

    def test_many_schedules_are_pages_by_name_and_a_filter_finds_one(self, screen: Screen, jobs: Served) -> None:
        names = [f"many-{at:03}" for at in range(120)]
        jobs.app.schedules.apply([spec(name, times=Periodic(HOUR)) for name in names])
        try:
            page = screen.open("/schedules")
            expect(page.locator("#schedule-table tbody tr")).to_have_count(50)
            page.get_by_role("link", name="Next page").click()
            expect(page.locator("#schedule-many-050")).to_be_visible()
            page.goto(f"{screen.url}/schedules?q=many-119")
            expect(page.locator("#schedule-table tbody tr")).to_have_count(1)
            response = page.request.get(f"{screen.url}/schedules.json").json()
            assert [row["name"] for row in response["schedules"]] == names
            assert len(page.request.get(f"{screen.url}/schedules.csv").text().splitlines()) == 121
        finally:
            jobs.app.schedules.apply([], remove=names)

    def test_a_hostile_name_payload_and_reason_are_text(self, screen: Screen, jobs: Served) -> None:
        jobs.app.schedules.put(spec(HOSTILE, payload=HOSTILE))
        jobs.app.schedules.pause(HOSTILE, reason=HOSTILE)
        try:
            page = screen.open("/schedules")
            link = page.get_by_role("link", name=HOSTILE, exact=True)
            expect(page.get_by_text(HOSTILE, exact=True)).to_have_count(2)
            link.click()
            expect(page.locator("h1")).to_have_text(HOSTILE)
            expect(page.locator("#facts pre")).to_contain_text("<img src=x onerror=alert(1)>")
            page.get_by_role("link", name="Edit").click()
            expect(page.locator("h1")).to_have_text(f"Edit {HOSTILE}")
            assert page.locator("main img").count() == 0
            page.goto(f"{screen.url}/calendar?by=schedule")
            expect(page.get_by_role("link", name=HOSTILE)).to_be_visible()
            assert page.locator("main img").count() == 0
        finally:
            jobs.app.schedules.delete(HOSTILE)


class TestSchedule:
    @pytest.mark.parametrize("path", ["/schedules/nightly", "/schedules/nightly/edit", "/new-schedule"])
    def test_its_pages_are_accessible(self, schedule: str, screen: Screen, bare: Page, path: str) -> None:
        assert accessible(screen, bare, path) == []

    def test_it_shows_the_clock_changes_the_ledger_and_hides_secrets(
        self, jobs: Served, schedule: str, screen: Screen
    ) -> None:
        jobs.app.schedules.trigger(schedule)
        page = screen.open("/schedules/nightly")
        expect(page.locator("#clock")).to_contain_text("02:30 does not exist that day: it fires at 03:00 EDT.")
        expect(page.locator("#tick-table")).to_contain_text("by hand")
        assert "s3cr3t" not in page.content()
        assert [
            row["verdict"] for row in page.request.get(f"{screen.url}/schedules/nightly/ticks.json").json()["ticks"]
        ]

    def test_its_times_are_shown_in_its_own_zone(self, schedule: str, screen: Screen) -> None:
        page = screen.open("/schedules/nightly", screen.context(timezone_id="Asia/Kolkata"))
        page.keyboard.press("a")
        time, switch = page.locator("#next time").first, page.locator("[data-zone-switch]")
        for zone, name in (("UTC", "UTC"), ("Local", "GMT+5:30"), ("America/New_York", "GMT−"), ("UTC", "UTC")):  # noqa: RUF001 - as browsers write it
            expect(switch).to_have_text(zone)
            expect(time).to_contain_text(name)
            switch.click()
        page.set_viewport_size({"width": 390, "height": 844})
        assert not page.evaluate(IS_TOO_WIDE), "exact times make the page wider than a phone"
        page.set_viewport_size({"width": 1280, "height": 900})
        page.goto(f"{screen.url}/schedules")
        expect(switch).to_have_text("Local")

    def test_a_tick_is_explained(self, schedule: str, screen: Screen) -> None:
        page = screen.open("/schedules/nightly?tick=2030-03-10T07:00:00Z")
        expect(page.get_by_text("it lies ahead, and will be planned")).to_be_visible()

    def test_it_is_paused_with_a_reason_and_resumed(self, jobs: Served, schedule: str, screen: Screen) -> None:
        page = screen.open("/schedules/nightly")
        page.get_by_role("button", name="Pause").click()
        dialog = page.get_by_role("dialog", name="Pause nightly")
        dialog.get_by_label("Reason").fill("the printer is broken")
        dialog.get_by_role("button", name="Pause").click()
        expect(page.locator(".notice")).to_contain_text("nightly is paused")
        state = jobs.app.schedules.get(schedule)
        assert (state.paused, state.paused_reason) == (True, "the printer is broken")
        expect(page.locator(".paused-note")).to_contain_text("by anonymous: the printer is broken")
        page.get_by_role("button", name="Resume").click()
        page.get_by_role("dialog").get_by_role("button", name="Resume").click()
        expect(page.locator(".notice")).to_contain_text("fires again")
        assert not jobs.app.schedules.get(schedule).paused

    def test_it_is_triggered_and_its_next_tick_is_skipped(self, jobs: Served, schedule: str, screen: Screen) -> None:
        page = screen.open("/schedules/nightly")
        page.get_by_role("button", name="Trigger").click()
        page.get_by_role("dialog").get_by_role("button", name="Trigger").click()
        expect(page.locator(".notice")).to_contain_text("nightly was triggered")
        page.get_by_role("button", name="Skip next").click()
        page.get_by_role("dialog").get_by_role("button", name="Skip it").click()
        expect(page.locator(".notice")).to_contain_text("leaves out its tick")
        verdicts = {record.verdict.value for record in jobs.app.schedules.history(schedule)}
        assert {"triggered", "skipped"} <= verdicts

    def test_a_backfill_shows_its_number_first(self, jobs: Served, schedule: str, screen: Screen) -> None:
        page = screen.open("/schedules/nightly")
        page.get_by_role("button", name="Backfill").click()
        dialog = page.get_by_role("dialog", name="Backfill nightly")
        dialog.get_by_label("From").fill("2025-06-01T00:00")
        dialog.get_by_label("Before").fill("2025-06-04T00:00")
        dialog.get_by_role("button", name="Count them").click()
        expect(page.locator("h1")).to_have_text("Backfill: 3 messages")
        assert not [r for r in jobs.app.schedules.history(schedule) if r.verdict.value == "backfilled"]
        page.get_by_role("button", name="Create 3 messages").click()
        expect(page.locator(".notice")).to_contain_text("3 messages of nightly created")
        made = [r.tick for r in jobs.app.schedules.history(schedule) if r.verdict.value == "backfilled"]
        assert made == [datetime(2025, 6, day, 6, 30, tzinfo=UTC) for day in (3, 2, 1)]

    def test_it_is_deleted_after_its_name_was_typed(self, jobs: Served, schedule: str, screen: Screen) -> None:
        page = screen.open("/schedules/nightly")
        page.get_by_role("button", name="Delete").click()
        dialog = page.get_by_role("dialog", name="Delete nightly")
        expect(dialog.get_by_role("button", name="Delete")).to_be_disabled()
        dialog.get_by_label("Type nightly to delete it").fill("nightly")
        dialog.get_by_role("button", name="Delete").click()
        expect(page.locator(".notice")).to_contain_text("nightly is deleted")
        assert not [state for state in jobs.app.schedules.list() if state.name == schedule]
        page.goto(f"{screen.url}/schedules/nightly")
        expect(page.get_by_text("This is its history.")).to_be_visible()


class TestEditor:
    @pytest.mark.parametrize(
        ("zone", "expression", "sentence", "effect"),
        [
            ("America/New_York", "30 2 * * *", "by 1 h", "02:30 does not exist that day: it fires at 03:00 EDT."),
            (
                "Europe/London",
                "30 1 * * *",
                "by 1 h",
                "01:30 occurs twice: it fires once, the first time, at 01:30 BST.",
            ),
            ("Australia/Lord_Howe", "15 2 * * *", "by 30 min", "02:15 does not exist that day: it fires at 02:30 +11."),
            ("America/Nuuk", "30 23 * * *", "by 1 h", "23:30 does not exist that day"),
        ],
    )
    def test_the_preview_explains_what_happens_when_the_clock_is_set(
        self, screen: Screen, zone: str, expression: str, sentence: str, effect: str
    ) -> None:
        page = screen.open("/new-schedule")
        page.get_by_label("Cron expression").first.check()
        page.get_by_role("combobox", name="Zone").fill(zone)
        page.locator("#field-cron").fill(expression)
        changes = page.locator("#preview .changes")
        expect(changes).to_contain_text(effect)
        expect(changes).to_contain_text(sentence)
        expect(changes.locator("li")).to_have_count(2)

    @pytest.mark.parametrize("viewer", ["Asia/Tokyo", "America/New_York"])
    def test_what_is_previewed_is_what_the_scheduler_plans(self, screen: Screen, jobs: Served, viewer: str) -> None:
        page = screen.open("/new-schedule", screen.context(timezone_id=viewer))
        page.get_by_role("textbox", name="Name").fill("mails")
        page.locator("#field-queue").fill("jobs")
        page.get_by_label("On a day of the month").check()
        page.get_by_label("Day", exact=True).select_option(label="the last business day")
        page.get_by_label("Time of day").fill("18:45")
        page.get_by_role("combobox", name="Zone").fill("Europe/London")
        preview = page.locator("#preview")
        expect(preview).to_contain_text("At 18:45 on the last weekday of every month")
        expect(preview).to_contain_text("45 18 LW * *")
        expect(preview.get_by_text(f"Your zone: {viewer}")).to_be_visible()
        shown = preview_of(page)
        page.get_by_label("Payload").fill('{"kind": "invoice"}')
        page.get_by_role("button", name="Create schedule").click()
        expect(page.locator(".notice")).to_contain_text("mails is created")
        try:
            planned = [fire.tick for fire in jobs.app.schedules.preview("mails", 10)]
            assert shown == planned
            state = jobs.app.schedules.get("mails")
            assert (state.spec.schedule, state.spec.payload) == (
                Cron("45 18 LW * *", "Europe/London"),
                b'{"kind":"invoice"}',
            )
            assert [r.tick for r in jobs.app.schedules.history("mails") if r.verdict.value == "planned"] == planned[:1]
        finally:
            page.close()  # else it refreshes, and finds no schedule
            jobs.app.schedules.delete("mails")

    def test_an_error_names_its_field_and_marks_it(self, screen: Screen) -> None:
        page = screen.open("/new-schedule")
        page.get_by_label("Cron expression").first.check()
        page.locator("#field-cron").fill("0 25 * * *")
        preview = page.locator("#preview")
        expect(preview).to_contain_text("the hour field of the cron expression '0 25 * * *' is wrong: '25'")
        expect(preview.locator("mark")).to_have_text("25")
        expect(page.locator("#field-cron")).to_have_attribute("aria-invalid", "true")
        page.locator("#field-cron").fill("0 23 * * *")
        expect(page.locator("#field-cron")).not_to_have_attribute("aria-invalid", "true")
        page.get_by_role("combobox", name="Zone").fill("Europe/Berlim")
        expect(preview).to_contain_text("did you mean Europe/Berlin")
        page.get_by_role("combobox", name="Zone").fill("UTC")
        page.get_by_label("Payload").fill('{"n": 1,}')
        expect(preview).to_contain_text("this is not JSON")

    def test_what_cannot_be_saved_stays_in_the_form(self, screen: Screen, jobs: Served) -> None:
        screen.errors.clear()
        page = screen.open("/new-schedule")
        page.get_by_role("textbox", name="Name").fill("half")
        page.locator("#field-queue").fill("jobs")
        page.get_by_label("Payload").fill("{")
        page.get_by_role("button", name="Create schedule").click()
        expect(page.locator("#preview .wrong")).to_contain_text("Payload: this is not JSON")
        expect(page.get_by_role("textbox", name="Name")).to_have_value("half")
        assert not [state for state in jobs.app.schedules.list() if state.name == "half"]
        screen.errors[:] = [error for error in screen.errors if "422" not in error]

    def test_simple_form_and_cron_text_are_two_forms_of_the_same_times(self, screen: Screen) -> None:
        page = screen.open("/new-schedule")
        page.get_by_role("button", name="Edit as cron text").click()
        expect(page.locator("#field-cron")).to_have_value("0 9 * * 1-5")
        page.get_by_role("button", name="Edit in simple form").click()
        expect(page.get_by_label("On days of the week")).to_be_checked()
        page.get_by_label("Cron expression").first.check()
        page.locator("#field-cron").fill("*/7 9-17 * * 1-5")
        expect(page.locator("#preview")).to_contain_text("This expression has no simple form")
        page.get_by_label("Every …").check()
        expect(page.locator("#preview")).to_contain_text("This has no cron text")

    def test_schedules_that_fire_at_the_same_minute_are_counted(self, schedule: str, screen: Screen) -> None:
        page = screen.open("/new-schedule")
        page.get_by_label("Cron expression").first.check()
        page.get_by_role("combobox", name="Zone").fill("America/New_York")
        page.locator("#field-cron").fill("30 2 * * *")
        expect(page.locator("#preview")).to_contain_text("Fires with 1 other schedule at")
        page.locator("#field-cron").fill("31 2 * * *")
        expect(page.locator("#preview")).not_to_contain_text("other schedule")

    def test_a_copy_has_the_times_of_its_original_and_another_name(
        self, jobs: Served, schedule: str, screen: Screen
    ) -> None:
        page = screen.open("/schedules/nightly")
        page.get_by_role("link", name="Clone").click()
        expect(page.get_by_role("textbox", name="Name")).to_have_value("nightly-copy")
        page.get_by_role("button", name="Create schedule").click()
        expect(page.locator(".notice")).to_contain_text("nightly-copy is created")
        try:
            copy, original = (jobs.app.schedules.get(name).spec for name in ("nightly-copy", "nightly"))
            assert (copy.schedule, copy.queue, copy.source) == (original.schedule, original.queue, "dashboard")
        finally:
            page.close()
            jobs.app.schedules.delete("nightly-copy")

    def test_a_schedule_of_a_program_names_its_owner(self, jobs: Served, screen: Screen) -> None:
        jobs.app.schedules.put(replace(spec("owned"), source="shop.schedules"))
        try:
            expect(screen.open("/schedules").locator("#schedule-owned")).to_contain_text("managed by shop.schedules")
            for path in ("/schedules/owned", "/schedules/owned/edit"):
                badge = screen.open(path).locator(".page-head .badge")
                expect(badge).to_have_text("managed by shop.schedules: edits last until its next deploy")
        finally:
            jobs.app.schedules.delete("owned")

    def test_a_change_keeps_what_is_hidden_of_the_payload(self, jobs: Served, schedule: str, screen: Screen) -> None:
        page = screen.open("/schedules/nightly/edit")
        expect(page.get_by_label("Keep the stored payload")).to_be_checked()
        page.get_by_label("Time of day").fill("03:15")
        expect(page.locator("#preview")).to_contain_text("At 03:15 every day")
        page.get_by_role("button", name="Save").click()
        expect(page.locator(".notice")).to_contain_text("nightly is changed: 30 2 * * * to 15 3 * * *")
        state = jobs.app.schedules.get(schedule)
        assert state.spec.schedule == Cron("15 3 * * *", "America/New_York")
        assert json.loads(state.spec.payload) == {"n": 1, "api_token": "s3cr3t"}

    def test_a_schedule_that_was_changed_meanwhile_is_not_overwritten(
        self, jobs: Served, schedule: str, screen: Screen
    ) -> None:
        page = screen.open("/schedules/nightly/edit")
        jobs.app.schedules.put(spec("nightly", times=Cron("0 4 * * *", "UTC")))
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#preview .wrong")).to_contain_text("changed by others since this page was opened")
        assert jobs.app.schedules.get(schedule).spec.schedule == Cron("0 4 * * *", "UTC")
        screen.errors[:] = [error for error in screen.errors if "422" not in error]

    def test_it_works_without_scripts(self, screen: Screen) -> None:
        page = screen.open("/new-schedule", screen.context(java_script_enabled=False))
        page.get_by_label("Time of day").fill("07:05")
        page.get_by_role("button", name="Preview").click()
        expect(page.locator("#preview")).to_contain_text("At 07:05 on Monday through Friday")
        expect(page.get_by_label("Time of day")).to_have_value("07:05")

    def test_an_expensive_expression_does_not_block_other_pages(self, screen: Screen, jobs: Served) -> None:
        page = screen.open("/new-schedule")
        page.get_by_label("Cron expression").first.check()
        page.locator("#field-cron").fill("* * * * * *")
        expect(page.locator("#preview")).to_contain_text("Every second")
        page.locator("#field-cron").fill("0 0 29 2 1")
        expect(page.locator("#preview tr[data-tick]").first).to_be_visible()


ACTIONS = ("trigger", "pause", "resume", "skip", "backfill", "delete", "edit")


@pytest.fixture(scope="module")
def keyed(server: Server, loop: Loop) -> Iterator[tuple[Served, dict[str, str]]]:
    made = served(server, loop, keyless=False)
    made.app.queues.create("jobs", exist_ok=True)
    made.app.queues.create("other", exist_ok=True)
    actions = {"viewer": ["read"], "operator": ["read", "produce", "consume"], "admin": ["read", "admin"]}
    keys = {role: str(made.app.keys.create(role, given)[1]) for role, given in actions.items()}
    keys["foreign"] = str(made.app.keys.create("foreign", ["read", "admin"], ["other"])[1])
    yield made, keys
    made.closing.close()


class TestPermissions:
    @pytest.mark.parametrize("action", ACTIONS)
    @pytest.mark.parametrize(("role", "status"), [("viewer", 403), ("operator", 403), ("admin", 303), ("foreign", 404)])
    def test_a_form_needs_the_right_of_its_route(
        self, browser: Browser, keyed: tuple[Served, dict[str, str]], role: str, status: int, action: str
    ) -> None:
        made, keys = keyed
        made.app.schedules.put(spec("nightly"))
        before = made.app.schedules.get("nightly")
        form: dict[str, str | float | bool] = {
            "confirm": "nightly",
            "since": "2025-06-01T00:00:00Z",
            "until": "2025-06-02T00:00:00Z",
        }
        form |= {"queue": "jobs", "way": "every", "every": "5m", "payload": "1"}
        context = browser.new_context(extra_http_headers={"authorization": f"Bearer {keys[role]}"})
        response = context.request.post(f"{made.url}/schedules/nightly/{action}", form=form, max_redirects=0)
        detail = response.text()
        context.close()
        assert response.status == status, detail
        if status != 303:
            assert made.app.schedules.get("nightly") == before

    @pytest.mark.parametrize(("role", "status"), [("viewer", 403), ("operator", 403), ("admin", 303), ("foreign", 403)])
    def test_creating_needs_admin_on_the_queue(
        self, browser: Browser, keyed: tuple[Served, dict[str, str]], role: str, status: int
    ) -> None:
        made, keys = keyed
        form: dict[str, str | float | bool] = {
            "name": f"of-{role}",
            "queue": "jobs",
            "way": "every",
            "every": "5m",
            "payload": "1",
        }
        context = browser.new_context(extra_http_headers={"authorization": f"Bearer {keys[role]}"})
        response = context.request.post(f"{made.url}/new-schedule", form=form, max_redirects=0)
        listed = context.request.get(f"{made.url}/schedules.json").json()["schedules"]
        detail = response.text()
        context.close()
        assert response.status == status, detail
        assert (f"of-{role}" in {state.name for state in made.app.schedules.list()}) == (status == 303)
        assert role != "foreign" or listed == []

    def test_a_form_of_another_site_is_rejected(self, schedule: str, jobs: Served, screen: Screen) -> None:
        response = screen.context().request.post(f"{screen.url}/schedules/nightly/delete", form={"confirm": "nightly"})
        assert response.status == 403
        assert jobs.app.schedules.get(schedule)

    def test_a_viewer_sees_no_buttons(self, browser: Browser, server: Server, loop: Loop) -> None:
        made = served(server, loop, read_only=True)
        try:
            made.app.queues.create("jobs", exist_ok=True)
            made.app.schedules.put(spec("nightly"))
            context = browser.new_context()
            page = context.new_page()
            page.goto(f"{made.url}/schedules/nightly")
            expect(page.locator("h1")).to_have_text("nightly")
            expect(page.get_by_role("button", name=re.compile("Pause|Delete|Run"))).to_have_count(0)
            context.close()
        finally:
            made.closing.close()
