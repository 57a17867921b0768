"""What clients of Relay rely on beyond its routes: forms of values, texts, and fields that are null."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tarry.testing import MutableClock
from tests.edges.http.conftest import Caller


def enqueue(call: Caller, **fields: Any) -> str:
    response = call("POST", "/api/queue/message", {"type": "email", "payload": 1, **fields})
    assert response.status_code == 201, response.text
    return response.json()["id"]


def test_an_empty_key_is_none_on_a_broker_without_keys(call: Caller) -> None:
    assert call("GET", "/api/queues", headers={"X-API-KEY": ""}).status_code == 200


def test_the_default_queue_exists_from_the_start(call: Caller) -> None:
    assert call("GET", "/api/queues/default").json()["name"] == "default"
    assert [queue["name"] for queue in call("GET", "/api/queues").json()["queues"]] == ["default"]


def test_a_whole_number_may_have_a_decimal_point(call: Caller) -> None:
    enqueue(call, priority=3.0, maxAttempts=2.0)
    (message,) = call("GET", "/api/queue/main/messages").json()["messages"]
    assert (message["priority"], message["max_attempts"]) == (3, 2)


def test_parameters_without_a_value_were_not_given(call: Caller) -> None:
    enqueue(call)
    lists = call("GET", "/api/queue/main/messages", params={"filterType": "", "search": "", "queueName": ""})
    assert len(lists.json()["messages"]) == 1
    assert call("GET", "/api/queue/activity", params={"action": "", "limit": ""}).status_code == 200
    assert call("GET", "/api/queue/message", params={"type": "", "consumerId": ""}).status_code == 200


def test_every_error_has_a_message(call: Caller) -> None:
    for response in (
        call("POST", "/api/queue/message", {"priority": 10}),
        call("GET", "/api/queues/nowhere"),
        call("GET", "/api/nothing"),
        call("POST", "/api/queue/ack", {"id": "x", "lock_token": "y"}),
    ):
        assert response.status_code >= 400
        assert response.json()["message"] == response.json()["detail"]
    assert "message" not in call("GET", "/v1/queues/nowhere").json()


def test_a_delivery_names_its_consumer_and_an_expired_one_names_none(call: Caller, pinned: MutableClock) -> None:
    enqueue(call)
    taken = call("GET", "/api/queue/message", params={"consumerId": "w-1", "ackTimeout": 5}).json()
    assert taken["consumer_id"] == "w-1"
    (held,) = call("GET", "/api/queue/processing/messages").json()["messages"]
    assert (held["consumer_id"], held["locked_until"] is None, held["last_error"]) == ("w-1", False, None)
    pinned.advance(timedelta(seconds=10))
    (message,) = call("GET", "/api/queue/main/messages").json()["messages"]
    assert (message["consumer_id"], message["locked_until"], message["lock_token"]) == (None, None, None)
    assert message["last_error"] == "Timeout - requeued"


@pytest.mark.parametrize("id", ["unknown", "no:such:id"])
def test_the_history_of_an_unknown_id_is_empty(call: Caller, id: str) -> None:
    response = call("GET", f"/api/queue/activity/message/{id}")
    assert (response.status_code, response.json()["history"]) == (200, [])


@pytest.mark.parametrize("column", ["consumer_id", "payload"])
def test_a_list_can_be_sorted_by_what_relay_s_page_offers(call: Caller, column: str) -> None:
    enqueue(call, payload="b")
    enqueue(call, payload="a")
    listed = call("GET", "/api/queue/main/messages", params={"sortBy": column, "sortOrder": "asc"})
    assert listed.status_code == 200
    if column == "payload":
        assert [message["payload"] for message in listed.json()["messages"]] == ["a", "b"]
