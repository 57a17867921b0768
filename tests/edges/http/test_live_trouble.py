"""Live events with clients, servers and journals that do not behave."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from starlette.types import Message

from tarry.app import AsyncApp
from tarry.edges.http import streaming
from tarry.edges.http.broker import Broker
from tarry.edges.http.gate import Caller
from tarry.edges.http.settings import BrokerSettings
from tarry.edges.http.streaming import EventStream
from tarry.services.live import Ending
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tests.kit.blocking import Loop
from tests.kit.brokers import broker_on
from tests.kit.sse import EventSource

PATIENCE_S = 30.0


@pytest.mark.parametrize("announced", [2_000_000, 5], ids=["too large", "withheld"])
def test_a_stream_with_a_body_that_never_comes_ends(behind: AsyncApp, http_loop: Loop, announced: int) -> None:
    """Else it would stay for ever: who waits for the body does not notice that the client has left."""
    settings = BrokerSettings(anonymous=True, body_for=timedelta(milliseconds=200))
    with broker_on(behind, http_loop, settings) as url, EventSource(url, announced=announced) as source:
        assert source.ends()


def test_who_runs_out_of_time_just_as_the_broker_stops_keeps_nobody_from_being_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streaming, "READ_WITHIN_S", 0.01)

    async def story() -> None:
        broker = Broker(AsyncApp(AsyncMemoryStore(MemoryStore())), BrokerSettings(anonymous=True))
        failures: list[Any] = []

        async def receive() -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                try:
                    await asyncio.Event().wait()  # as with a client that does not read
                except asyncio.CancelledError:
                    try:
                        broker.stop()
                    except Exception as error:
                        failures.append(error)
                    raise

        async with broker.live.stream(lambda event: True, allowed=_everybody) as other:
            answer = EventStream(broker, Caller(None), lambda event: True, after=None)
            await answer({"type": "http", "client": None}, receive, send)
            assert (failures, other.ending) == ([], Ending.STOPPING)

    asyncio.run(asyncio.wait_for(story(), PATIENCE_S))


async def _everybody() -> bool:
    return True
