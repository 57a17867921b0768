"""What the broker answers: statuses, fields, problems, and what it refuses."""

from __future__ import annotations

from base64 import b64encode
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tarry.core.settings import QueueSettings
from tarry.testing import MutableClock
from tarry.wire.ids import MessageId
from tarry.wire.queues import Queue
from tests.edges.http.conftest import Caller


def offered(call: Caller, queue: str = "orders", **fields: Any) -> str:
    response = call("POST", f"/v1/queues/{queue}/messages", {"payload": {"n": 1}, **fields})
    assert response.status_code in (200, 201), response.text
    return response.json()["id"]


def polled(call: Caller, queue: str = "orders", **fields: Any) -> dict[str, Any]:
    response = call("POST", f"/v1/queues/{queue}/messages:poll", fields)
    assert response.status_code == 200, response.text
    return response.json()["messages"][0]


def code(response: Any) -> tuple[int, str]:
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert body["status"] == response.status_code
    assert body["type"] == f"urn:tarry:problem:{body['code']}"
    assert body["request_id"] == response.headers["x-request-id"]
    return response.status_code, body["code"]


class TestOffering:
    def test_created_is_201_and_anything_else_200(self, call: Caller) -> None:
        first = call("POST", "/v1/queues/orders/messages", {"key": "a", "payload": 1, "at": "2030-01-01T00:00:00Z"})
        same = call("POST", "/v1/queues/orders/messages", {"key": "a", "payload": 1, "at": "2030-01-01T00:00:00+00:00"})
        other = call("POST", "/v1/queues/orders/messages", {"key": "a", "payload": 2})
        assert [(a.status_code, a.json()["outcome"]) for a in (first, same, other)] == [
            (201, "created"),
            (200, "ignored"),
            (200, "updated"),
        ]

    def test_a_queue_has_the_defaults_of_the_library_however_it_is_made(self, call: Caller) -> None:
        offered(call)
        call("POST", "/v1/queues", {"name": "made"})
        for name in ("orders", "made"):
            shown = msgspec.json.decode(call("GET", f"/v1/queues/{name}").content, type=Queue)
            assert shown.core().settings == QueueSettings()

    def test_a_delay_is_seconds_or_text(self, call: Caller, pinned: MutableClock) -> None:
        dues = [
            call("GET", f"/v1/messages/{offered(call, key=str(delay), after=delay)}").json()["due_at"]
            for delay in (600, "10m", "PT10M", 600.000001)
        ]
        assert dues == ["2024-01-01T00:10:00.000000Z"] * 3 + ["2024-01-01T00:10:00.000001Z"]

    def test_text_and_bytes_come_back_as_they_went_in(self, call: Caller) -> None:
        offered(call, payload="héllo", key="text")
        data = b64encode(b"\x00\xff").decode()
        call(
            "POST", "/v1/queues/orders/messages", {"payload_base64": data, "content_type": "image/png", "key": "bytes"}
        )
        messages = {m["key"]: m for m in call("GET", "/v1/queues/orders/messages").json()["messages"]}
        assert (messages["text"]["payload"], messages["text"]["content_type"]) == ("héllo", "text/plain")
        assert (messages["bytes"]["payload_base64"], messages["bytes"]["content_type"]) == (data, "image/png")

    def test_numbers_of_any_size_are_kept_exactly(self, call: Caller) -> None:
        for number in (2**70, -(2**63), 0.1, 1e-300):
            response = call("GET", f"/v1/messages/{offered(call, payload=number)}")
            assert response.json()["payload"] == number

    def test_a_batch_has_an_outcome_for_each_in_order(self, call: Caller) -> None:
        messages = [{"key": key, "payload": key} for key in ("b", "a", "b")]
        response = call("POST", "/v1/queues/orders/messages:batch", {"messages": messages})
        assert [(m["key"], m["outcome"]) for m in response.json()["messages"]] == [
            ("b", "superseded"),
            ("a", "created"),
            ("b", "created"),
        ]

    def test_a_body_with_the_default_media_type_of_curl_is_read_as_json(self, call: Caller) -> None:
        headers = {"content-type": "application/x-www-form-urlencoded"}
        response = call("POST", "/v1/queues/hello/messages", content=b'{"payload": {"hi": "there"}}', headers=headers)
        assert response.status_code == 201


