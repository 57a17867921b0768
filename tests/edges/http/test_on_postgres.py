"""What the memory store forgives and PostgreSQL would not: the same edits, rulings and nonsense, with a database behind."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from tarry.app import AsyncApp
from tarry.core.cron import CronMessage
from tarry.core.settings import StoreSettings
from tarry.edges.http.broker import broker_app
from tarry.edges.http.settings import BrokerSettings
from tarry.http import Client
from tarry.services.scheduler import AsyncScheduler, Scheduler
from tarry.storage.postgres.aio import AsyncPostgresStore
from tarry.testing import MutableClock
from tests.edges.http import test_edits, test_rulings
from tests.edges.http.conftest import Caller
from tests.edges.http.test_access import GUARDED, request
from tests.edges.http.test_answers import code
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
def ask(behind: AsyncApp, http_loop: Loop) -> Caller:
    return Caller(broker_app(behind, OPEN), http_loop)


def test_edits_on_postgresql(ask: Caller, pinned: MutableClock) -> None:
    edits = test_edits.TestEdit()
    edits.test_null_takes_away_and_saying_it_again_is_ignored(ask)
    edits.test_a_payload_may_be_null_text_or_bytes(ask)
    for body in (
        {"type": "a\x00"},
        {"headers": {"a": "\x00"}},
        {"delay": "3654d"},
        {"at": "9999-12-31T23:59:59-01:00"},
    ):
        id = test_edits.offered(ask)
        assert code(ask("PATCH", f"/v1/messages/{id}", body))[0] == 422


def test_rulings_on_postgresql(ask: Caller, behind: AsyncApp, http_loop: Loop) -> None:
    for one in test_rulings.BAD:
        said = ask("POST", "/v1/schedules:rule", {"rulings": [{**test_rulings.NEW, **one}]})
        held = said.status_code == 200 and said.json() == {"held": [False]}  # to remove what is not there
        assert held or code(said)[0] == 422, f"{one}: {said.text}"
    assert ask("GET", "/v1/schedules").json() == {"schedules": []}
    for prefix, extreme in (("first", "0001-01-01T00:00:00Z"), ("last", "9999-12-31T23:59:59.999999Z")):
        tick = {"tick": extreme, "due_at": extreme, "verdict": "backfilled"}
        after = {**test_rulings.AFTER, "cursor_at": extreme, "wake_at": extreme}
        ruling = {**test_rulings.NEW, "prefix": prefix, "ruled_at": extreme, "after": after, "ticks": [tick]}
        assert test_rulings.ruled(ask, ruling) == [True]
        for verb in (":waiting", ":history", ":preview", f":explain?tick={extreme}"):
            assert ask("GET", f"/v1/schedules/{prefix}{verb}").status_code == 200
    http_loop.run(AsyncScheduler(behind.store).run_once())
    assert ask("POST", "/v1/schedules:due", {"owned": ["a" * 200, "😀"]}).status_code == 200


def test_cron_through_a_broker_on_postgresql(behind: AsyncApp, http_loop: Loop, pinned: MutableClock) -> None:
    with broker_on(behind, http_loop, OPEN) as url, Client(url) as client:
        cron = client.cron()
        cron.install_periodic("beat", HOUR, queue="q", payload={"n": 1})
        cron.install_tick("v1", "own", [CronMessage({"n": 2}, START + HOUR)], queue="q")
        pinned.advance(HOUR)
        scheduler = Scheduler(client.store)  # pyright: ignore[reportArgumentType]
        assert (scheduler.run_once().planned, scheduler.run_once().planned) == (1, 0)
        assert sorted(found.payload["n"] for found in client.queue("q").try_poll_many(9)) == [1, 2]
        client.schedules.apply([client.schedules.get("beat").spec], remove=["own"])
        assert client.schedules.list() == http_loop.run(behind.schedules.list())
        assert client.schedules.history("own") == http_loop.run(behind.schedules.history("own"))


def test_nonsense_on_postgresql(ask: Caller, documented: dict[str, Any]) -> None:
    ask("POST", "/v1/queues/q/messages", {"key": "k", "payload": 1})
    ask("PUT", "/v1/schedules/q", {"every": "1h", "queue": "q", "overlap": "skip"})
    asked = 0
    for route in GUARDED:
        if route.path_format == "/v1/events":
            continue
        method, path, body = request(route, "q")
        fields = [one["name"] for one in documented[route.path_format][method.lower()].get("parameters", ())]
        for text in TEXTS:
            said = quote(text, safe="")
            paths = [route.path_format.replace("{" + name + "}", said) for name in route.param_convertors]
            tries = [ask(method, path, body) for path in paths]
            tries += [ask(method, path, body, params={name: text}) for name in fields if name != "Idempotency-Key"]
            wrong = [one.text[:300] for one in tries if one.status_code >= 500]
            assert not wrong, f"{method} {route.path_format} {text!r:.20}: {wrong}"
            asked += len(tries)
    assert asked > 200


def test_a_touch_of_a_locked_message_is_held_up_and_loses_nothing(ask: Caller, database: str) -> None:
    ask("POST", "/v1/queues/jobs/messages", {"key": "hot", "payload": 1})
    (held,) = ask("POST", "/v1/queues/jobs/messages:poll", {}).json()["messages"]
    token = {"lock_token": held["lock_token"]}
    with psycopg.connect(database) as foreign:
        foreign.execute("select from tarry.message where key = 'hot' for update")
        answer = ask("POST", f"/v1/messages/{held['id']}/touch", token)
        assert (code(answer), answer.headers["retry-after"]) == ((409, "held_up"), "1")
        answer = ask("POST", "/v1/messages:touch", {"messages": [{"id": held["id"], **token}]})
        assert answer.json()["messages"] == [{"id": held["id"], "outcome": "busy"}]
    assert ask("POST", f"/v1/messages/{held['id']}/touch", token).status_code == 200
