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


@pytest.mark.parametrize("path", ["status", "main/messages", "main/export"])
def test_the_default_queue_can_be_named_before_its_first_message(call: Caller, path: str) -> None:
    assert call("GET", f"/api/queue/{path}", params={"queueName": "default"}).status_code == 200


@pytest.mark.parametrize("queue_type", ["main", "dead"])
def test_an_unknown_message_is_deleted_without_success(call: Caller, queue_type: str) -> None:
    """404 for an id that is not of the form of this broker (docs/howto/move-from-relay.md)."""
    for id, expected in (("ZGVmYXVsdC9ub25l", 200), ("V1StGXR8_Z", 404)):
        response = call("DELETE", f"/api/queue/message/{id}", params={"queueType": queue_type})
        assert (response.status_code, response.json().get("success", False)) == (expected, False)


def test_a_date_is_its_midnight(call: Caller, pinned: MutableClock) -> None:
    enqueue(call)
    today = pinned.pinned().date()
    for start, expected in ((today, 1), (today + timedelta(days=1), 0)):
        listed = call("GET", "/api/queue/main/messages", params={"startDate": start.isoformat()})
        assert len(listed.json()["messages"]) == expected


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


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/queue/activity/consumers?consumer_id="),
        ("DELETE", "/api/queues/spare?force="),
        ("GET", "/api/queue/status?queueName=&include_messages="),
        ("GET", "/api/queue/messages?startTimestamp=2026-01-01&endTimestamp=2026-01-02T00:00:00Z&limit="),
        ("DELETE", "/api/queue/message/ZGVmYXVsdC9ub25l?queueType="),
        ("POST", "/api/queue/messages/delete?queueType="),
    ],
)
def test_a_single_parameter_without_a_value_was_not_given(call: Caller, method: str, path: str) -> None:
    call("POST", "/api/queues", json={"name": "spare"})
    body = {"messageIds": []} if method == "POST" else None
    assert call(method, path, body).status_code == 200


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


@pytest.mark.parametrize("batch", [False, True])
def test_a_consumer_without_a_name_has_none_in_the_log_either(call: Caller, batch: bool) -> None:
    enqueue(call)
    if batch:
        (taken,) = call("GET", "/api/queue/messages/batch", params={"count": 1}).json()["messages"]
    else:
        taken = call("GET", "/api/queue/message").json()
    (held,) = call("GET", "/api/queue/processing/messages").json()["messages"]
    call("POST", "/api/queue/ack", {"id": taken["id"], "lock_token": taken["lock_token"]})
    logged = call("GET", "/api/queue/activity").json()["logs"]
    consumers = {entry["action"]: entry["consumer_id"] for entry in logged}
    assert (taken["consumer_id"], held["consumer_id"]) == (None, None)
    assert (consumers["dequeue"], consumers["acknowledge"]) == (None, None)
    assert list(call("GET", "/api/queue/activity/consumers").json()["stats"]) == ["unknown"]


def test_an_invalid_request_is_referred_to_the_page_on_relay(call: Caller) -> None:
    """The OpenAPI document has no /api."""
    refused = call("POST", "/api/queue/message", {"type": "email", "priority": 10})
    assert (refused.status_code, "move-from-relay.md" in refused.json()["hint"]) == (422, True)
    other = call("POST", "/v1/queues/default/messages", {"priority": 10})
    assert (other.status_code, "/openapi.json" in other.json()["hint"]) == (422, True)


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


def test_a_delivery_has_what_relay_s_has(call: Caller) -> None:
    id = enqueue(call, maxAttempts=4)
    first = call("GET", "/api/queue/message", params={"consumerId": "w-1"}).json()
    assert (first["created_at"] <= first["dequeued_at"], first["max_attempts"], first["last_error"]) == (True, 4, None)
    nack = {"lock_token": first["lock_token"], "errorReason": "no route"}
    assert call("POST", f"/api/queue/message/{id}/nack", nack).json()["message"] == "Message nacked successfully"
    second = call("GET", "/api/queue/messages/batch", params={"count": 2}).json()["messages"][0]
    assert (second["attempt_count"], second["last_error"], second["created_at"]) == (2, "no route", first["created_at"])


