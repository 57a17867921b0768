"""What clients send is text on every page, whatever it looks like."""

from __future__ import annotations

import csv
import io
import re
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx
import psycopg
import pytest
from playwright.sync_api import expect
from starlette.routing import Route

import tarry
from tarry.core.cron.model import ScheduleSpec
from tarry.core.cron.schedule_types import Cron
from tarry.edges.dashboard import screens
from tarry.edges.dashboard.redaction import HIDDEN, Redaction
from tests.edges.dashboard.conftest import IS_TOO_WIDE, WIDTHS, Screen, Served

SCRIPT = "<script>document.title='owned'</script>"
IMAGE = '"><img src=x onerror="document.title=1">'
KEYS = (SCRIPT, IMAGE, "../../etc/passwd", "a b%2F?c#d", "=cmd|'/C calc'!A0", "{{ 7 * 7 }}", "\u202eevil")


@pytest.fixture(scope="module", autouse=True)
def hostile(dashboard: Served) -> None:
    dashboard.app.queues.create("a.json")
    queue = dashboard.app.queue("a.json")
    for key in KEYS:
        queue.offer(key, {"x": SCRIPT}, type=SCRIPT[:50])
    dashboard.app.queues.pause("a.json", reason=IMAGE)
    dashboard.app.queues.create("b")
    times = ScheduleSpec(name="nightly", schedule=Cron("0 2 * * *", "UTC"), queue="b", payload=b"1")
    dashboard.app.schedules.put(times)
    with tarry.connect(dashboard.dsn, consumer=IMAGE) as consumer:
        work = consumer.queue("b")
        for key in (SCRIPT, IMAGE):
            work.offer(key, {"x": SCRIPT})
        leased = work.try_poll_many(2)
        leased[0].nack(f"ValueError: {SCRIPT}")
        leased[1].bury(f"KeyError: {IMAGE}")
        work.offer("held", 1)
        work.try_poll()
    with psycopg.connect(dashboard.dsn) as conn:
        conn.execute(
            "insert into tarry.anomaly (fingerprint, detector, detector_version, severity, queue_id, queue, key, consumer, "
            "window_from, window_to, sentence, observed, expected_high, score, evidence, run_id, fresh_at) "
            "select 'f', 'late_delivery', 1, 'warning', id, name, %(key)s, %(consumer)s, now() - interval '5 minutes', "
            "now(), %(key)s, 42, 9, 7.8, 'select 1', 1, now() from tarry.queue where name = 'b'",
            {"key": SCRIPT, "consumer": IMAGE},
        )
        conn.execute(
            "insert into tarry.audit (at, actor, action, queue, detail, status) "
            "values (now(), %(image)s, %(script)s, 'b', jsonb_build_object('name', %(script)s::text), 303)",
            {"image": IMAGE, "script": SCRIPT},
        )


SHOWN = {
    "/consumers": (IMAGE,),
    f"/consumers/{quote(IMAGE, safe='')}": (IMAGE, "ValueError: <script>document.title="),
    "/anomalies": (SCRIPT,),
    "/anomalies/1": (SCRIPT, IMAGE),
    "/system/audit": (SCRIPT, IMAGE),
    "/dead": ("KeyError",),
    "/queues/b/dead": (IMAGE,),
    "/queues/b/at": (),
    f"/queues/b/messages/{quote(SCRIPT, safe='')}": (SCRIPT, IMAGE, f"ValueError: {SCRIPT}"),
}


def test_hostile_names_and_errors_are_texts(screen: Screen) -> None:
    page = screen.open("/")
    for path, texts in SHOWN.items():
        page.goto(f"{screen.url}{path}")
        main = page.locator("main")
        for text in texts:
            expect(main).to_contain_text(text)
        assert "Tarry" in page.title(), path
        assert page.locator("main img, main script").count() == 0, path


def test_hostile_texts_run_nothing(screen: Screen) -> None:
    page = screen.open("/")
    for path in ("/", "/queues", "/queues/a.json", "/queues/a.json/next", "/queues/a.json/settings"):
        page.goto(f"{screen.url}{path}")
        expect(page.locator("main h1")).to_be_visible()
        assert "Tarry" in page.title()
        assert page.locator("main img, main script").count() == 0


def test_hostile_keys_are_shown_as_they_are(screen: Screen) -> None:
    page = screen.open("/queues/a.json/next")
    for key in KEYS:
        expect(page.locator("td code", has_text=key).first).to_be_visible()
    expect(screen.open("/queues/a.json").locator(".verdict").get_by_text(IMAGE)).to_be_visible()


LONG = {"queue": "q" * 100, "key": "W" * 200, "consumer": "c" * 100, "error": "E" * 3_000, "header": "h" * 60}
CUT_OFF = """() => [...document.querySelectorAll("main, main :is(.crumbs, .page-head, .verdict, .why, .panel)")]
    .filter(each => each.scrollWidth > each.clientWidth + 1).map(each => each.id || each.className)"""


