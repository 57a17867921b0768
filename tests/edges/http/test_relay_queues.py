"""Relay's routes for looking, cleaning up and managing queues."""

from __future__ import annotations

from typing import Any

import pytest

from tests.edges.http.conftest import Caller
from tests.edges.http.test_answers import code

OFFER = "/api/queue/message"


@pytest.fixture
def made(ask: Caller) -> dict[str, Any]:
    """One that waits, one that is held, one that is dead: by their places."""
    ids: dict[str, Any] = {}
    for place, fields in (("dead", {"maxAttempts": 1}), ("processing", {}), ("main", {"priority": 3})):
        ids[place] = ask("POST", OFFER, {"type": place, "payload": place, **fields}).json()["id"]
        if place != "main":
            held = ask("GET", OFFER).json()
            assert held["id"] == ids[place]
            if place == "dead":
                ask("POST", f"{OFFER}/{held['id']}/nack", {"lock_token": held["lock_token"], "errorReason": "no"})
    return ids


def test_each_place_has_its_messages(ask: Caller, made: dict[str, Any]) -> None:
    for place, status in (("main", "queued"), ("processing", "processing"), ("dead", "dead")):
        answer = ask("GET", f"/api/queue/{place}/messages").json()
        (found,) = answer["messages"]
        assert (found["id"], found["status"], found["payload"]) == (made[place], status, place)
        assert answer["pagination"] == {"total": 1, "page": 1, "limit": 100, "totalPages": 1, "hasMore": False}


def test_pages_and_filters(ask: Caller) -> None:
    for number in range(5):
        ask("POST", OFFER, {"type": "odd" if number % 2 else "even", "payload": number})
    first, last = (ask("GET", f"/api/queue/main/messages?limit=2&page={page}").json() for page in (1, 3))
    assert [one["payload"] for one in first["messages"]] == [0, 1]
    assert first["pagination"] == {"total": 5, "page": 1, "limit": 2, "totalPages": 3, "hasMore": True}
    assert ([one["payload"] for one in last["messages"]], last["pagination"]["hasMore"]) == ([4], False)
    odd = ask("GET", "/api/queue/main/messages?filterType=odd").json()
    assert ([one["payload"] for one in odd["messages"]], odd["pagination"]["total"]) == ([1, 3], 2)


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
def test_what_is_not_supported_is_said(ask: Caller, query: str) -> None:
    assert ask("GET", f"/api/queue/main/messages?{query}").status_code == 422


@pytest.mark.parametrize("place", ["acknowledged", "archived", "nowhere"])
def test_what_is_finished_is_no_message_any_more(ask: Caller, made: dict[str, Any], place: str) -> None:
    answer = ask("GET", f"/api/queue/{place}/messages")
    assert answer.status_code == 422
    assert "timeline" in answer.json()["hint"]


@pytest.mark.parametrize("place", ["main", "processing", "dead"])
def test_a_message_is_deleted_where_it_is(ask: Caller, made: dict[str, Any], place: str) -> None:
    path = f"{OFFER}/{made[place]}?queueType={place}"
    assert ask("DELETE", path).json() == {"success": True}
    assert ask("DELETE", path).json() == {"success": False}
    assert ask("GET", f"/api/queue/{place}/messages").json()["messages"] == []


def test_many_are_deleted(ask: Caller, made: dict[str, Any]) -> None:
    answer = ask("POST", "/api/queue/messages/delete", {"messageIds": [made["main"], made["processing"], "nonsense"]})
    assert (answer.json()["success"], answer.json()["deletedCount"]) == (True, 1), "a worker has the other"
    answer = ask("POST", "/api/queue/messages/delete?queueType=processing", {"messageIds": [made["processing"]]})
    assert answer.json()["deletedCount"] == 1


def test_what_waits_is_edited(ask: Caller, made: dict[str, Any]) -> None:
    path = f"{OFFER}/{made['main']}"
    answer = ask("PUT", path, {"payload": {"new": 1}, "priority": 7, "custom_ack_timeout": 5})
    assert answer.status_code == 200
    data = answer.json()["data"]
    assert (answer.json()["success"], data["payload"], data["priority"], data["type"]) == (True, {"new": 1}, 7, "main")
    assert ask("PUT", path, {}).status_code == 404
    assert ask("PUT", path, {"priority": 10}).status_code == 422
    held = ask("PUT", f"{OFFER}/{made['processing']}", {"priority": 1})
    assert (held.status_code, held.json()["error"]) == (409, "LOCKED")
    assert ask("PUT", f"{OFFER}/{made['dead']}", {"priority": 1}).status_code == 404


