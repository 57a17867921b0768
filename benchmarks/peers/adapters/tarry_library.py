"""Tarry through its library: `Queue` for produce and consume, `Worker` for jobs. The option is the journal level."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import tarry
from benchmarks.peers.adapters.agent import Countdown, Lateness, Watch, body, until
from tarry.core.journal.events import JournalLevel
from tarry.core.settings import QueueSettings
from tarry.edges.cli.processes.worker import collect_rarely
from tarry.services.worker.worker import WorkerSettings

QUEUE = "bench"


class Adapter:
    def __init__(self, journal: str = "events") -> None:
        self._journal = JournalLevel(journal)

    def open(self, dsn: str, *, create: bool = True, lease_s: float = 3600) -> dict[str, Any] | None:
        self._dsn = dsn
        self._app = tarry.connect(dsn, migrate=create)
        if create:
            settings = QueueSettings(journal=self._journal, lease_for=timedelta(seconds=lease_s))
            self._app.queues.create(QUEUE, settings, exist_ok=True)
        self._queue = self._app.queue(QUEUE)

    def produce(
        self, *, seconds: float = 1e9, batch: int = 1, most: int | None = None, delay_s: float = 0
    ) -> dict[str, Any]:
        watch = Watch(seconds, most)
        after = timedelta(seconds=delay_s) if delay_s else None
        while watch.goes_on:
            if batch == 1:
                self._queue.offer(None, body(watch.n), after=after)
            else:
                self._queue.offer_many(
                    [tarry.Message(payload=body(i), after=after) for i in range(watch.n, watch.n + batch)]
                )
            watch.step(batch)
        return watch.result()

    def consume(self, *, seconds: float, batch: int = 1, most: int | None = None) -> dict[str, Any]:
        watch = Watch(seconds, most)
        while watch.goes_on:
            if batch == 1:
                delivery = self._queue.try_poll()
                if delivery is None:
                    break
                _ = delivery.payload
                delivery.ack()
                watch.step(1)
            else:
                deliveries = self._queue.try_poll_many(batch)
                if not deliveries:
                    break
                for delivery in deliveries:
                    _ = delivery.payload
                self._queue.leases.ack([delivery.lease_id for delivery in deliveries])
                watch.step(len(deliveries))
        return watch.result()

    def stream(self, *, seconds: float, most: int) -> dict[str, Any]:
        """`consume(prefetch=…)` with one durable ack per message."""
        watch = Watch(seconds, most)
        for delivery in self._queue.consume():
            _ = delivery.payload
            delivery.ack()
            watch.step(1)
            if not watch.goes_on:
                break
        return watch.result()

    async def work(self, *, n: int, concurrency: int) -> dict[str, Any]:
        collect_rarely()  # as `tarry worker` does
        countdown = Countdown(n)
        worker = tarry.Worker()

        @worker.handler(QUEUE)
        async def handle(order: dict[str, Any]) -> None:  # pyright: ignore[reportUnusedFunction]
            countdown.count()

        async with tarry.connect_async(self._dsn) as app:
            stop = asyncio.Event()
            running = asyncio.create_task(worker.run(app, WorkerSettings(concurrency=concurrency), stop=stop))
            await until(countdown.done, running)
            stop.set()
            await running
        return countdown.result()

    async def late(self, *, n: int, every_s: float) -> dict[str, Any]:
        lateness = Lateness(n)
        worker = tarry.Worker()

        @worker.handler(QUEUE)
        async def handle(order: dict[str, Any]) -> None:  # pyright: ignore[reportUnusedFunction]
            lateness.handled(order["order"])

        async with tarry.connect_async(self._dsn) as app:
            stop = asyncio.Event()
            running = asyncio.create_task(worker.run(app, WorkerSettings(concurrency=16), stop=stop))
            await asyncio.sleep(1)  # the worker is idle and listens
            queue = app.queue(QUEUE)
            await lateness.send(lambda i: queue.offer(None, body(i)), n, every_s)
            await until(lateness.done, running)
            stop.set()
            await running
        return lateness.result()

    def poll_only(self, *, n: int) -> dict[str, Any]:
        """Lease so many and settle none."""
        held = 0
        while held < n and (some := self._queue.try_poll_many(min(1_000, n - held))):
            held += len(some)
        return {"n": held}

    def close(self) -> None:
        self._app.close()