def test_a_failed_message_keeps_its_place(call: Caller, pinned: MutableClock) -> None:
    first = enqueue(call)
    pinned.advance(timedelta(seconds=1))
    enqueue(call)
    taken = call("GET", "/api/queue/message").json()
    pinned.advance(timedelta(seconds=1))
    call("POST", f"/api/queue/message/{first}/nack", {"lock_token": taken["lock_token"]})
    again = call("GET", "/api/queue/message").json()
    assert (taken["id"], again["id"]) == (first, first)
    nacks = [{"id": first, "lock_token": again["lock_token"]}]
    assert call("POST", "/api/queue/nack/batch", {"nacks": nacks}).json()["requeued"] == [first]
    assert call("GET", "/api/queue/message").json()["id"] == first


def test_nothing_to_deliver_is_404_as_in_relay(call: Caller) -> None:
    response = call("GET", "/api/queue/message")
    assert (response.status_code, response.json()) == (404, {"message": "Message not found"})


def test_waiting_messages_have_nulls_where_a_lease_would_be(call: Caller, pinned: MutableClock) -> None:
    enqueue(call, ackTimeout=30)
    (waiting,) = call("GET", "/api/queue/main/messages").json()["messages"]
    for name in ("lock_token", "locked_until", "dequeued_at", "acknowledged_at", "consumer_id", "last_error"):
        assert waiting[name] is None
    assert type(waiting["ack_timeout_seconds"]) is int
    call("GET", "/api/queue/message")
    (leased,) = call("GET", "/api/queue/processing/messages", params={"sortBy": "dequeued_at"}).json()["messages"]
    assert leased["dequeued_at"] == int(pinned.pinned().timestamp())


def test_a_dead_letter_keeps_when_it_was_created_and_names_the_time_out(call: Caller, pinned: MutableClock) -> None:
    enqueue(call, maxAttempts=1)
    created = int(pinned.pinned().timestamp())
    call("GET", "/api/queue/message", params={"ackTimeout": 5})
    pinned.advance(timedelta(seconds=10))
    assert call("GET", "/api/queue/message").status_code == 404
    (letter,) = call("GET", "/api/queue/dead/messages").json()["messages"]
    assert (letter["created_at"], letter["last_error"]) == (created, "Timeout after max attempts")


def test_finished_messages_are_listed_from_the_journal(call: Caller) -> None:
    ids = [enqueue(call, payload=number, type=f"t{number}") for number in range(3)]
    for _ in ids:
        taken = call("GET", "/api/queue/message").json()
        call("POST", "/api/queue/ack", {"id": taken["id"], "lock_token": taken["lock_token"]})
    listed = call("GET", "/api/queue/acknowledged/messages", params={"limit": 2}).json()
    assert [message["id"] for message in listed["messages"]] == ids[:0:-1]
    assert listed["pagination"]["hasMore"]
    message = listed["messages"][0]
    assert (message["status"], message["type"], message["payload"]) == ("acknowledged", "t2", None)
    assert message["created_at"] <= message["dequeued_at"] <= message["acknowledged_at"]
    filtered = call("GET", "/api/queue/acknowledged/messages", params={"filterType": "t0"}).json()
    assert [message["id"] for message in filtered["messages"]] == ids[:1]
    assert call("GET", "/api/queue/archived/messages").json()["messages"] == []


