"""Requests without a valid key cost the database a bounded number of statements, however many there are."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest
from fastapi import FastAPI

from tarry.app import AsyncApp
from tarry.core.errors import StoreUnavailable
from tarry.core.security.browser_sessions import Session
from tarry.edges.http.app import broker_app
from tarry.edges.http.auth import SESSION
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tests.edges.http.conftest import Caller
from tests.edges.http.test_responses import code
from tests.kit.blocking import Loop
from tests.kit.calls import call_of, replace_call

CROWD = 50


class Clocked(AsyncMemoryStore):
    """Counts the questions for the time, and answers them when it is let go."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.reads = 0
        self.away = False
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self._now = call_of(self, "queues.now")
        replace_call(self, "queues.now", self.now)

    async def now(self) -> datetime:
        self.reads += 1
        self.reached.set()
        await self.go_on.wait()
        if self.away:
            raise StoreUnavailable("away")
        return await self._now()


@pytest.fixture
def store() -> Clocked:
    return Clocked()


@pytest.fixture
def served(store: Clocked) -> FastAPI:
    return broker_app(AsyncApp(store))


def test_a_session_that_proves_nothing_does_not_reach_the_database(
    store: Clocked, served: FastAPI, http_loop: Loop
) -> None:
    app, call = AsyncApp(store), Caller(served, http_loop)
    key = http_loop.run(app.keys.create("k", ["read"])).key
    until = http_loop.run(store.run(store.queues.now())) + timedelta(hours=1)
    good = Session.of(key, until)
    bad = ["x", str(good._replace(key_id="0" * 12)), str(good._replace(seal="0" * 64)), str(good._replace(until_s=1))]
    store.reads = 0
    for text in bad:
        assert code(call("DELETE", "/v1/session", headers={"cookie": f"{SESSION}={text}"})) == (401, "unauthorized")
    assert store.reads == 0
    assert call("DELETE", "/v1/session", headers={"cookie": f"{SESSION}={good}"}).status_code == 204


class TestReadiness:
    def test_concurrent_readiness_checks_query_the_database_once(
        self, store: Clocked, served: FastAPI, http_loop: Loop
    ) -> None:
        call = Caller(served, http_loop)

        async def crowd() -> list[int]:
            store.go_on.clear()
            requests = [asyncio.create_task(call.request("GET", "/readyz")) for _ in range(CROWD)]
            await store.reached.wait()
            for _ in range(100):
                await asyncio.sleep(0)  # so that every request has come as far as it can
            store.go_on.set()
            return [response.status_code for response in await asyncio.gather(*requests)]

        assert set(http_loop.run(crowd())) == {200}
        assert store.reads == 1

    def test_an_unavailable_database_is_noticed_and_queried_again(
        self, store: Clocked, served: FastAPI, http_loop: Loop
    ) -> None:
        served.state.broker.is_ready.keep_s = 0.0
        call = Caller(served, http_loop)
        for away, status in ((True, 503), (False, 200), (True, 503)):
            store.away = away
            assert call("GET", "/readyz").status_code == status

    def test_a_broker_that_stops_is_not_ready_at_once(self, served: FastAPI, http_loop: Loop) -> None:
        call = Caller(served, http_loop)
        assert call("GET", "/readyz").status_code == 200
        served.state.broker.stopping.set()
        assert call("GET", "/readyz").json() == {"status": "stopping"}
