"""Programs that plan schedules through a broker: what they may change, and what becomes of bad and late changes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tarry.app import AsyncApp
from tarry.core.cron.model import CronMessage
from tarry.core.errors import InvalidState
from tarry.core.settings import QueueSettings
from tarry.edges.http.app import broker_app
from tarry.edges.http.settings import BrokerSettings
from tarry.http import Client
from tarry.services.cron._sync.scheduler import Scheduler
from tarry.testing import MutableClock
from tests.edges.http.conftest import Caller
from tests.edges.http.test_responses import code
from tests.kit.blocking import Loop
from tests.kit.brokers import broker_on
from tests.kit.clocks import START

Make = Callable[..., str]
HOUR = timedelta(hours=1)
THEN = "2024-01-01T00:00:00Z"
NEXT = "2024-01-01T01:00:00Z"
LAST = "9999-12-31T23:59:59Z"
HOURLY = {"every": 3600, "queue": "q", "payload": 1}
AFTER = {"cursor_at": THEN, "schedule": HOURLY}
NEW: dict[str, Any] = {"name": "beat", "expected": None, "decided_at": THEN, "after": AFTER}

BAD: list[dict[str, Any]] = [
    {"name": ""},
    {"name": "a\x00"},
    {"name": "x" * 201},
    {"expected": -1},
    {"expected": 2**63},
    {"decided_at": "now"},
    {"more": 1},
    {"after": {**AFTER, "cursor_at": None}},
    {"after": {"cursor_at": THEN, "paused_at": THEN}},
    {"after": {**AFTER, "schedule": {**HOURLY, "ticks": "h"}}},
    {"after": {**AFTER, "schedule": {**HOURLY, "every": 1e300}}},
    {"after": {**AFTER, "schedule": {**HOURLY, "by_code": True}}},
    {"after": {**AFTER, "schedule": {**HOURLY, "source": "a\x00"}}},
    {"after": {**AFTER, "schedule": {"ticks": "h", "queue": "q"}}},
    {"after": {**AFTER, "schedule": {"ticks": "a b", "queue": "q", "by_code": True}}},
    {"after": {**AFTER, "schedule": {"every": 3600, "queue": "q", "by_code": True}}, "ticks": [{"tick": THEN}]},
    {"after": None, "ticks": [{"tick": THEN}]},
    {"ticks": [{"tick": THEN}, {"tick": "2024-01-01T01:00:00+01:00"}]},
    {"ticks": [{"tick": THEN, "until": NEXT}]},
    {"ticks": [{"tick": NEXT, "until": THEN, "verdict": "skipped"}]},
    {"ticks": [{"tick": THEN, "verdict": "skipped", "count": 2**31}]},
    {"ticks": [{"tick": THEN, "verdict": "withdrawn"}]},
    {"ticks": [{"tick": THEN, "verdict": "planned", "hash": "other"}]},
    {"ticks": [{"tick": THEN, "verdict": "skipped", "hash": "a b"}]},
    {"ticks": [{"tick": THEN, "payload": "x" * 300_000}]},
    {"ticks": [{"tick": THEN, "payload_base64": "!"}]},
    {"after": {**AFTER, "schedule": {**HOURLY, "jitter_for": "3650d"}}, "ticks": [{"tick": LAST}]},
    {"withdraw": [{"hash": "", "tick": THEN}]},
    {"withdraw": [{"hash": "h", "tick": THEN, "reason": "why not"}]},
]


def applied(call: Caller, *changes: dict[str, Any], **more: Any) -> list[bool]:
    response = call("POST", "/v1/schedules:apply_changes", {"changes": list(changes), **more})
    assert response.status_code == 200, response.text
    return response.json()["applied"]


class TestChanging:
    def test_a_change_applies_if_the_schedule_has_not_changed_since_it_was_read(self, call: Caller) -> None:
        assert applied(call, NEW) == [True]
        assert applied(call, NEW) == [False]
        body = call("GET", "/v1/schedules/beat").json()
        assert (body["queue"], body["generation"], body["source"]) == ("q", 1, "code")
        change = {**NEW, "expected": body["revision"], "after": {**AFTER, "schedule": {**HOURLY, "every": 7200}}}
        other = {**NEW, "name": "other"}
        assert applied(call, other, {**change, "expected": 0}) == [False, False]
        assert applied(call, other, {**change, "expected": 0}, together=False) == [True, False]
        assert applied(call, change) == [True]
        assert call("GET", "/v1/schedules/beat").json()["generation"] == 2

    def test_a_change_of_an_unknown_schedule_is_not_applied(self, call: Caller) -> None:
        assert applied(call, {**NEW, "after": None}) == [False]
        assert applied(call, {**NEW, "expected": 1, "after": {"cursor_at": THEN}}) == [False]
        plan = {"name": "beat", "expected": 1, "decided_at": THEN, "after": {"cursor_at": NEXT}}
        assert call("POST", "/v1/schedules:plan", {"changes": [plan]}).json() == {"applied": [False]}

    def test_a_message_of_a_tick_is_named_by_the_schedule_and_not_by_the_caller(self, call: Caller) -> None:
        assert applied(call, {**NEW, "ticks": [{"tick": THEN}, {"tick": NEXT, "due_at": THEN, "payload": "own"}]}) == [
            True
        ]
        messages = call("POST", "/v1/queues/q/messages:poll", {"max": 5}).json()["messages"]
        assert {(message["payload"], message["headers"]["tarry-tick"], message["key"][:5]) for message in messages} == {
            (1, "2024-01-01T00:00:00+00:00", "beat/"),
            ("own", "2024-01-01T01:00:00+00:00", "beat/"),
        }

    def test_a_change_repeated_with_the_same_key_has_the_same_response(self, call: Caller) -> None:
        for _ in range(2):
            response = call(
                "POST", "/v1/schedules:apply_changes", {"changes": [NEW]}, headers={"idempotency-key": "one"}
            )
            assert response.json() == {"applied": [True]}

    @pytest.mark.parametrize("bad", BAD, ids=lambda bad: str(bad)[:60])
    def test_what_is_not_allowed_changes_nothing(self, call: Caller, bad: dict[str, Any]) -> None:
        if bad.get("after", 0) is None:
            applied(call, NEW)
        assert code(call("POST", "/v1/schedules:apply_changes", {"changes": [{**NEW, **bad}]}))[0] == 422
        assert len(call("GET", "/v1/schedules").json()["schedules"]) == (bad.get("after", 0) is None)

    def test_one_schedule_is_changed_once(self, call: Caller) -> None:
        assert code(call("POST", "/v1/schedules:apply_changes", {"changes": [NEW, NEW]}))[0] == 422
        assert code(call("POST", "/v1/schedules:apply_changes", {"changes": []}))[0] == 422

    def test_what_is_planned_is_not_done_by_hand(self, call: Caller) -> None:
        applied(call, NEW)
        revision = call("GET", "/v1/schedules/beat").json()["revision"]
        plan = {"name": "beat", "expected": revision, "decided_at": THEN, "after": {"cursor_at": NEXT}}
        for bad in (
            {"ticks": [{"tick": THEN, "verdict": "triggered"}]},
            {"ticks": [{"tick": THEN, "verdict": "skipped", "reason": "by_hand"}]},
            {"ticks": [{"tick": THEN, "verdict": "skipped", "hash": "other"}]},
            {"withdraw": [{"hash": "other", "tick": THEN}]},
            {"after": AFTER},
            {"after": None},
            {"expected": None},
        ):
            assert code(call("POST", "/v1/schedules:plan", {"changes": [{**plan, **bad}]}))[0] == 422
        assert call("POST", "/v1/schedules:plan", {"changes": [plan]}).json() == {"applied": [True]}


class TestKeys:
    def test_a_foreign_schedule_is_unknown_to_changes(
        self, behind: AsyncApp, http_loop: Loop, key: Make, pinned: MutableClock
    ) -> None:
        call = Caller(broker_app(behind, BrokerSettings()), http_loop)
        admin, mine = (call.with_key(key("read", "produce", "admin", queues=queues)) for queues in (("*",), ("own",)))
        theirs = {**NEW, "after": {**AFTER, "wake_at": THEN}}
        assert applied(admin, theirs) == [True]
        own = {**theirs, "name": "own", "after": {**AFTER, "wake_at": THEN, "schedule": {**HOURLY, "queue": "own"}}}
        assert applied(mine, own) == [True]
        revision = admin("GET", "/v1/schedules/beat").json()["revision"]
        assert applied(mine, {**theirs, "expected": revision, "after": None}) == [False]
        assert applied(mine, {**theirs, "expected": revision, "after": {"cursor_at": NEXT}}) == [False]
        plan = {"name": "beat", "expected": revision, "decided_at": THEN, "after": {"cursor_at": NEXT}}
        assert mine("POST", "/v1/schedules:plan", {"changes": [plan]}).json() == {"applied": [False]}
        for taken in (own["after"], AFTER):
            bad = {**theirs, "expected": revision, "after": taken}
            assert code(mine("POST", "/v1/schedules:apply_changes", {"changes": [bad]})) == (403, "forbidden")
        due = {caller: caller("POST", "/v1/schedules:due", {}).json() for caller in (admin, mine)}
        assert [schedule["name"] for schedule in due[admin]["schedules"]] == ["beat", "own"]
        assert [schedule["name"] for schedule in due[mine]["schedules"]] == ["own"]
        assert due[mine]["wake_in"] == due[admin]["wake_in"] == 0.0
        reader = call.with_key(key("read"))
        assert reader("POST", "/v1/schedules:due", {}).json() == {"schedules": [], "wake_in": None}

    def test_the_ledger_of_a_deleted_schedule_is_for_keys_that_may_read_every_queue(
        self, behind: AsyncApp, http_loop: Loop, key: Make
    ) -> None:
        call = Caller(broker_app(behind, BrokerSettings()), http_loop)
        admin = call.with_key(key("read", "admin"))
        applied(admin, {**NEW, "ticks": [{"tick": NEXT}]})
        assert admin("DELETE", "/v1/schedules/beat").status_code == 200
        (left,) = admin("GET", "/v1/schedules/beat:history").json()["ticks"]
        assert left["verdict"] == "withdrawn"
        assert admin("GET", "/v1/schedules/beat:waiting").json() == {"ticks": []}
        narrow = call.with_key(key("read", queues=("q",)))
        assert code(narrow("GET", "/v1/schedules/beat:history")) == (404, "unknown_schedule")

    def test_a_program_that_plans_needs_to_read_and_produce_and_leaves_no_audit(
        self, behind: AsyncApp, http_loop: Loop, key: Make, pinned: MutableClock
    ) -> None:
        http_loop.run(behind.queues.create("q", QueueSettings()))
        with (
            broker_on(behind, http_loop, BrokerSettings()) as url,
            Client(url, key("read", "admin", queues=("q",))) as admin,
            Client(url, key("read", "produce", queues=("q",))) as planning,
        ):
            admin.cron().install_periodic("beat", HOUR, queue="q", payload={"n": 1})
            audits = len(http_loop.run(behind.store.run(behind.store.security.audits())))
            pinned.advance(HOUR)
            assert Scheduler(planning.store).run_once().planned == 1  # pyright: ignore[reportArgumentType]
            assert len(http_loop.run(behind.store.run(behind.store.security.audits()))) == audits == 1
            with pytest.raises(InvalidState, match="may not admin"):
                planning.schedules.delete("beat")
            assert [record.tick for record in admin.schedules.history("beat")] == [START + 2 * HOUR, START + HOUR]


def test_payloads_are_made_by_the_program_and_ticks_are_its_own_choice(
    broker_url: str, behind: AsyncApp, http_loop: Loop, pinned: MutableClock
) -> None:
    with Client(broker_url) as client:
        with client.cron() as cron:
            cron.install_daily("made", ["02:00"], zone="UTC", queue="q", payload=lambda tick: {"at": tick.isoformat()})
            cron.install_tick("v1", "chosen", [CronMessage({"n": 1}, START + HOUR)], queue="q")
        pinned.advance(2 * HOUR)
        payloads = [delivery.payload for delivery in client.queue("q").try_poll_many(9)]
        assert payloads == [{"n": 1}, {"at": "2024-01-01T02:00:00+00:00"}]
        cron.uninstall_tick("v1", "chosen")
        assert [state.name for state in client.schedules.list()] == ["made"]
        assert client.schedules.get("made") == http_loop.run(behind.schedules.get("made"))
        with pytest.raises(InvalidState, match="only the program that installed"):
            client.schedules.trigger("made")


def test_a_long_ledger_is_read_page_by_page(broker_url: str, pinned: MutableClock) -> None:
    with Client(broker_url) as client:
        messages = [CronMessage(n, datetime(2025, 1, 1, tzinfo=UTC) + n * HOUR) for n in range(2_100)]
        client.cron().install_tick("v1", "chosen", messages, queue="q")
        records = client.schedules.history("chosen", limit=5_000)
        assert [record.tick for record in records] == [message.at for message in reversed(messages)]
        assert len(client.schedules.history("chosen", limit=1_500)) == 1_500
