"""Who may ask Relay's routes: each with every action on own and foreign queues, and nothing that leaks what exists."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from fastapi.routing import APIRoute

from tarry.app import AsyncApp
from tarry.core.keys import Action
from tarry.edges.http.broker import RELAY, broker_app
from tarry.edges.http.ids import MessageId
from tarry.edges.http.settings import BrokerSettings
from tests.edges.http.conftest import Caller
from tests.edges.http.test_answers import code
from tests.kit.blocking import Loop

Make = Callable[..., str]
TOKEN = "00000000-0000-4000-8000-000000000000"
HELD = {"id": "ID", "lock_token": TOKEN}


class Asked(NamedTuple):
    method: str
    path: str
    action: str
    body: Any = None
    query: str = ""
    about: str = "queue"
    """A queue by name; `listed`: whatever the key may see; `all`: everything there is."""

    def on(self, queue: str) -> tuple[str, str, Any]:
        def filled(text: str) -> str:
            text = text.replace("QUEUE", queue).replace("ID", str(MessageId(queue, "k")))
            return text.replace("{queue}", queue).replace("{id}", str(MessageId(queue, "k")))

        path = filled(self.path + self.query).replace("{queueType}", "main")
        return self.method, path, None if self.body is None else json.loads(filled(json.dumps(self.body)))


ASKED = (
    Asked("POST", "/api/queue/message", "produce", {"type": "t", "queue": "QUEUE"}),
    Asked("POST", "/api/queue/batch", "produce", [{"type": "t", "queue": "QUEUE"}]),
    Asked("POST", "/api/queue/import", "produce", [{"type": "t", "queue": "QUEUE"}]),
    Asked("GET", "/api/queue/message", "consume", query="?queue=QUEUE"),
    Asked("GET", "/api/queue/messages/batch", "consume", query="?count=1&queue=QUEUE"),
    Asked("POST", "/api/queue/ack", "consume", HELD),
    Asked("POST", "/api/queue/ack/batch", "consume", {"acks": [HELD]}),
    Asked("POST", "/api/queue/message/{id}/nack", "consume", {"lock_token": TOKEN}),
    Asked("POST", "/api/queue/nack/batch", "consume", {"nacks": [HELD]}),
    Asked("PUT", "/api/queue/message/{id}/touch", "consume", {"lock_token": TOKEN}),
    Asked("PUT", "/api/queue/message/{id}", "produce", {"priority": 1}),
    Asked("DELETE", "/api/queue/message/{id}", "produce"),
    Asked("POST", "/api/queue/messages/delete", "produce", {"messageIds": ["ID"]}),
    Asked("POST", "/api/queue/move", "admin", {"messages": ["ID"], "fromQueue": "dead", "toQueue": "main"}),
    Asked("DELETE", "/api/queue/clear", "admin", about="all"),
    Asked("DELETE", "/api/queue/{queueType}/clear", "admin", about="all"),
    Asked("GET", "/api/queue/status", "read", query="?queueName=QUEUE"),
    Asked("GET", "/api/queue/{queueType}/messages", "read", query="?queueName=QUEUE"),
    Asked("GET", "/api/queue/{queueType}/export", "read", query="?queueName=QUEUE"),
    Asked("GET", "/api/queue/messages", "read", about="listed",
          query="?startTimestamp=2024-01-01T00:00:00Z&endTimestamp=2024-01-02T00:00:00Z"),
    Asked("GET", "/api/queue/activity", "read", query="?queue_name=QUEUE"),
    Asked("GET", "/api/queue/activity/message/{id}", "read"),
    Asked("GET", "/api/queue/activity/anomalies", "read", query="?queue_name=QUEUE"),
    Asked("GET", "/api/queue/activity/consumers", "read", about="listed"),
    Asked("GET", "/api/queue/events", "read", about="listed"),
    Asked("GET", "/api/queue/metrics", "read", about="listed"),
    Asked("GET", "/api/queue/config", "read", about="listed"),
    Asked("GET", "/api/queues", "read", about="listed"),
    Asked("POST", "/api/queues", "admin", {"name": "QUEUE"}),
    Asked("GET", "/api/queues/{queue}", "read"),
    Asked("PATCH", "/api/queues/{queue}", "admin", {"max_attempts": 5}),
    Asked("POST", "/api/queues/{queue}/purge", "admin", {"status": "all"}),
    Asked("POST", "/api/queues/{queue}/rename", "admin", {"newName": "QUEUE"}),
    Asked("DELETE", "/api/queues/{queue}", "admin"),
)  # fmt: skip


@pytest.fixture
def guarded(behind: AsyncApp, http_loop: Loop) -> Caller:
    for name in ("own", "foreign"):
        http_loop.run(behind.queues.create(name))
    served = broker_app(behind, BrokerSettings())
    served.state.broker.live.stop()  # a stream would not end by itself
    return Caller(served, http_loop)


def test_every_route_of_relay_is_asked_here() -> None:
    there = [route for part in RELAY for route in part.router.routes if isinstance(route, APIRoute)]
    routes = {(method, route.path_format) for route in there for method in route.methods or ()}
    assert {(one.method, one.path) for one in ASKED} == routes - {("GET", "/api/health")}


@pytest.mark.parametrize("asked", ASKED, ids=lambda one: f"{one.method} {one.path}")
def test_a_route_is_open_to_its_action_on_its_queue_and_to_nobody_else(
    guarded: Caller, key: Make, asked: Asked
) -> None:
    own = asked.on("own")
    assert code(guarded(*own)) == (401, "unauthorized")
    for other in set(Action) - {asked.action}:
        assert code(guarded.with_key(key(other))(*own)) == (403, "forbidden")
    everything_on_own = guarded.with_key(key(*Action, queues=("own", "own-*")))
    if asked.about == "queue":
        there, nowhere = everything_on_own(*asked.on("foreign")), everything_on_own(*asked.on("nowhere"))
        assert code(there) == code(nowhere) == (403, "forbidden")
        assert there.json()["detail"].replace("foreign", "nowhere") == nowhere.json()["detail"]
    elif asked.about == "all":
        assert code(everything_on_own(*own)) == (403, "forbidden")
    allowed = guarded.with_key(key(asked.action, queues=("*",) if asked.about == "all" else ("own",)))(*own)
    assert allowed.status_code not in (401, 403), allowed.text
    assert allowed.status_code < 500


def test_what_is_shown_of_everything_is_what_the_key_may_read(guarded: Caller, key: Make) -> None:
    everybody, mine = guarded.with_key(key(*Action)), guarded.with_key(key("read", queues=("own",)))
    for name in ("own", "foreign"):
        everybody("POST", "/api/queue/message", {"type": f"of-{name}", "payload": name, "queue": name})
        held = everybody("GET", f"/api/queue/message?queue={name}&consumerId=of-{name}").json()
        everybody("POST", "/api/queue/message", {"type": f"of-{name}", "payload": name, "queue": name})
        body = {"lock_token": held["lock_token"], "errorReason": f"of-{name}"}
        everybody("POST", f"/api/queue/message/{held['id']}/nack", body)
    for asked in ASKED:
        if asked.method == "GET" and asked.action == "read":
            bare = asked._replace(query=asked.query if "Timestamp" in asked.query else "")
            assert "foreign" not in mine(*bare.on("own")).text, asked.path
    assert "of-own" in mine("GET", "/api/queue/activity").text


def test_what_an_administrator_does_leaves_a_row(guarded: Caller, key: Make) -> None:
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


def test_dead_letters_are_deleted_by_administrators_alone(guarded: Caller, key: Make) -> None:
    producer, id = guarded.with_key(key("produce")), str(MessageId("own", "k"))
    assert code(producer("DELETE", f"/api/queue/message/{id}?queueType=dead")) == (403, "forbidden")
    answer = producer("POST", "/api/queue/messages/delete?queueType=dead", {"messageIds": [id]})
    assert code(answer) == (403, "forbidden")


def test_the_header_of_relay_carries_the_key(guarded: Caller, key: Make) -> None:
    text = key("read")
    assert guarded("GET", "/api/queues").status_code == 401
    assert guarded("GET", "/api/queues", headers={"X-API-KEY": text}).status_code == 200
    assert guarded("GET", "/api/health").json()["status"] == "OK"
    assert guarded("GET", f"/api/queue/events?apiKey={text}").status_code == 401, "never in a URL"
    for name in ("health", "doc", "docs", "reference", "events"):
        assert guarded("DELETE", f"/api/queues/{name}").status_code == 401
