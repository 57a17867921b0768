"""Several queues, types and priorities in one worker: none starves, and none waits for the pause or the rate of another."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import tarry
from tarry import Message, Rate, Worker
from tarry.api.queue import AsyncQueue
from tarry.app import AsyncApp
from tarry.core.rates import Pace
from tarry.services.worker.handlers import QueueOptions
from tarry.services.worker.prefetcher import Prefetcher, QueueLimits
from tarry.services.worker.results import HandlerResult
from tarry.testing import MutableClock
from tests.services.kit import SECOND, OnMemory, eventually, running


async def fill(app: AsyncApp, queue: str, n: int, **options: Any) -> None:
    await app.queue(queue).offer_many([Message(key=f"{queue}{i}", payload=i, **options) for i in range(n)])


def test_a_queue_full_of_slow_messages_does_not_keep_the_places_of_another(on_memory: OnMemory) -> None:
    async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
        worker, proceed, started = Worker(), asyncio.Event(), []

        @worker.handler("slow")
        async def slow(payload: int) -> None:
            started.append(payload)
            await proceed.wait()

        @worker.handler("quick")
        async def quick(payload: int) -> None: ...

        await fill(app, "slow", 100)
        async with running(worker, app, concurrency=4) as run:
            await eventually(lambda: len(started) == 3)
            await fill(app, "quick", 50)
            await run.until(50)
            assert run.endings == [HandlerResult.ACKED] * 50
            assert len(started) == 3  # one place is left for the other queue, always
            proceed.set()

    on_memory(test)


def test_with_one_place_queues_take_turns(on_memory: OnMemory) -> None:
    async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
        worker, order = Worker(), []

        @worker.handler("a")
        @worker.handler("b")
        @worker.handler("c")
        async def handle(payload: int, delivery: tarry.AsyncDelivery[Any]) -> None:
            order.append(delivery.queue)
            await asyncio.sleep(0)

        for queue in "abc":
            await fill(app, queue, 30)
        async with running(worker, app, concurrency=1) as run:
            await run.until(90)
        middle = order[10:70]
        assert {queue: middle.count(queue) for queue in "abc"} == {"a": 20, "b": 20, "c": 20}

    on_memory(test)


def test_types_of_one_queue_take_turns_too(on_memory: OnMemory) -> None:
    async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
        worker, proceed = Worker(), asyncio.Event()

        @worker.handler("orders", type="slow")
        async def slow(payload: int) -> None:
            await proceed.wait()

        @worker.handler("orders", type="quick")
        async def quick(payload: int) -> None: ...

        await orders.offer_many([Message(key=f"s{i}", payload=i, type="slow", priority=9) for i in range(50)])
        await orders.offer_many([Message(key=f"q{i}", payload=i, type="quick") for i in range(20)])
        async with running(worker, app, concurrency=3) as run:
            await run.until(20)
            assert {handled.delivery.type for handled in run.finished} == {"quick"}
            proceed.set()

    on_memory(test)


def test_what_is_unimportant_gets_its_share_of_a_flood_of_important_messages(on_memory: OnMemory) -> None:
    async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
        worker, done = Worker(), asyncio.Event()

        @worker.handler("orders")
        async def handle(payload: int, delivery: tarry.AsyncDelivery[Any]) -> None:
            if delivery.key == "humble":
                done.set()
            elif not done.is_set():  # every important message brings another one
                await orders.offer(None, payload, priority=9)

        await orders.offer("humble", 0, priority=0)
        await fill(app, "orders", 50, priority=9)
        async with running(worker, app, concurrency=2) as run:
            async with asyncio.timeout(20):
                await done.wait()
            assert len(run.finished) < 500

    on_memory(test)


def test_a_paused_queue_gets_back_what_was_not_started_and_the_others_go_on(on_memory: OnMemory) -> None:
    async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
        worker, releases = Worker(), {"orders": asyncio.Event(), "mails": asyncio.Event()}
        releases["orders"].set()
        releases["mails"].set()

        @worker.handler("orders", concurrency=2)
        @worker.handler("mails")
        async def handle(payload: int, delivery: tarry.AsyncDelivery[Any]) -> None:
            await releases[delivery.queue].wait()

        await fill(app, "orders", 4)
        app.queues.list = None  # pyright: ignore[reportAttributeAccessIssue] - there may be thousands of queues
        async with running(worker, app, concurrency=4) as run:
            await run.until(4)  # so it is known that handlers are quick
            releases["orders"].clear()
            await orders.offer_many([Message(key=f"later{i}", payload=i) for i in range(10)])

            async def leased(n: int) -> bool:
                return (await app.queues.counts("orders")).leased.n == n

            await eventually(lambda: leased(4))  # two running, two held
            started = asyncio.get_running_loop().time()
            await app.queues.pause("orders", reason="lunch")
            await eventually(lambda: leased(2))
            assert asyncio.get_running_loop().time() - started < 2  # promised is one; the machine may be busy
            released = [
                event
                for event in await app.store.run(app.store.journal.timeline("orders", "later2"))
                if event.kind == "released"
            ]
            assert [event.attempt for event in released] == [0]
            await fill(app, "mails", 10)
            await run.until(14)
            releases["orders"].set()  # what runs may finish
            await run.until(16)
            assert (await app.queues.counts("orders")).ready.n == 8
            await app.queues.resume("orders")
            await run.until(24)
            assert run.endings == [HandlerResult.ACKED] * 24

    on_memory(test)


def test_a_rate_is_kept_and_takes_no_more_than_it_may_start(on_memory: OnMemory) -> None:
    async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
        worker = Worker()

        @worker.handler("orders", rate=Rate(5, timedelta(hours=1)))
        async def handle(payload: int) -> None: ...

        @worker.handler("mails")
        async def other(payload: int) -> None: ...

        await fill(app, "orders", 50)
        async with running(worker, app) as run:
            await run.until(5)
            await fill(app, "mails", 20)
            await run.until(25)
            counts = await app.queues.counts("orders")
            assert (counts.ready.n, counts.leased.n) == (45, 0)
            assert sum(handled.queue == "orders" for handled in run.finished) == 5

    on_memory(test)


def test_a_rate_goes_on_when_its_time_has_come(on_memory: OnMemory) -> None:
    async def test(app: AsyncApp, orders: AsyncQueue[Any], clock: MutableClock) -> None:
        worker = Worker()

        @worker.handler("orders", rate=Rate(2, timedelta(milliseconds=50)))
        async def handle(payload: int) -> None: ...

        await fill(app, "orders", 7)
        loop = asyncio.get_running_loop()
        async with running(worker, app) as run:
            started = loop.time()
            await run.until(7)
            assert loop.time() - started >= 0.15

    on_memory(test)


class FakeJob:
    def __init__(self, sent_s: float) -> None:
        self.span_s = 30.0
        self.expires_s = sent_s + 30.0


class TestPrefetch:
    """By a clock that the test moves."""

    def prefetcher(self, **options: Any) -> tuple[Prefetcher, QueueLimits, list[float]]:
        now = [100.0]
        limits = QueueLimits("q", QueueOptions(**options), 10)
        fake: Any = None
        prefetcher = Prefetcher(fake, limits, fake, lambda: now[0], fake)
        prefetcher.lease_s = 30.0
        return prefetcher, limits, now

    def test_nothing_is_leased_ahead_before_it_is_known_how_long_handlers_take(self) -> None:
        prefetcher, _, _ = self.prefetcher()
        assert prefetcher.missing(3) == 3

    def test_ahead_is_what_will_be_started_within_a_quarter_of_the_lease(self) -> None:
        prefetcher, limits, _ = self.prefetcher()
        prefetcher.took(0.1)
        assert prefetcher.missing(0) == limits.prefetch == 10
        prefetcher, limits, _ = self.prefetcher()
        prefetcher.took(15.0)  # ten places, a quarter of 30 s: five
        assert prefetcher.missing(0) == 5
        prefetcher, limits, _ = self.prefetcher()
        prefetcher.took(600.0)
        assert prefetcher.missing(0) == 0

    def test_quick_handlers_have_up_to_fifty_ahead_and_as_many_that_wait_for_their_acks(self) -> None:
        prefetcher, limits, _ = self.prefetcher()
        prefetcher.took(0.02)  # ten slots start one each 2 ms
        assert (prefetcher.missing(0), limits.unacked) == (25, 25)
        prefetcher.took(0.0)
        assert (prefetcher.missing(0), limits.unacked) == (31, 31)
        fixed, limits, _ = self.prefetcher(prefetch=3)
        fixed.took(0.0001)
        assert (fixed.missing(0), limits.unacked) == (3, 10)

    def test_what_waited_for_handlers_that_became_slow_is_given_back_and_not_leased_again(self) -> None:
        prefetcher, limits, _ = self.prefetcher()
        prefetcher.took(0.0001)
        jobs: list[Any] = [FakeJob(100.0) for _ in range(prefetcher.missing(0))]
        prefetcher.held.extend(jobs)
        assert len(jobs) == 50
        assert prefetcher.unstarted(100.09) == []
        assert prefetcher.unstarted(100.2) == jobs[limits.prefetch :]
        assert list(prefetcher.held) == jobs[: limits.prefetch]
        assert prefetcher.missing(0) == 0

    def test_it_is_at_most_twice_the_concurrency_whatever_is_configured(self) -> None:
        assert QueueLimits("q", QueueOptions(prefetch=500), 10).prefetch == 20
        assert QueueLimits("q", QueueOptions(prefetch=500, concurrency=3), 10).prefetch == 6
        assert QueueLimits("q", QueueOptions(prefetch=0), 10).prefetch == 0
        assert QueueLimits("q", QueueOptions(concurrency=50), 10).limit == 10

    def test_what_waited_for_half_of_its_lease_is_given_back(self) -> None:
        prefetcher, _, _ = self.prefetcher()
        fresh, old = FakeJob(90.0), FakeJob(80.0)
        prefetcher.held.extend([old, fresh])  # pyright: ignore[reportArgumentType]
        assert prefetcher.unstarted(94.9) == []
        assert prefetcher.unstarted(95.0) == [old]
        assert list(prefetcher.held) == [fresh]

    def test_a_rate_bounds_what_is_held(self) -> None:
        prefetcher, limits, now = self.prefetcher()
        prefetcher.took(0.01)
        limits.pace = Pace(Rate(3, SECOND))
        assert prefetcher.missing(10) == 3
        limits.pace.start(100.0)
        limits.pace.start(100.0)
        assert prefetcher.missing(10) == 1
        prefetcher.held.append(FakeJob(100.0))  # pyright: ignore[reportArgumentType]
        assert prefetcher.missing(10) == 0
        now[0] = 101.0
        assert prefetcher.missing(10) == 2

    def test_a_paused_queue_starts_and_fetches_nothing(self) -> None:
        prefetcher, limits, _ = self.prefetcher()
        prefetcher.held.append(FakeJob(100.0))  # pyright: ignore[reportArgumentType]
        assert prefetcher.startable(100.0)
        limits.paused = True
        assert (prefetcher.startable(100.0), prefetcher.missing(5)) == (False, 0)
