"""A handler that commits its effect and the ack together, blocking and awaiting, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

import tarry
from tarry import Message, Retry, Worker
from tarry.core.settings import StoreSettings
from tarry.services.reports import Ending
from tests.services.kit import MINUTE, running

WRITE = "insert into invoice values (%s)"


@pytest.mark.parametrize("awaits", [False, True], ids=["blocking", "awaiting"])
def test_effect_and_ack_commit_together_or_not_at_all(database: str, awaits: bool) -> None:
    worker = Worker()

    def blocks(order: int, delivery: tarry.Delivery[Any]) -> None:
        with psycopg.connect(database) as conn:
            conn.execute(WRITE, (delivery.key,))
            assert delivery.ack(conn=conn) is tarry.Settled.DONE
            if order == 2:
                raise RuntimeError("after the ack, before the commit")

    async def waits(order: int, delivery: tarry.AsyncDelivery[Any]) -> None:
        async with await psycopg.AsyncConnection.connect(database) as conn:
            await conn.execute(WRITE, (delivery.key,))
            assert await delivery.ack(conn=conn) is tarry.Settled.DONE
            if order == 2:
                raise RuntimeError("after the ack, before the commit")

    worker.handler("orders", retry=Retry.fixed(MINUTE))(waits if awaits else blocks)

    async def test() -> None:
        async with tarry.connect_async(database, settings=StoreSettings.for_tests()) as app:
            orders = app.queue("orders")
            await orders.offer_many([Message(key=f"k{i}", payload=i) for i in range(4)])
            async with running(worker, app) as run:
                handled = await run.until(4)
            endings = {one.delivery.key: one.ending for one in handled}
            assert endings.pop("k2") is Ending.FAILED
            assert set(endings.values()) == {Ending.SETTLED}
            stored = await orders.read("k2")
            assert stored is not None
            # Not only rolled back: it waits for its retry, instead of for the end of its lease.
            assert (stored.attempt, stored.lease_until) == (1, None)
            assert "after the ack" in str(stored.last_error)

    with psycopg.connect(database) as conn:
        conn.execute("create table invoice (key text primary key)")
    asyncio.run(test())
    with psycopg.connect(database) as conn:
        assert conn.execute("select key from invoice order by key").fetchall() == [("k0",), ("k1",), ("k3",)]
