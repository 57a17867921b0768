"""The same nonsense for every route that there is: refused with a problem, and never a 5xx."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from fastapi.routing import APIRoute

from tests.edges.http.conftest import Caller
from tests.edges.http.test_access import GUARDED, request

TAKING = [route for route in GUARDED if route.body_field is not None]
JSON = {"content-type": "application/json"}
BODIES = {
    "half": (b'{"a": ', (400,)),
    "not UTF-8": (b'{"reason": "\xff"}', (400,)),
    "a lone surrogate": (rb'{"reason": "\ud800"}', (400,)),
    "NaN": (b'{"rate": NaN}', (400,)),
    "an abyss": (b"[" * 100_000 + b"]" * 100_000, (400,)),
    "a list": (b"[]", (422,)),
    "a number": (b"1", (422,)),
    "an unknown field": (b'{"no_such_field": 1}', (422,)),
    "too large": (b'"' + b"x" * (1024 * 1024) + b'"', (413,)),
}
TEXTS = ("'; drop table tarry.message; --", "\x00", "😀", "..",
         "%", "a/b", "x" * 2_000, "~", "-1", "9" * 40, "\u202e", "{}", "null")  # fmt: skip


def named(route: APIRoute) -> str:
    return f"{next(iter(route.methods or ()))} {route.path_format}"


@pytest.fixture
def prepared(call: Caller) -> Caller:
    call("POST", "/v1/queues/q/messages", {"key": "k", "payload": 1})
    call("PUT", "/v1/schedules/q", {"every": "1h", "queue": "q", "overlap": "skip"})
    call("POST", "/v1/queues/q/dead:start_redrive")
    return call


@pytest.mark.parametrize("kind", BODIES)
def test_a_body_that_no_route_can_take(prepared: Caller, kind: str) -> None:
    body, allowed = BODIES[kind]
    for route in TAKING:
        method, path, _ = request(route, "q")
        response = prepared(method, path.replace("/99", "/1"), content=body, headers=JSON)
        assert response.status_code in allowed, f"{named(route)}: {response.status_code} {response.text[:300]}"
        assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text)[:20])
def test_a_path_or_a_query_that_means_something_elsewhere(
    prepared: Caller, documented: dict[str, Any], text: str
) -> None:
    quoted = quote(text, safe="") if text.strip(".") else text.replace(".", "%2E")
    requests = 0
    for route in GUARDED:
        if route.path_format == "/v1/events":
            continue  # a stream without end
        method, path, body = request(route, "q")
        for name in route.param_convertors:
            response = prepared(method, route.path_format.replace("{" + name + "}", quoted), body)
            assert response.status_code < 500, f"{named(route)}: {response.status_code} {response.text[:300]}"
        parameters = documented[route.path_format][method.lower()].get("parameters", ())
        for field in (parameter["name"] for parameter in parameters if parameter["in"] == "query"):
            response = prepared(method, path, body, params={field: text})
            assert response.status_code < 500, f"{named(route)}?{field}: {response.status_code} {response.text[:300]}"
            requests += 1
    assert requests > 50
