# pyright: reportMissingImports=false, reportUnknownMemberType=false
"""Dramatiq on its Redis broker, through `send`, `send_with_options` and `Worker`. It has no call that fetches messages, and
none that sends several."""

from __future__ import annotations

import asyncio
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.peers.adapters.agent import Countdown, Lateness, Watch, body


class Adapter:
    def open(self, dsn: str, *, create: bool = True, lease_s: float = 3600) -> None:
        self._dsn = dsn
        self._broker, self._actor = _broker(dsn, lambda order: None)

    def produce(
        self, *, seconds: float = 1e9, batch: int = 1, most: int | None = None, delay_s: float = 0
    ) -> dict[str, Any]:
        watch = Watch(seconds, most)
        while watch.goes_on:
            for i in range(watch.n, watch.n + batch):
                if delay_s:
                    self._actor.send_with_options(args=(body(i),), delay=int(delay_s * 1e3))
                else:
                    self._actor.send(body(i))
            watch.step(batch)
        return watch.result()

    async def work(self, *, n: int, concurrency: int) -> dict[str, Any]:
        countdown = Countdown(n)
        await self._run(lambda order: countdown.count(), concurrency, countdown.done.wait())
        return countdown.result()

    async def late(self, *, n: int, every_s: float) -> dict[str, Any]:
        lateness = Lateness(n)

        async def offer(i: int) -> None:
            await asyncio.to_thread(self._actor.send, body(i))

        async def send() -> None:
            await asyncio.sleep(1)
            await lateness.send(offer, n, every_s)
            await lateness.done.wait()

        await self._run(lambda order: lateness.handled(order["order"]), 16, send())
        return lateness.result()

    async def _run(self, handle: Any, threads: int, until: Any) -> None:
        broker, _ = _broker(self._dsn, handle)
        worker = dramatiq.Worker(broker, worker_threads=threads)
        worker.start()
        try:
            await until
        finally:
            await asyncio.to_thread(worker.stop)
            broker.close()

    def close(self) -> None:
        self._broker.close()


def _broker(dsn: str, handle: Any) -> tuple[Any, Any]:
    broker = RedisBroker(url=dsn)

    def bench(order: dict[str, Any]) -> None:
        handle(order)

    return broker, dramatiq.actor(bench, broker=broker, queue_name="bench", actor_name="bench")
