"""Tarry through its public interface, as a user's program calls it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any

import psycopg

from benchmarks.contenders.protocol import Body
from tarry.api._sync.delivery import Delivery
from tarry.api.delivery import AsyncDelivery
from tarry.app import App, AsyncApp, connect, connect_async, prepare
from tarry.core.journal.events import JournalLevel
from tarry.core.messages.model import Message
from tarry.core.settings import QueueSettings

QUEUE = "bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class TarryQueue:
    name: str
    journal: JournalLevel
    table: str = "tarry.message"

    @property
    def slug(self) -> str:
        return f"tarry_{self.journal.value}"

    @property
    def settings(self) -> QueueSettings:
        return QueueSettings(journal=self.journal, lease_for=timedelta(hours=1))

    def create(self, dsn: str, *, durable: bool) -> None:
        prepare(dsn, migrate=True, allow_unsafe=not durable)
        with connect(dsn, allow_unsafe=not durable) as app:
            app.queues.create(QUEUE, self.settings)

    def fill(self, dsn: str, n: int, *, due_in_s: float) -> None:
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute(
                "insert into tarry.message (due_at, planned_at, created_at, queue, priority, conflict, key, payload) "
                "select t.due_at, t.due_at, t.now, q.id, 0, 0, 'filled-' || lpad(i::text, 29, '0'), %s::bytea "
                "from tarry.queue q cross join generate_series(1, %s::int) i cross join lateral (select now() as now, "
                "now() + make_interval(secs => %s::float8 + i * 0.0001) as due_at) t where q.name = %s",
                [b'{"filled": true}', n, due_in_s, QUEUE],
            )

    def open(self, dsn: str, *, durable: bool) -> TarrySession:
        return TarrySession(connect(dsn, allow_unsafe=not durable))

    async def open_async(self, dsn: str, *, durable: bool) -> AsyncTarrySession:
        return AsyncTarrySession(await connect_async(dsn, allow_unsafe=not durable))


class TarrySession:
    def __init__(self, app: App) -> None:
        self._app = app
        self._queue = app.queue(QUEUE)

    def offer_one(self, body: Body) -> None:
        self._queue.offer(None, body)

    def offer_many(self, bodies: Sequence[Body], keys: Sequence[str] | None = None) -> None:
        if keys is None:
            self._queue.offer_many([Message(payload=body) for body in bodies])
        else:
            self._queue.offer_many([Message(payload=body, key=key) for body, key in zip(bodies, keys, strict=True)])

    def poll_one(self) -> Delivery[Any] | None:
        delivery = self._queue.try_poll()
        if delivery is not None:
            _ = delivery.payload  # decoded on access
        return delivery

    def ack_one(self, held: Delivery[Any]) -> None:
        held.ack()

    def consume(self, n: int) -> None:
        for delivery in islice(self._queue.consume(), n):
            _ = delivery.payload
            delivery.ack()

    def poll_many(self, n: int) -> tuple[list[Delivery[Any]], int]:
        deliveries = self._queue.try_poll_many(n)
        for delivery in deliveries:
            _ = delivery.payload
        return deliveries, len(deliveries)

    def ack_many(self, held: list[Delivery[Any]]) -> None:
        self._queue.leases.ack([delivery.lease_id for delivery in held])

    def close(self) -> None:
        self._app.close()


class AsyncTarrySession:
    def __init__(self, app: AsyncApp) -> None:
        self._app = app
        self._queue = app.queue(QUEUE)

    async def offer_one(self, body: Body) -> None:
        await self._queue.offer(None, body)

    async def lease(self, n: int) -> Sequence[AsyncDelivery[Any]]:
        deliveries: list[AsyncDelivery[Any]] = []
        while len(deliveries) < n and (some := await self._queue.try_poll_many(min(1_000, n - len(deliveries)))):
            deliveries += some
        return deliveries

    async def ack_one(self, held: AsyncDelivery[Any]) -> None:
        await held.ack()

    async def close(self) -> None:
        await self._app.close()
