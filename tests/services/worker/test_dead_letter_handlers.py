"""A function for messages that become dead letters in a worker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

import tarry
from tarry.core.errors import InvalidInput
from tarry.testing import MutableClock, drain, drain_async


@asynccontextmanager
async def resources(app: tarry.AsyncApp) -> AsyncIterator[list[str]]:
    yield ["made"]


@pytest.fixture
def worker() -> tarry.Worker:
    worker = tarry.Worker(resources=resources)

    @worker.handler("payments", retry=tarry.Retry.fixed(timedelta(minutes=1), max_attempts=2))
    def pay(amount: int) -> tarry.Bury | None:
        if amount < 0:
            return tarry.Bury("no such amount")
        raise ConnectionError("no answer")

    return worker


def test_it_is_called_once_after_the_last_attempt_with_the_error(
    worker: tarry.Worker, tarry_app: tarry.App, tarry_clock: MutableClock
) -> None:
    calls: list[tuple[str, int, str | None, int]] = []

    @worker.on_dead("payments")
    async def compensate(handled: tarry.Handled, *, app: tarry.AsyncApp, resources: list[str]) -> None:
        dead = await app.queue("payments").dead_letters.list()
        calls.append((resources[0], handled.delivery.payload, handled.why, len(dead)))

    tarry_app.queue("payments").offer("a", 3)
    drain(worker, tarry_app)
    assert calls == []
    tarry_clock.advance(timedelta(minutes=1))
    drain(worker, tarry_app)
    assert calls == [("made", 3, "ConnectionError: no answer", 1)]


def test_a_sync_one_may_offer_and_its_own_failure_is_logged(
    worker: tarry.Worker, tarry_app: tarry.App, caplog: pytest.LogCaptureFixture
) -> None:
    @worker.on_dead("payments")
    def compensate(handled: tarry.Handled, *, app: tarry.App) -> None:
        app.queue("refunds").offer(handled.delivery.key, handled.delivery.payload)
        raise RuntimeError("and then it failed")

    tarry_app.queue("payments").offer("a", -3)
    [handled] = drain(worker, tarry_app)
    assert handled.dead
    assert tarry_app.queue("refunds").contains("a")
    assert "its handler" in caplog.text
    assert "and then it failed" in caplog.text


def test_other_parameters_and_a_second_one_are_refused(worker: tarry.Worker) -> None:
    with pytest.raises(InvalidInput, match=r"takes \(handled\), and by keyword"):
        worker.on_dead("payments")(lambda payload, delivery: None)  # pyright: ignore[reportArgumentType]
    worker.on_dead("payments")(lambda handled: None)
    with pytest.raises(InvalidInput, match="have a handler already"):
        worker.on_dead("payments")(lambda handled: None)


def burying_worker() -> tarry.Worker:
    worker = tarry.Worker()

    @worker.handler("payments")
    async def pay(amount: int) -> tarry.Bury:
        return tarry.Bury("no such amount")

    return worker


def test_a_worker_that_stops_gives_it_the_grace(tarry_async_app: tarry.AsyncApp) -> None:
    worker, entered, go = burying_worker(), asyncio.Event(), asyncio.Event()
    compensated: list[str] = []

    @worker.on_dead("payments")
    async def compensate(handled: tarry.Handled) -> None:
        entered.set()
        await go.wait()
        compensated.append(handled.delivery.key)

    async def story() -> None:
        stop = asyncio.Event()
        await tarry_async_app.queue("payments").offer("a", 3)
        running = asyncio.create_task(worker.run(tarry_async_app, stop=stop))
        await entered.wait()
        stop.set()
        for _ in range(100):  # meanwhile the worker begins to stop
            await asyncio.sleep(0)
        go.set()
        assert str(await running) == "1 buried: 0 to be retried, 1 dead"

    asyncio.run(story())
    assert compensated == ["a"]


def test_after_the_grace_it_is_cancelled_and_that_is_logged(
    tarry_async_app: tarry.AsyncApp, caplog: pytest.LogCaptureFixture
) -> None:
    worker, entered = burying_worker(), asyncio.Event()

    @worker.on_dead("payments")
    async def compensate(handled: tarry.Handled) -> None:
        entered.set()
        await asyncio.Event().wait()

    async def story() -> None:
        stop, settings = asyncio.Event(), tarry.WorkerSettings(grace=timedelta(0))
        await tarry_async_app.queue("payments").offer("a", 3)
        running = asyncio.create_task(worker.run(tarry_async_app, settings, stop=stop))
        await entered.wait()
        stop.set()
        assert str(await running) == "1 buried: 0 to be retried, 1 dead"

    asyncio.run(story())
    assert "its handler" in caplog.text
    assert "CancelledError" in caplog.text


def test_it_is_called_while_a_handler_in_a_thread_does_not_end(tarry_async_app: tarry.AsyncApp) -> None:
    worker, compensated = tarry.Worker(), threading.Event()

    @worker.handler(
        "payments", timeout=timedelta(milliseconds=1), retry=tarry.Retry.fixed(timedelta(0), max_attempts=1)
    )
    def pay(amount: int) -> None:
        compensated.wait()

    @worker.on_dead("payments")
    def compensate(handled: tarry.Handled) -> None:
        compensated.set()

    async def story() -> None:
        await tarry_async_app.queue("payments").offer("a", 3)
        settings = tarry.WorkerSettings(concurrency=1, until_empty=True)
        try:
            async with asyncio.timeout(10):
                assert str(await worker.run(tarry_async_app, settings)) == "1 failed: 0 to be retried, 1 dead"
        finally:
            compensated.set()

    asyncio.run(story())


@pytest.mark.parametrize("is_async", [False, True])
def test_one_that_exits_ends_neither_the_worker_nor_its_slot(
    worker: tarry.Worker, tarry_app: tarry.App, caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    def compensate(handled: tarry.Handled) -> None:
        raise SystemExit("out of here")

    async def compensate_async(handled: tarry.Handled) -> None:
        compensate(handled)

    worker.on_dead("payments")(compensate_async if is_async else compensate)
    tarry_app.queue("payments").offer("a", -3)
    assert [handled.dead for handled in drain(worker, tarry_app)] == [True]
    assert "out of here" in caplog.text


def test_one_for_a_queue_without_a_handler_is_refused(worker: tarry.Worker, tarry_app: tarry.App) -> None:
    worker.on_dead("paymnets")(lambda handled: None)
    with pytest.raises(InvalidInput, match="on_dead is registered for paymnets"):
        drain(worker, tarry_app)


def test_a_message_that_is_dropped_cancels_its_running_handler(tarry_async_app: tarry.AsyncApp) -> None:
    worker, started, cancelled = tarry.Worker(), asyncio.Event(), asyncio.Event()

    @worker.handler("reports", lease_for=timedelta(seconds=1))
    async def report(month: str) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def story() -> None:
        queue, stop = tarry_async_app.queue("reports"), asyncio.Event()
        await queue.offer("may", "2026-05")
        running = asyncio.create_task(worker.run(tarry_async_app, stop=stop))
        await started.wait()
        assert await queue.drop("may")
        await cancelled.wait()
        stop.set()
        assert str(await running) == "1 lost"
        assert await drain_async(worker, tarry_async_app) == []

    asyncio.run(story())


def test_a_dead_letter_that_could_not_be_decoded_has_a_reason_instead_of_a_payload(tarry_app: tarry.App) -> None:
    worker, reasons = tarry.Worker(), list[str]()

    @worker.handler("payments")
    def pay(number: int) -> None: ...

    @worker.on_dead("payments")
    def note(handled: tarry.Handled) -> None:
        reasons.append(handled.delivery.payload.reason)

    tarry_app.queue("payments").offer("order-1", {"number": 7})
    drain(worker, tarry_app)
    assert reasons == ["the payload is not a int: Expected `int`, got `object`"]
