"""Requests without a key: from this machine alone, never through a proxy or for a page of another site, and only before the
first key."""

from __future__ import annotations

import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from fastapi import FastAPI

from tarry.app import AsyncApp
from tarry.core.errors import StoreUnavailable
from tarry.core.security.api_keys import ApiKey
from tarry.edges.http.app import broker_app
from tarry.edges.http.settings import BrokerSettings
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tarry.testing import MutableClock
from tests.edges.http.conftest import Caller
from tests.edges.http.relay.test_relay_access import RELAY_ROUTES
from tests.edges.http.test_access import GUARDED, request
from tests.edges.http.test_responses import code
from tests.kit.blocking import Loop
from tests.kit.calls import replace_call

Make = Callable[..., str]
OPEN = BrokerSettings(anonymous=True, keys_cached_for=timedelta(0))
FORWARDED = [
    ("forwarded", "for=192.0.2.1"),
    ("x-forwarded-for", "192.0.2.1"),
    ("x-forwarded-for", "127.0.0.1"),
    ("x-forwarded-host", "localhost"),
    ("x-forwarded-proto", "https"),
    ("x-forwarded-port", "443"),
    ("x-real-ip", "127.0.0.1"),
    ("via", "1.1 proxy"),
]
EVERY_ROUTE = [request(route, "own") for route in GUARDED] + [relay.on("own") for relay in RELAY_ROUTES]


def every_refusal(call: Caller, headers: dict[str, str] | None = None) -> set[tuple[int, str]]:
    """What all guarded routes answer, those of Relay included."""
    call.served.state.broker.live.stop()  # a stream would not end by itself
    return {code(call(*route, headers=headers or {})) for route in EVERY_ROUTE}


@pytest.fixture
def served(behind: AsyncApp) -> FastAPI:
    return broker_app(behind, OPEN)


@pytest.mark.parametrize("peer", [("192.0.2.7", 4711), ("10.0.0.1", 1), ("2001:db8::1", 1), ("testclient", 1), None])
def test_another_machine_is_refused_whatever_host_it_names(
    served: FastAPI, http_loop: Loop, peer: tuple[str, int] | None
) -> None:
    for host in ("localhost", "127.0.0.1", "[::1]"):
        assert every_refusal(Caller(served, http_loop, host=host, peer=peer)) == {(403, "forbidden")}


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
def test_every_address_of_this_machine_is_this_machine(served: FastAPI, http_loop: Loop, peer: str) -> None:
    assert Caller(served, http_loop, peer=(peer, 1))("GET", "/v1/queues").status_code == 200


def test_a_mounted_broker_refuses_another_machine_too(behind: AsyncApp, http_loop: Loop) -> None:
    outer = FastAPI()
    outer.mount("/tarry", broker_app(behind, OPEN))
    for peer, status in ((("127.0.0.1", 1), 200), (("192.0.2.7", 1), 403), (None, 403)):
        assert Caller(outer, http_loop, peer=peer)("GET", "/tarry/v1/queues").status_code == status


@pytest.mark.parametrize(("name", "value"), FORWARDED)
def test_what_a_proxy_forwards_is_refused(served: FastAPI, http_loop: Loop, name: str, value: str) -> None:
    assert every_refusal(Caller(served, http_loop), {name: value}) == {(403, "forbidden")}


def test_a_key_works_through_a_proxy(behind: AsyncApp, http_loop: Loop, key: Make) -> None:
    caller = Caller(broker_app(behind, OPEN), http_loop, key("read"), host="broker.example", peer=("192.0.2.7", 1))
    assert caller("GET", "/v1/queues", headers=dict(FORWARDED)).status_code == 200


def test_a_proxy_that_speaks_http_1_0_as_nginx_does_is_refused(broker_url: str) -> None:
    host, _, port = broker_url.removeprefix("http://").partition(":")
    for version, status in (("1.1", b"200"), ("1.0", b"403")):
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            head = f"GET /v1/queues HTTP/{version}\r\nHost: 127.0.0.1:8080\r\nConnection: close\r\n\r\n"
            connection.sendall(head.encode())
            assert connection.makefile("rb").readline().split()[1] == status


class TestOnceAKeyHasExisted:
    def test_the_broker_stays_closed_when_the_last_key_expires(
        self, served: FastAPI, http_loop: Loop, key: Make, pinned: MutableClock
    ) -> None:
        call = Caller(served, http_loop)
        assert call("GET", "/v1/queues").status_code == 200
        key("admin", expires_for=timedelta(hours=1))
        pinned.advance(timedelta(hours=2))
        assert every_refusal(call) == {(401, "unauthorized")}

    def test_the_broker_stays_closed_when_the_last_key_is_revoked(
        self, served: FastAPI, http_loop: Loop, key: Make
    ) -> None:
        call, admin = Caller(served, http_loop), key("admin")
        assert call.with_key(admin)("DELETE", f"/v1/keys/{admin.split('_')[1]}").status_code == 200
        assert code(call("POST", "/v1/keys", {"name": "k", "actions": ["admin"]})) == (401, "unauthorized")
        assert every_refusal(call) == {(401, "unauthorized")}

    def test_a_broker_that_starts_later_is_closed_too(self, behind: AsyncApp, http_loop: Loop, key: Make) -> None:
        http_loop.run(behind.keys.revoke(key("admin").split("_")[1]))
        assert every_refusal(Caller(broker_app(behind, OPEN), http_loop)) == {(401, "unauthorized")}


