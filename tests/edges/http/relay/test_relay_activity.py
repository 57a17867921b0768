"""Relay's routes for what happened: on a memory store, which has a journal and no pipeline."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest

from tarry.testing import MutableClock
from tests.edges.http.conftest import Caller
from tests.edges.http.test_relay_queues import OFFER
from tests.kit.sse import EventSource


@pytest.fixture
def lived(ask: Caller, pinned: MutableClock) -> str:
    """The id of a message that waited for a second, failed, and was finished three seconds after it was taken."""
    id = ask("POST", OFFER, {"type": "t", "payload": "secret"}).json()["id"]
    pinned.advance(timedelta(seconds=1))
    held = ask("GET", f"{OFFER}?consumerId=w").json()
    ask("POST", f"{OFFER}/{id}/nack", {"lock_token": held["lock_token"], "errorReason": "no"})
    held = ask("GET", f"{OFFER}?consumerId=x").json()
    pinned.advance(timedelta(seconds=3))
    assert ask("POST", "/api/queue/ack", {"id": id, "lock_token": held["lock_token"]}).status_code == 200
    return id


def logs(ask: Caller, query: str = "") -> list[dict[str, Any]]:
    answer = ask("GET", f"/api/queue/activity?{query}")
    assert answer.status_code == 200, answer.text
    assert answer.json()["total"] == answer.json()["pagination"]["total"]
    return answer.json()["logs"]


def actions(ask: Caller, query: str = "") -> list[str]:
    return [one["action"] for one in logs(ask, query)]


def test_the_log_is_the_journal_the_newest_first(ask: Caller, lived: str) -> None:
    assert actions(ask) == ["acknowledge", "dequeue", "nack", "dequeue", "enqueue", "create_queue"]
    acked, _, nacked, leased, *_ = logs(ask)
    assert (acked["message_id"], acked["consumer_id"], acked["processing_time_ms"]) == (lived, "x", 3000)
    assert (nacked["error_reason"], nacked["attempt_count"], nacked["max_attempts"]) == ("no", 1, 3)
    assert (leased["time_in_queue_ms"], leased["timestamp"] - logs(ask, "action=enqueue")[0]["timestamp"]) == (1000, 1)
    assert "secret" not in ask("GET", "/api/queue/activity").text


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
def test_filters_and_pages(ask: Caller, lived: str, query: str, expected: list[str]) -> None:
    assert actions(ask, query) == expected


def test_pages_say_whether_there_is_more(ask: Caller, lived: str) -> None:
    said = ask("GET", "/api/queue/activity?limit=2").json()["pagination"]
    assert (said["limit"], said["offset"], said["has_more"], said["hasMore"]) == (2, 0, True, True)
    assert ask("GET", "/api/queue/activity?limit=6").json()["pagination"]["has_more"] is False


def test_the_log_of_one_message(ask: Caller, lived: str) -> None:
    ask("POST", OFFER, {"type": "another"})
    assert actions(ask, f"message_id={lived}") == ["acknowledge", "dequeue", "nack", "dequeue", "enqueue"]
    assert actions(ask, f"message_id={lived}&consumer_id=w") == ["nack", "dequeue"]
    assert actions(ask, "message_id=nonsense") == []
    history = ask("GET", f"/api/queue/activity/message/{lived}").json()["history"]
    assert [one["action"] for one in history] == ["enqueue", "dequeue", "nack", "dequeue", "acknowledge"]


def test_without_a_pipeline_nothing_was_found_and_that_is_said(ask: Caller, lived: str) -> None:
    assert ask("GET", "/api/queue/activity/anomalies?severity=critical").json() == {
        "anomalies": [],
        "summary": {"total": 0, "by_type": {}, "by_severity": {"info": 0, "warning": 0, "critical": 0}},
    }
    said = ask("GET", "/api/queue/activity/consumers").json()
    assert said["stats"] == {}
    assert "tarry pipeline run" in said["warning"]


def test_what_happens_is_told_as_relay_tells_it(broker_url: str) -> None:
    with (
        EventSource(broker_url, path="/api/queue/events").until_hello() as source,
        httpx.Client(base_url=f"{broker_url}/api/queue") as client,
    ):
        id = client.post("/message", json={"type": "t", "payload": "secret"}).json()["id"]
        held = client.get("/message").json()
        client.post("/ack", json={"id": id, "lock_token": held["lock_token"]})
        created, offered, leased, acked = source.some(4)
    assert {one.kind for one in (created, offered, leased, acked)} == {"queue-update"}
    assert [one.data["type"] for one in (offered, leased, acked)] == ["enqueue", "dequeue", "acknowledge"]
    assert [one.data["payload"]["status"] for one in (offered, leased, acked)] == [
        "queued", "processing", "acknowledged",
    ]  # fmt: skip
    assert (offered.data["queue"], offered.data["payload"]["ids"], offered.data["payload"]["count"]) == (
        "default", [id], 1,
    )  # fmt: skip
    assert offered.data["timestamp"] > 1e12
    assert created.data["payload"]["force_refresh"] is True
    assert "secret" not in str((offered, leased, acked))
    with EventSource(broker_url, path="/api/queue/events", last_id=offered.id) as again:
        assert [one.data["type"] for one in again.some(2)] == ["dequeue", "acknowledge"]
