"""Nonsense for Relay's routes: refused, and never a 5xx."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from tests.edges.http.conftest import Caller
from tests.edges.http.test_fuzz import BODIES, JSON, TEXTS
from tests.edges.http.test_relay_access import ASKED


@pytest.mark.parametrize("kind", [kind for kind in BODIES if kind != "an unknown field"])  # which Relay ignores
def test_a_body_that_no_route_can_take(ask: Caller, kind: str) -> None:
    body, _ = BODIES[kind]
    for asked in ASKED:
        if asked.body is not None:
            method, path, _ = asked.on("default")
            answer = ask(method, path, content=body, headers=JSON)
            nothing_to_import = kind == "a list" and asked.path.endswith("/import")
            allowed = (200,) if nothing_to_import else (400, 404, 413, 422)
            assert answer.status_code in allowed, f"{asked.method} {path}: {answer.status_code} {answer.text[:300]}"


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text)[:20])
def test_texts_that_mean_something_elsewhere(ask: Caller, text: str) -> None:
    ask("POST", "/api/queue/message", {"type": "t", "payload": 1})
    said = quote(text, safe="")
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
            assert ask("GET", f"{path}?{name}={said}").status_code < 500, f"{path} {name}"
    for name in ("message_id", "consumer_id", "action", "queue_name", "start_time", "limit", "offset"):
        assert ask("GET", f"/api/queue/activity?{name}={said}").status_code < 500, name
    for name in ("severity", "type", "queue_name", "end_time"):
        assert ask("GET", f"/api/queue/activity/anomalies?{name}={said}").status_code < 500, name
    for body in (
        {"type": text},
        {"queue": text},
        {"payload": {text: text}},
        {"payload_base64": text},
        {"priority": text},
    ):
        file = {"file": json.dumps([body]).encode()}
        assert ask("POST", "/api/queue/import", files=file).status_code < 500, body
    for body in ({"messages": [text]}, {"messages": [{"id": text}]}, {"errorReason": text}):
        whole = {"messages": ["x"], "fromQueue": "main", "toQueue": "dead", **body}
        assert ask("POST", "/api/queue/move", whole).status_code < 500, body
