"""What the broker answers: statuses, fields, problems, and what it refuses."""

from __future__ import annotations

from base64 import b64encode
from datetime import timedelta
from typing import Any

import pytest

from tarry.edges.http.ids import MessageId
from tarry.testing import MutableClock
from tests.edges.http.conftest import Caller


def offered(ask: Caller, queue: str = "orders", **fields: Any) -> str:
    answer = ask("POST", f"/v1/queues/{queue}/messages", {"payload": {"n": 1}, **fields})
    assert answer.status_code in (200, 201), answer.text
    return answer.json()["id"]


def polled(ask: Caller, queue: str = "orders", **fields: Any) -> dict[str, Any]:
    answer = ask("POST", f"/v1/queues/{queue}/messages:poll", fields)
    assert answer.status_code == 200, answer.text
    return answer.json()["messages"][0]


def code(answer: Any) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    said = answer.json()
    assert said["status"] == answer.status_code
    assert said["type"] == f"urn:tarry:problem:{said['code']}"
    assert said["request_id"] == answer.headers["x-request-id"]
    return answer.status_code, said["code"]


class TestOffering:
    def test_created_is_201_and_anything_else_200(self, ask: Caller) -> None:
        first = ask("POST", "/v1/queues/orders/messages", {"key": "a", "payload": 1, "at": "2030-01-01T00:00:00Z"})
        same = ask("POST", "/v1/queues/orders/messages", {"key": "a", "payload": 1, "at": "2030-01-01T00:00:00+00:00"})
        other = ask("POST", "/v1/queues/orders/messages", {"key": "a", "payload": 2})
        assert [(a.status_code, a.json()["outcome"]) for a in (first, same, other)] == [
            (201, "created"),
            (200, "ignored"),
            (200, "updated"),
        ]

    def test_a_queue_that_is_made_by_an_offer_gives_up_after_three_attempts(self, ask: Caller) -> None:
        offered(ask)
        assert ask("GET", "/v1/queues/orders").json()["max_attempts"] == 3

    def test_a_delay_is_seconds_or_text(self, ask: Caller, pinned: MutableClock) -> None:
        dues = [
            ask("GET", f"/v1/messages/{offered(ask, key=str(delay), delay=delay)}").json()["due_at"]
            for delay in (600, "10m", "PT10M", 600.000001)
        ]
        assert dues == ["2024-01-01T00:10:00.000000Z"] * 3 + ["2024-01-01T00:10:00.000001Z"]

    def test_text_and_bytes_come_back_as_they_went_in(self, ask: Caller) -> None:
        offered(ask, payload="héllo", key="text")
        data = b64encode(b"\x00\xff").decode()
        ask("POST", "/v1/queues/orders/messages", {"payload_base64": data, "content_type": "image/png", "key": "bytes"})
        found = {m["key"]: m for m in ask("GET", "/v1/queues/orders/messages").json()["messages"]}
        assert (found["text"]["payload"], found["text"]["content_type"]) == ("héllo", "text/plain")
        assert (found["bytes"]["payload_base64"], found["bytes"]["content_type"]) == (data, "image/png")

    def test_numbers_of_any_size_are_kept_exactly(self, ask: Caller) -> None:
        for number in (2**70, -(2**63), 0.1, 1e-300):
            answer = ask("GET", f"/v1/messages/{offered(ask, payload=number)}")
            assert answer.json()["payload"] == number

    def test_a_batch_has_an_outcome_for_each_in_order(self, ask: Caller) -> None:
        messages = [{"key": key, "payload": key} for key in ("b", "a", "b")]
        answer = ask("POST", "/v1/queues/orders/messages:batch", {"messages": messages})
        assert [(m["key"], m["outcome"]) for m in answer.json()["messages"]] == [
            ("b", "superseded"),
            ("a", "created"),
            ("b", "created"),
        ]

    def test_what_curl_sends_without_being_told_is_taken_for_json(self, ask: Caller) -> None:
        headers = {"content-type": "application/x-www-form-urlencoded"}
        answer = ask("POST", "/v1/queues/hello/messages", content=b'{"payload": {"hi": "there"}}', headers=headers)
        assert answer.status_code == 201


