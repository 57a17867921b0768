"""Messages changed through the broker: the rule about leases, and what a null takes away."""

from __future__ import annotations

from base64 import b64encode
from datetime import timedelta
from typing import Any

import pytest

from tarry.edges.http.ids import MessageId
from tarry.testing import MutableClock
from tests.edges.http.conftest import Caller
from tests.edges.http.test_answers import code, offered, polled


def shown(ask: Caller, id: str) -> dict[str, Any]:
    return ask("GET", f"/v1/messages/{id}").json()


class TestEdit:
    def test_what_is_named_changes_and_the_rest_stays(self, ask: Caller) -> None:
        id = offered(ask, key="a", type="t", headers={"x": "1"}, max_attempts=5)
        before = shown(ask, id)
        answer = ask("PATCH", f"/v1/messages/{id}", {"payload": [1], "delay": "5m", "priority": 9})
        assert answer.json() == {"id": id, "key": "a", "outcome": "updated"}
        after = shown(ask, id)
        changed = {name for name in before if before[name] != after[name]}
        assert changed == {"payload", "due_at", "priority", "version", "state"}
        assert (after["payload"], after["due_at"], after["priority"]) == ([1], "2024-01-01T00:05:00.000000Z", 9)

    def test_null_takes_away_and_saying_it_again_is_ignored(self, ask: Caller) -> None:
        id = offered(ask, type="t", headers={"x": "1"}, max_attempts=5, lease_for=60, retry={"factor": 3})
        nothing = dict.fromkeys(("type", "headers", "max_attempts", "lease_for", "retry"))
        assert ask("PATCH", f"/v1/messages/{id}", nothing).json()["outcome"] == "updated"
        after = shown(ask, id)
        assert [after[name] for name in ("type", "headers", "own_max_attempts", "lease_for", "retry")] == [None] * 5
        assert after["max_attempts"] == 3
        assert ask("PATCH", f"/v1/messages/{id}", nothing).json()["outcome"] == "ignored"
        ask("PATCH", f"/v1/messages/{id}", {"retry": {"factor": 4}, "lease_for": "90s"})
        assert (shown(ask, id)["retry"]["factor"], shown(ask, id)["lease_for"]) == (4.0, 90.0)

    def test_a_payload_may_be_null_text_or_bytes(self, ask: Caller) -> None:
        id = offered(ask)
        data = b64encode(b"\xff").decode()
        for body, expected in (
            ({"payload": None}, {"payload": None, "content_type": "application/json"}),
            ({"payload": "text"}, {"payload": "text", "content_type": "text/plain"}),
            ({"payload_base64": data}, {"payload_base64": data, "content_type": "application/octet-stream"}),
        ):
            assert ask("PATCH", f"/v1/messages/{id}", body).json()["outcome"] == "updated"
            after = shown(ask, id)
            assert {name: after.get(name) for name in expected} == expected

    def test_what_somebody_works_on_is_a_conflict_unless_it_is_forced(self, ask: Caller) -> None:
        id = offered(ask, key="a")
        token = polled(ask)["lock_token"]
        assert code(ask("PATCH", f"/v1/messages/{id}", {"priority": 1})) == (409, "leased")
        assert code(ask("DELETE", f"/v1/messages/{id}")) == (409, "leased")
        assert ask("PATCH", f"/v1/messages/{id}?force=true", {"priority": 1}).status_code == 200
        for verb in ("ack", "nack", "touch", "release", "bury"):
            assert code(ask("POST", f"/v1/messages/{id}/{verb}", {"lock_token": token})) == (409, "lease_lost")
        again = polled(ask)
        assert (again["attempt"], again["priority"]) == (1, 1)
        assert ask("DELETE", f"/v1/messages/{id}?force=true").json() == {"dropped": 1}
        assert code(ask("POST", f"/v1/messages/{id}/ack", {"lock_token": again["lock_token"]})) == (404, "gone")

    def test_a_lease_that_ran_out_is_no_conflict(self, ask: Caller, pinned: MutableClock) -> None:
        id = offered(ask)
        token = polled(ask)["lock_token"]
        pinned.advance(timedelta(hours=1))
        assert ask("PATCH", f"/v1/messages/{id}", {"priority": 1}).status_code == 200
        assert code(ask("POST", f"/v1/messages/{id}/ack", {"lock_token": token})) == (409, "lease_lost")

    def test_a_version_that_was_seen_must_still_be_the_one(self, ask: Caller) -> None:
        id = offered(ask)
        version = shown(ask, id)["version"]
        assert ask("PATCH", f"/v1/messages/{id}?version={version}", {"priority": 1}).status_code == 200
        assert code(ask("PATCH", f"/v1/messages/{id}?version={version}", {"priority": 2})) == (409, "changed")
        assert code(ask("DELETE", f"/v1/messages/{id}?version={version}")) == (409, "changed")
        assert ask("DELETE", f"/v1/messages/{id}?version={version + 1}").status_code == 200

    def test_what_is_not_there_is_gone(self, ask: Caller) -> None:
        offered(ask)
        nothing = MessageId("orders", "nothing")
        assert code(ask("PATCH", f"/v1/messages/{nothing}", {"priority": 1})) == (404, "gone")
        assert code(ask("DELETE", f"/v1/messages/{nothing}")) == (404, "gone")
        nowhere = MessageId("nowhere", "k")
        assert code(ask("PATCH", f"/v1/messages/{nowhere}", {"priority": 1})) == (404, "unknown_queue")

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
            {"delay": None},
            {"at": "2030-01-01T00:00:00Z", "delay": 1},
            {"at": "2030-01-01T00:00:00"},
            {"delay": -1},
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
    def test_a_change_that_is_not_allowed_changes_nothing(self, ask: Caller, body: Any) -> None:
        id = offered(ask)
        before = shown(ask, id)
        assert code(ask("PATCH", f"/v1/messages/{id}", body))[0] == 422
        assert shown(ask, id) == before
