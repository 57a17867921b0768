"""Relay's routes for all messages at once, for files of them, and for moving them by hand."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from tarry.app import AsyncApp
from tarry.edges.http import pages, relay_looking
from tarry.testing import MutableClock
from tests.edges.http.conftest import Caller
from tests.edges.http.test_relay_queues import OFFER
from tests.edges.http.test_relay_queues import made as made  # noqa: PLC0414 - a fixture


def ids(ask: Caller, place: str, query: str = "") -> list[str]:
    answer = ask("GET", f"/api/queue/{place}/messages?{query}")
    assert answer.status_code == 200, answer.text
    return [one["id"] for one in answer.json()["messages"]]


def in_slices_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "SLICE", 2)
    monkeypatch.setattr(pages, "LARGEST_SLICE", 2)


class TestStatus:
    def test_it_has_every_group_with_its_messages(self, ask: Caller, made: dict[str, Any]) -> None:
        said = ask("GET", "/api/queue/status").json()
        for group, place in (("mainQueue", "main"), ("processingQueue", "processing"), ("deadLetterQueue", "dead")):
            assert (said[group]["name"], said[group]["length"]) == (place, 1)
            assert [one["id"] for one in said[group]["messages"]] == [made[place]]
        for place in ("acknowledged", "archived"):
            assert said[f"{place}Queue"] == {"name": place, "length": 0, "messages": []}
        assert (said["metadata"], said["availableTypes"]) == ({"totalFailed": 1}, ["dead", "main", "processing"])

    def test_or_only_the_numbers_of_one_queue(self, ask: Caller, made: dict[str, Any]) -> None:
        ask("POST", "/api/queues", {"name": "other"})
        said = ask("GET", "/api/queue/status?include_messages=false&queueName=other").json()
        assert (said["mainQueue"]["length"], said["availableTypes"]) == (0, [])
        said = ask("GET", "/api/queue/status?include_messages=false").json()
        assert (said["mainQueue"]["length"], said["mainQueue"]["messages"]) == (1, [])
        assert ask("GET", "/api/queue/status?queueName=nowhere").status_code == 404


class TestLooking:
    @pytest.mark.parametrize(
        ("query", "expected"),
        [
            ("filterType=a,c", "ac"), ("filterType=all", "abc"), ("filterPriority=5", "b"), ("filterAttempts=1", ""),
            ("search=NEEDLE", "b"), ("startDate=2024-01-01T00:00:01Z", "bc"), ("endDate=2024-01-01T00:00:01Z", "ab"),
        ],
    )  # fmt: skip
    def test_filters(self, ask: Caller, pinned: MutableClock, query: str, expected: str) -> None:
        for type in "abc":
            ask("POST", OFFER, {"type": type, "payload": {"b": "a needle"}.get(type), "priority": 5 * (type == "b")})
            pinned.advance(timedelta(seconds=1))
        answer = ask("GET", f"/api/queue/main/messages?sortOrder=asc&{query}").json()
        assert "".join(one["type"] for one in answer["messages"]) == expected
        assert answer["pagination"]["total"] == len(expected)

    @pytest.mark.parametrize(
        ("query", "expected"),
        [("", "cba"), ("sortBy=created_at&sortOrder=ASC", "abc"), ("sortBy=priority", "bca"), ("sortBy=type", "cba")],
    )
    def test_sorting_is_by_what_may_be_sorted_by(
        self, ask: Caller, pinned: MutableClock, query: str, expected: str
    ) -> None:
        for type, priority in (("a", 0), ("b", 9), ("c", 1)):
            ask("POST", OFFER, {"type": type, "priority": priority})
            pinned.advance(timedelta(seconds=1))
        answer = ask("GET", f"/api/queue/main/messages?{query}").json()
        assert "".join(one["type"] for one in answer["messages"]) == expected

    def test_what_was_made_between_two_instants(self, ask: Caller, made: dict[str, Any], pinned: MutableClock) -> None:
        pinned.advance(timedelta(hours=1))
        late = ask("POST", OFFER, {"type": "late"}).json()["id"]

        def between(start: str, end: str, more: str = "") -> list[str]:
            answer = ask("GET", f"/api/queue/messages?startTimestamp={start}&endTimestamp={end}{more}")
            return [one["id"] for one in answer.json()]

        assert set(between("2024-01-01T00:00:00Z", "2024-01-01T00:30:00Z")) == set(made.values())
        assert between("2024-01-01T00:30:00Z", "2024-01-02T00:00:00Z") == [late]
        assert between("2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z", "&limit=1") == [late], "the newest first"
        assert ask("GET", "/api/queue/messages?startTimestamp=x&endTimestamp=y").status_code == 422

    def test_a_look_ends_also_where_nothing_is_found(
        self, ask: Caller, behind: AsyncApp, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for n in range(10):
            ask("POST", OFFER, {"type": "t", "payload": n})
        in_slices_of_two(monkeypatch)
        monkeypatch.setattr(relay_looking, "SLICE", 2)
        monkeypatch.setattr(relay_looking, "LOOKED", 4)
        asked, messages = list[Any](), behind.store.messages

        async def counted(*args: Any, **options: Any) -> Any:
            asked.append(options)
            return await messages(*args, **options)

        monkeypatch.setattr(behind.store, "messages", counted)
        assert ask("GET", "/api/queue/main/messages?limit=4&search=nowhere").json()["messages"] == []
        assert len(asked) == 2
        assert len(ask("GET", "/api/queue/main/export").json()) == 10, "a file has all of them"

    def test_dead_letters_of_one_instant_are_all_found(self, ask: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
        in_slices_of_two(monkeypatch)
        for n in range(7):  # the clock stands still
            ask("POST", OFFER, {"type": "t", "payload": n, "maxAttempts": 1})
            held = ask("GET", OFFER).json()
            ask("POST", f"{OFFER}/{held['id']}/nack", {"lock_token": held["lock_token"]})
        answer = ask("GET", "/api/queue/dead/messages").json()
        assert sorted(one["payload"] for one in answer["messages"]) == list(range(7))


class TestFiles:
    def test_what_was_exported_is_imported_again(self, ask: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
        in_slices_of_two(monkeypatch)
        for n in range(5):
            ask("POST", OFFER, {"type": "t", "payload": {"n": n}, "priority": n, "maxAttempts": 7, "ackTimeout": 60})
        file = ask("GET", "/api/queue/main/export")
        assert file.headers["content-disposition"].startswith('attachment; filename="main-queue-export-2024-01-01T')
        assert file.headers["content-type"] == "application/json"
        ask("DELETE", "/api/queue/clear")
        assert ids(ask, "main") == []
        answer = ask("POST", "/api/queue/import", files={"file": ("messages.json", file.content, "application/json")})
        assert (answer.status_code, answer.json()["count"]) == (200, 5)
        found = ask("GET", "/api/queue/main/messages?sortBy=priority&sortOrder=asc").json()["messages"]
        seen = [
            (one["payload"], one["type"], one["priority"], one["max_attempts"], one["ack_timeout_seconds"])
            for one in found
        ]
        assert seen == [({"n": n}, "t", n, 7, 60.0) for n in range(5)]

    def test_an_empty_place_is_an_empty_list(self, ask: Caller) -> None:
        assert ask("GET", "/api/queue/dead/export").json() == []

    def test_filters_hold_for_files_too(self, ask: Caller) -> None:
        for type in "ab":
            ask("POST", OFFER, {"type": type})
        assert [one["type"] for one in ask("GET", "/api/queue/main/export?filterType=b").json()] == ["b"]
        assert ask("GET", "/api/queue/main/export?page=2").status_code == 422
        assert ask("GET", "/api/queue/archived/export").status_code == 422

    def test_one_message_or_a_body_without_a_form_will_do(self, ask: Caller) -> None:
        assert ask("POST", "/api/queue/import", {"type": "one", "payload": [1]}).json()["count"] == 1
        assert ask("POST", "/api/queue/import", [{"custom_ack_timeout": 9}]).json()["count"] == 1
        found = ask("GET", "/api/queue/main/messages?sortBy=type&sortOrder=asc").json()["messages"]
        assert [(one["type"], one["payload"]) for one in found] == [("default", {}), ("one", [1])]

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
    def test_what_is_no_file_of_messages_is_400_and_nothing_is_stored(self, ask: Caller, sent: dict[str, Any]) -> None:
        assert ask("POST", "/api/queue/import", **sent).status_code == 400
        assert ids(ask, "main") == []

    def test_an_import_into_a_queue_that_is_not_there_is_404(self, ask: Caller) -> None:
        assert ask("POST", "/api/queue/import", [{"queue": "nowhere"}]).status_code == 404


class TestMoving:
    def move(self, ask: Caller, source: str, target: str, *messages: Any) -> Any:
        body = {"messages": list(messages), "fromQueue": source, "toQueue": target}
        answer = ask("POST", "/api/queue/move", body)
        assert answer.status_code == 200, answer.text
        return answer.json()["movedCount"]

    def test_what_is_dead_lives_again_with_all_its_attempts(self, ask: Caller, made: dict[str, Any]) -> None:
        shown = ask("GET", "/api/queue/dead/messages").json()["messages"][0]
        assert self.move(ask, "dead", "main", shown) == 1, "as it was shown"
        assert ids(ask, "dead") == []
        assert set(ids(ask, "main")) == {made["dead"], made["main"]}
        found = next(one for one in ask("GET", "/api/queue/main/messages").json()["messages"] if one["type"] == "dead")
        assert found["attempt_count"] == 0

    def test_what_somebody_works_on_is_taken_back(self, ask: Caller) -> None:
        id = ask("POST", OFFER, {"type": "t"}).json()["id"]
        held = ask("GET", OFFER).json()
        assert self.move(ask, "processing", "main", id) == 1
        late = ask("POST", "/api/queue/ack", {"id": id, "lock_token": held["lock_token"]})
        assert (late.status_code, late.json()["error"]) == (409, "LOCK_LOST")
        again = ask("GET", OFFER).json()
        assert (again["id"], again["attempt_count"]) == (id, 1)

    @pytest.mark.parametrize("source", ["main", "processing", "dead"])
    @pytest.mark.parametrize("target", ["acknowledged", "archived"])
    def test_what_is_called_finished_is_gone(self, ask: Caller, made: dict[str, Any], source: str, target: str) -> None:
        assert self.move(ask, source, target, *made.values(), "nonsense") == 1, "only what is there"
        assert ids(ask, source) == []
        assert sum(len(ids(ask, place)) for place in ("main", "processing", "dead")) == 2

    def test_what_waits_or_is_worked_on_is_given_up_with_the_reason(self, ask: Caller, made: dict[str, Any]) -> None:
        for place in ("main", "processing"):
            body = {"messages": [made[place]], "fromQueue": place, "toQueue": "dead", "errorReason": f"no {place}"}
            assert ask("POST", "/api/queue/move", body).json()["movedCount"] == 1
            assert ids(ask, place) == []
        dead = ask("GET", "/api/queue/dead/messages").json()["messages"]
        assert {one["id"]: one["last_error"] for one in dead} == {
            made["dead"]: "no", made["main"]: "no main", made["processing"]: "no processing",
        }  # fmt: skip

    def test_nobody_can_be_made_to_work_on_something(self, ask: Caller, made: dict[str, Any]) -> None:
        body = {"messages": [made["main"]], "fromQueue": "main", "toQueue": "processing"}
        answer = ask("POST", "/api/queue/move", body)
        assert answer.status_code == 422
        assert "GET /api/queue/message" in answer.json()["hint"]

    def test_what_is_elsewhere_stays_there(self, ask: Caller, made: dict[str, Any]) -> None:
        assert self.move(ask, "dead", "main", made["main"], made["processing"]) == 0
        for target in ("main", "dead"):
            assert self.move(ask, "processing", target, made["main"], made["dead"]) == 0
        assert self.move(ask, "main", "dead", made["processing"], made["dead"]) == 0
        assert [ids(ask, place) for place in made] == [[id] for id in made.values()]

    def test_ways_that_there_are_not(self, ask: Caller, made: dict[str, Any]) -> None:
        body = {"messages": [made["main"]], "fromQueue": "main", "toQueue": "main"}
        assert ask("POST", "/api/queue/move", body).status_code == 422
        assert ask("POST", "/api/queue/move", {**body, "toQueue": "moon"}).status_code == 422
        assert ask("POST", "/api/queue/move", {**body, "messages": []}).status_code == 422


class TestClearing:
    def test_one_place_of_every_queue(self, ask: Caller, made: dict[str, Any]) -> None:
        ask("POST", "/api/queues", {"name": "other"})
        ask("POST", OFFER, {"type": "t", "queue": "other"})
        answer = ask("DELETE", "/api/queue/main/clear")
        assert answer.json() == {"success": True, "queueType": "main", "message": "main queue cleared successfully"}
        assert (ids(ask, "main"), len(ids(ask, "processing")), len(ids(ask, "dead"))) == ([], 1, 1)
        assert ask("DELETE", "/api/queue/archived/clear").json()["success"] is True
        assert ask("DELETE", "/api/queue/nowhere/clear").status_code == 422

    def test_everything(self, ask: Caller, made: dict[str, Any]) -> None:
        assert ask("DELETE", "/api/queue/clear").status_code == 200
        assert [ids(ask, place) for place in made] == [[], [], []]
        assert ask("GET", "/api/queues").json()["total"] == 1
