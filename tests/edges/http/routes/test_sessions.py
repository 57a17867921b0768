"""Signing in from a browser: a cookie that is good for live events and for nothing else, and ends with its key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import httpx
import pytest
from fastapi import FastAPI

from tarry.app import AsyncApp
from tarry.core.security.browser_sessions import Session
from tarry.edges.http.app import broker_app
from tarry.edges.http.auth import SESSION
from tarry.edges.http.settings import BrokerSettings
from tarry.testing import MutableClock
from tests.edges.http.conftest import Caller
from tests.edges.http.test_responses import code
from tests.kit.blocking import Loop
from tests.kit.brokers import broker_on
from tests.kit.sse import EventSource

Make = Callable[..., str]
FRESH = BrokerSettings(keys_cached_for=timedelta(0))


@pytest.fixture
def guarded(behind: AsyncApp, http_loop: Loop) -> Caller:
    http_loop.run(behind.queues.create("own"))
    http_loop.run(behind.queues.create("foreign"))
    served = broker_app(behind, FRESH)
    served.state.broker.live.stop()  # a stream would not end by itself
    return Caller(served, http_loop)


@pytest.fixture
def guarded_url(behind: AsyncApp, http_loop: Loop) -> Iterator[str]:
    with broker_on(behind, http_loop, FRESH) as url:
        yield url


def signed_in(guarded: Caller, text: str) -> dict[str, str]:
    response = guarded.with_key(text)("POST", "/v1/session")
    assert response.status_code == 200, response.text
    return {"cookie": f"{SESSION}={response.cookies[SESSION]}"}


def test_the_cookie_opens_live_events_and_nothing_else(guarded: Caller, key: Make) -> None:
    cookie = signed_in(guarded, key("read", "produce", "consume", "admin"))
    for path in ("/v1/events", "/api/queue/events"):
        assert guarded("GET", path, headers=cookie).status_code == 200
        assert guarded("GET", path).status_code == 401
    for method, path in (
        ("GET", "/v1/queues"),
        ("POST", "/v1/session"),
        ("DELETE", "/v1/queues/own"),
        ("GET", "/metrics"),
    ):
        assert code(guarded(method, path, headers=cookie)) == (401, "unauthorized")


def test_it_is_kept_from_scripts_other_sites_and_plain_http(behind: AsyncApp, http_loop: Loop, key: Make) -> None:
    text, served = key("read"), broker_app(behind, FRESH)
    for host, secure in (("localhost", False), ("127.0.0.1:8080", False), ("broker.example", True)):
        cookie = Caller(served, http_loop, text, host=host)("POST", "/v1/session").headers["set-cookie"]
        assert text not in cookie
        assert text.split("_")[2] not in cookie
        assert {"HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"} <= set(cookie.split("; "))
        assert ("Secure" in cookie.split("; ")) is secure


def test_a_page_of_another_site_gets_nothing_by_it(guarded: Caller, key: Make) -> None:
    cookie = signed_in(guarded, key("read"))
    for origin in ("http://evil.example", "null", "http://localhost:9"):
        assert code(guarded("GET", "/v1/events", headers={**cookie, "origin": origin})) == (403, "forbidden")
    for site in ("cross-site", "same-site", ""):
        assert code(guarded("GET", "/v1/events", headers={**cookie, "sec-fetch-site": site})) == (403, "forbidden")
        assert code(guarded("DELETE", "/v1/session", headers={**cookie, "sec-fetch-site": site})) == (403, "forbidden")
    own = {**cookie, "origin": "http://localhost", "sec-fetch-site": "same-origin"}
    assert guarded("GET", "/v1/events", headers=own).status_code == 200


def test_it_ends_after_half_a_day_or_with_its_key(guarded: Caller, key: Make, pinned: MutableClock) -> None:
    long, short = signed_in(guarded, key("read")), signed_in(guarded, key("read", expires_for=timedelta(hours=1)))
    assert all(guarded("GET", "/v1/events", headers=session).status_code == 200 for session in (long, short))
    pinned.advance(timedelta(hours=2))
    assert guarded("GET", "/v1/events", headers=long).status_code == 200
    assert code(guarded("GET", "/v1/events", headers=short)) == (401, "unauthorized")
    pinned.advance(timedelta(hours=10))
    assert code(guarded("GET", "/v1/events", headers=long)) == (401, "unauthorized")


def test_a_revoked_key_takes_its_sessions_with_it(guarded_url: str, key: Make) -> None:
    text = key("read", "admin")
    with httpx.Client(base_url=guarded_url, headers={"authorization": f"Bearer {text}"}) as client:
        cookie = f"{SESSION}={client.post('/v1/session').cookies[SESSION]}"
        with EventSource(guarded_url, cookie=cookie).until_hello() as source:
            assert client.delete(f"/v1/keys/{text.split('_')[1]}").status_code == 200
            assert source.ends()
    with EventSource(guarded_url, cookie=cookie) as again:
        assert again.status == 401


def test_a_session_gets_no_events_that_its_key_may_not_read(guarded_url: str, behind: AsyncApp, key: Make) -> None:
    mine, unlimited = key("read", queues=("own",)), key("produce")
    with httpx.Client(base_url=guarded_url) as client:
        response = client.post("/v1/session", headers={"authorization": f"Bearer {mine}"})
        with EventSource(guarded_url, cookie=f"{SESSION}={response.cookies[SESSION]}").until_hello() as source:
            for name in ("foreign", "own"):
                offer = {"key": "k", "payload": 1}
                client.post(f"/v1/queues/{name}/messages", json=offer, headers={"x-api-key": unlimited})
            assert [event.data["queue"] for event in source.some(2)] == ["own", "own"], "created, and offered"


@pytest.mark.parametrize("position", [0, 13, -1])
def test_a_session_with_one_wrong_character_is_none(guarded: Caller, key: Make, position: int) -> None:
    name, _, good = signed_in(guarded, key("read"))["cookie"].partition("=")
    at = position % len(good)
    bad = f"{good[:at]}{'0' if good[at] != '0' else '1'}{good[at + 1 :]}"
    assert code(guarded("GET", "/v1/events", headers={"cookie": f"{name}={bad}"})) == (401, "unauthorized")


@pytest.mark.parametrize("text", ["", "x", "a.b.c", "0" * 12 + ".99999999999." + "0" * 64, "ÿ", "." * 5_000])
def test_what_is_no_session_is_none(guarded: Caller, key: Make, text: str) -> None:
    key("read")
    headers = {"cookie": f"{SESSION}={text}".encode("latin-1")}
    assert code(guarded("GET", "/v1/events", headers=headers)) == (401, "unauthorized")


def test_signing_out_takes_the_cookie_away(guarded: Caller, key: Make) -> None:
    response = guarded("DELETE", "/v1/session", headers=signed_in(guarded, key("read")))
    assert response.status_code == 204
    assert f'{SESSION}=""' in response.headers["set-cookie"]
    assert "Max-Age=0" in response.headers["set-cookie"]


def test_an_anonymous_broker_needs_no_session(call: Caller) -> None:
    response = call("POST", "/v1/session")
    assert response.json() == {"until": None}
    assert "set-cookie" not in response.headers


def test_a_session_is_for_one_key(behind: AsyncApp, http_loop: Loop, key: Make) -> None:
    first, other = http_loop.run(
        behind.store.run(behind.store.security.keys([key("read").split("_")[1] for _ in range(2)]))
    )
    now = http_loop.run(behind.store.run(behind.store.queues.now()))
    session = Session.of(first, now + timedelta(minutes=1))
    assert Session.parse(str(session)) == session
    assert session.proves(first)
    assert not session.proves(other)
    assert not session._replace(key_id=other.id).proves(other)
    assert not session._replace(until_s=session.until_s + 1).proves(first)
    assert not session.proves(None)


def test_mounted_elsewhere_the_cookie_is_for_that_place(behind: AsyncApp, http_loop: Loop, key: Make) -> None:
    outer = FastAPI()
    outer.mount("/tarry", broker_app(behind, FRESH))
    response = Caller(outer, http_loop, key("read"))("POST", "/tarry/v1/session")
    assert "Path=/tarry/" in response.headers["set-cookie"].split("; ")
