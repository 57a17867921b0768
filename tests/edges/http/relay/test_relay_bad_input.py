"""Invalid input to Relay's routes is refused, and never a 5xx."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from tests.edges.http.conftest import Caller
from tests.edges.http.limits.test_fuzz import BODIES, JSON, TEXTS
from tests.edges.http.relay.test_relay_access import RELAY_ROUTES


@pytest.mark.parametrize("kind", [kind for kind in BODIES if kind != "an unknown field"])  # which Relay ignores
def test_a_body_that_no_route_can_take(call: Caller, kind: str) -> None:
    body, _ = BODIES[kind]
    for route in RELAY_ROUTES:
        if route.body is not None:
            method, path, _ = route.on("default")
            response = call(method, path, content=body, headers=JSON)
            empty = kind == "a list" and route.path.endswith(("/import", "/batch")) and isinstance(route.body, list)
            allowed = (200, 201) if empty else (400, 404, 413, 422)
            assert response.status_code in allowed, (
                f"{route.method} {path}: {response.status_code} {response.text[:300]}"
            )


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text)[:20])
def test_texts_that_mean_something_elsewhere(call: Caller, text: str) -> None:
    call("POST", "/api/queue/message", {"type": "t", "payload": 1})
    quoted = quote(text, safe="")
    names = (
        "queueName",
        "filterType",
        "search",
        "sortBy",
        "sortOrder",
        "startDate",
        "endDate",
        "filterPriority",
        "page",
    )
    for path in ("/api/queue/main/messages", "/api/queue/dead/export"):
        for name in names:
            assert call("GET", f"{path}?{name}={quoted}").status_code < 500, f"{path} {name}"
    for name in ("message_id", "consumer_id", "action", "queue_name", "start_time", "limit", "offset"):
        assert call("GET", f"/api/queue/activity?{name}={quoted}").status_code < 500, name
    for name in ("severity", "type", "queue_name", "end_time"):
        assert call("GET", f"/api/queue/activity/anomalies?{name}={quoted}").status_code < 500, name
    for body in (
        {"type": text},
        {"queue": text},
        {"payload": {text: text}},
        {"payload_base64": text},
        {"priority": text},
    ):
        file = {"file": json.dumps([body]).encode()}
        assert call("POST", "/api/queue/import", files=file).status_code < 500, body
    for body in ({"messages": [text]}, {"messages": [{"id": text}]}, {"errorReason": text}):
        whole = {"messages": ["x"], "fromQueue": "main", "toQueue": "dead", **body}
        assert call("POST", "/api/queue/move", whole).status_code < 500, body
