# pyright: reportMissingImports=false, reportUnknownMemberType=false
"""RQ through `Queue.enqueue`, `enqueue_many`, `enqueue_in`, and `SimpleWorker`, which does not fork for each job.

Results are not kept (`result_ttl=0`). It has no call that fetches jobs."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from datetime import timedelta
from typing import Any

from redis import Redis
from rq import Queue, SimpleWorker

from benchmarks.peers.adapters.agent import Countdown, Lateness, Unsupported, Watch, body

_handlers: list[Any] = []


def handle(order: dict[str, Any]) -> None:
    """The job: RQ imports it by its name."""
    _handlers[-1](order)


class Adapter:
    def open(self, dsn: str, *, create: bool = True, lease_s: float = 3600) -> None:
        logging.disable(logging.WARNING)
        self._redis = Redis.from_url(dsn)
        self._queue = Queue("bench", connection=self._redis)

    def produce(
        self, *, seconds: float = 1e9, batch: int = 1, most: int | None = None, delay_s: float = 0
    ) -> dict[str, Any]:
        watch = Watch(seconds, most)
        while watch.goes_on:
            numbers = range(watch.n, watch.n + batch)
            if delay_s:
                for i in numbers:
                    self._queue.enqueue_in(timedelta(seconds=delay_s), handle, body(i), result_ttl=0)
            elif batch == 1:
                self._queue.enqueue(handle, body(watch.n), result_ttl=0)
            else:
                self._queue.enqueue_many([Queue.prepare_data(handle, (body(i),), result_ttl=0) for i in numbers])
            watch.step(batch)
        return watch.result()

    async def work(self, *, n: int, concurrency: int) -> dict[str, Any]:
        if concurrency > 1:
            raise Unsupported("a worker of RQ runs one job at a time")
        countdown = Countdown(n)
        self._run(lambda order: countdown.count(), n)
        return {**countdown.result(), "note": "SimpleWorker: no process per job"}

    async def late(self, *, n: int, every_s: float) -> dict[str, Any]:
        lateness = Lateness(n)

        def send() -> None:
            time.sleep(1)
            for i in range(n):
                lateness.due[i] = time.perf_counter() + 60.0
                self._queue.enqueue(handle, body(i), result_ttl=0)
                lateness.due[i] = time.perf_counter()
                time.sleep(every_s)

        sender = threading.Thread(target=send)
        sender.start()
        self._run(lambda order: lateness.handled(order["order"]), n)
        sender.join()
        await asyncio.sleep(0)
        return lateness.result()

    def _run(self, handler: Any, n: int) -> None:
        _handlers.append(handler)
        worker = SimpleWorker([self._queue], connection=self._redis)
        worker.work(max_jobs=n, with_scheduler=False, logging_level="ERROR")

    def close(self) -> None:
        self._redis.close()
