"""Malformed, huge, deep, wrong: refused with a sentence, nothing stored, and never a 500."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.edges.http.conftest import Caller
from tests.edges.http.test_responses import code

OFFER = "/v1/queues/q/messages"
DEEP = b'{"payload": ' + b"[" * 100 + b"]" * 100 + b"}"
ABYSS = b'{"payload": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"

BODIES: dict[str, tuple[bytes, int]] = {
    "empty": (b"", 422),
    "half": (b'{"payload": ', 400),
    "not utf-8": (b'{"payload": "\xff"}', 400),
    "lone surrogate": (rb'{"payload": "\ud800"}', 400),
    "NaN": (b'{"payload": NaN}', 400),
    "infinite": (b'{"payload": 1e999}', 422),
    "deep": (DEEP, 422),
    "abyss": (ABYSS, 400),
    "null": (b"null", 422),
    "list": (b"[]", 422),
    "text": (b'"x"', 422),
    "NUL": (b"\x00", 400),
    "too large": (b'{"payload": "' + b"x" * (1024 * 1024) + b'"}', 413),
    "payload too large": (b'{"payload": "' + b"x" * (300 * 1024) + b'"}', 422),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_cannot_be_taken(call: Caller, name: str) -> None:
    body, status = BODIES[name]
    response = call("POST", OFFER, content=body, headers={"content-type": "application/json"})
    assert code(response)[0] == status
    assert (code(response)[1] == "not_json") == (status == 400)
    assert call("GET", "/v1/queues").json()["queues"] == []


FIELDS: list[dict[str, Any]] = [
    {"payload": 1, "unknown": 1},
    {},
    {"payload": 1, "payload_base64": "AA=="},
    {"payload_base64": "!"},
    {"payload_base64": "AA==", "content_type": "text/html; charset=\x00"},
    {"payload_base64": "AA==", "content_type": "x" * 200},
    {"payload": 1, "content_type": "text/plain"},
    {"payload": 1, "key": ""},
    {"payload": 1, "key": "x" * 201},
    {"payload": 1, "key": "a\x00b"},
    {"payload": 1, "key": 1},
    {"payload": 1, "priority": 10},
    {"payload": 1, "priority": -1},
    {"payload": 1, "priority": "1"},
    {"payload": 1, "priority": True},
    {"payload": 1, "priority": 1.5},
    {"payload": 1, "after": -1},
    {"payload": 1, "after": "-5m"},
    {"payload": 1, "after": "soon"},
    {"payload": 1, "after": True},
    {"payload": 1, "after": 1e300},
    {"payload": 1, "after": "99999999999d"},
    {"payload": 1, "after": 1, "at": "2030-01-01T00:00:00Z"},
    {"payload": 1, "at": "2030-01-01T00:00:00"},
    {"payload": 1, "at": "2030-13-01T00:00:00Z"},
    {"payload": 1, "at": "2030-01-01T00:00:60Z"},
    {"payload": 1, "at": 1893456000},
    {"payload": 1, "at": "9999-12-31T23:59:59-23:59"},
    {"payload": 1, "at": "+10m"},
    {"payload": 1, "type": "x" * 101},
    {"payload": 1, "type": "\x00"},
    {"payload": 1, "headers": {"a": 1}},
    {"payload": 1, "headers": {"": "x"}},
    {"payload": 1, "headers": {"a": "x" * 9000}},
    {"payload": 1, "headers": []},
    {"payload": 1, "max_attempts": 0},
    {"payload": 1, "max_attempts": 10**30},
    {"payload": 1, "lease_for": 0.5},
    {"payload": 1, "lease_for": "13h"},
    {"payload": 1, "conflict": "explode"},
    {"payload": 1, "conflict": "debounce"},
    {"payload": 1, "max_wait": 5},
    {"payload": 1, "retry": {"factor": 0}},
    {"payload": 1, "retry": {"factor": "2"}},
    {"payload": 1, "retry": {"jitter": 2}},
    {"payload": 1, "retry": {"more": 2}},
]


@pytest.mark.parametrize("body", FIELDS, ids=lambda body: json.dumps(body)[:50])
def test_a_message_with_something_wrong_is_not_stored(call: Caller, body: dict[str, Any]) -> None:
    response = call("POST", OFFER, body)
    assert code(response)[0] == 422, response.text
    assert response.json()["detail"]
    assert call("GET", "/v1/queues").json()["queues"] == []
    batch = call("POST", OFFER + ":batch", {"messages": [{"payload": 1}, body]})
    assert code(batch)[0] == 422
    assert call("GET", "/v1/queues").json()["queues"] == []


OTHERS: list[tuple[str, str, Any]] = [
    ("POST", "/v1/queues", {"name": "a/b"}),
    ("POST", "/v1/queues", {"name": "x" * 101}),
    ("POST", "/v1/queues", {"name": "q", "lease_for": None}),
    ("POST", "/v1/queues", {"name": "q", "journal": "loud"}),
    ("PATCH", "/v1/queues/q", {"retry": None}),
    ("POST", "/v1/queues/q/messages:poll", {"max": 0}),
    ("POST", "/v1/queues/q/messages:poll", {"max": 1001}),
    ("POST", "/v1/queues/q/messages:poll", {"wait": 61}),
    ("POST", "/v1/queues/q/messages:poll", {"wait": "2m"}),
    ("POST", "/v1/queues/q/messages:poll", {"consumer": "\x00"}),
    ("POST", "/v1/queues/q%00/messages", {"payload": 1}),
    ("POST", "/v1/queues/q%20q/messages", {"payload": 1}),
    ("POST", "/v1/queues/%FF/messages", {"payload": 1}),
    ("GET", "/v1/queues/q/messages?limit=0", None),
    ("GET", "/v1/queues/q/messages?limit=1001", None),
    ("GET", "/v1/queues/q/messages?limit=9e9", None),
    ("GET", "/v1/queues/q/messages?state=done;drop", None),
    ("GET", "/v1/queues/q/messages?after=1;select", None),
    ("GET", "/v1/queues/q/messages?after=999999999999999999-1", None),
    ("GET", "/v1/queues/q/messages?key_prefix=%00", None),
    ("GET", "/v1/queues/q/messages?priority=10", None),
    ("GET", "/v1/queues/q?count_to=-1", None),
    ("POST", "/v1/messages/cS9r/ack", {}),
    ("POST", "/v1/messages/cS9r/ack", {"token": "x"}),
    ("POST", "/v1/messages/cS9r/ack", {"token": "urn:uuid:00000000-0000-4000-8000-000000000000"}),
    ("POST", "/v1/messages:ack", {"messages": []}),
    ("POST", "/v1/messages:ack", {"messages": [{"id": "x" * 1301, "token": "x"}]}),
    ("POST", "/v1/queues/q/dead:redrive", {"versions": [0]}),
    ("POST", "/v1/queues/q/dead:start_redrive", {"versions": [2**63]}),
    ("POST", "/v1/keys", {"name": "k", "actions": []}),
    ("POST", "/v1/keys", {"name": "k", "actions": ["fly"]}),
    ("POST", "/v1/keys", {"name": "k", "actions": ["read"], "queues": ["a*b"]}),
    ("POST", "/v1/keys", {"name": "k", "actions": ["read"], "queues": [".*"], "more": 1}),
]


@pytest.mark.parametrize(("method", "path", "body"), OTHERS, ids=[f"{m} {p} {b}"[:60] for m, p, b in OTHERS])
def test_other_things_that_are_not_allowed(call: Caller, method: str, path: str, body: Any) -> None:
    call("POST", "/v1/queues", {"name": "q"})
    assert code(call(method, path, body))[0] == 422


def test_what_is_declared_as_something_else_is_not_taken_for_json(call: Caller) -> None:
    for media_type in ("text/plain", "application/xml", "multipart/form-data"):
        response = call("POST", OFFER, content=b'{"payload": 1}', headers={"content-type": media_type})
        assert code(response) == (415, "not_json")


@pytest.mark.parametrize("text", ["' or 1=1 --", "%", "_", "\\", "$1", "{}", "%(queue)s", "<script>", "\u202e"])
def test_text_that_means_something_elsewhere_is_only_text(call: Caller, text: str) -> None:
    fields = {"key": text, "type": text, "headers": {text: text}}
    id = call("POST", OFFER, {"payload": text, **fields}).json()["id"]
    body = call("GET", f"/v1/messages/{id}").json()
    assert {name: body[name] for name in ("payload", "key", "type", "headers")} == {"payload": text, **fields}
    listed = call("GET", OFFER, params={"type": text, "key_prefix": text}).json()["messages"]
    assert [m["key"] for m in listed] == [text]


@pytest.mark.parametrize(
    "path", ["/v1/queues/", "/v1/queues/q/messages/", "/healthz/", "/api/queue/message/", "/docs/"]
)
def test_a_path_with_a_slash_too_many_is_unknown_and_leads_nowhere_else(call: Caller, path: str) -> None:
    response = call("GET", path, headers={"host": "localhost:1"})
    assert code(response) == (404, "no_route")
    assert "location" not in response.headers
