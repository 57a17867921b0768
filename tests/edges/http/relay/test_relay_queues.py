"""Relay's routes that list messages, delete them and manage queues."""

from __future__ import annotations

from typing import Any

import pytest

from tests.edges.http.conftest import Caller
from tests.edges.http.test_responses import code

OFFER = "/api/queue/message"


@pytest.fixture
def made(call: Caller) -> dict[str, Any]:
    """The ids of a waiting, a leased and a dead message, by type."""
    ids: dict[str, Any] = {}
    for state, fields in (("dead", {"maxAttempts": 1}), ("processing", {}), ("main", {"priority": 3})):
        ids[state] = call("POST", OFFER, {"type": state, "payload": state, **fields}).json()["id"]
        if state != "main":
            held = call("GET", OFFER).json()
            assert held["id"] == ids[state]
            if state == "dead":
                call("POST", f"{OFFER}/{held['id']}/nack", {"lock_token": held["lock_token"], "errorReason": "no"})
    return ids


def test_each_type_lists_its_messages(call: Caller, made: dict[str, Any]) -> None:
    for state, status in (("main", "queued"), ("processing", "processing"), ("dead", "dead")):
        body = call("GET", f"/api/queue/{state}/messages").json()
        (message,) = body["messages"]
        assert (message["id"], message["status"], message["payload"]) == (made[state], status, state)
        assert body["pagination"] == {"total": 1, "page": 1, "limit": 100, "totalPages": 1, "hasMore": False}


def test_pages_and_filters(call: Caller) -> None:
    for number in range(5):
        call("POST", OFFER, {"type": "odd" if number % 2 else "even", "payload": number})
    first, last = (call("GET", f"/api/queue/main/messages?limit=2&page={page}").json() for page in (1, 3))
    assert [message["payload"] for message in first["messages"]] == [0, 1]
    assert first["pagination"] == {"total": 5, "page": 1, "limit": 2, "totalPages": 3, "hasMore": True}
    assert ([message["payload"] for message in last["messages"]], last["pagination"]["hasMore"]) == ([4], False)
    odd = call("GET", "/api/queue/main/messages?filterType=odd").json()
    assert ([message["payload"] for message in odd["messages"]], odd["pagination"]["total"]) == ([1, 3], 2)


@pytest.mark.parametrize(
    "query",
    [
        "sortBy=id;drop",
        "sortOrder=sideways",
        "where=1",
        "page=0",
        "limit=0",
        "page=100000",
        "filterPriority=x",
        "startDate=today",
    ],
)
def test_unsupported_parameters_are_422(call: Caller, query: str) -> None:
    assert call("GET", f"/api/queue/main/messages?{query}").status_code == 422


@pytest.mark.parametrize("path", ["nowhere/messages", "acknowledged/export", "archived/export"])
def test_what_cannot_be_listed_or_exported_is_422(call: Caller, made: dict[str, Any], path: str) -> None:
    response = call("GET", f"/api/queue/{path}")
    assert response.status_code == 422
    assert "timeline" in response.json()["hint"]


@pytest.mark.parametrize("state", ["main", "processing", "dead"])
def test_a_message_is_deleted_where_it_is(call: Caller, made: dict[str, Any], state: str) -> None:
    path = f"{OFFER}/{made[state]}?queueType={state}"
    assert call("DELETE", path).json() == {"success": True}
    assert call("DELETE", path).json() == {"success": False}
    assert call("GET", f"/api/queue/{state}/messages").json()["messages"] == []


def test_many_are_deleted(call: Caller, made: dict[str, Any]) -> None:
    response = call(
        "POST", "/api/queue/messages/delete", {"messageIds": [made["main"], made["processing"], "nonsense"]}
    )
    assert (response.json()["success"], response.json()["deletedCount"]) == (True, 1), "a worker has the other"
    response = call("POST", "/api/queue/messages/delete?queueType=processing", {"messageIds": [made["processing"]]})
    assert response.json()["deletedCount"] == 1


def test_a_waiting_message_is_edited(call: Caller, made: dict[str, Any]) -> None:
    path = f"{OFFER}/{made['main']}"
    response = call("PUT", path, {"payload": {"new": 1}, "priority": 7, "custom_ack_timeout": 5})
    assert response.status_code == 200
    data = response.json()["data"]
    assert (response.json()["success"], data["payload"], data["priority"], data["type"]) == (
        True,
        {"new": 1},
        7,
        "main",
    )
    assert call("PUT", path, {}).status_code == 404
    assert call("PUT", path, {"priority": 10}).status_code == 422
    held = call("PUT", f"{OFFER}/{made['processing']}", {"priority": 1})
    assert (held.status_code, held.json()["error"]) == (409, "LOCKED")
    assert call("PUT", f"{OFFER}/{made['dead']}", {"priority": 1}).status_code == 404


