"""The OpenAPI document has an example for every request, and each is one that the broker takes; and a page shows them."""

from __future__ import annotations

import importlib
from html.parser import HTMLParser
from typing import Any

import pytest
from pydantic import BaseModel

from tarry.edges.http.examples import EXAMPLES
from tests.edges.http.conftest import Caller

MODULES = ("contracts", "dead_shapes", "schedule_shapes", "ruling_shapes", "insights", "answers")


def model(name: str) -> type[BaseModel]:
    for module in MODULES:
        found = getattr(importlib.import_module(f"tarry.edges.http.{module}"), name, None)
        if found is not None:
            return found
    raise AssertionError(f"there is no schema {name}")


def bodies(document: dict[str, Any]) -> dict[str, str]:
    """The schema of each JSON body, by its operation."""
    found: dict[str, str] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            content = operation.get("requestBody", {}).get("content", {})
            if "application/json" in content:
                schema = content["application/json"]["schema"]
                (ref,) = (one["$ref"] for one in (schema, *schema.get("anyOf", ())) if "$ref" in one)
                found[f"{method.upper()} {path}"] = ref.rpartition("/")[2]
    return found


def test_every_request_with_a_body_has_an_example(ask: Caller) -> None:
    document = ask("GET", "/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    without = {
        path: name
        for path, name in bodies(document).items()
        if not document["components"]["schemas"][name].get("examples")
    }
    assert without == {}
    assert EXAMPLES.keys() <= document["components"]["schemas"].keys(), "an example of something that there is not"


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_valid(name: str) -> None:
    assert model(name).model_validate(EXAMPLES[name])


def test_what_is_shown_as_an_example_is_taken(ask: Caller) -> None:
    """Those that need nothing to be there before, and do not change who may ask."""
    for path, name in bodies(ask("GET", "/openapi.json").json()).items():
        method, _, route = path.partition(" ")
        if route in ("/v1/mutes", "/v1/keys") or "{id}" in route or "{job}" in route or "{anomaly_id}" in route:
            continue
        ask("POST", "/v1/queues", {"name": "orders", "exist_ok": True})
        ask("POST", "/v1/queues", {"name": "reports", "exist_ok": True})
        ask("PUT", "/v1/schedules/daily", EXAMPLES["ScheduleRequest"])
        if route == "/v1/queues":
            ask("DELETE", "/v1/queues/orders?force=true")
        asked = route.replace("{queue}", "orders").replace("{schedule}", "daily")
        body = {**EXAMPLES[name], "wait": 0} if name == "PollRequest" else EXAMPLES[name]
        answer = ask(method, asked, body)
        assert answer.status_code < 300, f"{path}: {answer.text}"


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


def test_a_page_says_the_same_to_people(ask: Caller) -> None:
    answer, seen = ask("GET", "/docs"), Seen()
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    seen.feed(answer.text)
    assert "script" not in seen.tags
    assert seen.links == ["openapi.json"]
    document = ask("GET", "/openapi.json").json()
    for path, operations in document["paths"].items():
        for method in operations:
            assert f"{method.upper()} {path}" in seen.text


def test_the_page_never_has_a_key_in_it(ask: Caller) -> None:
    made = ask("POST", "/v1/keys", EXAMPLES["KeyRequest"]).json()
    assert made["key"].split("_")[2] not in ask.with_key(made["key"])("GET", "/docs").text
    assert ask("DELETE", "/v1/queues/docs").status_code == 401, "a queue of that name is only a queue"
