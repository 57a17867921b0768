# pyright: reportMissingImports=false, reportUnknownMemberType=false
"""arq through `enqueue_job` and `Worker`. It has no call that fetches jobs, and none that enqueues several: those are awaited
together. Results are not kept (`keep_result=0`)."""

from __future__ import annotations

import asyncio
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker, func

from benchmarks.peers.adapters.agent import Countdown, Lateness, Watch, body

POLL_S = 0.01
"""Instead of its half a second, in which a worker with one job at a time would run two jobs per second."""


class Adapter:
    async def open(self, dsn: str, *, create: bool = True, lease_s: float = 3600) -> None:
        self._settings = RedisSettings.from_dsn(dsn)
        self._pool = await create_pool(self._settings)

    async def _offer(self, i: int, delay_s: float = 0) -> None:
        await self._pool.enqueue_job("bench", body(i), _defer_by=delay_s or None, _expires=7 * 86_400)

    async def produce(
        self, *, seconds: float = 1e9, batch: int = 1, most: int | None = None, delay_s: float = 0
    ) -> dict[str, Any]:
        watch = Watch(seconds, most)
        while watch.goes_on:
            await asyncio.gather(*(self._offer(i, delay_s) for i in range(watch.n, watch.n + batch)))
            watch.step(batch)
        return watch.result()

    async def work(self, *, n: int, concurrency: int) -> dict[str, Any]:
        countdown = Countdown(n)
        await self._run(lambda order: countdown.count(), concurrency, countdown.done.wait())
        return {**countdown.result(), "note": f"poll_delay {POLL_S:g} s"}

    async def late(self, *, n: int, every_s: float) -> dict[str, Any]:
        lateness = Lateness(n)

        async def send() -> None:
            await asyncio.sleep(1)
            await lateness.send(self._offer, n, every_s)
            await lateness.done.wait()

        await self._run(lambda order: lateness.handled(order["order"]), 16, send())
        return lateness.result()

    async def _run(self, handle: Any, concurrency: int, until: Any) -> None:
        async def bench(context: Any, order: dict[str, Any]) -> None:
            handle(order)

        worker = Worker(
            functions=[func(bench, name="bench", keep_result=0)],
            redis_settings=self._settings,
            max_jobs=concurrency,
            poll_delay=POLL_S,
            handle_signals=False,
        )
        running, done = asyncio.create_task(worker.async_run()), asyncio.ensure_future(until)
        await asyncio.wait({running, done}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()  # raises why the worker has ended
        await asyncio.sleep(0.1)  # the last job is finished in Redis after its handler has returned
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await worker.close()

    async def close(self) -> None:
        await self._pool.aclose()
