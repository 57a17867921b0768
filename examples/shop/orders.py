"""Orders: their table, and what the API and the workers do with them, each in the transaction of the caller."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ForeignKey, func
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import tarry

PAY_WITHIN = timedelta(seconds=float(os.environ.get("SHOP_PAY_WITHIN_S", "1800")))
REMIND_AFTER = PAY_WITHIN / 3

TIMEOUTS, REMINDERS, PAYMENTS, IMPORTS, REPORTS = "timeouts", "reminders", "payments", "imports", "reports"
QUEUES = (TIMEOUTS, REMINDERS, PAYMENTS, IMPORTS, REPORTS)


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[str] = mapped_column(primary_key=True)
    email: Mapped[str]
    total: Mapped[int]
    state: Mapped[str] = mapped_column(default="open")
    """open, paying, then paid, declined or cancelled."""
    reminded: Mapped[int] = mapped_column(default=0)
    placed_at: Mapped[datetime] = mapped_column(server_default=func.now())


class Receipt(Base):
    __tablename__ = "receipt"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[str] = mapped_column(ForeignKey("orders.id"))
    """Not unique: that an order is charged once is what the shop must get right by itself."""


class Report(Base):
    __tablename__ = "report"
    id: Mapped[int] = mapped_column(primary_key=True)
    orders: Mapped[int]
    paid: Mapped[int]
    total: Mapped[int]


@dataclass
class NewOrder:
    """From a customer, or from a market place by way of the broker."""

    id: str
    email: str
    total: int
    card: str | None = None
    """Pay at once with this card."""


@dataclass
class Payment:
    order: str
    card: str
    total: int


async def create(app: tarry.AsyncApp, session: AsyncSession, new: NewOrder) -> None:
    """Store an order, and what happens if it is not paid: all of it commits, or nothing."""
    session.add(Order(id=new.id, email=new.email, total=new.total))
    await session.flush()
    await app.queue(REMINDERS).offer(new.id, new.id, after=REMIND_AFTER, conn=session)
    await app.queue(TIMEOUTS).offer(new.id, new.id, after=PAY_WITHIN, conn=session)
    if new.card:
        await pay(app, session, new.id, new.card)


async def pay(app: tarry.AsyncApp, session: AsyncSession, order_id: str, card: str) -> bool:
    """Accept a payment for an open order; a worker calls the provider."""
    order = await session.get(Order, order_id, with_for_update=True)
    if order is None or order.state != "open":
        return False
    order.state = "paying"
    await app.queue(REMINDERS).drop(order_id, conn=session)
    await app.queue(TIMEOUTS).drop(order_id, conn=session)
    await app.queue(PAYMENTS, Payment).offer(order_id, Payment(order_id, card, order.total), conn=session)
    return True
