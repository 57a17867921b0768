"""Access to Relay's routes: each with every action on own and foreign queues, without revealing what exists."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from fastapi.routing import APIRoute

from tarry.app import AsyncApp
from tarry.core.security.api_keys import Action
from tarry.edges.http.app import RELAY, broker_app
from tarry.edges.http.settings import BrokerSettings
from tarry.wire.ids import MessageId
from tests.edges.http.conftest import Caller
from tests.edges.http.test_responses import code
from tests.kit.blocking import Loop

Make = Callable[..., str]
TOKEN = "00000000-0000-4000-8000-000000000000"
HELD = {"id": "ID", "lock_token": TOKEN}


class RelayRoute(NamedTuple):
    method: str
    path: str
    action: str
    body: Any = None
    query: str = ""
    about: str = "queue"
    """A queue by name; `listed`: the queues that the key may read; `all`: all queues."""

    def on(self, queue: str) -> tuple[str, str, Any]:
        def filled(text: str) -> str:
            text = text.replace("QUEUE", queue).replace("ID", str(MessageId(queue, "k")))
            return text.replace("{queue}", queue).replace("{id}", str(MessageId(queue, "k")))

        path = filled(self.path + self.query).replace("{queueType}", "main")
        return self.method, path, None if self.body is None else json.loads(filled(json.dumps(self.body)))


RELAY_ROUTES = (
    RelayRoute("POST", "/api/queue/message", "produce", {"type": "t", "queue": "QUEUE"}),
    RelayRoute("POST", "/api/queue/batch", "produce", [{"type": "t", "queue": "QUEUE"}]),
    RelayRoute("POST", "/api/queue/import", "produce", [{"type": "t", "queue": "QUEUE"}]),
    RelayRoute("GET", "/api/queue/message", "consume", query="?queue=QUEUE"),
    RelayRoute("GET", "/api/queue/messages/batch", "consume", query="?count=1&queue=QUEUE"),
    RelayRoute("POST", "/api/queue/ack", "consume", HELD),
    RelayRoute("POST", "/api/queue/ack/batch", "consume", {"acks": [HELD]}),
    RelayRoute("POST", "/api/queue/message/{id}/nack", "consume", {"lock_token": TOKEN}),
    RelayRoute("POST", "/api/queue/nack/batch", "consume", {"nacks": [HELD]}),
    RelayRoute("PUT", "/api/queue/message/{id}/touch", "consume", {"lock_token": TOKEN}),
    RelayRoute("PUT", "/api/queue/message/{id}", "produce", {"priority": 1}),
    RelayRoute("DELETE", "/api/queue/message/{id}", "produce"),
    RelayRoute("POST", "/api/queue/messages/delete", "produce", {"messageIds": ["ID"]}),
    RelayRoute("POST", "/api/queue/move", "admin", {"messages": ["ID"], "fromQueue": "dead", "toQueue": "main"}),
    RelayRoute("DELETE", "/api/queue/clear", "admin", about="all"),
    RelayRoute("DELETE", "/api/queue/{queueType}/clear", "admin", about="all"),
    RelayRoute("DELETE", "/api/queue/activity/clear", "admin", about="all"),
    RelayRoute("GET", "/api/queue/status", "read", query="?queueName=QUEUE"),
    RelayRoute("GET", "/api/queue/{queueType}/messages", "read", query="?queueName=QUEUE"),
    RelayRoute("GET", "/api/queue/{queueType}/export", "read", query="?queueName=QUEUE"),
    RelayRoute("GET", "/api/queue/messages", "read", about="listed",
          query="?startTimestamp=2024-01-01T00:00:00Z&endTimestamp=2024-01-02T00:00:00Z"),
    RelayRoute("GET", "/api/queue/activity", "read", query="?queue_name=QUEUE"),
    RelayRoute("GET", "/api/queue/activity/message/{id}", "read"),
    RelayRoute("GET", "/api/queue/activity/anomalies", "read", query="?queue_name=QUEUE"),
    RelayRoute("GET", "/api/queue/activity/consumers", "read", about="listed"),
    RelayRoute("GET", "/api/queue/events", "read", about="listed"),
    RelayRoute("GET", "/api/queue/metrics", "read", about="listed"),
    RelayRoute("GET", "/api/queue/config", "read", about="listed"),
    RelayRoute("GET", "/api/queues", "read", about="listed"),
    RelayRoute("POST", "/api/queues", "admin", {"name": "QUEUE"}),
    RelayRoute("GET", "/api/queues/{queue}", "read"),
    RelayRoute("PATCH", "/api/queues/{queue}", "admin", {"max_attempts": 5}),
    RelayRoute("POST", "/api/queues/{queue}/purge", "admin", {"status": "all"}),
    RelayRoute("POST", "/api/queues/{queue}/rename", "admin", {"newName": "QUEUE"}),
    RelayRoute("DELETE", "/api/queues/{queue}", "admin"),
)  # fmt: skip


@pytest.fixture
def guarded(behind: AsyncApp, http_loop: Loop) -> Caller:
    for name in ("own", "foreign"):
        http_loop.run(behind.queues.create(name))
    served = broker_app(behind, BrokerSettings())
    served.state.broker.live.stop()  # a stream would not end by itself
    return Caller(served, http_loop)


def test_every_route_of_relay_is_tested_here() -> None:
    there = [route for part in RELAY for route in part.router.routes if isinstance(route, APIRoute)]
    routes = {(method, route.path_format) for route in there for method in route.methods or ()}
    assert {(request.method, request.path) for request in RELAY_ROUTES} == routes - {("GET", "/api/health")}


@pytest.mark.parametrize("route", RELAY_ROUTES, ids=lambda each: f"{each.method} {each.path}")
def test_a_route_is_open_only_to_its_action_on_its_queue(guarded: Caller, key: Make, route: RelayRoute) -> None:
    own = route.on("own")
    assert code(guarded(*own)) == (401, "unauthorized")
    for other in set(Action) - {route.action}:
        assert code(guarded.with_key(key(other))(*own)) == (403, "forbidden")
    everything_on_own = guarded.with_key(key(*Action, queues=("own", "own-*")))
    if route.about == "queue":
        there, nowhere = everything_on_own(*route.on("foreign")), everything_on_own(*route.on("nowhere"))
        assert code(there) == code(nowhere) == (403, "forbidden")
        assert there.json()["detail"].replace("foreign", "nowhere") == nowhere.json()["detail"]
    elif route.about == "all":
        assert code(everything_on_own(*own)) == (403, "forbidden")
    allowed = guarded.with_key(key(route.action, queues=("*",) if route.about == "all" else ("own",)))(*own)
    assert allowed.status_code not in (401, 403), allowed.text
    assert allowed.status_code < 500


def test_lists_show_only_queues_that_the_key_may_read(guarded: Caller, key: Make) -> None:
    unlimited, mine = guarded.with_key(key(*Action)), guarded.with_key(key("read", queues=("own",)))
    for name in ("own", "foreign"):
        unlimited("POST", "/api/queue/message", {"type": f"of-{name}", "payload": name, "queue": name})
        held = unlimited("GET", f"/api/queue/message?queue={name}&consumerId=of-{name}").json()
        unlimited("POST", "/api/queue/message", {"type": f"of-{name}", "payload": name, "queue": name})
        body = {"lock_token": held["lock_token"], "errorReason": f"of-{name}"}
        unlimited("POST", f"/api/queue/message/{held['id']}/nack", body)
    for route in RELAY_ROUTES:
        if route.method == "GET" and route.action == "read":
            bare = route._replace(query=route.query if "Timestamp" in route.query else "")
            assert "foreign" not in mine(*bare.on("own")).text, route.path
    assert "of-own" in mine("GET", "/api/queue/activity").text


def test_actions_of_administrators_are_audited(guarded: Caller, key: Make) -> None:
    admin = guarded.with_key(key(*Action))
    admin("DELETE", "/api/queue/main/clear")
    id = str(MessageId("own", "k"))
    admin("DELETE", f"/api/queue/message/{id}?queueType=dead")
    admin("POST", "/api/queue/messages/delete?queueType=dead", {"messageIds": [id]})
    admin("POST", "/api/queue/move", {"messages": [id], "fromQueue": "dead", "toQueue": "main"})
    admin("DELETE", f"/api/queue/message/{id}")
    rows = admin("GET", "/v1/audit").json()["audit"]
    assert [(row["action"], row["queue"], row["status"]) for row in rows] == [
        ("DELETE /api/queue/message/{id}", "own", 200),
        ("POST /api/queue/move", None, 200),
        ("POST /api/queue/messages/delete", None, 200),
        ("DELETE /api/queue/message/{id}", "own", 200),
        ("DELETE /api/queue/{queueType}/clear", None, 200),
    ]


def test_only_administrators_delete_dead_letters(guarded: Caller, key: Make) -> None:
    producer, id = guarded.with_key(key("produce")), str(MessageId("own", "k"))
    assert code(producer("DELETE", f"/api/queue/message/{id}?queueType=dead")) == (403, "forbidden")
    response = producer("POST", "/api/queue/messages/delete?queueType=dead", {"messageIds": [id]})
    assert code(response) == (403, "forbidden")


def test_the_header_of_relay_carries_the_key(guarded: Caller, key: Make) -> None:
    text = key("read")
    assert guarded("GET", "/api/queues").status_code == 401
    assert guarded("GET", "/api/queues", headers={"X-API-KEY": text}).status_code == 200
    assert guarded("GET", "/api/health").json()["status"] == "OK"
    assert guarded("GET", f"/api/queue/events?apiKey={text}").status_code == 401, "never in a URL"
    for name in ("health", "doc", "docs", "reference", "events"):
        assert guarded("DELETE", f"/api/queues/{name}").status_code == 401