def test_the_longest_names_stay_within_their_page_and_its_parts(screen: Screen, dashboard: Served) -> None:
    queue, key = LONG["queue"], LONG["key"]
    with tarry.connect(dashboard.dsn, consumer=LONG["consumer"]) as consumer:
        work = consumer.queue(queue)
        for each in (key, f"{key[1:]}X"):
            work.offer(each, {"x": "é" * 5_000}, type="T" * 100, headers={LONG["header"]: "v" * 300})
        failed, dead = work.try_poll_many(2)
        failed.nack(LONG["error"], after=timedelta(hours=1))
        dead.bury(LONG["error"])
    dashboard.app.queues.pause(queue, reason="r" * 200)
    of_queue = f"/queues/{queue}"
    paths = (
        "/", "/queues", of_queue, f"{of_queue}/next", f"{of_queue}/at", f"{of_queue}/settings", f"{of_queue}/dead", "/dead",
        "/messages", f"{of_queue}/messages/{failed.key}", f"{of_queue}/messages/{dead.key}", f"{of_queue}/dead/redrive",
        "/consumers", f"/consumers/{LONG['consumer']}", "/calendar",
    )  # fmt: skip
    cut_off: dict[str, Any] = {}
    for width in WIDTHS:
        page = screen.open("/", width=width)
        for path in paths:
            page.goto(f"{screen.url}{path}")
            parts = page.evaluate(CUT_OFF)
            if parts or page.evaluate(IS_TOO_WIDE):
                cut_off[f"{path} {width}"] = parts
    dashboard.app.queues.delete(queue, force=True)
    assert cut_off == {}


def test_a_hostile_query_stays_a_query(screen: Screen) -> None:
    page = screen.open("/queues?q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E")
    expect(page.get_by_text("No queue matches.")).to_be_visible()
    assert "<b>" not in httpx.get(f"{screen.url}/queues?range=<b>").text


PATHS = sorted(
    {
        route.path
        for part in screens.PARTS
        for route in part.screen.routes
        if isinstance(route, Route) and "GET" in (route.methods or ())
    }
)
KNOWN = {
    "queue": "b", "key": "held", "consumer": "x", "job": "1", "id": "1", "fingerprint": "0" * 12, "version": "1",
    "schedule": "nightly",
}  # fmt: skip
QUERIES = (
    ("queue", "a\0b"), ("after", "9" * 20), ("after", "0001-01-01T00:00:00Z"), ("instant", "9999-12-31T23:59:59-23:59"),
    ("range", "+99999999999d"), ("q", "é" * 5_000),
)  # fmt: skip


def _filled(path: str, **values: str) -> str:
    given = {**KNOWN, **values}
    return re.sub(r"\{(\w+)(?::path)?\}", lambda match: quote(given[match[1]], safe=""), path)


def test_no_page_fails_on_hostile_values(dashboard: Served) -> None:
    """Each is refused with a sentence, or finds nothing."""
    with httpx.Client(base_url=dashboard.url, timeout=60) as client:
        pages = [path for path in PATHS if "." not in path]
        requests = [(_filled(path), {name: value}) for path in pages for name, value in QUERIES]
        requests += [
            (_filled(path, **{name: value}), {})
            for path in pages
            for name in KNOWN
            for value in ("a\0b", "9" * 20)
            if f"{{{name}" in path
        ]
        failed = [(path, query) for path, query in requests if client.get(path, params=query).status_code >= 500]
    assert failed == []


@pytest.mark.parametrize(
    ("path", "form", "text"),
    [
        ("/queues/b/pause", {"reason": "a\0b"}, "reason must not contain NUL"),
        ("/schedules/nightly/edit", {"way": "cron", "cron": "-1"}, "Cron expression"),
    ],
)
def test_an_invalid_form_is_refused(dashboard: Served, path: str, form: dict[str, str], text: str) -> None:
    with httpx.Client(base_url=dashboard.url) as client:
        client.get("/queues/b")
        response = client.post(path, data={"form": client.cookies["tarry_form"], **form})
    assert (response.status_code, text in response.text) == (422, True)


def test_a_cell_that_looks_like_a_formula_is_text_in_csv(dashboard: Served) -> None:
    response = httpx.get(f"{dashboard.url}/queues/a.json/next.csv")
    keys = {row["key"] for row in csv.DictReader(io.StringIO(response.text))}
    assert "'=cmd|'/C calc'!A0" in keys
    assert response.headers["content-disposition"].startswith("attachment")


def test_a_list_is_the_same_as_json(dashboard: Served) -> None:
    rows = httpx.get(f"{dashboard.url}/queues/a.json/next.json").json()
    assert {row["key"] for row in rows["messages"]} == set(KEYS)
    assert rows["next"] is None


class TestRedaction:
    rules = Redaction(patterns=(r"\b\d{16}\b",))

    @pytest.mark.parametrize(
        ("payload", "shown"),
        [
            (b'{"n": 12345678901234567890.10}', '{\n  "n": 12345678901234567890.10\n}'),
            (b'{"password": "x", "n": 1}', f'{{\n  "password": {HIDDEN},\n  "n": 1\n}}'),
            (b'{"user": {"apiKey": {"a": [1, {"b": 2}]}, "n": 1}}', None),
            (b'{"Auth-Token": null}', f'{{\n  "Auth-Token": {HIDDEN}\n}}'),
            (b"[]", "[]"),
            (b'{"a": {}}', '{\n  "a": {}\n}'),
            (b'["4111111111111111"]', f'[\n  "{HIDDEN}"\n]'),
        ],
    )
    def test_values_of_secret_keys_are_hidden_and_numbers_keep_their_digits(
        self, payload: bytes, shown: str | None
    ) -> None:
        text = self.rules.payload(payload, None).text
        if shown is None:
            shown = f'{{\n  "user": {{\n    "apiKey": {HIDDEN},\n    "n": 1\n  }}\n}}'
        assert text == shown

    def test_decoded_values_are_hidden_alike(self) -> None:
        value = {"password": {"a": 1}, "list": [{"secret": 1}, "4111111111111111"]}
        assert self.rules.value(value) == {"password": HIDDEN, "list": [{"secret": HIDDEN}, HIDDEN]}

    def test_bytes_and_long_texts_are_described(self) -> None:
        assert self.rules.payload(b"\xff\xfe", "application/octet-stream").text == "2 bytes that are not text"
        assert self.rules.payload(b"[" * 200_000, None).cut
