"""The dashboard inside another application, below a path, with that application's own users."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest
from fastapi import FastAPI
from playwright.sync_api import Browser, expect
from starlette.requests import Request

from tarry.app import AsyncApp
from tarry.dashboard import create_dashboard
from tests.edges.dashboard.conftest import Screen, _opened
from tests.kit.blocking import Blocking, Loop
from tests.kit.servers import Server
from tests.kit.uvicorn_server import running


def authorize(request: Request, action: str, queue: str | None) -> bool:
    """The host's own rules: a header names the user; all others may read, except the queue `secret`."""
    if queue == "secret":
        return False
    return action == "read" or request.headers.get("x-user") == "ana"


@pytest.fixture(scope="module")
def mounted(server: Server, loop: Loop) -> Iterator[str]:
    app: AsyncApp = loop.run(_opened(server.new_database()))
    blocking = Blocking(app, loop)
    for name in ("orders", "secret"):
        blocking.queues.create(name)
    outer = FastAPI()
    outer.mount("/ops/queue", create_dashboard(app, authorize=authorize, environment="staging"))
    outer.mount("/hasty", create_dashboard(app, authorize=authorize, page_for=timedelta(microseconds=1)))
    with running(outer, loop) as url:
        yield f"{url}/ops/queue"
    loop.run(app.close())


def test_pages_and_links_are_below_the_prefix(mounted: str, browser: Browser) -> None:
    screen = Screen(browser, mounted)
    page = screen.open("/")
    expect(page.get_by_text("staging")).to_be_visible()
    page.get_by_role("navigation", name="Screens").get_by_role("link", name="Queues").click()
    expect(page).to_have_url(re.compile("/ops/queue/queues$"))
    page.locator("table").get_by_role("link", name="orders").click()
    expect(page.get_by_role("heading", name="orders")).to_be_visible()
    expect(page.locator("[data-live]")).to_have_attribute("data-state", "live")
    screen.close()
    assert screen.errors == []


def test_the_host_decides_about_every_action_and_queue(mounted: str) -> None:
    assert httpx.get(f"{mounted}/queues/secret").status_code == 403
    names = [row["queue"] for row in httpx.get(f"{mounted}/queues.json").json()["queues"]]
    assert names == ["orders"]
    with httpx.Client(base_url=mounted) as visitor:
        token = re.search(r'name="form" value="(\w+)"', visitor.get("/sign-in").text)
        assert token is not None
        form = {"form": token[1], "reason": "deploy"}
        assert visitor.post("/queues/orders/pause", data=form).status_code == 403
        assert visitor.post("/queues/orders/pause", data=form, headers={"x-user": "ana"}).status_code == 303
        assert "deploy" in visitor.get("/queues/orders").text


def test_a_form_of_another_site_is_refused_also_where_the_browser_adds_a_password(mounted: str) -> None:
    user = {"x-user": "ana", "authorization": "Basic YW5hOnNlY3JldA=="}
    evil = {**user, "origin": "https://evil.example", "sec-fetch-site": "cross-site"}
    for headers in (evil, user):
        assert httpx.post(f"{mounted}/queues/orders/pause", data={"reason": "evil"}, headers=headers).status_code == 403
    with httpx.Client(base_url=mounted, headers=user) as visitor:
        token = re.search(r'name="form" value="(\w+)"', visitor.get("/sign-in").text)
        assert token is not None
        assert visitor.post("/queues/orders/pause", data={"form": token[1], "reason": "mine"}).status_code == 303
        assert visitor.post("/queues/orders/resume", data={"form": token[1]}).status_code == 303


def test_a_page_that_takes_too_long_is_ended(mounted: str) -> None:
    response = httpx.get(f"{mounted.removesuffix('/ops/queue')}/hasty/queues.json")
    assert (response.status_code, response.json()["code"]) == (503, "too_slow")
    assert "the database is busy" in response.json()["hint"]


def test_assets_are_served_and_cached_for_ever_under_their_hash(mounted: str) -> None:
    page = httpx.get(f"{mounted}/").text
    links = set(re.findall(r'(?:src|href)="(/ops/queue/static/[^"]+)"', page))
    assert len(links) >= 7
    for link in links:
        response = httpx.get(f"{mounted.removesuffix('/ops/queue')}{link}")
        assert response.status_code == 200
        assert "immutable" in response.headers["cache-control"]
    assert httpx.get(f"{mounted}/static/../app.py").status_code == 404
