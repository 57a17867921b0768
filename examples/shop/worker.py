"""The workers of the shop: `tarry worker examples.shop.worker:worker`. Effects in the database commit with the ack."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import httpx
from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

import tarry
from examples.shop.orders import (
    IMPORTS,
    PAYMENTS,
    REMINDERS,
    REPORTS,
    TIMEOUTS,
    NewOrder,
    Order,
    Payment,
    Receipt,
    Report,
    create,
)

_log = logging.getLogger("shop")
RETRY = tarry.Retry.exponential(timedelta(milliseconds=100), cap_for=timedelta(seconds=1), max_attempts=20)


@dataclass
class Resources:
    """What handlers share: opened before the first message, closed after the last."""

    engine: AsyncEngine
    provider: httpx.AsyncClient

    @asynccontextmanager
    async def settling(self, delivery: tarry.AsyncDelivery) -> AsyncIterator[AsyncSession]:
        """A transaction that ends with the ack, and is rolled back if the lease is lost: another worker has it."""
        async with AsyncSession(self.engine) as session, session.begin() as transaction:
            yield session
            await session.flush()
            if await delivery.ack(conn=session) is not tarry.Settled.DONE:
                await transaction.rollback()


@asynccontextmanager
async def resources(app: tarry.AsyncApp) -> AsyncIterator[Resources]:
    agent = {"User-Agent": f"shop/{os.environ.get('SHOP_RELEASE', '1')}"}
    async with httpx.AsyncClient(base_url=os.environ["SHOP_PROVIDER"], headers=agent) as provider:
        engine = create_async_engine(os.environ["TARRY_DSN"])
        try:
            yield Resources(engine, provider)
        finally:
            await engine.dispose()


worker = tarry.Worker(resources=resources)


@worker.handler(IMPORTS, retry=RETRY)
async def import_order(
    new: NewOrder, delivery: tarry.AsyncDelivery, *, app: tarry.AsyncApp, resources: Resources
) -> None:
    async with resources.settling(delivery) as session:
        if await session.get(Order, new.id) is None:
            await create(app, session, new)


@worker.handler(REMINDERS, retry=RETRY)
async def remind(order_id: str, delivery: tarry.AsyncDelivery, *, resources: Resources) -> None:
    async with resources.settling(delivery) as session:
        order = await session.get_one(Order, order_id, with_for_update=True)
        if order.state == "open":
            order.reminded += 1
            _log.info("reminding %s", order.email)


@worker.handler(TIMEOUTS, retry=RETRY)
async def cancel_unpaid(order_id: str, delivery: tarry.AsyncDelivery, *, resources: Resources) -> None:
    async with resources.settling(delivery) as session:
        order = await session.get_one(Order, order_id, with_for_update=True)
        if order.state == "open":
            order.state = "cancelled"


@worker.handler(PAYMENTS, retry=RETRY, concurrency=5)
async def charge(payment: Payment, delivery: tarry.AsyncDelivery, *, resources: Resources) -> None:
    """The provider may be called twice, and charges once: the order is its idempotency key."""
    response = await resources.provider.post(
        "/charges",
        json={"card": payment.card, "total": payment.total},
        headers={"Idempotency-Key": payment.order},
    )
    declined = response.status_code == 402
    if not declined:
        response.raise_for_status()  # 503: again, after the delay of the retry policy
    async with resources.settling(delivery) as session:
        order = await session.get_one(Order, payment.order, with_for_update=True)
        order.state = "declined" if declined else "paid"
        if not declined:
            session.add(Receipt(order_id=payment.order))


@worker.handler(REPORTS, retry=RETRY)
async def report(_: dict[str, str], delivery: tarry.AsyncDelivery, *, resources: Resources) -> None:
    async with resources.settling(delivery) as session:
        paid = Order.state == "paid"
        orders, count, total = (
            await session.execute(
                select(func.count(), func.count().filter(paid), func.coalesce(func.sum(Order.total).filter(paid), 0))
            )
        ).one()
        session.add(Report(orders=orders, paid=count, total=total))
