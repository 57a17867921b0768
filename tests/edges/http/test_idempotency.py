"""Requests with an Idempotency-Key, as the broker answers them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from starlette.requests import HTTPConnection

from tarry.api.drafts import Drafter
from tarry.app import AsyncApp
from tarry.core.messages.model import Draft
from tests.edges.http.conftest import Caller
from tests.edges.http.test_responses import code, polled
from tests.kit.blocking import Loop

OFFER = "/v1/queues/orders/messages"


def send(call: Caller, path: str = OFFER, body: Any = None, key: str = "k", method: str = "POST") -> httpx.Response:
    return call(method, path, {"payload": 1} if body is None else body, headers={"Idempotency-Key": key})


def replayed(response: httpx.Response) -> bool:
    return response.headers.get("idempotent-replayed") == "true"


def finish(call: Caller) -> None:
    held = polled(call)
    assert call("POST", f"/v1/messages/{held['id']}/ack", {"token": held["token"]}).status_code == 200


def nothing_waits(call: Caller) -> bool:
    return call("POST", f"{OFFER}:poll", {}).status_code == 204


def test_an_offer_repeated_after_its_ack_has_the_same_key_and_is_not_stored_again(
    call: Caller,
) -> None:
    first = send(call)
    finish(call)
    second = send(call)
    assert (first.status_code, second.status_code, second.json()) == (201, 201, first.json())
    assert (replayed(first), replayed(second), nothing_waits(call)) == (False, True, True)


def test_a_repeated_batch_is_not_stored_again(call: Caller) -> None:
    body = {"messages": [{"payload": 1}, {"payload": 2, "key": "b"}]}
    first = send(call, f"{OFFER}:batch", body)
    finish(call)
    finish(call)
    second = send(call, f"{OFFER}:batch", body)
    assert (second.json(), replayed(second), nothing_waits(call)) == (first.json(), True, True)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", OFFER, {"payload": 2}),
        ("POST", OFFER + "?x=1", {"payload": 1}),
        ("POST", "/v1/queues/other/messages", {"payload": 1}),
        ("POST", f"{OFFER}:batch", {"messages": [{"payload": 1}]}),
        ("POST", "/v1/queues", {"name": "new"}),
    ],
)
def test_another_request_with_the_same_key_is_refused(call: Caller, method: str, path: str, body: Any) -> None:
    send(call)
    assert code(send(call, path, body, method=method)) == (422, "idempotency_key_reused")
    assert [queue["name"] for queue in call("GET", "/v1/queues").json()["queues"]] == ["orders"]


@pytest.mark.parametrize("key", ["", "a b", "x" * 201, "\x7f", "é".encode().decode("latin-1")])
def test_what_is_no_key_is_refused(call: Caller, key: str) -> None:
    response = call("POST", OFFER, {"payload": 1}, headers={"Idempotency-Key": key.encode("latin-1")})
    assert code(response) == (422, "invalid")
    assert "200 visible ASCII" in response.json()["detail"]


def test_the_longest_key_and_the_oddest_are_keys(call: Caller) -> None:
    for key in ("x" * 200, "!\"#%'()*+,-./:;<=>?@[]^_`{|}~", "..", "null"):
        assert send(call, key=key).status_code == 201
        assert replayed(send(call, key=key))


def test_a_refused_request_may_be_repeated(call: Caller) -> None:
    assert send(call, body={"payload": 1, "nonsense": 2}).status_code == 422
    assert not replayed(send(call))


def test_keys_of_two_callers_have_nothing_to_do_with_each_other(call: Caller, key: Callable[..., str]) -> None:
    first, other = (call.with_key(key("produce", queues=("orders",))) for _ in range(2))
    assert (replayed(send(first)), replayed(send(other)), replayed(send(first))) == (False, False, True)
    foreign = call.with_key(key("produce", queues=("mine",)))
    assert code(send(foreign)) == (403, "forbidden")


def test_a_queue_is_created_renamed_and_purged_once(call: Caller) -> None:
    for path, body in (
        ("/v1/queues", {"name": "orders"}),
        ("/v1/queues/orders/rename", {"new_name": "newer"}),
        ("/v1/queues/newer/purge", {"confirm": "newer"}),
    ):
        first, second = send(call, path, body, key=path), send(call, path, body, key=path)
        assert (first.status_code, second.content, replayed(second)) == (second.status_code, first.content, True)


def test_a_poll_has_no_need_of_a_key(call: Caller) -> None:
    call("POST", OFFER, {"payload": 1})
    first, second = (send(call, f"{OFFER}:poll", {}) for _ in range(2))
    assert (first.status_code, second.status_code) == (200, 204)


def test_without_the_header_nothing_is_kept(call: Caller, behind: AsyncApp, http_loop: Loop) -> None:
    from datetime import timedelta

    for _ in range(2):
        call("POST", OFFER, {"payload": 1})
    assert http_loop.run(behind.store.run(behind.store.security.forget_responses(-timedelta(days=1)))) == 0
    send(call)
    assert http_loop.run(behind.store.run(behind.store.security.forget_responses(-timedelta(days=1)))) == 1


def test_the_digest_of_a_request_parses_no_url(call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which took as long as everything else about the key."""
    monkeypatch.setattr(HTTPConnection, "url", property(lambda request: pytest.fail("a URL was parsed")))
    assert send(call, OFFER + "?x=%C3%A9").status_code == 201
    assert replayed(send(call, OFFER + "?x=%C3%A9"))
    assert code(send(call, OFFER + "?x=%c3%a9")) == (422, "idempotency_key_reused")


@pytest.mark.parametrize("path", [OFFER, f"{OFFER}:batch", "/api/queue/message"])
def test_a_message_without_a_key_is_offered_as_a_new_one(
    call: Caller, behind: AsyncApp, http_loop: Loop, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """There is a cheaper statement for keys that cannot conflict."""
    http_loop.run(behind.queues.create("orders"))
    drafter, drafts = Drafter.draft_message, list[Draft]()

    def drafted(self: Drafter[Any], *message: Any) -> Draft:
        drafts.append(drafter(self, *message))
        return drafts[-1]

    monkeypatch.setattr(Drafter, "draft_message", drafted)
    body = {"payload": 1, "type": "t", "queue": "orders"} if path.startswith("/api") else {"payload": 1}
    response = call("POST", path, {"messages": [body]} if path.endswith("batch") else body)
    assert response.status_code in (200, 201)
    assert [draft.fresh for draft in drafts] == [True]
    assert http_loop.run(behind.queue("orders").contains(drafts[0].key))