def test_a_broker_that_cannot_look_for_keys_is_closed(http_loop: Loop) -> None:
    async def away(*args: Any, **options: Any) -> list[ApiKey]:
        raise StoreUnavailable("away")

    store = AsyncMemoryStore(MemoryStore())
    replace_call(store, "security.keys", away)
    call = Caller(broker_app(AsyncApp(store), OPEN), http_loop)
    assert {status for status, _ in every_refusal(call)} == {503}


class TestPagesOfOtherSites:
    @pytest.mark.parametrize("site", ["cross-site", "same-site", "nonsense", ""])
    def test_a_browser_request_from_another_site_is_refused(self, served: FastAPI, http_loop: Loop, site: str) -> None:
        assert every_refusal(Caller(served, http_loop), {"sec-fetch-site": site}) == {(403, "forbidden")}

    @pytest.mark.parametrize("site", ["same-origin", "none"])
    def test_requests_from_the_brokers_own_pages_and_from_typed_addresses_are_served(
        self, call: Caller, site: str
    ) -> None:
        assert call("GET", "/v1/queues", headers={"sec-fetch-site": site}).status_code == 200

    @pytest.mark.parametrize("path", ["/api/queue/message", "/api/queue/messages/batch?count=10"])
    @pytest.mark.parametrize(
        "headers",
        [
            {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
            {"user-agent": "Mozilla/5.0 (X11; Linux x86_64) a browser without Sec-Fetch-Site"},
            {"sec-fetch-site": "none", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
            {"sec-fetch-site": "none"},
            {"sec-fetch-site": "same-origin", "sec-fetch-mode": "navigate"},
            {"sec-fetch-mode": "navigate"},
        ],
        ids=["new browser", "old browser", "link in a mail", "typed", "link on a page of the broker", "no site"],
    )
    def test_an_image_on_another_site_or_a_link_leases_nothing(
        self, call: Caller, path: str, headers: dict[str, str]
    ) -> None:
        call("POST", "/v1/queues", {"name": "default"})
        call("POST", "/v1/queues/default/messages", {"key": "k", "payload": 1})
        assert code(call("GET", path, headers=headers)) == (403, "forbidden")
        (message,) = call("GET", "/v1/queues/default/messages").json()["messages"]
        assert (message["state"], message["attempt"]) == ("ready", 0)
        assert call("GET", path).status_code == 200, "what is no browser may"

    def test_a_script_of_the_brokers_own_page_may_lease_by_get(self, call: Caller) -> None:
        call("POST", "/v1/queues", {"name": "default"})
        own = {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors", "user-agent": "Mozilla/5.0"}
        assert call("GET", "/api/queue/messages/batch?count=1", headers=own).status_code == 200

    def test_a_key_is_worth_more_than_where_it_comes_from(self, behind: AsyncApp, http_loop: Loop, key: Make) -> None:
        caller = Caller(broker_app(behind, OPEN), http_loop, key("read"))
        headers = {"sec-fetch-site": "cross-site", "origin": "https://dashboard.example"}
        assert caller("GET", "/v1/queues", headers=headers).status_code == 200


@pytest.mark.parametrize("text", ["[", "[]", "[::1", "[x]", "localhost:99999999", "a b", "localhost:x", "@", "ÿ", ""])
@pytest.mark.parametrize("with_key", [False, True], ids=["no key", "key"])
def test_a_malformed_host_or_origin_is_refused_and_no_error_of_the_broker(
    behind: AsyncApp, http_loop: Loop, key: Make, text: str, with_key: bool
) -> None:
    call = Caller(broker_app(behind, OPEN), http_loop)
    allowed = call.with_key(key("read", "produce")) if with_key else call
    for path, method in (("/v1/queues", "GET"), ("/v1/session", "POST"), ("/v1/queues/", "GET"), ("/nowhere", "GET")):
        for headers in ({"host": text}, {"origin": f"http://{text}"}):
            encoded = {name: value.encode("latin-1") for name, value in headers.items()}
            response = allowed(method, path, headers=encoded)
            assert response.status_code < 500, response.text
            if not with_key and path.startswith("/v1/") and not path.endswith("/") and "localhost" not in text:
                assert code(response) == (403, "forbidden")