class TestKeysAndNames:
    @pytest.mark.parametrize("queue", ["docs", "health", "...", "openapi.json", "messages", "reference"])
    def test_a_queue_of_any_name_is_only_a_queue(self, call: Caller, queue: str) -> None:
        assert call("POST", f"/v1/queues/{queue}/messages", {"payload": 1, "key": "k"}).status_code == 201
        assert call("GET", f"/v1/queues/{queue}").json()["name"] == queue
        assert polled(call, queue)["id"] == str(MessageId(queue, "k"))
        assert call("DELETE", f"/v1/queues/{queue}?force=true").status_code == 200
        assert code(call("GET", f"/v1/queues/{queue}")) == (404, "unknown_queue")

    @pytest.mark.parametrize("path", ["%2E", "%2E%2E"])
    def test_a_queue_is_not_named_like_a_directory(self, call: Caller, path: str) -> None:
        name = path.replace("%2E", ".")
        call("POST", "/v1/queues", {"name": "q"})
        for method, target, body in (
            ("POST", f"/v1/queues/{path}/messages", {"payload": 1}),
            ("POST", f"/v1/queues/{path}/messages:poll", {}),
            ("POST", "/v1/queues", {"name": name}),
            ("POST", "/v1/queues/q/rename", {"new_name": name}),
            ("POST", "/api/queue/message", {"type": "t", "queue": name}),
            ("PUT", "/v1/schedules/s", {"every": "1h", "queue": name}),
        ):
            assert code(call(method, target, body)) == (422, "invalid"), target
        assert [queue["name"] for queue in call("GET", "/v1/queues").json()["queues"]] == ["q"]

    @pytest.mark.parametrize(
        "name", ["a/b", "%2F", "ä/ö", "..", "😀", " ", "a?b#c", "\n", "x" * 200, "'; drop table tarry.message; --"]
    )
    def test_a_key_of_any_text_is_only_a_key(self, call: Caller, name: str) -> None:
        id = offered(call, key=name)
        assert call("GET", f"/v1/messages/{id}").json()["key"] == name
        held = polled(call)
        assert (held["key"], held["id"]) == (name, id)
        response = call("POST", f"/v1/messages/{id}/ack", {"token": held["token"]})
        assert response.json() == {"outcome": "done"}

    @pytest.mark.parametrize(
        "id", ["x", "!!!!", "b3JkZXJz", "b3JkZXJzLw", "====", "L2tleQ", "b3JkZXJzL2F=", "_" * 1300]
    )
    def test_what_is_no_id_is_no_message(self, call: Caller, id: str) -> None:
        offered(call)
        assert code(call("GET", f"/v1/messages/{id}")) == (404, "gone")


class TestSettling:
    def test_a_lost_lease_is_a_conflict_and_an_end_is_an_end(self, call: Caller) -> None:
        id = offered(call, key="a")
        old = polled(call)["token"]
        call("POST", f"/v1/messages/{id}/nack", {"token": old, "error": "no", "after": 0})
        new = polled(call)["token"]
        assert code(call("POST", f"/v1/messages/{id}/ack", {"token": old})) == (409, "lease_lost")
        assert call("POST", f"/v1/messages/{id}/ack", {"token": new}).status_code == 200
        assert code(call("POST", f"/v1/messages/{id}/ack", {"token": new})) == (404, "gone")

    def test_a_touch_returns_the_new_end_of_the_lease(self, call: Caller, pinned: MutableClock) -> None:
        id = offered(call)
        token = polled(call)["token"]
        response = call("POST", f"/v1/messages/{id}/touch", {"token": token, "lease_for": 120})
        assert response.json() == {"outcome": "done", "lease_until": "2024-01-01T00:02:00.000000Z"}
        pinned.advance(timedelta(minutes=3))
        late = call("POST", f"/v1/messages/{id}/touch", {"token": token})
        assert code(late) == (409, "lease_lost")

    def test_a_batch_settles_messages_of_several_queues_each_for_itself(self, call: Caller) -> None:
        held = []
        for queue in ("one", "two"):
            offered(call, queue, key="k")
            held.append(polled(call, queue))
        items = [{"id": h["id"], "token": h["token"]} for h in held]
        items.append({**items[0], "token": "00000000-0000-4000-8000-000000000000"})
        items.append({"id": "nonsense", "token": items[0]["token"]})
        items.append({"id": str(MessageId("nowhere", "k")), "token": items[0]["token"]})
        response = call("POST", "/v1/messages:ack", {"messages": items})
        assert [m["outcome"] for m in response.json()["messages"]] == ["done", "done", "gone", "gone", "gone"]
        assert [q["name"] for q in call("GET", "/v1/queues").json()["queues"]] == ["one", "two"]

    def test_why_it_is_not_delivered(self, call: Caller) -> None:
        id = offered(call, after="1h")
        call("POST", "/v1/queues/orders/pause", {"reason": "inventory"})
        body = call("GET", f"/v1/messages/{id}/why").json()
        assert body["deliverable"] is False
        assert body["reasons"] == ["queue orders is paused (inventory): resume it", "it is due in 1h"]

    def test_why_a_ready_message_waits_names_a_missing_worker(self, call: Caller) -> None:
        body = call("GET", f"/v1/messages/{offered(call)}/why").json()
        assert body["deliverable"] is True
        assert body["reasons"][1].startswith("no running worker handles queue orders: start one (tarry worker)")