def test_metrics_config_and_the_life_of_a_message(call: Caller, made: dict[str, Any]) -> None:
    assert call("GET", "/api/queue/metrics").json() == {
        "queued": 1,
        "processing": 1,
        "dead": 1,
        "main_queue_size": 1,
        "processing_size": 1,
        "processing_queue_size": 1,
        "dead_letter_size": 1,
        "dead_letter_queue_size": 1,
    }
    assert call("GET", "/api/queue/config").json() == {"ack_timeout_seconds": 30, "max_attempts": 3}
    body = call("GET", f"/api/queue/activity/message/{made['dead']}").json()
    assert body["message_id"] == made["dead"]
    assert [entry["action"] for entry in body["history"]][:2] == ["enqueue", "dequeue"]
    assert "move_to_dlq" in [entry["action"] for entry in body["history"]]


class TestQueues:
    def test_a_queue_is_created_once(self, call: Caller) -> None:
        made = call("POST", "/api/queues", {"name": "jobs", "ack_timeout_seconds": 60, "max_attempts": 5})
        assert made.status_code == 201
        queue = made.json()["queue"]
        assert (queue["name"], queue["queue_type"], queue["ack_timeout_seconds"], queue["max_attempts"]) == (
            "jobs", "standard", 60, 5,
        )  # fmt: skip
        assert call("POST", "/api/queues", {"name": "jobs"}).status_code == 409

    @pytest.mark.parametrize("body", [{}, {"name": "a b"}, {"name": "x", "queue_type": "unlogged"}])
    def test_an_invalid_queue_is_422(self, call: Caller, body: dict[str, Any]) -> None:
        assert call("POST", "/api/queues", body).status_code == 422

    def test_queues_are_listed_with_their_numbers(self, call: Caller, made: dict[str, Any]) -> None:
        body = call("GET", "/api/queues").json()
        assert body["total"] == 1
        (queue,) = body["queues"]
        assert (queue["message_count"], queue["processing_count"], queue["dead_count"]) == (1, 1, 1)
        assert call("GET", "/api/queues/default").json() == queue
        assert call("GET", "/api/queues/nowhere").status_code == 404

    def test_settings_change_and_count_for_what_is_dequeued_next(self, call: Caller) -> None:
        call("POST", "/api/queues", {"name": "jobs"})
        changed = call("PATCH", "/api/queues/jobs", {"ack_timeout_seconds": 7})
        assert changed.json()["queue"]["ack_timeout_seconds"] == 7
        call("POST", OFFER, {"type": "t", "queue": "jobs"})
        assert call("GET", f"{OFFER}?queue=jobs").json()["ack_timeout_seconds"] == 7
        assert call("PATCH", "/api/queues/nowhere", {}).status_code == 404

    def test_a_queue_with_messages_is_deleted_by_force(self, call: Caller, made: dict[str, Any]) -> None:
        assert code(call("DELETE", "/api/queues/default")) == (400, "refused")
        assert call("DELETE", "/api/queues/default?force=true").status_code == 200
        assert call("DELETE", "/api/queues/default").status_code == 404

    def test_a_rename_takes_the_messages_along(self, call: Caller, made: dict[str, Any]) -> None:
        assert call("POST", "/api/queues/default/rename", {"newName": "jobs"}).json()["queue"]["name"] == "jobs"
        assert call("GET", f"{OFFER}?queue=jobs").json()["payload"] == "main"
        call("POST", "/api/queues", {"name": "taken"})
        assert call("POST", "/api/queues/jobs/rename", {"newName": "taken"}).status_code == 409
        assert call("POST", "/api/queues/nowhere/rename", {"newName": "x"}).status_code == 404

    @pytest.mark.parametrize(
        ("status", "left"),
        [
            ("queued", {"processing", "dead"}),
            ("processing", {"main", "dead"}),
            ("dead", {"main", "processing"}),
            ("all", set()),
        ],
    )
    def test_a_purge_takes_what_it_names_of_this_queue(
        self, call: Caller, made: dict[str, Any], status: str, left: set[str]
    ) -> None:
        call("POST", "/api/queues", {"name": "other"})
        call("POST", OFFER, {"type": "t", "queue": "other"})
        body = call("POST", "/api/queues/default/purge", {"status": status}).json()
        assert body["deleted_count"] == 3 - len(left)
        states = ("main", "processing", "dead")
        assert {
            p for p in states if call("GET", f"/api/queue/{p}/messages?queueName=default").json()["messages"]
        } == left
        assert call("GET", f"{OFFER}?queue=other").status_code == 200
