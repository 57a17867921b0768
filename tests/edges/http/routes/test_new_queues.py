"""Many clients that poll queues which do not exist yet, at the same moment, on PostgreSQL with few connections."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest

from tarry.app import AsyncApp
from tarry.core.settings import StoreSettings
from tarry.edges.http.settings import BrokerSettings
from tarry.storage.postgres.store import AsyncPostgresStore
from tests.kit.blocking import Loop
from tests.kit.brokers import broker_on

QUEUES = 20
EACH = 5
TIMEOUT_S = 60


@pytest.fixture
def url(database: str) -> Iterator[str]:
    loop = Loop()
    store = AsyncPostgresStore(database, settings=StoreSettings(create_queues=False, pool_size=3))
    loop.run(store.open())
    with broker_on(AsyncApp(store), loop, BrokerSettings(anonymous=True)) as url:
        yield url
    loop.run(store.close())
    loop.stop()


def test_long_polls_on_unknown_queues_get_what_is_offered_later(url: str) -> None:
    async def scenario() -> tuple[list[httpx.Response], list[httpx.Response]]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S, limits=limits, trust_env=False) as client:
            polls = [
                asyncio.create_task(client.post(f"/v1/queues/n{number % QUEUES}/messages:poll", json={"wait": 60}))
                for number in range(QUEUES * EACH)
            ]
            offers = await asyncio.gather(
                *(
                    client.post(f"/v1/queues/n{number % QUEUES}/messages", json={"payload": number})
                    for number in range(QUEUES * EACH)
                )
            )
            return offers, await asyncio.gather(*polls)

    offers, polls = asyncio.run(scenario())
    assert {response.status_code for response in offers} == {201}
    assert {response.status_code for response in polls} == {200}
    got = [message["payload"] for response in polls for message in response.json()["messages"]]
    assert sorted(got) == list(range(QUEUES * EACH))


def test_polls_without_a_message_time_out(url: str) -> None:
    async def scenario() -> set[int]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S, limits=limits, trust_env=False) as client:
            wait = {"wait": timedelta(milliseconds=200).total_seconds()}
            polls = [
                client.post(f"/v1/queues/e{number % QUEUES}/messages:poll", json=wait)
                for number in range(QUEUES * EACH)
            ]
            return {response.status_code for response in await asyncio.gather(*polls)}

    assert asyncio.run(scenario()) == {204}