def test_metrics_config_and_the_life_of_a_message(ask: Caller, made: dict[str, Any]) -> None:
    assert ask("GET", "/api/queue/metrics").json() == {
        "queued": 1,
        "processing": 1,
        "dead": 1,
        "main_queue_size": 1,
        "processing_size": 1,
        "processing_queue_size": 1,
        "dead_letter_size": 1,
        "dead_letter_queue_size": 1,
    }
    assert ask("GET", "/api/queue/config").json() == {"ack_timeout_seconds": 30, "max_attempts": 3}
    told = ask("GET", f"/api/queue/activity/message/{made['dead']}").json()
    assert told["message_id"] == made["dead"]
    assert [one["action"] for one in told["history"]][:2] == ["enqueue", "dequeue"]
    assert "move_to_dlq" in [one["action"] for one in told["history"]]


class TestQueues:
    def test_a_queue_is_created_once(self, ask: Caller) -> None:
        made = ask("POST", "/api/queues", {"name": "jobs", "ack_timeout_seconds": 60, "max_attempts": 5})
        assert made.status_code == 201
        queue = made.json()["queue"]
        assert (queue["name"], queue["queue_type"], queue["ack_timeout_seconds"], queue["max_attempts"]) == (
            "jobs", "standard", 60, 5,
        )  # fmt: skip
        assert ask("POST", "/api/queues", {"name": "jobs"}).status_code == 409

    @pytest.mark.parametrize("body", [{}, {"name": "a b"}, {"name": "x", "queue_type": "unlogged"}])
    def test_what_cannot_be_made_is_422(self, ask: Caller, body: dict[str, Any]) -> None:
        assert ask("POST", "/api/queues", body).status_code == 422

    def test_queues_are_listed_with_their_numbers(self, ask: Caller, made: dict[str, Any]) -> None:
        answer = ask("GET", "/api/queues").json()
        assert answer["total"] == 1
        (queue,) = answer["queues"]
        assert (queue["message_count"], queue["processing_count"], queue["dead_count"]) == (1, 1, 1)
        assert ask("GET", "/api/queues/default").json() == queue
        assert ask("GET", "/api/queues/nowhere").status_code == 404

    def test_settings_change_and_count_for_what_is_dequeued_next(self, ask: Caller) -> None:
        ask("POST", "/api/queues", {"name": "jobs"})
        changed = ask("PATCH", "/api/queues/jobs", {"ack_timeout_seconds": 7})
        assert changed.json()["queue"]["ack_timeout_seconds"] == 7
        ask("POST", OFFER, {"type": "t", "queue": "jobs"})
        assert ask("GET", f"{OFFER}?queue=jobs").json()["ack_timeout_seconds"] == 7
        assert ask("PATCH", "/api/queues/nowhere", {}).status_code == 404

    def test_one_with_messages_is_deleted_by_force(self, ask: Caller, made: dict[str, Any]) -> None:
        assert code(ask("DELETE", "/api/queues/default")) == (400, "refused")
        assert ask("DELETE", "/api/queues/default?force=true").status_code == 200
        assert ask("DELETE", "/api/queues/default").status_code == 404

    def test_a_rename_takes_the_messages_along(self, ask: Caller, made: dict[str, Any]) -> None:
        assert ask("POST", "/api/queues/default/rename", {"newName": "jobs"}).json()["queue"]["name"] == "jobs"
        assert ask("GET", f"{OFFER}?queue=jobs").json()["payload"] == "main"
        ask("POST", "/api/queues", {"name": "taken"})
        assert ask("POST", "/api/queues/jobs/rename", {"newName": "taken"}).status_code == 409
        assert ask("POST", "/api/queues/nowhere/rename", {"newName": "x"}).status_code == 404

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
        self, ask: Caller, made: dict[str, Any], status: str, left: set[str]
    ) -> None:
        ask("POST", "/api/queues", {"name": "other"})
        ask("POST", OFFER, {"type": "t", "queue": "other"})
        answer = ask("POST", "/api/queues/default/purge", {"status": status}).json()
        assert answer["deleted_count"] == 3 - len(left)
        places = ("main", "processing", "dead")
        assert {
            p for p in places if ask("GET", f"/api/queue/{p}/messages?queueName=default").json()["messages"]
        } == left
        assert ask("GET", f"{OFFER}?queue=other").status_code == 200
