"""The OpenAPI document has an example for every request, and each is one that the broker takes; and a page shows them."""

from __future__ import annotations

import importlib
from html.parser import HTMLParser
from typing import Any

from pydantic import TypeAdapter

from tarry.edges.http.openapi import EXAMPLES
from tests.edges.http.conftest import Caller

MODULES = (
    "wire.messages",
    "wire.queues",
    "wire.dead_letters",
    "wire.schedules",
    "wire.keys",
    "wire.analytics",
    "edges.http.openapi",
)


def validate(name: str, example: Any) -> Any:
    for module in MODULES:
        model = getattr(importlib.import_module(f"tarry.{module}"), name, None)
        if model is not None:
            return TypeAdapter(model).validate_python(example)
    raise AssertionError(f"there is no schema {name}")


def bodies(document: dict[str, Any]) -> dict[str, str]:
    """The schema of each JSON body, by its operation."""
    names: dict[str, str] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            content = operation.get("requestBody", {}).get("content", {})
            if "application/json" in content:
                schema = content["application/json"]["schema"]
                (ref,) = (part["$ref"] for part in (schema, *schema.get("anyOf", ())) if "$ref" in part)
                names[f"{method.upper()} {path}"] = ref.rpartition("/")[2]
    return names


def test_every_request_with_a_body_has_an_example(call: Caller) -> None:
    document = call("GET", "/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    without = {
        path: name
        for path, name in bodies(document).items()
        if not document["components"]["schemas"][name].get("examples")
    }
    assert without == {}
    assert EXAMPLES.keys() <= document["components"]["schemas"].keys(), "an example of something that there is not"


def test_an_example_is_valid() -> None:
    for name, example in EXAMPLES.items():
        assert validate(name, example), name


def test_what_is_shown_as_an_example_is_taken(call: Caller) -> None:
    """Requests without preconditions that do not change access."""
    for path, name in bodies(call("GET", "/openapi.json").json()).items():
        method, _, route = path.partition(" ")
        if route in ("/v1/mutes", "/v1/keys") or "{id}" in route or "{job}" in route or "{anomaly_id}" in route:
            continue
        call("POST", "/v1/queues", {"name": "orders", "exist_ok": True})
        call("POST", "/v1/queues", {"name": "reports", "exist_ok": True})
        call("PUT", "/v1/schedules/daily", EXAMPLES["ScheduleRequest"])
        if route == "/v1/queues":
            call("DELETE", "/v1/queues/orders?force=true")
        filled = route.replace("{queue}", "orders").replace("{schedule}", "daily")
        body = {**EXAMPLES[name], "wait": 0} if name == "PollRequest" else EXAMPLES[name]
        response = call(method, filled, body)
        assert response.status_code < 300, f"{path}: {response.text}"


class Seen(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.text: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_html_page_has_the_same_content(call: Caller) -> None:
    response, seen = call("GET", "/docs"), Seen()
    assert (response.status_code, response.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in response.headers["content-security-policy"]
    seen.feed(response.text)
    assert "script" not in seen.tags
    assert seen.links == ["openapi.json"]
    document = call("GET", "/openapi.json").json()
    for path, operations in document["paths"].items():
        for method in operations:
            assert f"{method.upper()} {path}" in seen.text


def test_the_page_never_has_a_key_in_it(call: Caller) -> None:
    made = call("POST", "/v1/keys", EXAMPLES["KeyRequest"]).json()
    assert made["key"].split("_")[2] not in call.with_key(made["key"])("GET", "/docs").text
    assert call("DELETE", "/v1/queues/docs").status_code == 401, "a queue of that name is only a queue"