class TestKeysAndNames:
    @pytest.mark.parametrize("queue", ["docs", "health", "...", "openapi.json", "messages", "reference"])
    def test_a_queue_of_any_name_is_only_a_queue(self, ask: Caller, queue: str) -> None:
        assert ask("POST", f"/v1/queues/{queue}/messages", {"payload": 1, "key": "k"}).status_code == 201
        assert ask("GET", f"/v1/queues/{queue}").json()["name"] == queue
        assert polled(ask, queue)["id"] == str(MessageId(queue, "k"))
        assert ask("DELETE", f"/v1/queues/{queue}?force=true").status_code == 200
        assert code(ask("GET", f"/v1/queues/{queue}")) == (404, "unknown_queue")

    @pytest.mark.parametrize("path", ["%2E", "%2E%2E"])
    def test_a_queue_is_not_named_like_a_directory(self, ask: Caller, path: str) -> None:
        name = path.replace("%2E", ".")
        ask("POST", "/v1/queues", {"name": "q"})
        for method, asked, body in (
            ("POST", f"/v1/queues/{path}/messages", {"payload": 1}),
            ("POST", f"/v1/queues/{path}/messages:poll", {}),
            ("POST", "/v1/queues", {"name": name}),
            ("POST", "/v1/queues/q/rename", {"new_name": name}),
            ("POST", "/api/queue/message", {"type": "t", "queue": name}),
            ("PUT", "/v1/schedules/s", {"every": "1h", "queue": name}),
        ):
            assert code(ask(method, asked, body)) == (422, "invalid"), asked
        assert [queue["name"] for queue in ask("GET", "/v1/queues").json()["queues"]] == ["q"]

    @pytest.mark.parametrize(
        "name", ["a/b", "%2F", "ä/ö", "..", "😀", " ", "a?b#c", "\n", "x" * 200, "'; drop table tarry.message; --"]
    )
    def test_a_key_of_any_text_is_only_a_key(self, ask: Caller, name: str) -> None:
        id = offered(ask, key=name)
        assert ask("GET", f"/v1/messages/{id}").json()["key"] == name
        held = polled(ask)
        assert (held["key"], held["id"]) == (name, id)
        answer = ask("POST", f"/v1/messages/{id}/ack", {"lock_token": held["lock_token"]})
        assert answer.json() == {"outcome": "done"}

    @pytest.mark.parametrize(
        "id", ["x", "!!!!", "b3JkZXJz", "b3JkZXJzLw", "====", "L2tleQ", "b3JkZXJzL2F=", "_" * 1300]
    )
    def test_what_is_no_id_is_no_message(self, ask: Caller, id: str) -> None:
        offered(ask)
        assert code(ask("GET", f"/v1/messages/{id}")) == (404, "gone")


class TestSettling:
    def test_a_lost_lease_is_a_conflict_and_an_end_is_an_end(self, ask: Caller) -> None:
        id = offered(ask, key="a")
        old = polled(ask)["lock_token"]
        ask("POST", f"/v1/messages/{id}/nack", {"lock_token": old, "error": "no", "delay": 0})
        new = polled(ask)["lock_token"]
        assert code(ask("POST", f"/v1/messages/{id}/ack", {"lock_token": old})) == (409, "lease_lost")
        assert ask("POST", f"/v1/messages/{id}/ack", {"lock_token": new}).status_code == 200
        assert code(ask("POST", f"/v1/messages/{id}/ack", {"lock_token": new})) == (404, "gone")

    def test_a_touch_says_until_when(self, ask: Caller, pinned: MutableClock) -> None:
        id = offered(ask)
        token = polled(ask)["lock_token"]
        answer = ask("POST", f"/v1/messages/{id}/touch", {"lock_token": token, "extend_seconds": 120})
        assert answer.json() == {"outcome": "done", "lease_until": "2024-01-01T00:02:00.000000Z"}
        pinned.advance(timedelta(minutes=3))
        late = ask("POST", f"/v1/messages/{id}/touch", {"lock_token": token})
        assert code(late) == (409, "lease_lost")

    def test_a_batch_settles_messages_of_several_queues_each_for_itself(self, ask: Caller) -> None:
        held = []
        for queue in ("one", "two"):
            offered(ask, queue, key="k")
            held.append(polled(ask, queue))
        items = [{"id": h["id"], "lock_token": h["lock_token"]} for h in held]
        items.append({**items[0], "lock_token": "00000000-0000-4000-8000-000000000000"})
        items.append({"id": "nonsense", "lock_token": items[0]["lock_token"]})
        items.append({"id": str(MessageId("nowhere", "k")), "lock_token": items[0]["lock_token"]})
        answer = ask("POST", "/v1/messages:ack", {"messages": items})
        assert [m["outcome"] for m in answer.json()["messages"]] == ["done", "done", "gone", "gone", "gone"]
        assert [q["name"] for q in ask("GET", "/v1/queues").json()["queues"]] == ["one", "two"]

    def test_why_it_is_not_delivered(self, ask: Caller) -> None:
        id = offered(ask, delay="1h")
        ask("POST", "/v1/queues/orders/pause", {"reason": "inventory"})
        said = ask("GET", f"/v1/messages/{id}/why").json()
        assert said["deliverable"] is False
        assert said["reasons"] == ["queue orders is paused (inventory): resume it", "it is due in 1:00:00"]


