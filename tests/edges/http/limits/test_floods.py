"""Requests without a valid key cost the database a bounded number of statements, however many there are."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest
from fastapi import FastAPI

from tarry.app import AsyncApp
from tarry.core.errors import StoreUnavailable
from tarry.core.sessions import Session
from tarry.edges.http.broker import broker_app
from tarry.edges.http.gate import SESSION
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tests.edges.http.conftest import Caller
from tests.edges.http.test_answers import code
from tests.kit.blocking import Loop

CROWD = 50


class Clocked(AsyncMemoryStore):
    """Counts the questions for the time, and answers them when it is let go."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.asked = 0
        self.away = False
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def now(self, *, conn: Any = None) -> datetime:
        self.asked += 1
        self.reached.set()
        await self.go_on.wait()
        if self.away:
            raise StoreUnavailable("away")
        return await super().now()


@pytest.fixture
def store() -> Clocked:
    return Clocked()


@pytest.fixture
def served(store: Clocked) -> FastAPI:
    return broker_app(AsyncApp(store))


def test_a_session_that_proves_nothing_does_not_reach_the_database(
    store: Clocked, served: FastAPI, http_loop: Loop
) -> None:
    app, ask = AsyncApp(store), Caller(served, http_loop)
    key = http_loop.run(app.keys.create("k", ["read"])).key
    until = http_loop.run(store.now()) + timedelta(hours=1)
    good = Session.of(key, until)
    bad = ["x", str(good._replace(key_id="0" * 12)), str(good._replace(seal="0" * 64)), str(good._replace(until_s=1))]
    store.asked = 0
    for text in bad:
        assert code(ask("DELETE", "/v1/session", headers={"cookie": f"{SESSION}={text}"})) == (401, "unauthorized")
    assert store.asked == 0
    assert ask("DELETE", "/v1/session", headers={"cookie": f"{SESSION}={good}"}).status_code == 204


class TestReadiness:
    def test_a_crowd_asks_the_database_once(self, store: Clocked, served: FastAPI, http_loop: Loop) -> None:
        ask = Caller(served, http_loop)

        async def crowd() -> list[int]:
            store.go_on.clear()
            asking = [asyncio.create_task(ask.answer("GET", "/readyz")) for _ in range(CROWD)]
            await store.reached.wait()
            for _ in range(100):
                await asyncio.sleep(0)  # so that every request has come as far as it can
            store.go_on.set()
            return [answer.status_code for answer in await asyncio.gather(*asking)]

        assert set(http_loop.run(crowd())) == {200}
        assert store.asked == 1

    def test_a_database_that_is_away_is_seen_and_asked_again(
        self, store: Clocked, served: FastAPI, http_loop: Loop, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tarry.edges.http.health.CACHED_FOR_S", 0.0)
        ask = Caller(served, http_loop)
        for away, status in ((True, 503), (False, 200), (True, 503)):
            store.away = away
            assert ask("GET", "/readyz").status_code == status

    def test_a_broker_that_stops_is_not_ready_at_once(self, served: FastAPI, http_loop: Loop) -> None:
        ask = Caller(served, http_loop)
        assert ask("GET", "/readyz").status_code == 200
        served.state.broker.stopping.set()
        assert ask("GET", "/readyz").json() == {"status": "stopping"}
