"""Messages changed through the broker: the rule about leases, and what a null takes away."""

from __future__ import annotations

from base64 import b64encode
from datetime import timedelta
from typing import Any

import pytest

from tarry.testing import MutableClock
from tarry.wire.ids import MessageId
from tests.edges.http.conftest import Caller
from tests.edges.http.test_responses import code, offered, polled


def shown(call: Caller, id: str) -> dict[str, Any]:
    return call("GET", f"/v1/messages/{id}").json()


class TestEdit:
    def test_what_is_named_changes_and_the_rest_stays(self, call: Caller) -> None:
        id = offered(call, key="a", type="t", headers={"x": "1"}, max_attempts=5)
        before = shown(call, id)
        response = call("PATCH", f"/v1/messages/{id}", {"payload": [1], "after": "5m", "priority": 9})
        assert response.json() == {"id": id, "key": "a", "outcome": "updated"}
        after = shown(call, id)
        changed = {name for name in before if before[name] != after[name]}
        assert changed == {"payload", "due_at", "priority", "version", "state"}
        assert (after["payload"], after["due_at"], after["priority"]) == ([1], "2024-01-01T00:05:00.000000Z", 9)

    def test_null_removes_a_field_and_a_repeated_edit_is_ignored(self, call: Caller) -> None:
        id = offered(call, type="t", headers={"x": "1"}, max_attempts=5, lease_for=60, retry={"factor": 3})
        nothing = dict.fromkeys(("type", "headers", "max_attempts", "lease_for", "retry"))
        assert call("PATCH", f"/v1/messages/{id}", nothing).json()["outcome"] == "updated"
        after = shown(call, id)
        assert [after[name] for name in ("type", "headers", "own_max_attempts", "lease_for", "retry")] == [None] * 5
        assert after["max_attempts"] is None
        assert call("PATCH", f"/v1/messages/{id}", nothing).json()["outcome"] == "ignored"
        call("PATCH", f"/v1/messages/{id}", {"retry": {"factor": 4}, "lease_for": "90s"})
        assert (shown(call, id)["retry"]["factor"], shown(call, id)["lease_for"]) == (4.0, 90.0)

    def test_a_payload_may_be_null_text_or_bytes(self, call: Caller) -> None:
        id = offered(call)
        data = b64encode(b"\xff").decode()
        for body, expected in (
            ({"payload": None}, {"payload": None, "content_type": "application/json"}),
            ({"payload": "text"}, {"payload": "text", "content_type": "text/plain"}),
            ({"payload_base64": data}, {"payload_base64": data, "content_type": "application/octet-stream"}),
        ):
            assert call("PATCH", f"/v1/messages/{id}", body).json()["outcome"] == "updated"
            after = shown(call, id)
            assert {name: after.get(name) for name in expected} == expected

    def test_an_edit_of_a_leased_message_is_a_conflict_unless_it_is_forced(self, call: Caller) -> None:
        id = offered(call, key="a")
        token = polled(call)["token"]
        assert code(call("PATCH", f"/v1/messages/{id}", {"priority": 1})) == (409, "leased")
        assert call("PATCH", f"/v1/messages/{id}?force=true", {"priority": 1}).status_code == 200
        for verb in ("ack", "nack", "touch", "release", "bury"):
            assert code(call("POST", f"/v1/messages/{id}/{verb}", {"token": token})) == (409, "lease_lost")
        again = polled(call)
        assert (again["attempt"], again["priority"]) == (1, 1)

    def test_a_drop_takes_a_leased_message_unless_leased_ones_are_spared(self, call: Caller) -> None:
        id = offered(call, key="a")
        token = polled(call)["token"]
        refused = call("DELETE", f"/v1/messages/{id}?unless_leased=true")
        assert code(refused) == (409, "leased")
        assert "unless_leased" in refused.json()["hint"]
        assert call("DELETE", f"/v1/messages/{id}").json() == {"dropped": 1}
        assert code(call("POST", f"/v1/messages/{id}/ack", {"token": token})) == (404, "gone")
        assert code(call("DELETE", f"/v1/messages/{id}?unless_leased=true")) == (404, "gone")

    def test_a_lease_that_ran_out_is_no_conflict(self, call: Caller, pinned: MutableClock) -> None:
        id = offered(call)
        token = polled(call)["token"]
        pinned.advance(timedelta(hours=1))
        assert call("PATCH", f"/v1/messages/{id}", {"priority": 1}).status_code == 200
        assert code(call("POST", f"/v1/messages/{id}/ack", {"token": token})) == (409, "lease_lost")

    def test_a_version_that_was_seen_must_still_be_the_one(self, call: Caller) -> None:
        id = offered(call)
        version = shown(call, id)["version"]
        assert call("PATCH", f"/v1/messages/{id}?version={version}", {"priority": 1}).status_code == 200
        assert code(call("PATCH", f"/v1/messages/{id}?version={version}", {"priority": 2})) == (409, "changed")
        assert code(call("DELETE", f"/v1/messages/{id}?version={version}")) == (409, "changed")
        assert call("DELETE", f"/v1/messages/{id}?version={version + 1}").status_code == 200

    def test_what_is_not_there_is_gone(self, call: Caller) -> None:
        offered(call)
        nothing = MessageId("orders", "nothing")
        assert code(call("PATCH", f"/v1/messages/{nothing}", {"priority": 1})) == (404, "gone")
        assert code(call("DELETE", f"/v1/messages/{nothing}")) == (404, "gone")
        nowhere = MessageId("nowhere", "k")
        assert code(call("PATCH", f"/v1/messages/{nowhere}", {"priority": 1})) == (404, "unknown_queue")

    @pytest.mark.parametrize(
        "body",
        [
            {},
            {"key": "b"},
            {"payload": 1, "payload_base64": "AA=="},
            {"payload_base64": None},
            {"payload_base64": "!"},
            {"content_type": "text/plain"},
            {"at": None},
            {"after": None},
            {"at": "2030-01-01T00:00:00Z", "after": 1},
            {"at": "2030-01-01T00:00:00"},
            {"after": -1},
            {"priority": None},
            {"priority": 10},
            {"priority": "1"},
            {"type": ""},
            {"type": "a\x00b"},
            {"headers": {"a": 1}},
            {"max_attempts": 0},
            {"lease_for": 0.1},
            {"retry": {"factor": 0}},
            {"payload": "x" * 300_000},
        ],
        ids=lambda body: str(body)[:40],
    )
    def test_a_change_that_is_not_allowed_changes_nothing(self, call: Caller, body: Any) -> None:
        id = offered(call)
        before = shown(call, id)
        assert code(call("PATCH", f"/v1/messages/{id}", body))[0] == 422
        assert shown(call, id) == before
