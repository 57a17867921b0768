"""A long poll that is cancelled, as by a server that shuts down, keeps no lease."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tarry.app import AsyncApp
from tarry.edges.http.app import broker_app
from tarry.edges.http.settings import BrokerSettings
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tests.edges.http.conftest import Caller
from tests.kit.blocking import Loop


@pytest.mark.parametrize("turns", range(25))
def test_a_poll_that_is_cancelled_after_an_offer_keeps_no_lease(http_loop: Loop, turns: int) -> None:
    async def run() -> None:
        app = AsyncApp(AsyncMemoryStore(MemoryStore()))
        queue = app.queue("q")
        served = broker_app(app, BrokerSettings(anonymous=True, keys_cached_for=timedelta(0)))
        await queue.offer("warm", 1)
        caller = Caller(served, http_loop)
        assert (await caller.request("POST", "/v1/queues/q/messages:poll", {"wait": 20})).status_code == 200
        polling = asyncio.create_task(caller.request("POST", "/v1/queues/q/messages:poll", {"wait": 20}))
        for _ in range(50):
            await asyncio.sleep(0)
        await queue.offer("a", 1)
        for _ in range(turns):
            await asyncio.sleep(0)
        polling.cancel()
        done, _ = await asyncio.wait({polling}, timeout=5)
        assert done == {polling}
        for _ in range(50):
            await asyncio.sleep(0)
        message = await queue.read("a")
        assert message is not None
        assert (message.lease_until is None) == polling.cancelled()

    http_loop.run(run())
