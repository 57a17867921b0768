"""Schedules through the broker: installed, looked at, paused, run by hand; whatever their name."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tarry.app import AsyncApp
from tarry.core.cron.model import Misfire, Policy, ScheduleSpec
from tarry.core.cron.schedule_types import Cron, Daily, Periodic
from tarry.core.errors import InvalidInput, UnknownSchedule
from tarry.core.settings import QueueSettings
from tarry.edges.http.app import broker_app
from tarry.edges.http.settings import BrokerSettings
from tarry.http import Client
from tarry.testing import MutableClock
from tarry.wire.ids import schedule_id
from tests.edges.http.conftest import Caller
from tests.edges.http.test_responses import code
from tests.kit.blocking import Loop
from tests.kit.clocks import START

HOURLY = {"every": "1h", "queue": "reports", "payload": {"kind": "hourly"}}
DAILY = {"daily": ["09:00", "18:30"], "zone": "Europe/Berlin", "queue": "reports"}
CRON = {"cron": "0 9 * * 1-5", "zone": "UTC", "queue": "reports", "payload": "text", "misfire": "all", "priority": 5}


def put(call: Caller, id: str, body: dict[str, Any] = HOURLY) -> dict[str, Any]:
    response = call("PUT", f"/v1/schedules/{id}", body)
    assert response.status_code in (200, 201), response.text
    return response.json()


class TestInstalling:
    @pytest.mark.parametrize(
        ("body", "expected"),
        [
            (HOURLY, {"kind": "periodic", "text": "3600000ms", "zone": None, "payload": {"kind": "hourly"}}),
            (DAILY, {"kind": "daily", "text": "09:00, 18:30", "zone": "Europe/Berlin", "payload": None}),
            (CRON, {"kind": "cron", "text": "0 9 * * 1-5", "payload": "text", "misfire": "all", "priority": 5}),
        ],
        ids=["every", "daily", "cron"],
    )
    def test_new_is_201_and_then_200(self, call: Caller, body: Any, expected: Any) -> None:
        responses = [call("PUT", "/v1/schedules/report", body) for _ in range(2)]
        assert [response.status_code for response in responses] == [201, 200]
        stored = call("GET", "/v1/schedules/report").json()
        assert stored == responses[1].json()
        assert stored["generation"] == 1
        assert {name: stored[name] for name in expected} == expected
        assert (stored["id"], stored["name"], stored["queue"], stored["source"]) == (
            "report",
            "report",
            "reports",
            "http",
        )

    def test_its_messages_come(self, call: Caller, pinned: MutableClock) -> None:
        put(call, "beat")
        pinned.advance(timedelta(hours=1))
        (message,) = call("POST", "/v1/queues/reports/messages:poll", {"max": 5}).json()["messages"]
        assert message["payload"] == {"kind": "hourly"}
        assert message["headers"]["tarry-schedule"] == "beat"

    def test_ticks_missed_before_a_replacement_are_made(self, call: Caller, pinned: MutableClock) -> None:
        put(call, "beat", {**HOURLY, "misfire": "all"})
        pinned.advance(timedelta(hours=4))
        put(call, "beat", {"cron": "0 * * * *", "zone": "UTC", "queue": "reports"})
        past = call("GET", "/v1/schedules/beat:history?until=2024-01-01T04:00:00Z").json()["ticks"]
        assert sorted(tick["tick"] for tick in past if tick["verdict"] == "planned") == [
            f"2024-01-01T{hour:02}:00:00.000000Z" for hour in (1, 2, 3, 4)
        ]

    def test_another_configuration_replaces_it(self, call: Caller) -> None:
        put(call, "beat")
        changed = put(call, "beat", {**HOURLY, "every": "2h"})
        assert (changed["generation"], changed["next_at"]) == (2, "2024-01-01T02:00:00.000000Z")

    @pytest.mark.parametrize(
        "name", ["a/b", "%", "😀", "..", "~", " ", "a:pause", "a?b#c", "x" * 200, "reports/eu/daily"]
    )
    def test_a_name_of_any_text_is_only_a_name(self, call: Caller, name: str) -> None:
        id = schedule_id(name)
        assert put(call, id)["name"] == name
        path = f"/v1/schedules/{id}"
        assert call("GET", path).json()["id"] == id
        assert call("POST", f"{path}:pause", {"reason": "why not"}).json()["paused_reason"] == "why not"
        assert call("POST", f"{path}:resume").json()["paused"] is False
        assert len(call("GET", f"{path}:preview?n=3").json()["fires"]) == 3
        assert call("DELETE", path).json() == {"queue": "reports", "deleted": True}
        assert code(call("GET", path)) == (404, "unknown_schedule")

    def test_of_the_ways_to_write_an_id_one_is_taken(self, call: Caller) -> None:
        put(call, "plain")
        other = "~" + urlsafe_b64encode(b"plain").rstrip(b"=").decode()
        for id in (other, "~!!!!", "~", "pl%61in:nothing"):
            assert code(call("GET", f"/v1/schedules/{id}")) == (404, "unknown_schedule")
        assert code(call("PUT", f"/v1/schedules/{other}", HOURLY)) == (404, "unknown_schedule")

    @pytest.mark.parametrize(
        "body",
        [
            {},
            {"queue": "q"},
            {"every": "1h"},
            {"every": "1h", "queue": "a b"},
            {"every": "1h", "queue": "q", "zone": "UTC"},
            {"every": "1h", "queue": "q", "cron": "* * * * *"},
            {"every": 0, "queue": "q"},
            {"cron": "* * * * *", "queue": "q"},
            {"cron": "61 * * * *", "queue": "q", "zone": "UTC"},
            {"cron": "x" * 300, "queue": "q", "zone": "UTC"},
            {"cron": "* * * * *", "queue": "q", "zone": "Mars/Olympus"},
            {"cron": "* * * * *", "queue": "q", "zone": "../../etc/passwd"},
            {"cron": "\x00", "queue": "q", "zone": "UTC"},
            {"daily": [], "queue": "q", "zone": "UTC"},
            {"daily": ["25:00"], "queue": "q", "zone": "UTC"},
            {"daily": "09:00", "queue": "q", "zone": "UTC"},
            {**HOURLY, "misfire": "explode"},
            {**HOURLY, "overlap": "skip", "in_advance_for": "1h"},
            {**HOURLY, "start_at": "2030-01-01T00:00:00Z", "end_at": "2029-01-01T00:00:00Z"},
            {**HOURLY, "payload_base64": "AA=="},
            {**HOURLY, "content_type": "text/plain"},
            {**HOURLY, "payload": "x" * 300_000},
            {**HOURLY, "type": "a\x00"},
            {**HOURLY, "more": 1},
        ],
        ids=lambda body: str(body)[:50],
    )
    def test_what_is_not_allowed_installs_nothing(self, call: Caller, body: Any) -> None:
        assert code(call("PUT", "/v1/schedules/report", body))[0] == 422
        assert call("GET", "/v1/schedules").json() == {"schedules": []}
        assert call("GET", "/v1/queues").json()["queues"] == []


class TestByHand:
    def test_trigger_skip_and_what_became_of_them(self, call: Caller) -> None:
        put(call, "beat")
        assert call("POST", "/v1/schedules/beat:trigger").json() == {"tick": "2024-01-01T00:00:00.000001Z"}
        assert call("POST", "/v1/schedules/beat:skip").json() == {"tick": "2024-01-01T01:00:00.000000Z"}
        ticks = call("GET", "/v1/schedules/beat:history").json()["ticks"]
        assert {(tick["tick"][11:16], tick["verdict"]) for tick in ticks} >= {
            ("00:00", "triggered"),
            ("01:00", "skipped"),
        }
        fires = call("GET", "/v1/schedules/beat:preview?n=2").json()["fires"]
        assert next((fire["tick"][11:16], fire["verdict"]) for fire in fires) == ("01:00", "skipped")
        body = call("GET", "/v1/schedules/beat:explain", params={"tick": "2024-01-01T00:30:00Z"}).json()
        assert "is not a tick of this schedule" in body["explanation"]

    def test_a_trigger_repeated_with_the_same_key_is_done_once(self, call: Caller) -> None:
        put(call, "beat")
        for verb in ("trigger", "skip"):
            first, again = (
                call("POST", f"/v1/schedules/beat:{verb}", headers={"idempotency-key": verb}) for _ in range(2)
            )
            assert first.json() == again.json()
            assert again.headers["idempotent-replayed"] == "true"
        verdicts = [tick["verdict"] for tick in call("GET", "/v1/schedules/beat:history").json()["ticks"]]
        assert sorted(verdicts) == ["skipped", "triggered"]

    def test_a_backfill_is_counted_and_then_done(self, call: Caller, pinned: MutableClock) -> None:
        put(call, "beat")
        span = {"since": "2023-12-31T20:00:00Z", "until": "2023-12-31T23:00:00Z"}
        first = call("POST", "/v1/schedules/beat:backfill", {**span, "dry_run": True}).json()["ticks"]
        assert [tick[11:13] for tick in first] == ["20", "21", "22"]
        assert call("POST", "/v1/schedules/beat:backfill", span).json()["ticks"] == first
        assert call("POST", "/v1/schedules/beat:backfill", span).json()["ticks"] == []

    def test_a_program_s_schedule_is_shown_and_not_triggered(
        self, call: Caller, behind: AsyncApp, http_loop: Loop
    ) -> None:
        async def install() -> None:
            await behind.queues.create("own", QueueSettings())
            async with behind.cron() as cron:
                await cron.install_periodic(
                    "code", Periodic(timedelta(hours=1)).every, queue="own", payload=lambda tick: {"at": str(tick)}
                )

        http_loop.run(install())
        body = call("GET", "/v1/schedules/code").json()
        assert (body["by_code"], "payload" in body) == (True, False)
        assert code(call("POST", "/v1/schedules/code:trigger")) == (409, "invalid_state")

    def test_bad_questions(self, call: Caller) -> None:
        put(call, "beat")
        for path in (":preview?n=0", ":preview?n=101", ":explain", ":explain?tick=now", ":history?limit=0"):
            assert code(call("GET", f"/v1/schedules/beat{path}"))[0] == 422
        for body in ({}, {"since": "2024-01-01T00:00:00Z"}, {"since": 1, "until": 2}):
            assert code(call("POST", "/v1/schedules/beat:backfill", body))[0] == 422


def test_a_foreign_schedule_is_unknown(behind: AsyncApp, http_loop: Loop, key: Callable[..., str]) -> None:
    call = Caller(broker_app(behind, BrokerSettings()), http_loop)
    admin = call.with_key(key("admin", "read"))
    put(admin, "theirs", {**HOURLY, "queue": "foreign"})
    put(admin, "mine", {**HOURLY, "queue": "own"})
    mine = call.with_key(key("admin", "read", queues=("own",)))
    assert [schedule["name"] for schedule in mine("GET", "/v1/schedules").json()["schedules"]] == ["mine"]
    for method, verb in (("GET", ""), ("DELETE", ""), ("POST", ":pause"), ("POST", ":trigger"), ("GET", ":history")):
        there, nowhere = (mine(method, f"/v1/schedules/{name}{verb}") for name in ("theirs", "nobodys"))
        assert code(there) == code(nowhere) == (404, "unknown_schedule")
        assert there.json()["detail"].replace("theirs", "nobodys") == nowhere.json()["detail"]
    assert code(mine("PUT", "/v1/schedules/theirs", {**HOURLY, "queue": "own"})) == (403, "forbidden")
    assert code(mine("PUT", "/v1/schedules/mine", {**HOURLY, "queue": "foreign"})) == (403, "forbidden")
    assert code(call.with_key(key("read"))("POST", "/v1/schedules/mine:pause")) == (403, "forbidden")
    assert admin("GET", "/v1/schedules/theirs").json()["paused"] is False


class TestTenants:
    """Two keys, each for a queue of its own, that use the same name one after the other."""

    def test_a_later_owner_of_a_name_sees_nothing_of_the_one_before_and_gets_all_its_ticks(
        self, behind: AsyncApp, http_loop: Loop, key: Callable[..., str], pinned: MutableClock
    ) -> None:
        call = Caller(broker_app(behind, BrokerSettings()), http_loop)
        first, second = (
            call.with_key(key("admin", "read", "produce", "consume", queues=(name,))) for name in ("a", "b")
        )
        put(first, "beat", {**HOURLY, "queue": "a", "in_advance_for": "5h"})
        pinned.advance(timedelta(hours=5))
        assert len(first("POST", "/v1/queues/a/messages:poll", {"max": 9}).json()["messages"]) == 5
        assert first("DELETE", "/v1/schedules/beat").status_code == 200
        pinned.advance(-timedelta(hours=5))
        put(second, "beat", {"cron": "0 * * * *", "zone": "UTC", "queue": "b", "in_advance_for": "5h"})
        ticks = second("GET", "/v1/schedules/beat:history").json()["ticks"]
        assert {(tick["queue"], tick["verdict"]) for tick in ticks} == {("b", "planned")}
        assert len(ticks) == 5
        pinned.advance(timedelta(hours=5))
        assert len(second("POST", "/v1/queues/b/messages:poll", {"max": 9}).json()["messages"]) == 5
        assert code(first("GET", "/v1/schedules/beat:history")) == (404, "unknown_schedule")

    def test_messages_of_a_queue_that_a_key_may_not_read_are_left_out_of_a_moved_schedule(
        self, behind: AsyncApp, http_loop: Loop, key: Callable[..., str]
    ) -> None:
        call = Caller(broker_app(behind, BrokerSettings()), http_loop)
        admin, second = call.with_key(key("admin", "read")), call.with_key(key("read", queues=("b",)))
        put(admin, "beat", {**HOURLY, "queue": "a"})
        admin("POST", "/v1/schedules/beat:trigger")
        put(admin, "beat", {**HOURLY, "queue": "b"})
        shown = second("GET", "/v1/schedules/beat:history").json()["ticks"]
        assert {tick["queue"] for tick in shown} <= {None, "b"}
        assert all((tick["queue"] is None) == (tick["key"] is None) for tick in shown)
        assert {tick["queue"] for tick in admin("GET", "/v1/schedules/beat:history").json()["ticks"]} >= {"a", "b"}


def test_a_client_looks_after_schedules_as_the_library_does(
    broker_url: str, behind: AsyncApp, http_loop: Loop, pinned: MutableClock
) -> None:
    specs = [
        ScheduleSpec(name="a/b %", schedule=Periodic(timedelta(hours=1)), queue="q", payload=b'"json"'),
        ScheduleSpec(
            name="daily",
            schedule=Daily(["02:00", "14:30:05"], "Europe/Berlin"),
            queue="q",
            payload="täxt".encode(),
            content_type="text/plain",
            priority=3,
            type="t",
            policy=Policy(misfire=Misfire.ALL, jitter_for=timedelta(seconds=1.5), end_at=START + timedelta(days=9)),
        ),
        ScheduleSpec(name="..", schedule=Cron("0 18 L * *", "UTC"), queue="q", payload=b"\x00", content_type="x/y"),
    ]
    with Client(broker_url) as client:
        for spec in specs:
            state = client.schedules.put(spec)
            assert state.spec == spec
            assert client.schedules.get(spec.name) == http_loop.run(behind.schedules.get(spec.name))
        assert client.schedules.list() == http_loop.run(behind.schedules.list())
        assert client.schedules.pause("a/b %", reason="why").paused_reason == "why"
        assert not client.schedules.resume("a/b %").paused
        assert client.schedules.trigger("a/b %") == START + timedelta(microseconds=1)
        assert client.schedules.skip("a/b %") == START + timedelta(hours=1)
        assert client.schedules.preview("a/b %", 3) == http_loop.run(behind.schedules.preview("a/b %", 3))
        span = START - timedelta(hours=3), START
        assert client.schedules.missing("a/b %", *span) == client.schedules.backfill("a/b %", *span)
        assert client.schedules.history("a/b %") == http_loop.run(behind.schedules.history("a/b %"))
        assert client.schedules.explain("a/b %", START) == http_loop.run(behind.schedules.explain("a/b %", START))
        assert client.schedules.delete("a/b %") is True
        assert client.schedules.delete("a/b %") is False
        with pytest.raises(UnknownSchedule):
            client.schedules.get("a/b %")
        with pytest.raises(InvalidInput, match="no payload"):
            client.schedules.put(replace(specs[0], payload=None))
        with pytest.raises(InvalidInput, match="time zone"):
            client.schedules.explain("daily", START.replace(tzinfo=None))
