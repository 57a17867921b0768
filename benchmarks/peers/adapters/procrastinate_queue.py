# pyright: reportMissingImports=false, reportFunctionMemberAccess=false
"""Procrastinate through `Task.defer_async`, `batch_defer_async` and `App.run_worker_async`.

It has no call that fetches jobs: one by one is a worker with concurrency 1.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import procrastinate

from benchmarks.peers.adapters.agent import Countdown, Lateness, Watch, body


class Adapter:
    async def open(self, dsn: str, *, create: bool = True, lease_s: float = 3600) -> None:
        self._lease_s = lease_s
        self._app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=dsn, max_size=10))
        await self._app.open_async()
        if create:
            await self._app.schema_manager.apply_schema_async()
        self._handle: Any = None

        @self._app.task(name="bench", queue="bench")
        async def bench(**order: Any) -> None:
            await self._handle(order)

        self._task = bench

    async def produce(
        self, *, seconds: float = 1e9, batch: int = 1, most: int | None = None, delay_s: float = 0
    ) -> dict[str, Any]:
        watch = Watch(seconds, most)
        at = datetime.now(UTC) + timedelta(seconds=delay_s)
        task = self._task.configure(schedule_at=at) if delay_s else self._task
        while watch.goes_on:
            if batch == 1:
                await task.defer_async(**body(watch.n))
            else:
                await task.batch_defer_async(*(body(i) for i in range(watch.n, watch.n + batch)))
            watch.step(batch)
        return watch.result()

    async def work(self, *, n: int, concurrency: int) -> dict[str, Any]:
        countdown = Countdown(n)

        async def handle(order: dict[str, Any]) -> None:
            countdown.count()

        await self._run(handle, concurrency, countdown.done.wait())
        return countdown.result()

    async def late(self, *, n: int, every_s: float) -> dict[str, Any]:
        lateness = Lateness(n)

        async def handle(order: dict[str, Any]) -> None:
            lateness.handled(order["order"])

        async def send() -> None:
            await asyncio.sleep(1)
            await lateness.send(lambda i: self._task.defer_async(**body(i)), n, every_s)
            await lateness.done.wait()

        await self._run(handle, 16, send())
        return lateness.result()

    async def _run(self, handle: Any, concurrency: int, until: Any) -> None:
        self._handle = handle
        running = asyncio.create_task(
            self._app.run_worker_async(
                queues=["bench"], concurrency=concurrency, install_signal_handlers=False, shutdown_graceful_timeout=5
            )
        )
        await until
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    async def close(self) -> None:
        await self._app.close_async()
