"""What a handler may take by keyword: the app, and the resources that its worker makes when it starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

import tarry
from tarry import Worker
from tarry.core.errors import InvalidInput
from tarry.testing import async_memory_app, drain, drain_async, memory_app


@dataclass
class Resources:
    sent: list[str] = field(default_factory=list[str])
    is_open: bool = True


made: list[Resources] = []


@asynccontextmanager
async def resources(app: tarry.AsyncApp) -> AsyncIterator[Resources]:
    made.append(Resources([app.consumer]))
    try:
        yield made[-1]
    finally:
        made[-1].is_open = False


@pytest.fixture
def worker() -> Worker:
    made.clear()
    worker = Worker(resources=resources)

    @worker.handler("orders")
    async def accept(order: str, delivery: tarry.AsyncDelivery[str], *, app: tarry.AsyncApp) -> None:
        await app.queue("mails").offer(f"mail-{delivery.key}", order)

    @worker.handler("mails")
    def send(mail: str, *, app: tarry.App, resources: Resources) -> None:
        assert resources.is_open
        app.queue("sent").offer(None, mail)
        resources.sent.append(mail)

    return worker


def test_a_message_offered_through_the_app_is_drained_too(worker: Worker) -> None:
    with memory_app() as app:
        app.queue("orders").offer("17", "shoes")
        assert [handled.queue for handled in drain(worker, app)] == ["orders", "mails"]
        assert app.queue("sent").try_poll() is not None
    assert made == [Resources(["test", "shoes"], is_open=False)], "made once, and closed at the end"


def test_drain_works_on_postgresql_and_with_resources_of_the_test(worker: Worker, database: str) -> None:
    fake = Resources()
    with tarry.connect(database) as app:
        app.queue("orders").offer("17", "shoes")
        assert [handled.result.value for handled in drain(worker, app, resources=fake)] == ["acked", "acked"]
        assert app.queue("sent").try_poll() is not None
    assert (fake.sent, made) == (["shoes"], [])


def test_a_running_worker_makes_its_resources_once(worker: Worker, database: str) -> None:
    async def run() -> None:
        stop = asyncio.Event()
        worker.on("finished")(lambda handled: stop.set() if handled.queue == "mails" else None)
        async with tarry.connect_async(database) as app:
            await app.queue("orders").offer("17", "shoes")
            totals = await worker.run(app, stop=stop)
            assert str(totals) == "2 acked"

    asyncio.run(run())
    assert [opened.is_open for opened in made] == [False]


def test_resources_that_cannot_be_made_end_the_worker_before_it_polls() -> None:
    @asynccontextmanager
    async def broken(app: tarry.AsyncApp) -> AsyncIterator[None]:
        raise OSError("no such host")
        yield

    worker = Worker(resources=broken)
    worker.handler("orders")(ignore)

    async def run() -> None:
        async with async_memory_app() as app:
            await app.queue("orders").offer("17", "shoes")
            with pytest.raises(OSError, match="no such host") as raised:
                await worker.run(app)
            assert "resources of the worker" in raised.value.__notes__[0]
            with pytest.raises(OSError, match="no such host"):
                await drain_async(worker, app)
            assert await app.queue("orders").contains("17")

    asyncio.run(run())


def ignore(order: str) -> None: ...


def test_what_cannot_be_given_is_refused_when_the_handler_is_registered() -> None:
    worker = Worker()
    with pytest.raises(InvalidInput, match="takes resources, but this worker has none"):

        @worker.handler("a")
        async def wants(order: str, *, resources: Resources) -> None: ...

    with pytest.raises(InvalidInput, match=r"its app is a tarry\.AsyncApp"):

        @worker.handler("a")
        async def awaits(order: str, *, app: tarry.App) -> None: ...

    with pytest.raises(InvalidInput, match=r"its app is a tarry\.App$"):

        @worker.handler("a")
        def blocks(order: str, *, app: tarry.AsyncApp) -> None: ...


def test_a_blocking_drain_in_an_event_loop_names_the_other() -> None:
    async def run() -> None:
        with memory_app() as app, pytest.raises(InvalidInput, match="an event loop runs here"):
            drain(Worker(), app)

    asyncio.run(run())
