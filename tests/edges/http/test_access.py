"""Access: every route with every scope on own and foreign queues, and nothing that leaks what exists."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from fastapi.routing import APIRoute

from tarry.app import AsyncApp
from tarry.core.cron.model import Overlap, Policy, ScheduleSpec
from tarry.core.cron.schedule_types import Periodic
from tarry.core.errors import StoreUnavailable
from tarry.core.security.api_keys import Action
from tarry.core.settings import QueueSettings
from tarry.edges.http import audit_refusals
from tarry.edges.http.app import PARTS, broker_app
from tarry.edges.http.routing import Scope
from tarry.edges.http.settings import BrokerSettings
from tarry.testing import MutableClock
from tarry.wire.ids import MessageId
from tests.edges.http.conftest import Caller
from tests.edges.http.test_responses import code
from tests.kit.blocking import Loop
from tests.kit.calls import replace_call
from tests.kit.sleepers import until, waiting

Make = Callable[..., str]
THEN = "2024-01-01T00:00:00Z"
TOKEN = "00000000-0000-4000-8000-000000000000"


def routes() -> list[APIRoute]:
    return [route for part in PARTS for route in part.router.routes if isinstance(route, APIRoute)]


GUARDED = [route for route in routes() if "x-tarry-access" in (route.openapi_extra or {})]
BODIES: dict[str, Any] = {
    "offer": {"payload": 1},
    "offer_batch": {"messages": [{"payload": 1}]},
    "rename_queue": {"new_name": "QUEUE"},
    "create_queue": {"name": "QUEUE"},
    "create_key": {"name": "k", "actions": ["admin"]},
    "poll": {},
    "edit_queue": {},
    "acknowledge": {},
    "mute": {"queue": "QUEUE", "reason": "r"},
    "edit": {"priority": 1},
    "put_schedule": {"every": "1h", "queue": "QUEUE"},
    "due": {},
    "plan": {"changes": [{"name": "QUEUE", "expected": 0, "decided_at": THEN, "cursor_at": THEN}]},
    "apply_changes": {
        "changes": [
            {
                "name": "new",
                "expected": None,
                "decided_at": THEN,
                "after": {"cursor_at": THEN, "schedule": {"every": 3600, "queue": "QUEUE"}},
            }
        ]
    },
    "backfill": {"since": "2024-01-01T00:00:00Z", "until": "2024-01-01T00:00:00Z"},
}
JOBS = {"own": "1", "foreign": "2"}
"""Redrive jobs of these queues, by number."""
QUIET = Policy(overlap=Overlap.SKIP)
"""Such a schedule plans no message ahead."""


def request(route: APIRoute, queue: str) -> tuple[str, str, Any]:
    path = route.path_format.replace("{queue}", queue).replace("{id}", str(MessageId(queue, "k")))
    path = path.replace("{key_id}", "0" * 12).replace("{anomaly_id}", "1").replace("{mute_id}", "1")
    path = path.replace("{schedule}", queue).replace("{job}", JOBS.get(queue, "99"))
    body = BODIES.get(route.name)
    if body is None and route.body_field is not None:
        item = {"id": str(MessageId(queue, "k")), "token": TOKEN}
        body = {"messages": [item]} if route.path_format.startswith("/v1/messages:") else {"token": TOKEN}
        if route.name in ("pause_queue", "pause_schedule", "redrive", "start_redrive") or "{job}" in route.path_format:
            body = {}
        if route.name == "purge_queue":
            body = {"confirm": queue}
    return next(iter(route.methods or ())), path, _filled(body, queue)


def _filled(body: Any, queue: str) -> Any:
    if isinstance(body, dict):
        return {name: _filled(value, queue) for name, value in body.items()}
    if isinstance(body, list):
        return [_filled(value, queue) for value in body]
    return queue if body == "QUEUE" else body


@pytest.fixture
def guarded(behind: AsyncApp, http_loop: Loop) -> Caller:
    for name in ("own", "foreign"):
        http_loop.run(behind.queues.create(name, QueueSettings()))
        job = http_loop.run(behind.queue(name).dead_letters.start_redrive())
        assert str(job.id) == JOBS[name]
        spec = ScheduleSpec(name=name, schedule=Periodic(timedelta(hours=1)), queue=name, payload=b"1", policy=QUIET)
        http_loop.run(behind.schedules.put(spec))
    return Caller(broker_app(behind, BrokerSettings()), http_loop)


def test_every_route_but_two_declares_its_access() -> None:
    assert {route.path_format for route in routes()} - {route.path_format for route in GUARDED} == {
        "/healthz",
        "/readyz",
    }


@pytest.mark.parametrize("route", GUARDED, ids=lambda route: f"{next(iter(route.methods))} {route.path_format}")
def test_a_route_is_open_to_its_scope_on_its_queue_only(guarded: Caller, key: Make, route: APIRoute) -> None:
    extra = route.openapi_extra or {}
    action, scope = Action(extra["x-tarry-access"]), Scope(extra["x-tarry-scope"])
    needs_all = scope is Scope.ALL
    method, path, body = request(route, "own")
    assert code(guarded(method, path, body)) == (401, "unauthorized")
    for other in set(Action) - {action}:
        assert code(guarded.with_key(key(other))(method, path, body)) == (403, "forbidden")
    everything_else = key(*(set(Action) - {action}))
    assert code(guarded.with_key(everything_else)(method, path, body)) == (403, "forbidden")
    guarded.served.state.broker.live.stop()  # an allowed stream would not end by itself
    allowed = guarded.with_key(key(action, queues=("*",) if needs_all else ("own",)))
    response = allowed(method, path, body)
    assert response.status_code < 500
    assert response.status_code not in (401, 403), response.text
    if needs_all:
        assert code(guarded.with_key(key(action, queues=("own",)))(method, path, body)) == (403, "forbidden")


@pytest.mark.parametrize(
    "route",
    [r for r in GUARDED if (r.openapi_extra or {})["x-tarry-scope"] in ("queue", "message", "body")],
    ids=lambda route: f"{next(iter(route.methods))} {route.path_format}",
)
def test_a_foreign_queue_is_refused_in_the_same_words_whether_it_exists_or_not(
    guarded: Caller, key: Make, route: APIRoute
) -> None:
    mine = guarded.with_key(key(*Action, queues=("own", "own-*")))
    there, nowhere = mine(*request(route, "foreign")), mine(*request(route, "nowhere"))
    assert code(there) == code(nowhere) == (403, "forbidden")
    assert there.json()["detail"].replace("foreign", "nowhere") == nowhere.json()["detail"]


@pytest.mark.parametrize(
    "route",
    [r for r in GUARDED if (r.openapi_extra or {})["x-tarry-scope"] in ("redrive", "schedule", "ledger")],
    ids=lambda route: f"{next(iter(route.methods))} {route.path_format}",
)
def test_what_has_to_be_looked_up_is_not_there_if_it_is_foreign(guarded: Caller, key: Make, route: APIRoute) -> None:
    mine = guarded.with_key(key(*Action, queues=("own", "own-*")))
    there, nowhere = mine(*request(route, "foreign")), mine(*request(route, "nowhere"))
    assert code(there) == code(nowhere)
    assert there.status_code == 404
    named = there.json()["detail"].replace("foreign", "nowhere").replace(JOBS["foreign"], "99")
    assert named == nowhere.json()["detail"]


def test_a_list_shows_what_may_be_read_and_nothing_else(guarded: Caller, key: Make) -> None:
    response = guarded.with_key(key("read", queues=("own",)))("GET", "/v1/queues")
    assert [queue["name"] for queue in response.json()["queues"]] == ["own"]


def test_a_pattern_is_a_beginning_and_a_name_is_a_name(guarded: Caller, key: Make) -> None:
    caller = guarded.with_key(key("produce", queues=("own-*", "x.y")))
    statuses = {
        name: caller("POST", f"/v1/queues/{name}/messages", {"payload": 1}).status_code
        for name in ("own-", "own-1", "own", "OWN-1", "x.y", "xzy", "x.y2")
    }
    assert statuses == {"own-": 201, "own-1": 201, "own": 403, "OWN-1": 403, "x.y": 201, "xzy": 403, "x.y2": 403}


def test_a_batch_with_one_foreign_message_settles_none(guarded: Caller, key: Make) -> None:
    mine = guarded.with_key(key("produce", "consume", queues=("own",)))
    mine("POST", "/v1/queues/own/messages", {"payload": 1, "key": "k"})
    held = mine("POST", "/v1/queues/own/messages:poll", {}).json()["messages"][0]
    items = [
        {"id": held["id"], "token": held["token"]},
        {"id": str(MessageId("foreign", "k")), "token": TOKEN},
    ]
    assert code(mine("POST", "/v1/messages:ack", {"messages": items})) == (403, "forbidden")
    assert mine("POST", f"/v1/messages/{held['id']}/ack", {"token": held["token"]}).status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        "Bearer tarry_000000000000_" + "0" * 64,
        "Bearer nonsense",
        "Bearer ",
        "Basic dXNlcjpwYXNz",
        "bearer tarry_",
        "Bearer " + "x" * 5000,
        "Bearer tarry_ÿ",
    ],
)
def test_what_is_no_key_is_no_key(guarded: Caller, key: Make, header: str) -> None:
    key("read")
    response = guarded("GET", "/v1/queues", headers={"authorization": header.encode("latin-1")})
    assert code(response) == (401, "unauthorized")
    assert response.headers["www-authenticate"] == "Bearer"


def test_a_key_with_one_wrong_character_is_no_key(guarded: Caller, key: Make) -> None:
    good = key("read")
    assert guarded.with_key(good)("GET", "/v1/queues").status_code == 200
    for position in (8, -1, -30):
        swapped = "0" if good[position] != "0" else "1"
        bad = f"{good[:position]}{swapped}{good[position + 1 :] if position != -1 else ''}"
        assert guarded.with_key(bad)("GET", "/v1/queues").status_code == 401


def test_a_key_in_the_url_is_not_taken(guarded: Caller, key: Make) -> None:
    good = key(*Action)
    for name in ("key", "apiKey", "api_key", "access_token", "authorization"):
        assert guarded("GET", f"/v1/queues?{name}={good}").status_code == 401


def test_a_key_ends_with_its_time_and_when_it_is_revoked(
    behind: AsyncApp, http_loop: Loop, key: Make, pinned: MutableClock
) -> None:
    fresh = BrokerSettings(keys_cached_for=timedelta(0))
    caller = Caller(broker_app(behind, fresh), http_loop)
    short, long = (caller.with_key(key("read", "admin", expires_for=timedelta(hours=hours))) for hours in (1, 3))
    assert short("GET", "/v1/queues").status_code == long("GET", "/v1/queues").status_code == 200
    pinned.advance(timedelta(hours=2))
    assert short("GET", "/v1/queues").status_code == 401
    (active,) = [issued["id"] for issued in long("GET", "/v1/keys").json()["keys"] if issued["active"]]
    assert long("DELETE", f"/v1/keys/{active}").status_code == 200
    assert long("GET", "/v1/queues").status_code == 401


def test_revoking_through_a_broker_takes_effect_there_at_once(guarded: Caller, key: Make) -> None:
    admin, victim = guarded.with_key(key("admin")), key("read")
    assert guarded.with_key(victim)("GET", "/v1/queues").status_code == 200
    id = victim.split("_")[1]
    assert admin("DELETE", f"/v1/keys/{id}").json()["active"] is False
    assert guarded.with_key(victim)("GET", "/v1/queues").status_code == 401


def test_a_poll_that_waits_gets_nothing_once_its_key_is_revoked(guarded: Caller, behind: AsyncApp, key: Make) -> None:
    admin, victim, producer = guarded.with_key(key("admin", "read")), key("consume"), guarded.with_key(key("produce"))
    with ThreadPoolExecutor() as pool:
        poll = pool.submit(guarded.with_key(victim), "POST", "/v1/queues/own/messages:poll", {"wait": 30})
        until(lambda: waiting(behind.store.wakeup.wait_queue, "own") == 1, "it never waited")
        assert admin("DELETE", f"/v1/keys/{victim.split('_')[1]}").status_code == 200
        assert producer("POST", "/v1/queues/own/messages", {"key": "a", "payload": 1}).status_code == 201
        assert code(poll.result(30)) == (401, "unauthorized")
    (message,) = admin("GET", "/v1/queues/own/messages").json()["messages"]
    assert (message["key"], message["state"], message["attempt"]) == ("a", "ready", 0)


def test_a_change_is_confirmed_although_its_audit_row_could_not_be_written(
    guarded: Caller, behind: AsyncApp, key: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(row: int, status: int, **more: Any) -> None:
        raise StoreUnavailable("away")

    admin = guarded.with_key(key("admin", "produce"))
    replace_call(behind.store, "security.audited", away)
    made = admin("POST", "/v1/keys", {"name": "x", "actions": ["produce"]})
    assert made.status_code == 201
    assert made.json()["key"].startswith("tarry_")
    assert admin("GET", "/v1/audit").json()["audit"][0]["status"] is None


def test_a_key_cannot_make_one_that_may_more(guarded: Caller, key: Make) -> None:
    admin = guarded.with_key(key("admin", "read"))
    assert admin("POST", "/v1/keys", {"name": "x", "actions": ["read"]}).status_code == 201
    assert code(admin("POST", "/v1/keys", {"name": "x", "actions": ["produce"]})) == (403, "forbidden")


def test_a_made_key_works_and_is_shown_once(guarded: Caller, key: Make) -> None:
    admin = guarded.with_key(key("admin", "produce"))
    made = admin("POST", "/v1/keys", {"name": "x", "actions": ["produce"], "queues": ["own"]}).json()
    offer = guarded.with_key(made["key"])("POST", "/v1/queues/own/messages", {"payload": 1})
    assert offer.status_code == 201
    assert made["key"] not in admin("GET", "/v1/keys").text + admin("GET", "/v1/audit").text


class TestWithoutAKey:
    def test_the_first_key_closes_the_broker(self, behind: AsyncApp, http_loop: Loop, key: Make) -> None:
        fresh = BrokerSettings(anonymous=True, keys_cached_for=timedelta(0))
        caller = Caller(broker_app(behind, fresh), http_loop)
        assert caller("GET", "/v1/queues").status_code == 200
        key("read")
        assert code(caller("GET", "/v1/queues")) == (401, "unauthorized")

    @pytest.mark.parametrize("header", [{"authorization": "Bearer "}, {"authorization": "Bearer"}, {"x-api-key": ""}])
    def test_an_empty_key_is_none(self, call: Caller, header: dict[str, str]) -> None:
        """As in `curl -H "Authorization: Bearer $TARRY_KEY"` in a terminal without a key."""
        assert call("GET", "/v1/queues", headers=header).status_code == 200
        of_another_site = call("GET", "/v1/queues", headers={**header, "origin": "http://evil.example"})
        assert code(of_another_site) == (403, "forbidden")
        assert code(call("GET", "/v1/queues", headers={"authorization": "Bearer x"})) == (401, "unauthorized")

    def test_a_page_of_another_site_is_refused(self, call: Caller) -> None:
        for origin in ("http://evil.example", "null", "http://localhost.evil.example", "http://localhost:9"):
            response = call("POST", "/v1/queues/q/resume", headers={"origin": origin})
            assert code(response) == (403, "forbidden")
        assert call("GET", "/v1/queues", headers={"origin": "http://localhost"}).status_code == 200

    def test_a_name_that_was_bent_to_this_machine_is_refused(self, behind: AsyncApp, http_loop: Loop) -> None:
        served = broker_app(behind, BrokerSettings(anonymous=True))
        rebound = Caller(served, http_loop, host="evil.example")
        assert code(rebound("GET", "/v1/queues")) == (403, "forbidden")


class TestLimits:
    def test_a_key_over_its_rate_limit_gets_a_retry_after(self, behind: AsyncApp, http_loop: Loop, key: Make) -> None:
        caller = Caller(broker_app(behind, BrokerSettings(requests_per_s=2)), http_loop, key("read"))
        responses = [caller("GET", "/v1/queues") for _ in range(20)]
        refused = [response for response in responses if response.status_code == 429]
        assert refused
        assert code(refused[0]) == (429, "rate_limited")
        assert int(refused[0].headers["retry-after"]) >= 1
        other = caller.with_key(key("read"))
        assert other("GET", "/v1/queues").status_code == 200

    def test_a_body_may_be_limited_further(self, behind: AsyncApp, http_loop: Loop) -> None:
        small = replace(BrokerSettings(anonymous=True), body_limit=100)
        caller = Caller(broker_app(behind, small), http_loop)
        assert caller("POST", "/v1/queues/q/messages", {"payload": 1}).status_code == 201
        assert code(caller("POST", "/v1/queues/q/messages", {"payload": "x" * 100})) == (413, "too_large")

        async def chunks() -> Any:
            for _ in range(30):
                yield b" " * 10

        streamed = caller("POST", "/v1/queues/q/messages", content=chunks())
        assert code(streamed) == (413, "too_large")


class TestAudit:
    def test_every_change_by_an_administrator_leaves_a_row_with_its_status(self, guarded: Caller, key: Make) -> None:
        text = key("admin", "read")
        admin, id = guarded.with_key(text), text.split("_")[1]
        admin("POST", "/v1/queues/own/pause", {"reason": "why not"}, headers={"x-request-id": "r-1"})
        admin("DELETE", "/v1/queues/nowhere")
        admin("POST", "/v1/queues/own/purge", {"confirm": "wrong"})
        admin("GET", "/v1/queues/own")
        rows = admin("GET", "/v1/audit").json()["audit"]
        assert [(r["actor"], r["action"], r["queue"], r["status"]) for r in rows] == [
            (id, "POST /v1/queues/{queue}/purge", "own", 409),
            (id, "DELETE /v1/queues/{queue}", "nowhere", 404),
            (id, "POST /v1/queues/{queue}/pause", "own", 200),
        ]
        assert rows[2]["request_id"] == "r-1"
        assert rows[2]["detail"]["body"] == '{"reason":"why not"}'

    def test_the_row_of_a_new_key_has_its_id(self, guarded: Caller, key: Make) -> None:
        admin = guarded.with_key(key("admin"))
        made = admin("POST", "/v1/keys", {"name": "x", "actions": ["admin"]}).json()
        (row,) = admin("GET", "/v1/audit").json()["audit"]
        assert (row["action"], row["status"], row["detail"]["created_key"]) == ("POST /v1/keys", 201, made["id"])

    def test_a_refusal_leaves_a_row_with_the_caller_and_the_request(self, guarded: Caller, key: Make) -> None:
        reader, ended, admin = key("read"), key("read"), guarded.with_key(key("admin"))
        admin("DELETE", f"/v1/keys/{ended.split('_')[1]}")
        guarded.with_key(reader)("DELETE", "/v1/queues/own")
        guarded.with_key(reader)("POST", "/api/queue/message", {"type": "t", "queue": "own"})
        guarded.with_key(ended)("GET", "/v1/queues")
        guarded("GET", "/v1/queues/own", headers={"x-request-id": "r-1"})
        guarded.with_key(key("produce", queues=("own",)))("POST", "/api/queue/message", {"type": "t", "queue": "x"})
        *rows, _ = reversed(admin("GET", "/v1/audit").json()["audit"][:5])
        id = reader.split("_")[1]
        assert [(row["actor"], row["action"], row["status"]) for row in rows] == [
            (id, "DELETE /v1/queues/{queue}", 403),
            (id, "POST /api/queue/message", 403),
            ("unknown", "GET /v1/queues", 401),
            ("unknown", "GET /v1/queues/{queue}", 401),
        ]
        assert rows[0]["detail"]["path"] == {"queue": "own"}
        assert rows[2]["detail"]["claimed_key"] == ended.split("_")[1]
        assert (rows[3]["request_id"], rows[3]["detail"]["peer"]) == ("r-1", "127.0.0.1")
        assert ended.split("_")[2] not in admin("GET", "/v1/audit").text

    def test_a_flood_of_refusals_fills_no_audit_and_hides_no_key(self, guarded: Caller, key: Make) -> None:
        for n in range(3 * audit_refusals.ROWS):
            guarded.with_key(f"tarry_{n:012x}_{'0' * 64}")("GET", "/v1/queues")
            guarded.with_key(f"tarry_{n:012x}_{'0' * 64}")("GET", "/v1/queues")
        reader = key("read")
        for _ in range(5):
            guarded.with_key(reader)("DELETE", "/v1/queues/own")
        rows = guarded.with_key(key("admin"))("GET", "/v1/audit?limit=1000").json()["audit"]
        assert [row["status"] for row in rows] == [403] + [401] * audit_refusals.ROWS

    def test_a_flood_of_made_up_keys_does_not_hide_a_revoked_one(self, guarded: Caller, key: Make) -> None:
        ended, admin = key("read"), guarded.with_key(key("admin"))
        admin("DELETE", f"/v1/keys/{ended.split('_')[1]}")
        for n in range(2 * audit_refusals.ROWS):
            guarded.with_key(f"tarry_{n:012x}_{'0' * 64}")("GET", "/v1/queues")
        guarded.with_key(ended)("GET", "/v1/queues")
        rows = admin("GET", "/v1/audit?limit=1000").json()["audit"]
        assert rows[0]["detail"]["claimed_key"] == ended.split("_")[1]
        assert "left_out_before" not in rows[0]["detail"], "those are of the made-up keys"
        assert [row["status"] for row in rows].count(401) == audit_refusals.ROWS + 1

    def test_a_refusal_that_cannot_be_written_down_is_one(
        self, guarded: Caller, behind: AsyncApp, key: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def away(*args: Any, **options: Any) -> int:
            raise StoreUnavailable("away")

        replace_call(behind.store, "security.audit", away)
        assert code(guarded("GET", "/v1/queues")) == (401, "unauthorized")

    def test_what_a_producer_takes_away_leaves_a_row(self, guarded: Caller, key: Make) -> None:
        text = key("produce")
        producer, id = guarded.with_key(text), str(MessageId("own", "k"))
        producer("POST", "/v1/queues/own/messages", {"payload": 1, "key": "k"})
        producer("PATCH", f"/v1/messages/{id}", {"priority": 1})
        producer("PATCH", f"/v1/messages/{id}?force=true", {"priority": 2})
        producer("DELETE", f"/v1/messages/{id}")
        producer("DELETE", f"/v1/messages/{id}?unless_leased=true")
        rows = guarded.with_key(key("admin"))("GET", "/v1/audit").json()["audit"]
        assert {row["actor"] for row in rows} == {text.split("_")[1]}
        assert [(row["action"], row["queue"], row["detail"]["query"], row["status"]) for row in rows] == [
            ("DELETE /v1/messages/{id}", "own", {"unless_leased": "true"}, 404),
            ("DELETE /v1/messages/{id}", "own", {}, 200),
            ("PATCH /v1/messages/{id}", "own", {"force": "true"}, 200),
        ]


def test_no_response_and_no_log_contains_a_key(guarded: Caller, key: Make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    text = key(*Action)
    secret = text.split("_")[2]
    guarded.served.state.broker.live.stop()  # a stream would not end by itself
    for route in GUARDED:
        response = guarded.with_key(text)(*request(route, "own"))
        assert secret not in response.text + str(response.headers)
    for response in (guarded.with_key(text)("GET", "/openapi.json"), guarded.with_key(text + "x")("GET", "/v1/queues")):
        assert secret not in response.text
    assert "/v1/queues/{queue}/messages" in caplog.text
    assert secret not in caplog.text
