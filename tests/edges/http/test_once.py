"""Requests with an Idempotency-Key, as the broker answers them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tarry.app import AsyncApp
from tests.edges.http.conftest import Caller
from tests.edges.http.test_answers import code, polled
from tests.kit.blocking import Loop

OFFER = "/v1/queues/orders/messages"


def say(ask: Caller, path: str = OFFER, body: Any = None, key: str = "k", method: str = "POST") -> httpx.Response:
    return ask(method, path, {"payload": 1} if body is None else body, headers={"Idempotency-Key": key})


def replayed(answer: httpx.Response) -> bool:
    return answer.headers.get("idempotent-replayed") == "true"


def finish(ask: Caller) -> None:
    held = polled(ask)
    assert ask("POST", f"/v1/messages/{held['id']}/ack", {"lock_token": held["lock_token"]}).status_code == 200


def nothing_waits(ask: Caller) -> bool:
    return ask("POST", f"{OFFER}:poll", {}).status_code == 204


def test_an_offer_said_again_after_it_was_finished_is_answered_with_the_same_key_and_stored_no_more(
    ask: Caller,
) -> None:
    first = say(ask)
    finish(ask)
    second = say(ask)
    assert (first.status_code, second.status_code, second.json()) == (201, 201, first.json())
    assert (replayed(first), replayed(second), nothing_waits(ask)) == (False, True, True)


def test_a_batch_said_again_is_stored_no_more(ask: Caller) -> None:
    body = {"messages": [{"payload": 1}, {"payload": 2, "key": "b"}]}
    first = say(ask, f"{OFFER}:batch", body)
    finish(ask)
    finish(ask)
    second = say(ask, f"{OFFER}:batch", body)
    assert (second.json(), replayed(second), nothing_waits(ask)) == (first.json(), True, True)


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
def test_another_request_with_the_same_key_is_refused(ask: Caller, method: str, path: str, body: Any) -> None:
    say(ask)
    assert code(say(ask, path, body, method=method)) == (422, "idempotency_key_reused")
    assert [queue["name"] for queue in ask("GET", "/v1/queues").json()["queues"]] == ["orders"]


@pytest.mark.parametrize("key", ["", "a b", "x" * 201, "\x7f", "é".encode().decode("latin-1")])
def test_what_is_no_key_is_refused(ask: Caller, key: str) -> None:
    answer = ask("POST", OFFER, {"payload": 1}, headers={"Idempotency-Key": key.encode("latin-1")})
    assert code(answer) == (422, "invalid")
    assert "200 visible ASCII" in answer.json()["detail"]


def test_the_longest_key_and_the_oddest_are_keys(ask: Caller) -> None:
    for key in ("x" * 200, "!\"#%'()*+,-./:;<=>?@[]^_`{|}~", "..", "null"):
        assert say(ask, key=key).status_code == 201
        assert replayed(say(ask, key=key))


def test_what_was_refused_may_be_said_again(ask: Caller) -> None:
    assert say(ask, body={"payload": 1, "nonsense": 2}).status_code == 422
    assert not replayed(say(ask))


def test_keys_of_two_callers_have_nothing_to_do_with_each_other(ask: Caller, key: Callable[..., str]) -> None:
    one, other = (ask.with_key(key("produce", queues=("orders",))) for _ in range(2))
    assert (replayed(say(one)), replayed(say(other)), replayed(say(one))) == (False, False, True)
    foreign = ask.with_key(key("produce", queues=("mine",)))
    assert code(say(foreign)) == (403, "forbidden")


def test_a_queue_is_created_renamed_and_purged_once(ask: Caller) -> None:
    for path, body in (
        ("/v1/queues", {"name": "orders"}),
        ("/v1/queues/orders/rename", {"new_name": "newer"}),
        ("/v1/queues/newer/purge", {"confirm": "newer"}),
    ):
        first, second = say(ask, path, body, key=path), say(ask, path, body, key=path)
        assert (first.status_code, second.content, replayed(second)) == (second.status_code, first.content, True)


def test_a_poll_has_no_need_of_a_key(ask: Caller) -> None:
    ask("POST", OFFER, {"payload": 1})
    first, second = (say(ask, f"{OFFER}:poll", {}) for _ in range(2))
    assert (first.status_code, second.status_code) == (200, 204)


def test_without_the_header_nothing_is_kept(ask: Caller, behind: AsyncApp, http_loop: Loop) -> None:
    from datetime import timedelta

    for _ in range(2):
        ask("POST", OFFER, {"payload": 1})
    assert http_loop.run(behind.store.forget_answers(-timedelta(days=1))) == 0
    say(ask)
    assert http_loop.run(behind.store.forget_answers(-timedelta(days=1))) == 1
