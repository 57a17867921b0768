# pyright: reportMissingImports=false
"""PgQueuer through `Queries` and `PgQueuer.run`, over asyncpg as its documentation recommends."""

from __future__ import annotations

import asyncio
import json
import uuid
from datetime import timedelta
from typing import Any

import asyncpg
from pgqueuer import AsyncpgDriver, AsyncpgPoolDriver, PgQueuer, Queries
from pgqueuer.ports.repository import EntrypointExecutionParameter

from benchmarks.peers.adapters.agent import Countdown, Lateness, Watch, body


class Adapter:
    async def open(self, dsn: str, *, create: bool = True, lease_s: float = 3600) -> None:
        self._dsn, self._lease = dsn, timedelta(seconds=lease_s)
        self._conn = await asyncpg.connect(self._dsn)
        self._queries = Queries(AsyncpgDriver(self._conn))
        if create:
            await self._queries.install()

    async def produce(
        self, *, seconds: float = 1e9, batch: int = 1, most: int | None = None, delay_s: float = 0
    ) -> dict[str, Any]:
        watch = Watch(seconds, most)
        after = timedelta(seconds=delay_s) if delay_s else None
        while watch.goes_on:
            payloads = [json.dumps(body(i)).encode() for i in range(watch.n, watch.n + batch)]
            if batch == 1:
                await self._queries.enqueue("bench", payloads[0], 0, after)
            else:
                await self._queries.enqueue(["bench"] * batch, payloads, [0] * batch, [after] * batch)
            watch.step(batch)
        return watch.result()

    async def _fetch(self, batch: int) -> list[Any]:
        entrypoints = {"bench": EntrypointExecutionParameter(concurrency_limit=0)}
        return await self._queries.dequeue(batch, entrypoints, uuid.uuid4(), None, self._lease)

    async def consume(self, *, seconds: float, batch: int = 1, most: int | None = None) -> dict[str, Any]:
        watch = Watch(seconds, most)
        while watch.goes_on and (jobs := await self._fetch(batch)):
            for job in jobs:
                json.loads(job.payload)
            await self._queries.log_jobs([(job, "successful", None) for job in jobs])
            watch.step(len(jobs))
        return watch.result()

    async def work(self, *, n: int, concurrency: int) -> dict[str, Any]:
        countdown = Countdown(n)

        async def handle(job: Any) -> None:
            json.loads(job.payload)
            countdown.count()

        await self._run(handle, concurrency, countdown.done.wait())
        return countdown.result()

    async def late(self, *, n: int, every_s: float) -> dict[str, Any]:
        lateness = Lateness(n)

        async def handle(job: Any) -> None:
            lateness.handled(json.loads(job.payload)["order"])

        async def send() -> None:
            await asyncio.sleep(1)
            await lateness.send(lambda i: self._queries.enqueue("bench", json.dumps(body(i)).encode()), n, every_s)
            await lateness.done.wait()

        await self._run(handle, 16, send())
        return lateness.result()

    async def _run(self, handle: Any, concurrency: int, until: Any) -> None:
        async with asyncpg.create_pool(self._dsn, min_size=2, max_size=10) as pool:
            queue = PgQueuer(AsyncpgPoolDriver(pool))
            queue.entrypoint("bench")(handle)
            # The limit of running jobs must be twice the batch; a batch is what is fetched and logged together.
            running = asyncio.create_task(
                queue.run(batch_size=max(1, concurrency // 2), max_concurrent_tasks=max(2, concurrency))
            )
            await until
            queue.shutdown.set()
            await running

    async def poll_only(self, *, n: int) -> dict[str, Any]:
        held = 0
        while held < n and (jobs := await self._fetch(min(1_000, n - held))):
            held += len(jobs)
        return {"n": held}

    async def close(self) -> None:
        await self._conn.close()
