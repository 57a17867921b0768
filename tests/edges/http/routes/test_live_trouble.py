"""Live events with clients, servers and journals that do not behave."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import httpx
import pytest
from starlette.types import Message

import tarry
from tarry.app import AsyncApp
from tarry.edges.http import sse as streaming
from tarry.edges.http.app import Broker
from tarry.edges.http.auth import Caller
from tarry.edges.http.settings import BrokerSettings
from tarry.edges.http.sse import EventStream
from tarry.http import Client
from tarry.services.live_events.stream import Ending
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tests.kit.blocking import Loop
from tests.kit.brokers import broker_on
from tests.kit.sse import EventSource

TIMEOUT_S = 30.0


@pytest.mark.parametrize("announced", [2_000_000, 5], ids=["too large", "withheld"])
def test_a_stream_with_a_body_that_never_comes_ends(behind: AsyncApp, http_loop: Loop, announced: int) -> None:
    """Else it would stay for ever: a request that waits for the body does not notice that the client has left."""
    settings = BrokerSettings(anonymous=True, body_for=timedelta(milliseconds=200))
    with broker_on(behind, http_loop, settings) as url, EventSource(url, announced=announced) as source:
        assert source.ends()


def test_the_long_way_back_to_a_rare_topic_moves_the_position_page_by_page(behind: AsyncApp, http_loop: Loop) -> None:
    settings = BrokerSettings(anonymous=True, stream_buffer=5)
    with broker_on(behind, http_loop, settings) as url, Client(url) as client:
        with EventSource(url, "?kind=buried").until_hello() as source:
            pass
        client.queue("q").offer_many([tarry.Message(key=f"k{n}", payload=n) for n in range(20)])
        with EventSource(url, "?kind=buried", last_id=source.last_id) as again:
            again.until_ping()
            assert again.last_id != source.last_id
            again.until_hello()
            assert again.comments == ["ping"] * again.comments.count("ping") + ["hello"]


def test_a_broker_has_only_so_many_streams_for_all_keys(behind: AsyncApp, http_loop: Loop) -> None:
    settings = BrokerSettings(anonymous=True, streams=1)
    with broker_on(behind, http_loop, settings) as url, EventSource(url).until_hello():
        response = httpx.get(f"{url}/v1/events")
        assert (response.status_code, response.json()["code"], response.headers["retry-after"]) == (
            503,
            "too_many",
            "5",
        )


def test_a_timeout_during_the_stop_of_the_broker_does_not_keep_other_streams_from_ending(
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

        async with broker.live.stream(lambda event: True, allowed=_always_allowed) as other:
            stream = EventStream(broker, Caller(None), lambda event: True, after=None)
            await stream({"type": "http", "client": None}, receive, send)
            assert (failures, other.ending) == ([], Ending.STOPPING)

    asyncio.run(asyncio.wait_for(story(), TIMEOUT_S))


async def _always_allowed() -> bool:
    return True
