"""Input that only PostgreSQL would refuse: the same edits, schedule changes and nonsense, with a database behind."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from tarry.app import AsyncApp
from tarry.core.cron.model import CronMessage
from tarry.core.settings import StoreSettings
from tarry.edges.http.app import broker_app
from tarry.edges.http.settings import BrokerSettings
from tarry.http import Client
from tarry.services.cron._sync.scheduler import Scheduler
from tarry.services.cron.scheduler import AsyncScheduler
from tarry.storage.postgres.store import AsyncPostgresStore
from tarry.testing import MutableClock
from tests.edges.http.conftest import Caller
from tests.edges.http.routes import test_edits, test_schedule_changes
from tests.edges.http.test_access import GUARDED, request
from tests.edges.http.test_responses import code
from tests.kit.blocking import Loop
from tests.kit.brokers import broker_on
from tests.kit.clocks import START

OPEN = BrokerSettings(anonymous=True)
HOUR = timedelta(hours=1)
TEXTS = ("'; drop table tarry.message; --", "\x00", "9" * 40)


@pytest.fixture
def behind(database: str, http_loop: Loop, pinned: MutableClock) -> Iterator[AsyncApp]:
    app = http_loop.run(_opened(database, pinned))
    yield app
    http_loop.run(app.close())


async def _opened(dsn: str, clock: MutableClock) -> AsyncApp:
    store = AsyncPostgresStore(dsn, clock=clock, settings=StoreSettings(create_queues=False, pool_size=2))
    await store.open()
    return AsyncApp(store, dsn=dsn)


@pytest.fixture
def call(behind: AsyncApp, http_loop: Loop) -> Caller:
    return Caller(broker_app(behind, OPEN), http_loop)


def test_lists_of_relay_on_postgresql(behind: AsyncApp, http_loop: Loop) -> None:
    small = Caller(broker_app(behind, BrokerSettings(anonymous=True, page_bytes=1_000)), http_loop)
    messages = [{"type": "t", "payload": f"{n:03}" * 20, "priority": n % 10} for n in range(100)]
    assert small("POST", "/api/queue/batch", messages).status_code == 201
    page = small("GET", "/api/queue/main/messages?sortBy=priority&sortOrder=asc&page=10&limit=10").json()["messages"]
    assert [(message["payload"] or "")[:3] for message in page] == [f"{n:03}" for n in range(9, 100, 10)]


def test_edits_on_postgresql(call: Caller, pinned: MutableClock) -> None:
    edits = test_edits.TestEdit()
    edits.test_null_removes_a_field_and_a_repeated_edit_is_ignored(call)
    edits.test_a_payload_may_be_null_text_or_bytes(call)
    for body in (
        {"type": "a\x00"},
        {"headers": {"a": "\x00"}},
        {"after": "3654d"},
        {"at": "9999-12-31T23:59:59-01:00"},
    ):
        id = test_edits.offered(call)
        assert code(call("PATCH", f"/v1/messages/{id}", body))[0] == 422


def test_schedule_changes_on_postgresql(call: Caller, behind: AsyncApp, http_loop: Loop) -> None:
    for bad in test_schedule_changes.BAD:
        response = call("POST", "/v1/schedules:apply_changes", {"changes": [{**test_schedule_changes.NEW, **bad}]})
        held = response.status_code == 200 and response.json() == {"applied": [False]}  # to remove what is not there
        assert held or code(response)[0] == 422, f"{bad}: {response.text}"
    assert call("GET", "/v1/schedules").json() == {"schedules": []}
    for name, extreme in (("first", "0001-01-01T00:00:00Z"), ("last", "9999-12-31T23:59:59.999999Z")):
        tick = {"tick": extreme, "due_at": extreme, "verdict": "backfilled"}
        after = {**test_schedule_changes.AFTER, "cursor_at": extreme, "wake_at": extreme}
        change = {**test_schedule_changes.NEW, "name": name, "decided_at": extreme, "after": after, "ticks": [tick]}
        assert test_schedule_changes.applied(call, change) == [True]
        for verb in (":waiting", ":history", ":preview", f":explain?tick={extreme}"):
            assert call("GET", f"/v1/schedules/{name}{verb}").status_code == 200
    http_loop.run(AsyncScheduler(behind.store).run_once())
    assert call("POST", "/v1/schedules:due", {"owned": ["a" * 200, "😀"]}).status_code == 200


def test_cron_through_a_broker_on_postgresql(behind: AsyncApp, http_loop: Loop, pinned: MutableClock) -> None:
    with broker_on(behind, http_loop, OPEN) as url, Client(url) as client:
        cron = client.cron()
        cron.install_periodic("beat", HOUR, queue="q", payload={"n": 1})
        cron.install_tick("v1", "own", [CronMessage({"n": 2}, START + HOUR)], queue="q")
        pinned.advance(HOUR)
        scheduler = Scheduler(client.store)  # pyright: ignore[reportArgumentType]
        assert (scheduler.run_once().planned, scheduler.run_once().planned) == (1, 0)
        assert sorted(delivery.payload["n"] for delivery in client.queue("q").try_poll_many(9)) == [1, 2]
        client.schedules.apply([client.schedules.get("beat").spec], remove=["own"])
        assert client.schedules.list() == http_loop.run(behind.schedules.list())
        assert client.schedules.history("own") == http_loop.run(behind.schedules.history("own"))


def test_nonsense_on_postgresql(call: Caller, documented: dict[str, Any]) -> None:
    call("POST", "/v1/queues/q/messages", {"key": "k", "payload": 1})
    call("PUT", "/v1/schedules/q", {"every": "1h", "queue": "q", "overlap": "skip"})
    requests = 0
    for route in GUARDED:
        if route.path_format == "/v1/events":
            continue
        method, path, body = request(route, "q")
        fields = [item["name"] for item in documented[route.path_format][method.lower()].get("parameters", ())]
        for text in TEXTS:
            quoted = quote(text, safe="")
            paths = [route.path_format.replace("{" + name + "}", quoted) for name in route.param_convertors]
            tries = [call(method, path, body) for path in paths]
            tries += [call(method, path, body, params={name: text}) for name in fields if name != "Idempotency-Key"]
            wrong = [item.text[:300] for item in tries if item.status_code >= 500]
            assert not wrong, f"{method} {route.path_format} {text!r:.20}: {wrong}"
            requests += len(tries)
    assert requests > 200


def test_a_touch_of_a_locked_message_times_out_and_loses_nothing(call: Caller, database: str) -> None:
    call("POST", "/v1/queues/jobs/messages", {"key": "hot", "payload": 1})
    (held,) = call("POST", "/v1/queues/jobs/messages:poll", {}).json()["messages"]
    token = {"token": held["token"]}
    with psycopg.connect(database) as foreign:
        foreign.execute("select from tarry.message where key = 'hot' for update")
        response = call("POST", f"/v1/messages/{held['id']}/touch", token)
        assert (code(response), response.headers["retry-after"]) == ((409, "lock_timeout"), "1")
        response = call("POST", "/v1/messages:touch", {"messages": [{"id": held["id"], **token}]})
        assert response.json()["messages"] == [{"id": held["id"], "outcome": "busy"}]
    assert call("POST", f"/v1/messages/{held['id']}/touch", token).status_code == 200
