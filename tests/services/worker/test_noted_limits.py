"""The limits of handlers, where people look at queues."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import tarry
from tarry import QueueSettings, Retry, Worker
from tarry.edges.cli.output.views import QUEUES, CountedInfo
from tarry.services.worker.noted_limits import note_limits
from tarry.services.worker.worker import WorkerSettings
from tarry.testing import async_memory_app

HOUR = timedelta(hours=1)


async def attempts(app: tarry.AsyncApp, queue: str) -> str:
    """As `tarry queue list` shows them."""
    (column,) = [column for column in QUEUES.columns if column.title == "attempts"]
    return str(column.value(CountedInfo(await app.queues.get(queue))))


def test_a_queue_shows_the_limit_of_its_handlers_until_a_worker_without_one_starts() -> None:
    limited, unlimited = Worker(), Worker()

    @limited.handler("orders", retry=Retry.fixed(HOUR, max_attempts=3))
    @limited.handler("orders", type="gift", retry=Retry.fixed(HOUR, max_attempts=7))
    @limited.handler("mails")
    @unlimited.handler("orders")
    async def handle(payload: int) -> None: ...

    async def run() -> None:
        async with async_memory_app() as app:
            await app.queues.create("orders", QueueSettings(max_attempts=2))
            await note_limits(app, limited.sources(WorkerSettings()))
            assert (await attempts(app, "orders"), await attempts(app, "mails")) == ("7 by handler", "unlimited")
            await note_limits(app, unlimited.sources(WorkerSettings()))
            assert await attempts(app, "orders") == "2"

    asyncio.run(run())


def test_a_worker_records_it_while_it_runs() -> None:
    worker = Worker()

    @worker.handler("orders", retry=Retry.fixed(HOUR, max_attempts=3))
    async def handle(payload: int, *, app: tarry.AsyncApp) -> None:
        async with asyncio.timeout(30):
            while await attempts(app, "orders") != "3 by handler":  # noqa: ASYNC110
                await asyncio.sleep(0)

    async def run() -> None:
        async with async_memory_app() as app:
            await app.queue("orders").offer("a", 1)
            totals = await worker.run(app, WorkerSettings(until_empty=True))
            assert str(totals) == "1 acked"

    asyncio.run(run())


@pytest.mark.parametrize("is_polled", [True, False], ids=["a poll creates it first", "no poll yet"])
def test_a_missing_queue_is_logged_once(
    is_polled: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO")
    worker = Worker()

    @worker.handler("orders")
    async def handle(payload: int) -> None: ...

    async def run() -> None:
        async with async_memory_app() as app:
            get = app.queues.get

            async def get_late(name: str) -> Any:
                try:
                    return await get(name)
                finally:
                    if is_polled:
                        await app.queue(name).try_poll()

            monkeypatch.setattr(app.queues, "get", get_late)
            await note_limits(app, worker.sources(WorkerSettings()))

    asyncio.run(run())
    (logged,) = [record for record in caplog.records if "did not exist" in record.getMessage()]
    assert logged.levelname == "WARNING"
