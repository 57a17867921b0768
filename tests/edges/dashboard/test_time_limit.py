"""A page ends after two seconds, whatever the database does, and offers the same question about less."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString, NamedTuple
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx
import psycopg
import pytest
from fastapi import FastAPI
from playwright.sync_api import Page

from tarry.app import AsyncApp, connect_async
from tarry.core.settings import StoreSettings
from tarry.dashboard import create_dashboard
from tarry.edges.dashboard import screens
from tests.edges.dashboard.conftest import Screen, accessible
from tests.edges.dashboard.pipeline_results import archive_story, publish
from tests.kit.blocking import Blocking, Loop
from tests.kit.servers import Server
from tests.kit.sleepers import until
from tests.kit.uvicorn_server import running

LIMIT_S = 2
LOCK: LiteralString = (
    "lock table tarry.queue, tarry.message, tarry.event, tarry.dead_letter, tarry.schedule, tarry.anomaly, "
    "tarry.pipeline_run, tarry.archive_batch, tarry.audit, tarry.worker, tarry.rollup_head"
)
PATIENT = StoreSettings(pool_size=4, lock_for=timedelta(minutes=1))
"""Statements wait for a lock much longer than a page lasts."""
LISTS = [part.screen.path for part in screens.PARTS if part.screen.path not in ("/", "/system")]
QUEUES = {"queue": ["emails", "orders"]}
OFFERED: Mapping[str, Mapping[str, Sequence[str]]] = {
    "/?range=6h": {"range": ["1h", "15m"]},
    "/queues/orders?range=24h": {"range": ["6h", "1h", "15m"]},
    "/consumers?range=24h": {"range": ["6h", "1h", "15m"]},
    "/calendar?span=30d": {"span": ["7d", "24h"], **QUEUES},
    "/dead?sort=count": QUEUES,
    "/anomalies": QUEUES,
    "/messages?q=error:~timeout state:ready": {
        "q": [
            "state:ready",
            "queue:emails error:~timeout state:ready",
            "queue:orders error:~timeout state:ready",
            "error:~timeout state:ready due:>now due:<+1h",
        ]
    },
    "/messages?q=state:done queue:orders": {"queue": ["orders"]},
}
"""What differs in the addresses that a page offers, in their order."""


class Ended(NamedTuple):
    response: httpx.Response
    took_s: float


class Stuck(NamedTuple):
    """A dashboard with its default settings, and what became of its pages while all tables were locked."""

    url: str
    ended: Mapping[str, Ended]


@pytest.fixture(scope="module")
def stuck(server: Server, loop: Loop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stuck]:
    dsn = server.new_database()
    app: AsyncApp = loop.run(_opened(dsn))
    for name in ("orders", "emails"):
        Blocking(app, loop).queues.create(name)
    publish(dsn, tmp_path_factory.mktemp("lake"))
    archive_story(dsn, tmp_path_factory.mktemp("lake"), "emails", datetime.now(UTC) - timedelta(days=1))
    pages = create_dashboard(app, authorize=lambda *_: True)
    outer = FastAPI()
    outer.mount("/ops", pages)
    with running(outer, loop) as site:
        url = f"{site}/ops"
        httpx.get(f"{url}/", timeout=30)
        until(lambda: pages.state.dashboard.badges.queues(lambda _: True), "the names of queues were not read")
        with psycopg.connect(dsn) as locking, psycopg.connect(dsn, autocommit=True) as watching:
            locking.execute(LOCK)
            ended = _all(url, [f"{path}.json" for path in LISTS])
            until(lambda: not _waits(watching), "a statement of a page still waits for a lock")
            ended |= _all(url, list(OFFERED))
        yield Stuck(url, ended)
    loop.run(app.close())


async def _opened(dsn: str) -> AsyncApp:
    return await connect_async(dsn, settings=PATIENT)


def _all(url: str, paths: Sequence[str]) -> dict[str, Ended]:
    with ThreadPoolExecutor(len(paths)) as threads:
        return dict(zip(paths, threads.map(lambda path: _get(f"{url}{path}"), paths), strict=True))


def _get(url: str) -> Ended:
    began = time.monotonic()
    return Ended(httpx.get(url, timeout=30), time.monotonic() - began)


def _waits(conn: psycopg.Connection[Any]) -> bool:
    rows = conn.execute(
        "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    ).fetchall()
    return bool(rows)


def _links(page: str) -> list[str]:
    listed = re.search(r'<ul class="narrower">(.*?)</ul>', page, re.DOTALL)
    return [html.unescape(link) for link in re.findall(r'href="([^"]+)"', listed[1])] if listed else []


def test_every_list_ends_after_two_seconds_and_so_do_its_statements(stuck: Stuck) -> None:
    for path in LISTS:
        response, took_s = stuck.ended[f"{path}.json"]
        problem = response.json()
        assert (path, response.status_code, problem["code"]) == (path, 503, "too_slow")
        assert f"longer than {LIMIT_S} seconds" in problem["detail"]
        assert took_s >= LIMIT_S


@pytest.mark.parametrize("path", OFFERED)
def test_a_page_that_was_ended_offers_the_same_with_less_to_read(stuck: Stuck, path: str) -> None:
    response, took_s = stuck.ended[path]
    assert response.status_code == 503
    assert took_s >= LIMIT_S
    links = _links(response.text)
    values = [parse_qs(urlsplit(link).query) for link in links]
    for name, offered in OFFERED[path].items():
        before = parse_qs(urlsplit(path).query).get(name)
        assert [value[name][0] for value in values if name in value and value[name] != before] == offered
    for link in links:
        assert httpx.get(urljoin(stuck.url, link), timeout=30).status_code == 200, link


def test_a_query_on_the_archive_that_needs_too_much_is_offered_on_a_day_or_a_queue(stuck: Stuck) -> None:
    hog = "select list(a.range) from range(1000000000) a"
    page = httpx.get(f"{stuck.url}/archive", params={"sql": hog}, timeout=30).text
    assert "of memory" in page
    links = [html.unescape(link) for link in re.findall(r'class="chip" href="([^"]+)"', page)]
    queries = [parse_qs(urlsplit(link).query) for link in links]
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    assert [(query.get("since"), query.get("until"), query.get("queue")) for query in queries] == [
        ([today], [today], None), (None, None, ["emails"]), (None, None, ["orders"]),
    ]  # fmt: skip
    assert [query["sql"] for query in queries] == 3 * [[hog]]
    of_one = httpx.get(urljoin(stuck.url, links[1]), timeout=30).text
    assert "queue orders alone" not in of_one


def test_json_has_the_same_offers(stuck: Stuck) -> None:
    offered = stuck.ended["/dead.json"].response.json()["narrower"]
    assert [link["label"] for link in offered] == ["queue emails alone", "queue orders alone"]
    assert httpx.get(urljoin(stuck.url, offered[0]["href"])).json()["groups"] == []


def test_the_page_of_one_that_was_ended_is_accessible(stuck: Stuck, screen: Screen, bare: Page) -> None:
    page = stuck.ended["/messages?q=error:~timeout state:ready"].response.text
    assert 'href="/ops/system"' in page
    screen.url = stuck.url
    bare.route("**/ops/messages*", lambda route: route.fulfill(body=page, content_type="text/html"))
    assert accessible(screen, bare, "/messages") == []