class TestBrowsing:
    def test_consecutive_pages_have_no_gap_and_no_repetition(self, call: Caller) -> None:
        for i in range(7):
            offered(call, key=f"k{i}", priority=i % 3, after=i // 2)
        seen: list[str] = []
        after: str | None = None
        while True:
            params = {"limit": 3} if after is None else {"limit": 3, "after": after}
            page = call("GET", "/v1/queues/orders/messages", params=params).json()
            seen += [m["key"] for m in page["messages"]]
            after = page["next"]
            if after is None:
                break
        assert seen == [f"k{i}" for i in range(7)]

    def test_filters(self, call: Caller) -> None:
        offered(call, key="a-1", type="x", priority=3)
        offered(call, key="a-2", type="y")
        offered(call, key="b%", type="x")

        def keys(**params: Any) -> list[str]:
            return [m["key"] for m in call("GET", "/v1/queues/orders/messages", params=params).json()["messages"]]

        assert keys(type="x") == ["a-1", "b%"]
        assert keys(key_prefix="a-") == ["a-1", "a-2"]
        assert keys(key_prefix="%") == []
        assert keys(priority=3) == ["a-1"]
        assert keys(state="delayed") == []

    def test_looking_makes_no_queue(self, call: Caller) -> None:
        for path in ("", "/messages", "/dead"):
            assert code(call("GET", f"/v1/queues/nowhere{path}")) == (404, "unknown_queue")
        id = MessageId("nowhere", "k")
        for path in ("", "/timeline", "/why"):
            assert code(call("GET", f"/v1/messages/{id}{path}")) == (404, "unknown_queue")
        assert call("GET", "/v1/queues").json()["queues"] == []

    def test_the_life_of_a_message(self, call: Caller) -> None:
        id = offered(call)
        held = polled(call, consumer="me")
        call("POST", f"/v1/messages/{id}/ack", {"token": held["token"]})
        events = call("GET", f"/v1/messages/{id}/timeline").json()["events"]
        assert [e["kind"] for e in events] == ["offered", "leased", "acked"]
        assert events[1]["consumer"] == "me"


class TestEnvelope:
    def test_a_request_id_is_kept_or_made(self, call: Caller) -> None:
        assert call("GET", "/healthz", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
        for bad in ("a b", "x" * 101, "<script>", ""):
            assert call("GET", "/healthz", headers={"x-request-id": bad}).headers["x-request-id"] != bad

    def test_every_response_forbids_sniffing_framing_and_caching(self, call: Caller) -> None:
        for response in (call("GET", "/healthz"), call("GET", "/nowhere"), call("GET", "/v1/queues/x")):
            assert response.headers["x-content-type-options"] == "nosniff"
            assert response.headers["cache-control"] == "no-store"
            assert "default-src 'none'" in response.headers["content-security-policy"]

    def test_an_unknown_route_or_method_is_refused(self, call: Caller) -> None:
        assert code(call("GET", "/v1/nowhere")) == (404, "no_route")
        assert code(call("PUT", "/v1/queues")) == (405, "method_not_allowed")

    def test_no_response_opens_the_broker_to_other_origins(self, call: Caller) -> None:
        headers = {"origin": "http://evil.example", "access-control-request-method": "POST"}
        response = call("OPTIONS", "/v1/queues", headers=headers)
        assert not [name for name in response.headers if name.startswith("access-control")]

    def test_the_document_describes_every_route_with_its_access(self, call: Caller) -> None:
        body = call("GET", "/openapi.json").json()
        assert body["openapi"].startswith("3.1")
        operations = [(path, op) for path, ops in body["paths"].items() for op in ops.values()]
        without = {path for path, op in operations if "x-tarry-access" not in op}
        assert without == {"/healthz", "/readyz"}
        assert len(operations) > 30
