"""Relay's activity log and live events, on a memory store, which has a journal and no pipeline."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest

from tarry.testing import MutableClock
from tests.edges.http.conftest import Caller
from tests.edges.http.relay.test_relay_queues import OFFER
from tests.kit.sse import EventSource


@pytest.fixture
def lived(call: Caller, pinned: MutableClock) -> str:
    """The id of a message that waited for a second, failed, and was acked three seconds after its second lease."""
    id = call("POST", OFFER, {"type": "t", "payload": "secret"}).json()["id"]
    pinned.advance(timedelta(seconds=1))
    held = call("GET", f"{OFFER}?consumerId=w").json()
    call("POST", f"{OFFER}/{id}/nack", {"lock_token": held["lock_token"], "errorReason": "no"})
    held = call("GET", f"{OFFER}?consumerId=x").json()
    pinned.advance(timedelta(seconds=3))
    assert call("POST", "/api/queue/ack", {"id": id, "lock_token": held["lock_token"]}).status_code == 200
    return id


def logs(call: Caller, query: str = "") -> list[dict[str, Any]]:
    response = call("GET", f"/api/queue/activity?{query}")
    assert response.status_code == 200, response.text
    assert response.json()["total"] == response.json()["pagination"]["total"]
    return response.json()["logs"]


def actions(call: Caller, query: str = "") -> list[str]:
    return [entry["action"] for entry in logs(call, query)]


def test_the_log_is_the_journal_the_newest_first(call: Caller, lived: str) -> None:
    assert actions(call) == ["acknowledge", "dequeue", "nack", "dequeue", "enqueue", "create_queue"]
    acked, _, nacked, leased, *_ = logs(call)
    assert (acked["message_id"], acked["consumer_id"], acked["processing_time_ms"]) == (lived, "x", 3000)
    assert (nacked["error_reason"], nacked["attempt_count"], nacked["max_attempts"]) == ("no", 1, 3)
    assert (leased["time_in_queue_ms"], leased["timestamp"] - logs(call, "action=enqueue")[0]["timestamp"]) == (1000, 1)
    assert "secret" not in call("GET", "/api/queue/activity").text


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("action=dequeue", ["dequeue", "dequeue"]),
        ("action=ack", []),
        ("consumer_id=w", ["nack", "dequeue"]),
        ("queue_name=default&action=enqueue", ["enqueue"]),
        ("limit=2", ["acknowledge", "dequeue"]),
        ("limit=2&offset=4", ["enqueue", "create_queue"]),
        ("end_time=1704067201", ["enqueue", "create_queue"]),
        ("start_time=1704067202", ["acknowledge"]),
    ],
)
def test_filters_and_pages(call: Caller, lived: str, query: str, expected: list[str]) -> None:
    assert actions(call, query) == expected


def test_pages_have_a_flag_for_more(call: Caller, lived: str) -> None:
    pagination = call("GET", "/api/queue/activity?limit=2").json()["pagination"]
    assert (pagination["limit"], pagination["offset"], pagination["has_more"], pagination["hasMore"]) == (
        2,
        0,
        True,
        True,
    )
    assert call("GET", "/api/queue/activity?limit=6").json()["pagination"]["has_more"] is False


def test_the_log_of_one_message(call: Caller, lived: str) -> None:
    call("POST", OFFER, {"type": "another"})
    assert actions(call, f"message_id={lived}") == ["acknowledge", "dequeue", "nack", "dequeue", "enqueue"]
    assert actions(call, f"message_id={lived}&consumer_id=w") == ["nack", "dequeue"]
    assert actions(call, "message_id=nonsense") == []
    history = call("GET", f"/api/queue/activity/message/{lived}").json()["history"]
    assert [entry["action"] for entry in history] == ["enqueue", "dequeue", "nack", "dequeue", "acknowledge"]


def test_without_a_pipeline_there_are_no_anomalies_and_consumers_of_the_journal(call: Caller, lived: str) -> None:
    assert call("GET", "/api/queue/activity/anomalies?severity=critical").json() == {
        "anomalies": [],
        "summary": {"total": 0, "by_type": {}, "by_severity": {"info": 0, "warning": 0, "critical": 0}},
    }
    body = call("GET", "/api/queue/activity/consumers").json()
    assert {name: of["dequeue_count"] for name, of in body["stats"].items()} == {"w": 1, "x": 1}
    assert "tarry pipeline run" in body["warning"]


def test_live_events_have_relays_form(broker_url: str) -> None:
    with (
        EventSource(broker_url, path="/api/queue/events").until_hello() as source,
        httpx.Client(base_url=f"{broker_url}/api/queue") as client,
    ):
        id = client.post("/message", json={"type": "t", "payload": "secret"}).json()["id"]
        held = client.get("/message").json()
        client.post("/ack", json={"id": id, "lock_token": held["lock_token"]})
        created, offered, leased, acked = source.some(4)
    assert {event.kind for event in (created, offered, leased, acked)} == {"queue-update"}
    assert [event.data["type"] for event in (offered, leased, acked)] == ["enqueue", "dequeue", "acknowledge"]
    assert [event.data["payload"]["status"] for event in (offered, leased, acked)] == [
        "queued", "processing", "acknowledged",
    ]  # fmt: skip
    assert (offered.data["queue"], offered.data["payload"]["ids"], offered.data["payload"]["count"]) == (
        "default", [id], 1,
    )  # fmt: skip
    assert offered.data["timestamp"] > 1e12
    assert created.data["payload"]["force_refresh"] is True
    assert "secret" not in str((offered, leased, acked))
    with EventSource(broker_url, path="/api/queue/events", last_id=offered.id) as again:
        assert [event.data["type"] for event in again.some(2)] == ["dequeue", "acknowledge"]
