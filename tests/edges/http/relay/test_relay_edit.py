"""Relay's routes that list, export, import, move and clear messages."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from tarry.app import AsyncApp
from tarry.edges.http import pages
from tarry.edges.http.relay import browse
from tarry.testing import MutableClock
from tests.edges.http.conftest import Caller
from tests.edges.http.relay.test_relay_queues import OFFER
from tests.edges.http.relay.test_relay_queues import made as made  # noqa: PLC0414 - a fixture
from tests.kit.calls import call_of, replace_call


def ids(call: Caller, state: str, query: str = "") -> list[str]:
    response = call("GET", f"/api/queue/{state}/messages?{query}")
    assert response.status_code == 200, response.text
    return [message["id"] for message in response.json()["messages"]]


def in_slices_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "SLICE", 2)
    monkeypatch.setattr(pages, "LARGEST_SLICE", 2)


class TestStatus:
    def test_it_has_every_group_with_its_messages(self, call: Caller, made: dict[str, Any]) -> None:
        body = call("GET", "/api/queue/status").json()
        for group, state in (("mainQueue", "main"), ("processingQueue", "processing"), ("deadLetterQueue", "dead")):
            assert (body[group]["name"], body[group]["length"]) == (state, 1)
            assert [message["id"] for message in body[group]["messages"]] == [made[state]]
        for state in ("acknowledged", "archived"):
            assert body[f"{state}Queue"] == {"name": state, "length": 0, "messages": []}
        assert (body["metadata"], body["availableTypes"]) == ({"totalFailed": 1}, ["dead", "main", "processing"])

    def test_counts_of_one_queue_without_messages(self, call: Caller, made: dict[str, Any]) -> None:
        call("POST", "/api/queues", {"name": "other"})
        body = call("GET", "/api/queue/status?include_messages=false&queueName=other").json()
        assert (body["mainQueue"]["length"], body["availableTypes"]) == (0, [])
        body = call("GET", "/api/queue/status?include_messages=false").json()
        assert (body["mainQueue"]["length"], body["mainQueue"]["messages"]) == (1, [])
        assert call("GET", "/api/queue/status?queueName=nowhere").status_code == 404


class TestLooking:
    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("filterType=a,c", "ac"), ("filterType=all", "abc"), ("filterPriority=5", "b"), ("filterAttempts=1", ""),
            ("search=NEEDLE", "b"), ("startDate=2024-01-01T00:00:01Z", "bc"), ("endDate=2024-01-01T00:00:01Z", "ab"),
        ],
    )  # fmt: skip
    def test_filters(self, call: Caller, pinned: MutableClock, query: str, expected: str) -> None:
        for type in "abc":
            call("POST", OFFER, {"type": type, "payload": {"b": "a needle"}.get(type), "priority": 5 * (type == "b")})
            pinned.advance(timedelta(seconds=1))
        body = call("GET", f"/api/queue/main/messages?sortOrder=asc&{query}").json()
        assert "".join(message["type"] for message in body["messages"]) == expected
        assert body["pagination"]["total"] == len(expected)

    @pytest.mark.parametrize(
        ("query", "expected"),
        [("", "cba"), ("sortBy=created_at&sortOrder=ASC", "abc"), ("sortBy=priority", "bca"), ("sortBy=type", "cba")],
    )
    def test_sorting(self, call: Caller, pinned: MutableClock, query: str, expected: str) -> None:
        for type, priority in (("a", 0), ("b", 9), ("c", 1)):
            call("POST", OFFER, {"type": type, "priority": priority})
            pinned.advance(timedelta(seconds=1))
        body = call("GET", f"/api/queue/main/messages?{query}").json()
        assert "".join(message["type"] for message in body["messages"]) == expected

    def test_messages_created_between_two_instants(
        self, call: Caller, made: dict[str, Any], pinned: MutableClock
    ) -> None:
        pinned.advance(timedelta(hours=1))
        late = call("POST", OFFER, {"type": "late"}).json()["id"]

        def between(start: str, end: str, more: str = "") -> list[str]:
            response = call("GET", f"/api/queue/messages?startTimestamp={start}&endTimestamp={end}{more}")
            return [message["id"] for message in response.json()]

        assert set(between("2024-01-01T00:00:00Z", "2024-01-01T00:30:00Z")) == set(made.values())
        assert between("2024-01-01T00:30:00Z", "2024-01-02T00:00:00Z") == [late]
        assert between("2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z", "&limit=1") == [late], "the newest first"
        assert call("GET", "/api/queue/messages?startTimestamp=x&endTimestamp=y").status_code == 422

    def test_a_search_looks_at_a_limited_number_of_messages(
        self, call: Caller, behind: AsyncApp, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for n in range(10):
            call("POST", OFFER, {"type": "t", "payload": n})
        in_slices_of_two(monkeypatch)
        monkeypatch.setattr(browse, "SLICE", 2)
        monkeypatch.setattr(browse, "LOOK_LIMIT", 4)
        options_used, messages = list[Any](), call_of(behind.store, "messages.list")

        async def counted(*args: Any, **options: Any) -> Any:
            options_used.append(options)
            return await messages(*args, **options)

        replace_call(behind.store, "messages.list", counted)
        assert call("GET", "/api/queue/main/messages?limit=4&search=nowhere").json()["messages"] == []
        assert len(options_used) == 2
        assert len(call("GET", "/api/queue/main/export").json()) == 10, "a file has all of them"

    def test_dead_letters_of_one_instant_are_all_found(self, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
        in_slices_of_two(monkeypatch)
        for n in range(7):  # the clock stands still
            call("POST", OFFER, {"type": "t", "payload": n, "maxAttempts": 1})
            held = call("GET", OFFER).json()
            call("POST", f"{OFFER}/{held['id']}/nack", {"lock_token": held["lock_token"]})
        body = call("GET", "/api/queue/dead/messages").json()
        assert sorted(message["payload"] for message in body["messages"]) == list(range(7))


class TestFiles:
    def test_what_was_exported_is_imported_again(self, call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
        in_slices_of_two(monkeypatch)
        for n in range(5):
            call("POST", OFFER, {"type": "t", "payload": {"n": n}, "priority": n, "maxAttempts": 7, "ackTimeout": 60})
        file = call("GET", "/api/queue/main/export")
        assert file.headers["content-disposition"].startswith('attachment; filename="main-queue-export-2024-01-01T')
        assert file.headers["content-type"] == "application/json"
        call("DELETE", "/api/queue/clear")
        assert ids(call, "main") == []
        response = call(
            "POST", "/api/queue/import", files={"file": ("messages.json", file.content, "application/json")}
        )
        assert (response.status_code, response.json()["count"]) == (200, 5)
        messages = call("GET", "/api/queue/main/messages?sortBy=priority&sortOrder=asc").json()["messages"]
        seen = [
            (
                message["payload"],
                message["type"],
                message["priority"],
                message["max_attempts"],
                message["ack_timeout_seconds"],
            )
            for message in messages
        ]
        assert seen == [({"n": n}, "t", n, 7, 60.0) for n in range(5)]

    def test_an_empty_export_is_an_empty_list(self, call: Caller) -> None:
        assert call("GET", "/api/queue/dead/export").json() == []

    def test_filters_apply_to_exports(self, call: Caller) -> None:
        for type in "ab":
            call("POST", OFFER, {"type": type})
        assert [message["type"] for message in call("GET", "/api/queue/main/export?filterType=b").json()] == ["b"]
        assert call("GET", "/api/queue/main/export?page=2").status_code == 422
        assert call("GET", "/api/queue/archived/export").status_code == 422

    def test_an_import_accepts_one_message_and_a_body_without_a_form(self, call: Caller) -> None:
        assert call("POST", "/api/queue/import", {"type": "one", "payload": [1]}).json()["count"] == 1
        assert call("POST", "/api/queue/import", [{"custom_ack_timeout": 9}]).json()["count"] == 1
        messages = call("GET", "/api/queue/main/messages?sortBy=type&sortOrder=asc").json()["messages"]
        assert [(message["type"], message["payload"]) for message in messages] == [("default", {}), ("one", [1])]

    @pytest.mark.parametrize(
        "sent",
        [
            {"files": {"other": b"[]"}},
            {"files": {"file": b"{"}},
            {"files": {"file": b""}},
            {"content": b"no", "headers": {"content-type": "multipart/form-data"}},
            {"content": b"--x\r\n", "headers": {"content-type": "multipart/form-data; boundary=x"}},
            {"files": {"file": json.dumps([{"type": "a"}, {"type": "b", "priority": 10}]).encode()}},
            {"files": {"file": b"[1]"}},
            {"files": {"file": b'[{"payload": NaN}]'}},
        ],
        ids=str,
    )
    def test_an_invalid_file_is_400_and_nothing_is_stored(self, call: Caller, sent: dict[str, Any]) -> None:
        assert call("POST", "/api/queue/import", **sent).status_code == 400
        assert ids(call, "main") == []

    def test_an_import_into_a_queue_that_is_not_there_is_404(self, call: Caller) -> None:
        assert call("POST", "/api/queue/import", [{"queue": "nowhere"}]).status_code == 404


class TestMoving:
    def move(self, call: Caller, source: str, target: str, *messages: Any) -> Any:
        body = {"messages": list(messages), "fromQueue": source, "toQueue": target}
        response = call("POST", "/api/queue/move", body)
        assert response.status_code == 200, response.text
        return response.json()["movedCount"]

    def test_a_dead_letter_is_moved_to_main_with_all_its_attempts(self, call: Caller, made: dict[str, Any]) -> None:
        shown = call("GET", "/api/queue/dead/messages").json()["messages"][0]
        assert self.move(call, "dead", "main", shown) == 1, "as it was shown"
        assert ids(call, "dead") == []
        assert set(ids(call, "main")) == {made["dead"], made["main"]}
        moved = next(
            message
            for message in call("GET", "/api/queue/main/messages").json()["messages"]
            if message["type"] == "dead"
        )
        assert moved["attempt_count"] == 0

    def test_a_leased_message_is_moved_to_main(self, call: Caller) -> None:
        id = call("POST", OFFER, {"type": "t"}).json()["id"]
        held = call("GET", OFFER).json()
        assert self.move(call, "processing", "main", id) == 1
        late = call("POST", "/api/queue/ack", {"id": id, "lock_token": held["lock_token"]})
        assert (late.status_code, late.json()["error"]) == (409, "LOCK_LOST")
        again = call("GET", OFFER).json()
        assert (again["id"], again["attempt_count"]) == (id, 1)

    @pytest.mark.parametrize("source", ["main", "processing", "dead"])
    @pytest.mark.parametrize("target", ["acknowledged", "archived"])
    def test_a_message_moved_to_a_finished_state_is_dropped(
        self, call: Caller, made: dict[str, Any], source: str, target: str
    ) -> None:
        assert self.move(call, source, target, *made.values(), "nonsense") == 1, "only what is there"
        assert ids(call, source) == []
        assert sum(len(ids(call, state)) for state in ("main", "processing", "dead")) == 2

    def test_a_message_is_moved_to_dead_with_the_reason(self, call: Caller, made: dict[str, Any]) -> None:
        for state in ("main", "processing"):
            body = {"messages": [made[state]], "fromQueue": state, "toQueue": "dead", "errorReason": f"no {state}"}
            assert call("POST", "/api/queue/move", body).json()["movedCount"] == 1
            assert ids(call, state) == []
        dead = call("GET", "/api/queue/dead/messages").json()["messages"]
        assert {letter["id"]: letter["last_error"] for letter in dead} == {
            made["dead"]: "no", made["main"]: "no main", made["processing"]: "no processing",
        }  # fmt: skip

    def test_no_message_is_moved_to_processing(self, call: Caller, made: dict[str, Any]) -> None:
        body = {"messages": [made["main"]], "fromQueue": "main", "toQueue": "processing"}
        response = call("POST", "/api/queue/move", body)
        assert response.status_code == 422
        assert "GET /api/queue/message" in response.json()["hint"]

    def test_a_message_of_another_type_is_not_moved(self, call: Caller, made: dict[str, Any]) -> None:
        assert self.move(call, "dead", "main", made["main"], made["processing"]) == 0
        for target in ("main", "dead"):
            assert self.move(call, "processing", target, made["main"], made["dead"]) == 0
        assert self.move(call, "main", "dead", made["processing"], made["dead"]) == 0
        assert [ids(call, state) for state in made] == [[id] for id in made.values()]

    def test_invalid_moves(self, call: Caller, made: dict[str, Any]) -> None:
        body = {"messages": [made["main"]], "fromQueue": "main", "toQueue": "main"}
        refused = call("POST", "/api/queue/move", body)
        assert (refused.status_code, "hint" in refused.json()) == (422, False)
        assert call("POST", "/api/queue/move", {**body, "toQueue": "moon"}).status_code == 422
        assert call("POST", "/api/queue/move", {**body, "messages": []}).status_code == 422


class TestClearing:
    def test_one_type_of_every_queue(self, call: Caller, made: dict[str, Any]) -> None:
        call("POST", "/api/queues", {"name": "other"})
        call("POST", OFFER, {"type": "t", "queue": "other"})
        response = call("DELETE", "/api/queue/main/clear")
        assert response.json() == {"success": True, "queueType": "main", "message": "main queue cleared successfully"}
        assert (ids(call, "main"), len(ids(call, "processing")), len(ids(call, "dead"))) == ([], 1, 1)
        assert call("DELETE", "/api/queue/archived/clear").json()["success"] is True
        assert call("DELETE", "/api/queue/nowhere/clear").status_code == 422

    def test_everything(self, call: Caller, made: dict[str, Any]) -> None:
        assert call("DELETE", "/api/queue/clear").status_code == 200
        assert [ids(call, state) for state in made] == [[], [], []]
        assert call("GET", "/api/queues").json()["total"] == 1
