"""What a worker does with the answers of its handlers, on the memory store with a clock that stands still."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import pytest

import tarry
from tarry import Bury, Release, Retry, Snooze, Worker
from tarry.api.queue import AsyncQueue
from tarry.app import AsyncApp
from tarry.core.messages.states import State
from tarry.core.monotonic import elapsed_s
from tarry.services.worker.dispatch import Dispatch
from tarry.services.worker.heartbeat import Heartbeat
from tarry.services.worker.job import Job
from tarry.services.worker.results import HandlerResult
from tarry.services.worker.threads import Threads
from tarry.services.worker.worker import WorkerSettings
from tarry.testing import MutableClock
from tarry.wire.payload import CONTENT
from tests.services.kit import MINUTE, SECOND, TIMEOUT_S, OnMemory, eventually, running

ACKED, FAILED, BURIED, SNOOZED = HandlerResult.ACKED, HandlerResult.FAILED, HandlerResult.BURIED, HandlerResult.SNOOZED
RELEASED, SETTLED, LOST = HandlerResult.RELEASED, HandlerResult.SETTLED, HandlerResult.LOST


@dataclass
class Order:
    total: int


class TestHandlerResults:
    def test_nothing_is_an_ack(self, on_memory: OnMemory) -> None:
        async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
            worker, seen = Worker(), []

            @worker.handler("orders")
            async def handle(order: Order) -> None:
                seen.append(order)

            await orders.offer("a", {"total": 40})
            async with running(worker, app) as run:
                assert [handled.result for handled in await run.until(1)] == [ACKED]
            assert seen == [Order(40)]
            assert not await orders.contains("a")

        on_memory(test)

    def test_a_function_that_blocks_runs_in_a_thread(self, on_memory: OnMemory) -> None:
        async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
            worker, seen = Worker(), []

            @worker.handler("orders")
            def handle(order: dict[str, int], delivery: tarry.Delivery[Any]) -> None:
                seen.append((order, delivery.key, delivery.attempt, threading.current_thread().name))
                assert delivery.touch(MINUTE) is tarry.Settled.DONE

            await orders.offer("a", {"total": 40})
            async with running(worker, app) as run:
                await run.until(1)
                assert run.endings == [ACKED]
            assert seen == [({"total": 40}, "a", 1, "tarry-handler-1")]

        on_memory(test)

    def test_a_snooze_comes_later_and_burns_no_attempt(self, on_memory: OnMemory) -> None:
        async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
            worker, attempts = Worker(), []
            results: list[Any] = [Snooze(MINUTE), Snooze(at=clock.pinned() + 2 * MINUTE), None]

            @worker.handler("orders")
            async def handle(order: Any, delivery: tarry.AsyncDelivery[Any]) -> Any:
                attempts.append(delivery.attempt)
                return results.pop(0)

            await orders.offer("a", 1)
            async with running(worker, app) as run:
                for n in (1, 2):
                    await run.until(n)
                    stored = await orders.read("a")
                    assert stored is not None
                    assert (stored.state, stored.attempt, stored.due_at) == (State.DELAYED, 0, clock.pinned() + MINUTE)
                    clock.advance(MINUTE)
                await run.until(3)
                assert run.endings == [SNOOZED, SNOOZED, ACKED]
            assert attempts == [1, 1, 1]

        on_memory(test)

    def test_a_burial_keeps_the_reason(self, on_memory: OnMemory) -> None:
        async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
            worker = Worker()

            @worker.handler("orders")
            def handle(order: Any) -> Bury:
                return Bury("the customer is gone")

            await orders.offer("a", 1)
            async with running(worker, app) as run:
                (handled,) = await run.until(1)
                assert (handled.result, handled.detail) == (BURIED, "the customer is gone")
            (letter,) = await orders.dead_letters.list()
            assert (letter.reason, letter.error) == ("buried", "the customer is gone")

        on_memory(test)

    def test_a_release_gives_it_back_untried(self, on_memory: OnMemory) -> None:
        async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
            worker, attempts = Worker(), []

            @worker.handler("orders")
            async def handle(order: Any, delivery: tarry.AsyncDelivery[Any]) -> Release | None:
                attempts.append(delivery.attempt)
                return Release() if len(attempts) < 3 else None

            await orders.offer("a", 1)
            async with running(worker, app) as run:
                await run.until(3)
                assert run.endings == [RELEASED, RELEASED, ACKED]
            assert attempts == [1, 1, 1]

        on_memory(test)

    def test_anything_else_is_an_ack_with_a_remark(self, on_memory: OnMemory, caplog: pytest.LogCaptureFixture) -> None:
        async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
            worker = Worker()

            @worker.handler("orders")  # pyright: ignore[reportCallIssue, reportArgumentType]
            async def handle(order: Any) -> int:
                return order

            for n in range(3):
                await orders.offer(None, n)
            async with running(worker, app) as run:
                await run.until(3)
                assert run.endings == [ACKED] * 3

        on_memory(test)
        assert [record.message for record in caplog.records if "returned a int" in record.message]

    def test_a_class_instead_of_a_value_is_a_failure_with_a_reason(self, on_memory: OnMemory) -> None:
        async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
            worker = Worker()

            @worker.handler("orders", retry=Retry.at_once(max_attempts=1))
            async def handle(order: Any) -> Any:
                return Snooze

            await orders.offer("a", 1)
            async with running(worker, app) as run:
                (handled,) = await run.until(1)
                assert handled.result is FAILED
                assert "return Snooze(…)" in str(handled.error)

        on_memory(test)

    def test_what_the_handler_settled_itself_is_left_alone(self, on_memory: OnMemory) -> None:
        async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
            worker = Worker()

            @worker.handler("orders")
            async def handle(order: Any, delivery: tarry.AsyncDelivery[Any]) -> None:
                await delivery.release(after=MINUTE)

            await orders.offer("a", 1)
            async with running(worker, app) as run:
                await run.until(1)
                assert run.endings == [SETTLED]
            assert await orders.contains("a")

        on_memory(test)


class TestHooks:
    def test_middleware_is_around_the_call_sync_or_async(self, on_memory: OnMemory) -> None:
        async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
            worker = Worker()
            current: ContextVar[str] = ContextVar("current", default="nothing")
            seen: list[str] = []

            @worker.middleware
            @contextmanager
            def around(delivery: Any) -> Iterator[None]:
                token = current.set(delivery.key)
                try:
                    yield
                except ValueError as error:
                    seen.append(f"saw {error}")
                    raise
                finally:
                    current.reset(token)

            @worker.handler("orders", type="a")
            async def first(order: Any) -> None:
                seen.append(current.get())

            @worker.handler("orders", type="b", retry=Retry.fixed(MINUTE))
            def second(order: Any) -> None:
                seen.append(current.get())
                raise ValueError("trouble")

            await orders.offer("one", 1, type="a")
            async with running(worker, app) as run:
                await run.until(1)
                await orders.offer("two", 1, type="b")
                await run.until(2)
                assert run.endings == [ACKED, FAILED]
            assert seen == ["one", "two", "saw trouble"]

        on_memory(test)

    def test_a_hook_that_fails_affects_no_message(self, on_memory: OnMemory, caplog: pytest.LogCaptureFixture) -> None:
        async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
            worker = Worker()

            @worker.on("started")
            @worker.on("finished")
            def broken(news: Any) -> None:
                raise RuntimeError("this hook is broken")

            @worker.handler("orders")
            async def handle(order: Any) -> None: ...

            await orders.offer("a", 1)
            async with running(worker, app) as run:
                await run.until(1)
                assert run.endings == [ACKED]

        on_memory(test)
        assert [r.message for r in caplog.records if "a hook of the worker failed" in r.message]


class TestLeases:
    def test_a_running_handler_keeps_its_lease(self, on_memory: OnMemory) -> None:
        async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
            worker, done = Worker(), asyncio.Event()

            @worker.handler("orders", lease_for=SECOND)
            async def handle(order: Any) -> None:
                await done.wait()

            await orders.offer("a", 1)
            async with running(worker, app) as run:

                async def touches() -> int:
                    return [
                        event.kind for event in await app.store.run(app.store.journal.timeline("orders", "a"))
                    ].count("touched")  # pyright: ignore[reportArgumentType]

                async def touched_twice() -> bool:
                    return await touches() >= 2

                await eventually(touched_twice)
                done.set()
                await run.until(1)
                assert run.endings == [ACKED]

        on_memory(test)

    def test_a_lost_lease_cancels_the_handler_and_its_result_is_discarded(self, on_memory: OnMemory) -> None:
        async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
            worker, cancelled = Worker(), []
            started: asyncio.Queue[str] = asyncio.Queue()
            stopping = threading.Event()

            @worker.handler("orders", type="async", lease_for=SECOND)
            async def handle(order: Any, delivery: tarry.AsyncDelivery[Any]) -> None:
                await started.put(delivery.key)
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    cancelled.append(delivery.lost)  # and then it returns as if all were well

            @worker.handler("orders", type="sync", lease_for=SECOND)
            def blocks(order: Any, delivery: tarry.Delivery[Any]) -> None:
                loop.call_soon_threadsafe(started.put_nowait, delivery.key)
                while not delivery.lost:
                    stopping.wait(0.001)
                stopping.set()

            loop = asyncio.get_running_loop()
            await orders.offer("a", 1, type="async")
            await orders.offer("b", 1, type="sync")
            async with running(worker, app) as run:
                assert {await started.get(), await started.get()} == {"a", "b"}
                for key, type in (("a", "async"), ("b", "sync")):
                    await orders.offer(key, "another version", type=type, after=MINUTE)  # the old lease dies
                await run.until(2)
                assert run.endings == [LOST, LOST]
                assert cancelled == [True]
                assert await asyncio.to_thread(stopping.wait, TIMEOUT_S)
            for key in "ab":
                stored = await orders.read(key)
                assert stored is not None
                assert (stored.payload, stored.attempt) == ("another version", 0)
                kinds = [event.kind.value for event in await app.store.run(app.store.journal.timeline("orders", key))]
                assert "acked" not in kinds

        on_memory(test)

    def test_a_job_that_ends_after_its_lease_is_not_settled_even_if_no_other_consumer_has_it(
        self, on_memory: OnMemory
    ) -> None:
        """By the clock of the process alone: the store would still accept the token."""

        async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
            worker, passed_s = Worker(), [0.0]

            @worker.handler("orders", type="late")
            async def late(order: Any) -> None:
                passed_s[0] += 31

            @worker.handler("orders", type="in time")
            async def in_time(order: Any) -> None:
                passed_s[0] += 29

            def timer() -> float:
                return elapsed_s() + passed_s[0]

            dispatch = Dispatch(Heartbeat(timer), worker.hooks, Threads(1), timer, app.blocking().queue)
            by_type = {str(source.type): source for source in worker.sources(WorkerSettings())}
            for type, handler_result in (("in time", ACKED), ("late", LOST)):
                passed_s[0] = 0.0
                await orders.offer(type, 1, type=type)
                raw = AsyncQueue(app.store, "orders", CONTENT)
                (delivery,) = await raw.try_poll_many(1, type=type)
                job = Job(raw, delivery, by_type[type].handler_of(type), dispatch.interrupt)
                await dispatch.handle(job)
                assert job.result is handler_result
                assert await orders.contains(type) == (handler_result is LOST)
            stored = await orders.read("late")
            assert stored is not None
            assert (stored.state, stored.attempt) == (State.LEASED, 1)

        on_memory(test)
