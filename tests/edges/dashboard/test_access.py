"""Access: roles, forms of other sites, sessions, the audit, read-only dashboards."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Callable, Iterator
from subprocess import run
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from starlette.routing import Route

from tarry.core.security.api_keys import ROLES, Action
from tarry.edges.dashboard import screens
from tests.edges.dashboard.conftest import Served, served
from tests.kit.blocking import Loop
from tests.kit.servers import Server

OPERATORS = {"offer a message"}
"""Actions that an operator may do; all other forms are for administrators."""


@pytest.fixture(scope="module")
def locked(server: Server, loop: Loop) -> Iterator[Served]:
    """A dashboard whose every visitor needs a key."""
    made = served(server, loop, keyless=False)
    for name in ("orders", "mails", "matrix"):
        made.app.queues.create(name)
    yield made
    made.closing.close()


@pytest.fixture(scope="module")
def keys(locked: Served) -> dict[str, str]:
    made = {role: locked.app.keys.create(role, [a.value for a in actions]).text for role, actions in ROLES.items()}
    made["consumer"] = locked.app.keys.create("consumer", ["consume"]).text
    made["mails"] = locked.app.keys.create("mails", ["read", "admin"], ["mails"]).text
    return made


@pytest.fixture
def browse(locked: Served) -> Iterator[Callable[[], httpx.Client]]:
    """A browser without scripts: it keeps cookies, and names its own site."""
    clients: list[httpx.Client] = []

    def open_browser() -> httpx.Client:
        clients.append(httpx.Client(base_url=locked.url, follow_redirects=False))
        return clients[-1]

    yield open_browser
    for client in clients:
        client.close()


def token(response: httpx.Response) -> str:
    match = re.search(r'name="form" value="([0-9a-f]{32})"', response.text)
    assert match is not None, "the page has no form"
    return match[1]


def sign_in(browser: httpx.Client, key: str) -> httpx.Response:
    form = token(browser.get("/sign-in"))
    return browser.post("/sign-in", data={"form": form, "key": key, "to": "/queues"})


def with_key(browser: httpx.Client, key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


SAMPLES = {
    "queue": "matrix", "key": "a", "consumer": "w", "job": "1", "id": "1", "fingerprint": "0" * 12, "version": "1",
    "schedule": "nightly",
}  # fmt: skip
"""The queue exists, the others do not: a visitor that may see them learns that they do not exist."""


def routes() -> list[tuple[str, str, str]]:
    """Method, path and name of every page and form."""
    pages = [route for part in screens.PARTS for route in part.screen.routes if isinstance(route, Route)]
    result: list[tuple[str, str, str]] = []
    for route in pages:
        path = re.sub(r"\{(\w+)(?::path)?\}", lambda match: SAMPLES[match[1]], route.path)
        result += [(method, path, route.name) for method in sorted(route.methods or ()) if method != "HEAD"]
    return result


ADMINS = re.compile(
    r"/system/(checks|settings|audit)|/new-schedule|/schedules/nightly/edit|/queues/matrix/dead/(discard|redrive)"
)
"""Pages that show what only an administrator may see, or begin what only one may do."""
MESSAGE_FORMS = re.compile(r"/messages/(apply|jobs/1/cancel)|/queues/matrix/message/(?!move)\w+|/release-leases")
"""As with DELETE and PATCH of a message on /v1; to move one is to redrive, which is for administrators."""


def _needed(method: str, path: str, name: str) -> str:
    if method == "GET":
        return "admin" if ADMINS.match(path) else "viewer"
    if path == "/schedule-preview":  # changes nothing
        return "viewer"
    return "operator" if name in OPERATORS or MESSAGE_FORMS.match(path) else "admin"


@pytest.fixture(scope="module")
def client(locked: Served) -> Iterator[httpx.Client]:
    """One for the whole matrix: to make one takes longer than a request."""
    with httpx.Client(base_url=locked.url, follow_redirects=False) as client:
        yield client


@pytest.mark.parametrize(("method", "path", "name"), routes(), ids=lambda value: str(value))
def test_a_role_reaches_what_its_key_permits(
    client: httpx.Client, keys: dict[str, str], method: str, path: str, name: str
) -> None:
    """Forms are sent empty: what is permitted is refused for its content, so nothing changes."""
    order = ["viewer", "operator", "admin"]
    needed = order.index(_needed(method, path, name))
    reached: dict[str, bool] = {}
    for role in [*ROLES, "consumer"]:
        client.cookies.clear()
        form = {"x": "1"} if method == "POST" else None
        response = client.request(method, path, headers=with_key(client, keys[role]), data=form)
        reached[role] = response.status_code != 403
    assert reached == {role: role in order and order.index(role) >= needed for role in [*ROLES, "consumer"]}


def test_a_visitor_without_a_key_gets_the_sign_in_page(browse: Callable[[], httpx.Client]) -> None:
    response = browse().get("/queues")
    assert response.status_code == 401
    assert 'name="key"' in response.text
    assert browse().get("/queues.json").status_code == 401
    assert browse().get("/live").status_code == 401


def test_a_key_opens_a_session_in_a_cookie_that_scripts_cannot_read(
    browse: Callable[[], httpx.Client], keys: dict[str, str]
) -> None:
    browser = browse()
    response = sign_in(browser, keys["viewer"])
    assert response.status_code == 303
    cookie = next(value for value in response.headers.get_list("set-cookie") if value.startswith("tarry_session="))
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Path=/dashboard/" in cookie
    assert keys["viewer"] not in cookie
    assert browser.get("/queues").status_code == 200


def test_signing_out_ends_the_session_of_this_browser(browse: Callable[[], httpx.Client], keys: dict[str, str]) -> None:
    browser = browse()
    sign_in(browser, keys["viewer"])
    browser.post("/sign-out", data={"form": token(browser.get("/queues"))})
    assert browser.get("/queues").status_code == 401


def test_a_revoked_key_ends_its_sessions(browse: Callable[[], httpx.Client], locked: Served) -> None:
    issued = locked.app.keys.create("brief", ["read"])
    browser = browse()
    assert sign_in(browser, issued.text).status_code == 303
    assert browser.get("/queues").status_code == 200
    admin = locked.app.keys.create("other", ["admin", "read"]).text
    browse().request(
        "DELETE",
        locked.url.removesuffix("/dashboard") + f"/v1/keys/{issued.key.id}",
        headers={"authorization": f"Bearer {admin}"},
    )
    assert browser.get("/queues").status_code == 401


@pytest.mark.parametrize("key", ["", "nonsense", "tarry_0123456789ab_" + "0" * 64])
def test_a_wrong_key_is_refused(browse: Callable[[], httpx.Client], key: str) -> None:
    response = sign_in(browse(), key)
    assert response.status_code == 401
    assert "is not valid" in response.text
    assert not key or key not in response.text


def test_the_way_after_sign_in_never_leads_to_another_site(
    browse: Callable[[], httpx.Client], keys: dict[str, str]
) -> None:
    for to in ("//evil.example", "https://evil.example", "/\\evil.example"):
        browser = browse()
        form = token(browser.get("/sign-in"))
        response = browser.post("/sign-in", data={"form": form, "key": keys["viewer"], "to": to})
        assert response.headers["location"] == "/dashboard/"


def test_a_session_for_live_events_opens_no_page(
    browse: Callable[[], httpx.Client], keys: dict[str, str], locked: Served
) -> None:
    browser = browse()
    session = browser.post(
        locked.url.removesuffix("/dashboard") + "/v1/session", headers=with_key(browser, keys["admin"])
    )
    value = session.cookies["tarry_events"]
    assert browser.get("/queues", headers={"cookie": f"tarry_session={value}"}).status_code == 401


class TestForms:
    @pytest.fixture
    def admin(self, browse: Callable[[], httpx.Client], keys: dict[str, str]) -> httpx.Client:
        browser = browse()
        sign_in(browser, keys["admin"])
        return browser

    def test_a_form_of_the_page_is_accepted(self, admin: httpx.Client, locked: Served) -> None:
        form = {"form": token(admin.get("/queues/orders")), "reason": "deploy"}
        assert admin.post("/queues/orders/pause", data=form).status_code == 303
        assert locked.app.queues.get("orders").paused_reason == "deploy"
        page = admin.get("/queues/orders")
        assert "orders is paused" in page.text
        assert re.search(r"</time> by \w+: deploy", page.text), "the actor"
        assert admin.post("/queues/orders/resume", data={"form": token(page)}).status_code == 303
        locked.app.queues.create("old")
        named = {"form": token(admin.get("/queues/old/settings")), "new_name": "new"}
        assert admin.post("/queues/old/rename", data=named).headers["location"].endswith("/queues/new")
        locked.app.queues.delete("new")

    def test_a_form_without_the_token_changes_nothing(self, admin: httpx.Client, locked: Served) -> None:
        for form in ({}, {"form": ""}, {"form": "0" * 32}):
            assert admin.post("/queues/orders/pause", data={"reason": "x", **form}).status_code == 403
        assert not locked.app.queues.get("orders").paused

    @pytest.mark.parametrize(
        "headers",
        [{"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}],
        ids=["origin", "fetch", "null"],
    )
    def test_a_form_of_another_site_changes_nothing(
        self, admin: httpx.Client, locked: Served, headers: dict[str, str]
    ) -> None:
        form = {"form": token(admin.get("/queues/orders")), "reason": "x"}
        assert admin.post("/queues/orders/pause", data=form, headers=headers).status_code == 403
        assert not locked.app.queues.get("orders").paused

    def test_the_copied_command_of_a_form_does_what_the_form_does(
        self, admin: httpx.Client, locked: Served, keys: dict[str, str]
    ) -> None:
        queue, key = locked.app.queue("orders"), "copied & 'quoted'"
        queue.offer(key, 1)
        page = admin.get(f"/queues/orders/messages/{quote(key)}").text
        (command,) = re.findall(r"<code>(curl [^<]*/message/bury[^<]*)</code>", page)
        run(["sh", "-c", html.unescape(command)], env={**os.environ, "TARRY_KEY": keys["admin"]}, check=True)
        assert [(letter.key, letter.error) for letter in queue.dead_letters.list()] == [(key, "why")]
        queue.dead_letters.discard()

    def test_json_is_no_form(self, admin: httpx.Client) -> None:
        assert admin.post("/queues/orders/pause", json={"reason": "x"}).status_code == 415

    def test_what_destroys_needs_the_name(self, admin: httpx.Client, locked: Served) -> None:
        locked.app.queue("orders").offer("kept", 1)
        form = {"form": token(admin.get("/queues/orders")), "confirm": "order"}
        assert admin.post("/queues/orders/purge", data=form).status_code == 409
        assert locked.app.queue("orders").contains("kept")
        assert admin.post("/queues/orders/purge", data={**form, "confirm": "orders"}).status_code == 303
        assert not locked.app.queue("orders").contains("kept")

    def test_an_action_is_in_the_audit_without_secrets(self, admin: httpx.Client, locked: Served) -> None:
        form = {"form": token(admin.get("/queues/orders")), "payload": '{"n": 1}', "key": "a", "password": "pst"}
        assert admin.post("/queues/orders/offer", data=form).status_code == 303
        row = locked.app.store.run(locked.app.store.security.audits(limit=1))[0]
        assert (row.action, row.queue, row.status) == ("dashboard: offer a message", "orders", 303)
        assert row.detail is not None
        assert row.detail["form"]["key"] == "a"
        assert "form" not in row.detail["form"]
        assert "pst" not in str(row.detail)


def test_a_key_for_one_queue_sees_no_other(browse: Callable[[], httpx.Client], keys: dict[str, str]) -> None:
    headers = with_key(browse(), keys["mails"])
    names = [row["queue"] for row in browse().get("/queues.json", headers=headers).json()["queues"]]
    assert names == ["mails"]
    assert browse().get("/queues/orders", headers=headers).status_code == 403
    assert "orders" not in browse().get("/", headers=headers).text


def test_a_read_only_dashboard_changes_nothing_whatever_the_key(server: Server, loop: Loop) -> None:
    made = served(server, loop, read_only=True)
    try:
        made.app.queues.create("orders")
        with httpx.Client(base_url=made.url) as browser:
            page = browser.get("/queues/orders")
            assert "Purge" not in page.text
            assert "read-only" in page.text
            form = {"form": token(browser.get("/sign-in")), "reason": "x"}
            assert browser.post("/queues/orders/pause", data=form).status_code == 403
        assert not made.app.queues.get("orders").paused
    finally:
        made.closing.close()


def test_every_right_of_the_roles_exists() -> None:
    assert {action for actions in ROLES.values() for action in actions} == set(Action)
    assert all(ROLES["viewer"] <= actions for actions in ROLES.values())


def test_requests_from_other_machines_are_refused_without_keys(server: Server, loop: Loop) -> None:
    made = served(server, loop)
    try:
        headers: dict[str, Any] = {"host": "tarry.example"}
        assert httpx.get(f"{made.url}/queues", headers=headers).status_code == 403
    finally:
        made.closing.close()
