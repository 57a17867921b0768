"""The web API: `uvicorn examples.shop.api:api`. TARRY_DSN is the address of the database, as SQLAlchemy writes it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, Request
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import tarry
from examples.shop.orders import NewOrder, Order, create, pay


@asynccontextmanager
async def lifespan(api: FastAPI) -> AsyncIterator[None]:
    engine = create_async_engine(os.environ["TARRY_DSN"])
    async with tarry.connect_async() as api.state.tarry:
        api.state.engine = engine
        yield
    await engine.dispose()


api = FastAPI(title="Shop", lifespan=lifespan)


async def transaction(request: Request) -> AsyncIterator[AsyncSession]:
    async with AsyncSession(request.app.state.engine) as session, session.begin():
        yield session


def connected(request: Request) -> tarry.AsyncApp:
    return request.app.state.tarry


# Of the scope of the function: it commits before the response is sent.
Transaction = Annotated[AsyncSession, Depends(transaction, scope="function")]
Tarry = Annotated[tarry.AsyncApp, Depends(connected)]


@api.post("/orders", status_code=201)
async def place_order(new: NewOrder, session: Transaction, app: Tarry) -> dict[str, str]:
    try:
        await create(app, session, new)
    except IntegrityError as error:
        raise HTTPException(409, f"order {new.id} exists") from error
    return {"id": new.id}


@api.post("/orders/{order_id}/payment", status_code=202)
async def pay_order(order_id: str, card: str, session: Transaction, app: Tarry) -> dict[str, str]:
    if not await pay(app, session, order_id, card):
        raise HTTPException(409, f"order {order_id} cannot be paid")
    return {"id": order_id}


@api.get("/orders/{order_id}")
async def show_order(order_id: str, session: Transaction) -> dict[str, str | int]:
    order = await session.get(Order, order_id)
    if order is None:
        raise HTTPException(404, f"there is no order {order_id}")
    return {"id": order.id, "state": order.state, "reminded": order.reminded}
