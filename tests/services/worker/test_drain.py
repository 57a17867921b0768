"""A worker by hand: the kit for tests of handlers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import tarry
from tarry import Retry, Snooze, Worker
from tarry.core.errors import InvalidInput
from tarry.services.worker.results import HandlerResult
from tarry.testing import MutableClock, async_memory_app, drain, drain_async, memory_app
from tests.services.kit import MINUTE


def test_everything_that_is_due_is_handled_and_time_is_moved_by_hand() -> None:
    worker, clock, seen = Worker(), MutableClock(), []

    @worker.handler("orders", retry=Retry.fixed(MINUTE, max_attempts=2))
    def cancel(order: dict[str, Any], delivery: tarry.Delivery[Any]) -> Snooze | None:
        seen.append((delivery.key, delivery.attempt))
        if order.get("bad"):
            raise ValueError("no such order")
        return Snooze(MINUTE) if order.get("early") and clock.pinned().minute < 5 else None

    @worker.handler("mails")
    async def send(mail: str) -> None: ...

    with memory_app(clock) as app:
        orders = app.queue("orders")
        orders.offer("now", {})
        orders.offer("early", {"early": True})
        orders.offer("bad", {"bad": True})
        orders.offer("later", {}, after=5 * MINUTE)
        app.queue("mails").offer("m", "hello")
        handled = drain(worker, app)
        assert [(job.delivery.key, job.result) for job in handled] == [
            ("now", HandlerResult.ACKED),
            ("m", HandlerResult.ACKED),
            ("early", HandlerResult.SNOOZED),
            ("bad", HandlerResult.FAILED),
        ]
        assert drain(worker, app) == []
        clock.advance(5 * MINUTE)
        assert sorted(job.delivery.key for job in drain(worker, app)) == ["bad", "early", "later"]
        assert [letter.attempt for letter in orders.dead_letters.list()] == [2]
        assert ("early", 1) in seen[3:]


def test_what_handlers_offer_on_the_way_is_handled_too() -> None:
    async def test() -> None:
        worker = Worker()
        async with async_memory_app() as app:

            @worker.handler("steps")
            async def step(n: int) -> None:
                if n:
                    await app.queue("steps").offer(None, n - 1)

            await app.queue("steps").offer(None, 3)
            assert len(await drain_async(worker, app)) == 4

    asyncio.run(test())


def test_a_drain_without_end_is_reported() -> None:
    worker = Worker()

    @worker.handler("orders")
    def handle(order: Any) -> tarry.Release:
        return tarry.Release()

    with memory_app() as app:
        app.queue("orders").offer("a", 1)
        with pytest.raises(InvalidInput, match=r"100 messages were handled .*more are due"):
            drain(worker, app, most=100)


def test_a_failure_reports_when_the_message_is_tried_again_and_at_last_that_it_is_dead(
    caplog: pytest.LogCaptureFixture,
) -> None:
    worker, clock = Worker(), MutableClock()

    @worker.handler("orders", retry=Retry.fixed(MINUTE, max_attempts=2))
    def pay(order: int) -> None:
        raise ValueError("the provider is away")

    with memory_app(clock) as app:
        app.queue("orders").offer("17", 1)
        (first,) = drain(worker, app)
        assert (first.dead, first.next_at) == (False, clock.pinned() + MINUTE)
        assert "next attempt at 2024-01-01T00:01:00Z: ValueError: the provider is away" in str(first)
        clock.advance(MINUTE)
        (last,) = drain(worker, app)
        assert (last.dead, last.next_at) == (True, None)
        assert ", now a dead letter: ValueError" in str(last)
    record = caplog.records[-1]
    assert (record.levelname, record.exc_info is not None) == ("WARNING", True)
    assert record.__dict__["fields"]["dead"] is True
