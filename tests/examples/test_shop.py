"""The example shop: its handlers, as a user of Tarry would test them, and a whole run with processes and a deploy."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import create_engine, select
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

import tarry
from examples.shop import orders
from examples.shop.api import api
from examples.shop.worker import Resources, worker
from tarry.testing import MutableClock, drain_async


@pytest.fixture
def shop(tarry_dsn: str) -> Iterator[str]:
    """The address of the database of a shop."""
    url = tarry_dsn.replace("postgresql://", "postgresql+psycopg://")
    engine = create_engine(url)
    orders.Base.metadata.create_all(engine)
    yield url
    engine.dispose()


def test_an_order_that_is_paid_is_charged_and_another_reminded_and_cancelled(
    shop: str, tarry_clock: MutableClock
) -> None:
    statuses = iter([503, 200])

    def provider(request: httpx.Request) -> httpx.Response:
        return httpx.Response(next(statuses))

    async def story() -> list[list[str]]:
        engine = create_async_engine(shop)
        site = httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://shop")
        bank = httpx.AsyncClient(transport=httpx.MockTransport(provider), base_url="http://bank")
        async with tarry.connect_async(shop, clock=tarry_clock) as app, site, bank:
            api.state.tarry, api.state.engine = app, engine
            for name in ("paid", "forgotten"):
                order = {"id": name, "email": f"{name}@example.com", "total": 40}
                assert (await site.post("/orders", json=order)).status_code == 201
            assert (await site.post("/orders", json=order)).status_code == 409
            assert (await site.post("/orders/paid/payment", params={"card": "good"})).status_code == 202

            async def results() -> list[str]:
                handled = await drain_async(worker, app, resources=Resources(engine, bank))
                return [f"{each.queue} {each.result.value}" for each in handled]

            seen = [await results()]
            for later in (timedelta(seconds=1), orders.REMIND_AFTER, orders.PAY_WITHIN):
                tarry_clock.advance(later)
                seen.append(await results())
            assert (await site.post("/orders/forgotten/payment", params={"card": "good"})).status_code == 409
        await engine.dispose()
        return seen

    assert asyncio.run(story()) == [
        ["payments failed"],
        ["payments settled"],
        ["reminders settled"],
        ["timeouts settled"],
    ]
    assert rows(shop, orders.Order.id, orders.Order.state, orders.Order.reminded) == [
        ("forgotten", "cancelled", 1),
        ("paid", "paid", 0),
    ]
    assert rows(shop, orders.Receipt.order_id) == [("paid",)]


def rows(url: str, *columns: Any) -> list[tuple[Any, ...]]:
    engine = create_engine(url)
    with Session(engine) as session:
        values = sorted(tuple(row) for row in session.execute(select(*columns)))
    engine.dispose()
    return values


def test_a_whole_run_with_a_deploy_loses_and_doubles_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    given = {name: value for name, value in os.environ.items() if not name.startswith(("TARRY", "PG", "SHOP"))}
    ran = subprocess.run(
        [sys.executable, "-m", "examples.shop", "--orders", "12"],
        cwd=Path(__file__).parents[2],
        env=given,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("✓") == 8
