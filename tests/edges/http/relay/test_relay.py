"""Relay's routes for producers and workers, as Relay's clients use them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest

from tarry.testing import MutableClock
from tests.edges.http.conftest import Caller
from tests.kit.clocks import START

SECONDS = int(START.timestamp())
ABSENT = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def enqueue(call: Caller) -> Callable[..., str]:
    def make(**fields: Any) -> str:
        response = call("POST", "/api/queue/message", {"type": "email", "payload": {"to": "you"}, **fields})
        assert response.status_code == 201, response.text
        return response.json()["id"]

    return make


@pytest.fixture
def dequeue(call: Caller) -> Callable[..., Any]:
    def take(**params: Any) -> Any:
        response = call("GET", "/api/queue/message", params=params)
        assert response.status_code == 200, response.text
        return response.json()

    return take


Enqueue = Callable[..., str]
Dequeue = Callable[..., Any]


class TestProducing:
    def test_a_message_is_enqueued_in_the_default_queue(self, call: Caller) -> None:
        response = call("POST", "/api/queue/message", {"type": "email", "payload": {"to": "you"}})
        assert response.status_code == 201
        assert set(response.json()) == {"message", "id", "queue"}
        assert response.json()["queue"] == "default"

    def test_a_queue_that_does_not_exist_is_404(self, call: Caller) -> None:
        assert call("POST", "/api/queue/message", {"type": "t", "queue": "nowhere"}).status_code == 404
        assert call("POST", "/api/queue/batch", [{"type": "t"}, {"type": "t", "queue": "nowhere"}]).status_code == 404
        assert call("GET", "/api/queue/message", params={"queue": "nowhere"}).status_code == 404

    @pytest.mark.parametrize(
        "body",
        [
            {"payload": 1},
            {"type": ""},
            {"type": "t", "priority": 10},
            {"type": "t", "priority": 1.5},
            {"type": "t", "maxAttempts": 0},
            {"type": "t", "ackTimeout": -1},
            {"type": "t", "ackTimeout": "soon"},
            {"type": "t", "queue": "a b"},
            [],
        ],
    )
    def test_an_invalid_message_is_422(self, call: Caller, body: Any) -> None:
        assert call("POST", "/api/queue/message", body).status_code == 422

    def test_unknown_fields_are_ignored(self, enqueue: Enqueue) -> None:
        assert enqueue(consumerId="me", something="else")

    def test_a_batch_keeps_the_fields_of_each_message(self, call: Caller, dequeue: Dequeue) -> None:
        call("POST", "/api/queues", {"name": "other"})
        batch = [
            {"type": "low", "payload": 1},
            {"type": "high", "payload": 2, "priority": 9, "ackTimeout": 90, "maxAttempts": 1},
            {"type": "t", "payload": 3, "queue": "other"},
        ]
        response = call("POST", "/api/queue/batch", batch)
        assert response.status_code == 201
        assert response.json()["message"].startswith("Batch processed: 3/3")
        assert len(set(response.json()["ids"])) == 3
        first = dequeue()
        assert (first["type"], first["priority"], first["ack_timeout_seconds"]) == ("high", 9, 90)
        assert (dequeue()["type"], dequeue(queue="other")["payload"]) == ("low", 3)

    @pytest.mark.parametrize("path", ["/api/queue/message", "/api/queue/batch"])
    def test_a_request_with_a_key_is_carried_out_once(self, call: Caller, dequeue: Dequeue, path: str) -> None:
        message: Any = {"type": "t", "payload": 1}
        body = [message] if path.endswith("batch") else message
        headers = {"Idempotency-Key": "k"}
        first, second = (call("POST", path, body, headers=headers) for _ in range(2))
        assert first.json() == second.json()
        assert dequeue()["payload"] == 1
        assert call("GET", "/api/queue/message").status_code == 404


class TestWorking:
    def test_a_message_comes_with_relays_fields(self, enqueue: Enqueue, dequeue: Dequeue) -> None:
        id = enqueue(priority=4)
        message = dequeue(consumerId="worker-1", ackTimeout=10)
        assert message.pop("lock_token")
        assert message == {
            "id": id,
            "queue_name": "default",
            "type": "email",
            "payload": {"to": "you"},
            "priority": 4,
            "status": "processing",
            "consumer_id": "worker-1",
            "attempt_count": 1,
            "locked_until": "2024-01-01T00:00:10.000000Z",
            "ack_timeout_seconds": 10,
            "dequeued_at": SECONDS,
            "created_at": SECONDS,
            "max_attempts": 3,
            "last_error": None,
        }

    def test_an_empty_queue_is_404(self, call: Caller) -> None:
        response = call("GET", "/api/queue/message")
        assert (response.status_code, response.json()) == (404, {"message": "Message not found"})

    def test_the_highest_priority_comes_first_and_a_type_can_be_chosen(
        self, enqueue: Enqueue, dequeue: Dequeue
    ) -> None:
        for priority, type in ((0, "a"), (9, "b"), (5, "a")):
            enqueue(priority=priority, type=type)
        assert [dequeue(type="a")["priority"], dequeue()["priority"], dequeue()["priority"]] == [5, 9, 0]

    def test_a_batch_is_dequeued(self, call: Caller, enqueue: Enqueue) -> None:
        for _ in range(3):
            enqueue()
        body = call("GET", "/api/queue/messages/batch", params={"count": 2}).json()
        assert (body["count"], len({message["lock_token"] for message in body["messages"]})) == (2, 2)
        assert call("GET", "/api/queue/messages/batch", params={"count": 9}).json()["count"] == 1
        assert call("GET", "/api/queue/messages/batch", params={"count": 9}).json() == {"messages": [], "count": 0}
        assert call("GET", "/api/queue/messages/batch").status_code == 422

    def test_an_ack_removes_the_message_and_a_second_ack_fails(
        self, call: Caller, enqueue: Enqueue, dequeue: Dequeue
    ) -> None:
        enqueue()
        message = dequeue()
        body = {"id": message["id"], "lock_token": message["lock_token"]}
        assert call("POST", "/api/queue/ack", body).status_code == 200
        again = call("POST", "/api/queue/ack", body)
        assert (again.status_code, again.json()["error"]) == (400, "NOT_FOUND")

    @pytest.mark.parametrize("token", [ABSENT, "lt_abc123"])
    def test_another_token_is_409_whatever_it_looks_like(
        self, call: Caller, enqueue: Enqueue, dequeue: Dequeue, token: str
    ) -> None:
        enqueue()
        id, body = dequeue()["id"], {"lock_token": token}
        for response in (
            call("POST", "/api/queue/ack", {"id": id, **body}),
            call("POST", f"/api/queue/message/{id}/nack", body),
            call("PUT", f"/api/queue/message/{id}/touch", {**body, "extend_seconds": 30}),
        ):
            assert (response.status_code, response.json()["error"]) == (409, "LOCK_LOST")

    def test_a_token_is_needed(self, call: Caller, enqueue: Enqueue, dequeue: Dequeue) -> None:
        enqueue()
        id = dequeue()["id"]
        assert call("POST", "/api/queue/ack", {"id": id}).status_code == 422
        assert call("POST", f"/api/queue/message/{id}/nack", {"errorReason": "x"}).status_code == 422

    def test_a_batch_of_acks_has_a_result_for_each(self, call: Caller, enqueue: Enqueue, dequeue: Dequeue) -> None:
        for _ in range(2):
            enqueue()
        held, other = dequeue(), dequeue()
        acks = [
            {"id": held["id"], "lock_token": held["lock_token"]},
            {"id": other["id"], "lock_token": ABSENT},
            {"id": "nonsense", "lock_token": ABSENT},
        ]
        body = call("POST", "/api/queue/ack/batch", {"acks": acks}).json()
        assert body["succeeded"] == [held["id"]]
        assert [(failure["id"], failure["code"]) for failure in body["failed"]] == [
            (other["id"], "LOCK_LOST"),
            ("nonsense", "NOT_FOUND"),
        ]
        assert call("POST", "/api/queue/ack/batch", {"acks": []}).status_code == 422

    def test_a_nack_queues_it_again_at_once_and_then_it_is_dead(
        self, call: Caller, enqueue: Enqueue, dequeue: Dequeue
    ) -> None:
        id = enqueue(maxAttempts=2)
        for attempt, field in ((1, "errorReason"), (2, "error")):
            message = dequeue()
            assert message["attempt_count"] == attempt
            body = {"lock_token": message["lock_token"], field: f"failed {attempt}"}
            assert call("POST", f"/api/queue/message/{id}/nack", body).status_code == 200
        (dead,) = call("GET", "/api/queue/dead/messages").json()["messages"]
        assert (dead["id"], dead["status"], dead["last_error"]) == (id, "dead", "failed 2")
        assert call("POST", f"/api/queue/message/{id}/nack", {"lock_token": ABSENT}).status_code == 404

    def test_a_batch_of_nacks_counts_requeued_and_dead_messages(
        self, call: Caller, enqueue: Enqueue, dequeue: Dequeue
    ) -> None:
        enqueue(maxAttempts=1)
        enqueue()
        nacks = [{"id": m["id"], "lock_token": m["lock_token"], "error": "no"} for m in (dequeue(), dequeue())]
        body = call("POST", "/api/queue/nack/batch", {"nacks": nacks}).json()
        assert (len(body["succeeded"]), body["failed"]) == (2, [])
        assert sorted([*body["requeued"], *body["movedToDlq"]]) == sorted(body["succeeded"])
        assert (len(body["requeued"]), body["message"]) == (1, "NACKed 2 messages, 0 failed")

    def test_a_touch_extends_the_lock(
        self, call: Caller, enqueue: Enqueue, dequeue: Dequeue, pinned: MutableClock
    ) -> None:
        enqueue()
        message = dequeue(ackTimeout=10)
        path = f"/api/queue/message/{message['id']}/touch"
        body = {"lock_token": message["lock_token"], "extend_seconds": 60}
        response = call("PUT", path, body)
        assert response.status_code == 200
        assert (response.json()["new_timeout_at"], response.json()["lock_token"]) == (
            SECONDS + 60,
            message["lock_token"],
        )
        pinned.advance(timedelta(seconds=30))
        assert call("GET", "/api/queue/message").status_code == 404, "it is still locked"
        assert call("POST", "/api/queue/ack", body | {"id": message["id"]}).status_code == 200
        gone = call("PUT", path, body)
        assert (gone.status_code, gone.json()["error"]) == (404, "NOT_FOUND")


def test_a_producer_and_a_worker_written_for_relay(broker_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On sockets: a long poll that waits, one message that fails twice, and one that is worked on for long."""
    base = f"{broker_url}/api"
    done: list[str] = []
    failed: list[str] = []

    def work() -> None:
        with httpx.Client(base_url=base, timeout=60) as client:
            while len(done) < 3:
                response = client.get("/queue/message", params={"timeout": 5, "consumerId": "w"})
                if response.status_code == 404:
                    continue
                message = response.json()
                token = {"lock_token": message["lock_token"]}
                touched = client.put(f"/queue/message/{message['id']}/touch", json={**token, "extend_seconds": 60})
                assert touched.status_code == 200, touched.text
                if message["payload"] == "b" and len(failed) < 2:
                    failed.append(message["id"])
                    nacked = client.post(f"/queue/message/{message['id']}/nack", json={**token, "errorReason": "no"})
                    assert nacked.status_code == 200, nacked.text
                    continue
                assert client.post("/queue/ack", json={"id": message["id"], **token}).status_code == 200
                done.append(message["payload"])

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    with httpx.Client(base_url=base) as client:
        for payload in "abc":
            made = client.post("/queue/message", json={"type": "job", "payload": payload})
            assert made.status_code == 201, made.text
    worker.join(60)
    assert (sorted(done), len(failed)) == (["a", "b", "c"], 2)
