"""System, anomalies, pipeline and archive: with nothing, one and many rows; what they do; what the explorer refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Browser, Page, expect

from tarry.admin import described
from tarry.core.settings import StoreSettings
from tarry.edges.dashboard.screens.system import setting_rows
from tarry.edges.spark.report.html import page as report_page
from tests.edges.dashboard.conftest import IS_TOO_WIDE, Screen, Served, accessible, served
from tests.edges.dashboard.pipeline_results import SENTENCE, publish
from tests.edges.spark.sample_report import NASTY, full
from tests.kit.blocking import Loop
from tests.kit.servers import Server

EMPTY = {
    "/anomalies": "It has not run yet",
    "/pipeline": "has not run on this database yet",
    "/archive": "Nothing was archived",
    "/system/audit": "No administrative action was recorded yet",
}
PAGES = (
    "/anomalies/1", "/system/checks", "/system/settings", "/system/audit?limit=5", "/archive?sql=select+*+from+events+limit+5"
)  # fmt: skip
"""Those that the tests of the frame do not open."""


@pytest.fixture(scope="module")
def filled(server: Server, loop: Loop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = served(server, loop)
    orders = made.app.queue("orders")
    orders.offer("order-16", {"n": 1})
    orders.poll(timedelta(0)).nack("TimeoutError: no response after 31 s", after=timedelta(hours=1))
    orders.offer("order-17", {"n": 1})
    publish(made.dsn, tmp_path_factory.mktemp("lake"), anomalies=130, runs=40, files=4)
    with psycopg.connect(made.dsn) as conn:
        conn.execute(
            "insert into tarry.audit (at, actor, action, queue, detail, status) "
            "select now() - n * interval '1 second', 'key-' || n % 2, 'action ' || n % 3, 'orders', "
            '\'{"password": "x"}\', 200 from generate_series(1, 120) n',
            prepare=False,
        )
    yield made
    made.closing.close()


@pytest.fixture
def many(browser: Any, filled: Served) -> Iterator[Screen]:
    screen = Screen(browser, filled.url)
    yield screen
    screen.close()
    assert screen.errors == [], "errors in the browser's console"


def get(screen: Screen, path: str) -> Any:
    return screen.get(path)


@pytest.mark.parametrize("path", sorted(EMPTY))
def test_a_screen_without_rows_explains_how_to_get_some(screen: Screen, path: str) -> None:
    expect(screen.open(path).get_by_role("main")).to_contain_text(EMPTY[path])


def test_one_anomaly_and_one_file_are_shown(server: Server, loop: Loop, browser: Any, tmp_path: Path) -> None:
    made = served(server, loop)
    made.app.queues.create("orders")
    publish(made.dsn, tmp_path)
    single = Screen(browser, made.url)
    expect(single.open("/anomalies").locator(".inbox li")).to_have_count(1)
    expect(single.open("/archive").get_by_role("main")).to_contain_text("A query reads 1 file")
    expect(single.open("/pipeline").get_by_role("main")).to_contain_text("120,431 events of archive and journal fold")
    single.close()
    made.closing.close()
    assert single.errors == []


def test_the_navigation_counts_the_entries_of_the_inbox(
    server: Server, loop: Loop, browser: Any, tmp_path: Path
) -> None:
    made = served(server, loop)
    made.app.queues.create("orders")
    publish(made.dsn, tmp_path, anomalies=12)
    inbox = Screen(browser, made.url)
    page = inbox.open("/anomalies")
    expect(page.locator(".inbox > li")).to_have_count(9)  # four are alike
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "live")  # they were read in the background
    page.reload()
    expect(page.get_by_role("navigation", name="Screens").locator(".count")).to_have_text("9")
    inbox.close()
    made.closing.close()
    assert inbox.errors == []


def test_full_pages_are_accessible(many: Screen, bare: Page) -> None:
    for path in (*PAGES, "/anomalies?limit=5", "/pipeline?limit=5"):
        assert accessible(many, bare, path) == [], path


@pytest.mark.parametrize(
    "path", ["/archive", "/system", "/anomalies", "/pipeline", "/system/audit", "/archive?sql=select+*+from+events"]
)
def test_a_full_page_stays_small(many: Screen, path: str) -> None:
    response = get(many, path)
    assert (response.status, len(response.body()) <= 150_000) == (200, True)


@pytest.mark.parametrize(
    ("path", "name"), [("/anomalies", "anomalies"), ("/pipeline", "runs"), ("/system/audit", "audit")]
)
def test_a_list_goes_on_by_key_until_its_end_without_a_row_twice(many: Screen, path: str, name: str) -> None:
    seen: list[int] = []
    after: str | None = None
    while True:
        page = get(many, f"{path}.json?limit=50{f'&after={after}' if after else ''}").json()
        seen += [row["id"] for row in page[name]] if name != "audit" else [row["at"] for row in page[name]]
        after = page["next"]
        if after is None:
            break
    assert len(seen) >= 120
    assert name == "audit" or len(seen) == len(set(seen))
    assert get(many, f"{path}.csv").text().count("\n") > 100


def test_the_database_is_shown_with_its_tables_and_partitions(many: Screen) -> None:
    page = many.open("/system")
    expect(page.get_by_role("table", name="Tables of Tarry")).to_contain_text("message")
    expect(page.get_by_role("table", name="Partitions of the journal")).to_contain_text("overflow")
    names = [row["name"] for row in get(many, "/system.json").json()["tables"]]
    assert {"message", "audit"} <= set(names)


def test_the_checks_of_the_doctor_and_migrations_are_listed(many: Screen) -> None:
    page = many.open("/system/checks")
    expect(page.get_by_role("table", name="Checks")).to_contain_text("journal partitions")
    expect(page.get_by_role("table", name="Migrations")).to_contain_text("0001_pre_initial")


def test_settings_hide_secrets(many: Screen) -> None:
    assert "pool_size" in get(many, "/system/settings.json").text()
    chosen = StoreSettings(listen_dsn="postgresql://me:hunter2@db/shop")
    values = {row.name: (row.value, row.is_default) for row in setting_rows("Store", chosen)}
    assert values["connection_retry.retries"] == ("5", True)
    assert values["listen_dsn"] == ("***", False)
    assert values["pool_size"] == ("10", True)
    assert "hunter2" not in described("postgresql://me:hunter2@db/shop")


def test_the_audit_log_is_filtered_by_actor_and_action_and_hides_secrets(many: Screen) -> None:
    page = many.open("/system/audit?actor=key-1&action=action+2")
    rows = page.locator("#audit-list tbody tr")
    expect(rows).to_have_count(20)
    expect(rows.first).not_to_contain_text('"password":"x"')
    page.get_by_role("link", name="All", exact=True).click()
    expect(page).to_have_url(re.compile("/system/audit$"))


def test_an_anomaly_is_explained_and_leads_to_its_messages(many: Screen) -> None:
    page = many.open("/anomalies/1")
    expect(page.get_by_role("heading", level=1)).to_contain_text(SENTENCE)
    expect(page.locator("#chart-anomaly")).to_contain_text("usual, at most")
    for path in ("/anomalies/1", "/anomalies", "/archive", "/pipeline"):
        for panel in many.open(path).locator(".fresh").all():
            expect(panel).to_have_text(re.compile(r"^batch, run \d+, "))
    link = page.get_by_role("link", name="Show the messages")
    expect(link).to_have_attribute("href", re.compile(r"/messages\?q=queue%3Aorders"))
    expect(page.locator("#factors")).to_contain_text("TimeoutError: no response after <n> s")
    expect(page.locator("#factors tbody tr")).to_have_count(2)  # and the consumer


def test_anomalies_that_differ_only_in_particulars_are_one_entry(many: Screen) -> None:
    page = many.open("/anomalies?detector=large_payload")
    entries = page.locator(".inbox > li")
    expect(entries).to_have_count(1)
    more = entries.locator("details")
    more.locator("summary").click()
    expect(more.locator("li")).to_have_count(42)
    more.get_by_role("link").last.click()
    expect(page).to_have_url(re.compile(r"/anomalies/\d+"))
    expect(many.open("/anomalies?detector=late_delivery&limit=20").locator(".inbox > li")).to_have_count(20)


def test_charts_mark_anomalies_pauses_and_deploys(many: Screen, filled: Served) -> None:
    filled.app.queues.pause("orders", reason="deploy")
    page = many.open("/?range=7d")
    page.get_by_role("button", name="Mark a deploy").click()
    page.get_by_label("What was deployed").fill("shop <b>1.4.2</b>")
    page.get_by_role("dialog").get_by_role("button", name="Mark", exact=True).click()
    marks = page.locator("#chart-marks li")
    expect(marks.filter(has_text="shop <b>1.4.2</b>")).to_have_count(1)
    page.goto(f"{many.url}/?range=7d")  # anomalies were read in the background
    expect(marks.filter(has_text="orders is paused")).to_have_count(1)
    marks.filter(has_text="of orders").first.get_by_role("link").click()
    expect(page).to_have_url(re.compile(r"/anomalies/\d+"))
    page.goto(f"{many.url}/queues/orders")
    page.set_viewport_size({"width": 390, "height": 844})
    longer = (
        "li => li.innerHTML = li.innerHTML.replace('</a>', ' (ProviderDown)</a><small>and 45 more like it</small>')"
    )
    page.get_by_role("list", name="Anomalies").get_by_role("listitem").first.evaluate(longer)
    assert not page.evaluate(IS_TOO_WIDE), "a long sentence makes the page wider than a phone"
    page.get_by_role("list", name="Anomalies").get_by_role("link").first.click()
    expect(page).to_have_url(re.compile(r"/anomalies/\d+"))
    filled.app.queues.resume("orders")


def test_a_run_has_its_window_its_watermark_and_what_it_changed(many: Screen) -> None:
    page = many.open("/pipeline?job=anomalies")
    row = page.locator("#run-list tbody tr").first
    expect(row).to_contain_text("2026-11-16 to 2026-11-17")
    rows = get(many, "/pipeline.json?job=anomalies").json()["runs"]
    assert (rows[0]["days"], rows[0]["until"]) == ("2026-11-16 to 2026-11-17", "2026-11-17T11:59:30.000000Z")
    assert get(many, "/pipeline.json?job=metrics").json()["runs"][0]["changed"] == 61


def test_a_job_of_the_pipeline_can_be_started_here_or_the_page_explains_why_not(many: Screen) -> None:
    page = many.open("/pipeline?job=archive")
    expect(page.get_by_role("button", name="Run again now")).to_be_visible()
    page.goto(f"{many.url}/pipeline?job=metrics")
    page.get_by_label("Days from").fill("2026-01-31")
    page.get_by_label("to", exact=True).fill("2026-01-30")
    page.get_by_role("button", name="Run again now").click()
    expect(page.get_by_role("main")).to_contain_text("the last day 2026-01-30 is before the first one")
    many.errors.clear()
    page.goto(f"{many.url}/pipeline?job=anomalies")
    expect(page.locator("#runs")).to_contain_text("It cannot be started here: anomalies is run where its options")
    expect(page.get_by_role("button", name="Run again now")).to_have_count(0)


def test_an_acknowledged_anomaly_leaves_the_inbox(many: Screen) -> None:
    page = many.open("/anomalies/2")
    page.get_by_role("button", name="Acknowledge").first.click()
    page.get_by_label("Note").fill("deploy of 12:00, see https://incidents.test/7")
    page.get_by_role("dialog").get_by_role("button", name="Acknowledge").click()
    expect(page.get_by_role("main")).to_contain_text("deploy of 12:00")
    expect(page.get_by_role("link", name="https://incidents.test/7")).to_have_attribute("rel", "noopener noreferrer")
    ids = [row["id"] for row in get(many, "/anomalies.json?limit=200").json()["anomalies"]]
    assert 2 not in ids


def test_a_false_positive_is_marked_and_shown_as_one(many: Screen) -> None:
    page = many.open("/anomalies")
    page.locator(".inbox a").first.click()
    page.get_by_role("button", name="False positive").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("For 90 days")
    dialog.get_by_role("button", name="Mark").click()
    expect(page.locator(".notice")).to_contain_text("false positive")
    expect(page.locator(".verdict")).to_contain_text("false positive")
    expect(page.get_by_role("button", name="False positive")).to_have_count(0)


def test_a_mute_is_listed_and_ended(many: Screen) -> None:
    page = many.open("/anomalies/3")
    page.get_by_role("button", name="Mute").first.click()
    page.get_by_label("Reason").fill("<i>load test</i>")
    page.get_by_role("dialog").get_by_role("button", name="Mute").click()
    expect(page.locator("#mutes")).to_contain_text("<i>load test</i>")
    page.get_by_role("button", name="End").click()
    expect(page.locator("#mutes")).to_have_count(0)


def test_a_query_on_the_archive_is_a_table_and_a_file(many: Screen) -> None:
    page = many.open("/archive")
    page.get_by_role("textbox", name="SQL").fill(
        "select kind, count(*) as events from events group by kind order by kind;"
    )
    page.get_by_role("button", name="Run").click()
    expect(page.locator("#result-list tbody tr")).to_have_count(3)
    link = page.get_by_role("link", name="Download as Parquet").get_attribute("href") or ""
    table = pq.read_table(BytesIO(get(many, link.removeprefix("/dashboard")).body()))
    assert table.to_pydict() == {"kind": ["acked", "leased", "offered"], "events": [400, 400, 400]}
    assert get(many, "/archive/result?sql=select * from read_text('/etc/passwd')").status == 422
    response = get(many, "/archive.csv?sql=select kind, count(*) as n from events group by kind order by kind")
    assert response.text().splitlines() == ["kind,n", "acked,400", "leased,400", "offered,400"]
    assert len(get(many, "/archive.csv?sql=select * from events").text().splitlines()) == 1_001


HOSTILE = {
    "select * from read_text('/etc/passwd')": "not available",
    "select * from '/etc/passwd'": "no table",
    "select * from read_csv('/etc/passwd')": "not available",
    "select * from glob('/**')": "not available",
    "select * from query('select 1')": "not available",
    "select * from duckdb_settings()": "not available",
    "select * from information_schema.tables": "no table",
    "with \"/etc/passwd\" as (select 1) select * from '/etc/passwd'": "no table",
    "attach '/tmp/other.db'": "cannot be run",
    "copy (select 1) to '/tmp/written.csv'": "cannot be run",
    "pragma database_list": "cannot be run",
    "set enable_external_access = true": "cannot be run",
    "install httpfs": "cannot be run",
    "create table t as select 1": "cannot be run",
    "select 1; select 2": "one statement",
    "select payload from events": "DuckDB",
    "select getenv('HOME')": "DuckDB",
    "select list(a.range) from range(1000000000) a": "memory",
    "select count(*) from range(100000000000) a, range(100) b": "cut off",
    "select": "cannot be run",
}


@pytest.mark.parametrize("statement", sorted(HOSTILE))
def test_the_explorer_refuses_what_is_no_bounded_query_on_events(many: Screen, statement: str) -> None:
    response = many.get("/archive.json", params={"sql": statement})
    assert response.status == 422, response.text()
    assert HOSTILE[statement] in response.json()["detail"]
    assert "root:" not in response.text()
    assert not Path("/tmp/written.csv").exists()


def test_a_refused_query_stays_in_the_box(many: Screen) -> None:
    page = many.open("/archive?sql=drop+table+events")
    expect(page.get_by_role("alert")).to_contain_text("cannot be run")
    expect(page.get_by_role("textbox", name="SQL")).to_have_value("drop table events")


def test_a_query_on_days_without_files_waits_for_other_days(many: Screen) -> None:
    days = "since=2001-01-01&until=2001-01-02"
    page = many.open(f"/archive?sql=select+kind+from+events&{days}")
    expect(page.get_by_role("main")).to_contain_text("No file matches these days and this queue.")
    page.get_by_role("textbox", name="From").fill("")
    page.get_by_role("textbox", name="To", exact=True).fill("")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("textbox", name="SQL")).to_have_value("select kind from events")
    assert many.get(f"/archive.json?sql=select+1&{days}").status == 409


def test_without_duckdb_the_page_names_the_extra(many: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.edges.dashboard.lake_sql.find_spec", lambda name: None)
    page = many.open("/archive")
    expect(page.get_by_role("main")).to_contain_text("pip install 'tarry[archive]'")
    expect(page.get_by_role("table", name="Partitions")).to_contain_text("orders")


def test_the_file_with_the_report_of_the_pipeline_draws_its_charts_and_fetches_nothing(
    browser: Browser, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    file.write_text(report_page(replace(full(NASTY), notes=(NASTY,))), encoding="utf-8")
    errors: list[str] = []
    fetched: list[str] = []
    shown = browser.new_page()
    shown.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    shown.on("pageerror", lambda error: errors.append(str(error)))
    shown.on("dialog", lambda dialog: errors.append(dialog.message))
    shown.on("request", lambda request: fetched.append(request.url))
    shown.goto(file.as_uri())
    expect(shown.locator("tarry-chart canvas")).to_have_count(5)
    assert errors == []
    assert [url for url in fetched if not url.startswith("data:")] == [file.as_uri()]
    shown.close()
