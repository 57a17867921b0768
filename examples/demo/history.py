"""An hour of traffic before the demo, so that charts are not empty: real operations on a pinned clock."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from math import sin
from random import Random
from typing import Any

import psycopg

import tarry
from examples.demo.worker import EMAILS, ORDERS, PAYMENTS
from tarry.core.settings import StoreSettings
from tarry.testing import MutableClock

MINUTES = 60
BATCH = 9
"""Messages of one transaction: ten or more would be reported as an anomaly."""
BATCHES = {ORDERS: 5, EMAILS: 3, PAYMENTS: 2}
"""Per minute."""


async def seed(dsn: str, now: datetime) -> None:
    await asyncio.gather(*(_hour(dsn, queue, now) for queue in BATCHES))


async def _hour(dsn: str, queue: str, now: datetime) -> None:
    random, clock = Random(queue), MutableClock(now)
    settings = StoreSettings(pool_size=1, notify_with_conn=False)
    async with (
        tarry.connect_async(dsn, settings=settings, clock=clock, consumer=f"{queue}-host:1") as app,
        await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn,
    ):
        for minute in range(-MINUTES, 0):
            batches = max(1, round(BATCHES[queue] * (1 + 0.5 * sin(minute / 7))))
            for n in range(batches):
                clock.set(now + timedelta(minutes=minute, seconds=60 * n / batches))
                # In one transaction, so that the workers of the demo never see these messages live.
                async with conn.transaction():
                    await _handle(app.queue(queue), f"{queue}-{minute + MINUTES:02}-{n}", clock, random, conn)


async def _handle(
    queue: tarry.AsyncQueue[Any], batch: str, clock: MutableClock, random: Random, conn: psycopg.AsyncConnection[Any]
) -> None:
    count = random.randint(BATCH // 2, BATCH)
    await queue.offer_many([tarry.Message(key=f"{batch}-{i}", payload={"n": i}) for i in range(count)], conn=conn)
    clock.advance(timedelta(seconds=random.uniform(0.01, 0.2)))
    leases = [delivery.lease_id for delivery in await queue.try_poll_many(count, conn=conn)]
    clock.advance(timedelta(seconds=random.uniform(0.02, 0.3)))
    await queue.leases.ack(leases, conn=conn)