class TestBrowsing:
    def test_pages_follow_each_other_without_gap_or_repetition(self, ask: Caller) -> None:
        for i in range(7):
            offered(ask, key=f"k{i}", priority=i % 3, delay=i // 2)
        seen: list[str] = []
        after: str | None = None
        while True:
            params = {"limit": 3} if after is None else {"limit": 3, "after": after}
            page = ask("GET", "/v1/queues/orders/messages", params=params).json()
            seen += [m["key"] for m in page["messages"]]
            after = page["next"]
            if after is None:
                break
        assert seen == [f"k{i}" for i in range(7)]

    def test_filters(self, ask: Caller) -> None:
        offered(ask, key="a-1", type="x", priority=3)
        offered(ask, key="a-2", type="y")
        offered(ask, key="b%", type="x")

        def keys(**params: Any) -> list[str]:
            return [m["key"] for m in ask("GET", "/v1/queues/orders/messages", params=params).json()["messages"]]

        assert keys(type="x") == ["a-1", "b%"]
        assert keys(key_prefix="a-") == ["a-1", "a-2"]
        assert keys(key_prefix="%") == []
        assert keys(priority=3) == ["a-1"]
        assert keys(state="delayed") == []

    def test_looking_makes_no_queue(self, ask: Caller) -> None:
        for path in ("", "/messages", "/dead"):
            assert code(ask("GET", f"/v1/queues/nowhere{path}")) == (404, "unknown_queue")
        id = MessageId("nowhere", "k")
        for path in ("", "/timeline", "/why"):
            assert code(ask("GET", f"/v1/messages/{id}{path}")) == (404, "unknown_queue")
        assert ask("GET", "/v1/queues").json()["queues"] == []

    def test_the_life_of_a_message(self, ask: Caller) -> None:
        id = offered(ask)
        held = polled(ask, consumer="me")
        ask("POST", f"/v1/messages/{id}/ack", {"lock_token": held["lock_token"]})
        events = ask("GET", f"/v1/messages/{id}/timeline").json()["events"]
        assert [e["kind"] for e in events] == ["offered", "leased", "acked"]
        assert events[1]["consumer"] == "me"


class TestEnvelope:
    def test_a_request_id_is_kept_or_made(self, ask: Caller) -> None:
        assert ask("GET", "/healthz", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
        for bad in ("a b", "x" * 101, "<script>", ""):
            assert ask("GET", "/healthz", headers={"x-request-id": bad}).headers["x-request-id"] != bad

    def test_every_answer_forbids_sniffing_framing_and_keeping(self, ask: Caller) -> None:
        for answer in (ask("GET", "/healthz"), ask("GET", "/nowhere"), ask("GET", "/v1/queues/x")):
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
            assert "default-src 'none'" in answer.headers["content-security-policy"]

    def test_what_is_not_there_says_so(self, ask: Caller) -> None:
        assert code(ask("GET", "/v1/nowhere")) == (404, "no_route")
        assert code(ask("PUT", "/v1/queues")) == (405, "method_not_allowed")

    def test_no_answer_opens_the_broker_to_other_origins(self, ask: Caller) -> None:
        headers = {"origin": "http://evil.example", "access-control-request-method": "POST"}
        answer = ask("OPTIONS", "/v1/queues", headers=headers)
        assert not [name for name in answer.headers if name.startswith("access-control")]

    def test_the_document_describes_every_route_with_its_access(self, ask: Caller) -> None:
        said = ask("GET", "/openapi.json").json()
        assert said["openapi"].startswith("3.1")
        operations = [(path, op) for path, ops in said["paths"].items() for op in ops.values()]
        without = {path for path, op in operations if "x-tarry-access" not in op}
        assert without == {"/healthz", "/readyz"}
        assert len(operations) > 30
