"""The worker of the tests with real processes. What its handlers did stands in the table `ledger`."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from typing import Any

import psycopg

import tarry

HANDLER_LOCK = 4711
"""An advisory lock: while a test holds it, handlers of `gated` messages wait."""

worker = tarry.Worker()


@worker.handler("jobs", lease_for=timedelta(seconds=float(os.environ.get("JOBS_LEASE_S", "30"))))
async def handle(payload: dict[str, Any], delivery: tarry.AsyncDelivery[Any]) -> None:
    async with await psycopg.AsyncConnection.connect(os.environ["TARRY_DSN"], autocommit=True) as conn:
        await note(conn, delivery, "started")
        if payload.get("gated"):
            await conn.execute("select pg_advisory_lock_shared(%s)", (HANDLER_LOCK,))
        if payload.get("for_s"):
            await asyncio.sleep(payload["for_s"])
        await note(conn, delivery, "finished")


async def note(conn: psycopg.AsyncConnection[Any], delivery: tarry.AsyncDelivery[Any], what: str) -> None:
    row = (delivery.key, delivery.attempt, os.getpid(), what)
    await conn.execute("insert into handled_by (key, attempt, pid, what) values (%s, %s, %s, %s)", row)