def test_the_activity_log_has_the_type_of_every_event(call: Caller) -> None:
    id = enqueue(call, type="email")
    call("GET", "/api/queue/message", params={"consumerId": "w-1"})
    logs = call("GET", "/api/queue/activity", params={"message_id": id}).json()["logs"]
    assert [log["message_type"] for log in logs] == ["email", "email"]
    for query in ({"limit": 1}, {"action": "dequeue"}, {"message_id": id, "limit": 1}, {"consumer_id": "w-1"}):
        logs = call("GET", "/api/queue/activity", params=query).json()["logs"]
        assert [(log["action"], log["message_type"]) for log in logs] == [("dequeue", "email")], query
    for name in ("source_queue", "dest_queue", "prev_consumer_id", "batch_id", "error_reason"):
        assert logs[0][name] is None
    stats = call("GET", "/api/queue/activity/consumers").json()["stats"]
    assert (stats["w-1"]["dequeue_count"], stats["w-1"]["last_dequeue"]) == (1, logs[0]["timestamp"])


def test_a_redriven_message_has_its_type_in_the_activity_log(call: Caller) -> None:
    id = enqueue(call, type="email")
    for source, target in (("main", "dead"), ("dead", "main")):
        call("POST", "/api/queue/move", json={"messages": [id], "fromQueue": source, "toQueue": target})
    call("GET", "/api/queue/message")
    logs = call("GET", "/api/queue/activity", params={"limit": 1}).json()["logs"]
    assert [(log["action"], log["message_type"]) for log in logs] == [("dequeue", "email")]


def test_the_edit_of_a_dead_letter_is_refused_with_the_way_to_do_it(call: Caller) -> None:
    id = enqueue(call)
    call("POST", "/api/queue/move", json={"messages": [id], "fromQueue": "main", "toQueue": "dead"})
    refused = call("PUT", f"/api/queue/message/{id}?queueType=dead", json={"priority": 5})
    assert (refused.status_code, refused.json()["error"]) == (404, "DEAD")
    assert "/api/queue/move" in refused.json()["message"]


def test_empty_lists_change_nothing(call: Caller) -> None:
    assert call("POST", "/api/queue/batch", []).json()["message"] == "Batch processed: 0/0 messages enqueued"
    assert call("POST", "/api/queue/messages/delete", {"messageIds": []}).json()["deletedCount"] == 0
    move = {"messages": [], "fromQueue": "dead", "toQueue": "main"}
    assert call("POST", "/api/queue/move", move).json()["movedCount"] == 0


def test_a_queue_has_its_description_and_when_it_changed(call: Caller, pinned: MutableClock) -> None:
    made = call("POST", "/api/queues", {"name": "mails", "description": "Outgoing"}).json()["queue"]
    assert (made["description"], made["updated_at"]) == ("Outgoing", made["created_at"])
    pinned.advance(timedelta(minutes=1))
    changed = call("PATCH", "/api/queues/mails", {"max_attempts": 5}).json()
    assert changed["message"] == "Queue 'mails' updated successfully"
    assert (changed["queue"]["description"], changed["queue"]["message_count"]) == ("Outgoing", 0)
    assert changed["queue"]["updated_at"] > made["updated_at"]
    shown = call("GET", "/api/queues/mails").json()
    assert (shown["message_count"], shown["processing_count"], shown["dead_count"]) == (0, 0, 0)
    assert call("PATCH", "/api/queues/mails", {"description": ""}).json()["queue"]["description"] is None


def test_an_export_takes_the_order_of_a_list(call: Caller) -> None:
    enqueue(call)
    exported = call("GET", "/api/queue/main/export", params={"sortBy": "priority", "sortOrder": "asc"})
    assert (exported.status_code, len(exported.json())) == (200, 1)


def test_clearing_the_log_is_refused_with_the_reason(call: Caller) -> None:
    response = call("DELETE", "/api/queue/activity/clear")
    assert (response.status_code, "retention_for" in response.json()["message"]) == (405, True)


@pytest.mark.parametrize("path", ["/api/doc", "/api/docs", "/api/reference", "/api/health"])
def test_relay_s_pages_exist(call: Caller, path: str) -> None:
    assert call("GET", path).status_code == 200
