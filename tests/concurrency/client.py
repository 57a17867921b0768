"""One client process: offers, leases and settles at random until its standard input is closed, and writes it all down.

    python -m tests.concurrency.client '{"dsn": …, "history": …, "name": …, "seed": …}'

Nothing is tried again (`Patience.none`): what got no answer is written down as unknown, which is what it is.
"""

from __future__ import annotations

import asyncio
import logging
import random
import select
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from tarry.core.errors import StoreUnavailable
from tarry.core.messages import KEEP, REPLACE, Draft, Failure, Hold, Lease
from tarry.core.settings import Patience, StoreSettings
from tarry.storage.postgres.aio import AsyncPostgresStore
from tarry.storage.postgres.sync import PostgresStore
from tests.concurrency.planted import plant
from tests.concurrency.recording import OK, UNKNOWN, Recorder, leased, now_us

QUEUE = "history"
HOT_KEYS = 12
MS = 1_000


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a client is told to do. `tasks` above one makes it an awaiting client, whose offers and acks are gathered."""

    dsn: str
    history: str
    name: str
    seed: int
    tasks: int = 1
    bug: str | None = None
    lease_ms: int = 1_000
    offers_only: bool = False
    hot: float = 0.25
    """Share of the offers that go to one of a few keys. All other keys are used once: no loss can hide there."""


@dataclass(slots=True)
class Held:
    lease: Lease[bytes]
    plan: str
    settle_at: int
    touched: bool = False


@dataclass(slots=True)
class Client:
    order: Order
    store: Any
    recorder: Recorder
    task: int
    chance: random.Random
    held: list[Held] = field(default_factory=list)
    settled: list[Hold] = field(default_factory=list)
    offered: int = 0

    async def step(self) -> None:
        self.held.sort(key=lambda held: held.settle_at)
        if self.order.offers_only:
            await self._offer()
        elif self.held and self.held[0].settle_at <= now_us():
            await self._settle(self.held.pop(0))
        elif len(self.held) < 8 and self.chance.random() < 0.45:
            await self._lease()
        elif self.settled and self.chance.random() < 0.03:
            hold = self.chance.choice(self.settled)
            await self._say("ack", hold, lambda: self.store.ack(QUEUE, [hold]))
        elif self.chance.random() < 0.01:
            key = self._hot_key()
            await self._tell("drop", [key], lambda: self.store.drop(QUEUE, key), lambda gone: [gone])
        else:
            await self._offer()

    async def _offer(self) -> None:
        self.offered += 1
        name = f"{self.order.name}.{self.task}.{self.offered}"
        hot = self.chance.random() < self.order.hot
        key = self._hot_key() if hot else f"once/{name}"
        delay_ms = self.chance.choice([0, 0, 0, 20, 100, 300])
        rule = KEEP if self.chance.random() < 0.1 else REPLACE
        draft = Draft(
            key, name.encode(), delay=timedelta(milliseconds=delay_ms), priority=self.chance.randrange(3), conflict=rule
        )
        facts = [key, name, delay_ms * MS]
        await self._tell("offer", facts, lambda: self.store.offer(QUEUE, draft), lambda outcome: [outcome.value])

    def _hot_key(self) -> str:
        return f"hot/{self.chance.randrange(HOT_KEYS)}"

    async def _lease(self) -> None:
        n = self.chance.choice([1, 1, 1, 5])
        kept: list[Lease[bytes]] = []

        def written(leases: list[Lease[bytes]]) -> list[Any]:
            kept.extend(leases)
            return [leased(lease) for lease in leases]

        await self._tell("lease", [n], lambda: self.store.lease(QUEUE, n, _plain), written)
        for lease in kept:
            plan = self.chance.choices(
                ["ack", "late ack", "touch", "nack", "release", "forget"], [60, 12, 12, 8, 4, 4]
            )[0]
            wait_ms = {"late ack": self.order.lease_ms + self.chance.choice([5, 50, 300]), "touch": 300}.get(plan, 0)
            if plan != "forget":
                self.held.append(Held(lease, plan, now_us() + wait_ms * MS))

    async def _settle(self, held: Held) -> None:
        hold = held.lease.hold
        if held.plan == "touch" and not held.touched:
            await self._say("touch", hold, lambda: self.store.touch(QUEUE, [hold]))
            # Once more in time, or once too late: both answers must be right.
            wait_ms = self.chance.choice([300, self.order.lease_ms + 50])
            again = "touch" if self.chance.random() < 0.5 else "ack"
            self.held.append(Held(held.lease, again, now_us() + wait_ms * MS, touched=again == "ack"))
            if self.chance.random() < 0.2:
                self.held[-1].plan = "ack"
        elif held.plan == "nack":
            delay = timedelta(milliseconds=self.chance.choice([0, 50, 200]))
            await self._say("nack", hold, lambda: self.store.nack(QUEUE, [Failure(hold, "no", delay)]))
        elif held.plan == "release":
            await self._say("release", hold, lambda: self.store.release(QUEUE, [hold]))
        else:
            await self._say("ack", hold, lambda: self.store.ack(QUEUE, [hold]))
            self.settled = [*self.settled[-20:], hold]

    async def _say(self, verb: str, hold: Hold, call: Callable[[], Awaitable[Any]]) -> None:
        await self._tell(verb, [hold.key, str(hold.token)], call, lambda answers: [answers[0].value])

    async def _tell(
        self, op: str, facts: list[Any], call: Callable[[], Awaitable[Any]], written: Callable[[Any], list[Any]]
    ) -> None:
        number = self.recorder.begin(op, *facts)
        try:
            answer = await call()
        except StoreUnavailable as error:
            self.recorder.end(number, UNKNOWN, str(error))
        except Exception as error:
            self.recorder.end(number, f"{type(error).__name__}: {error}")
        else:
            self.recorder.end(number, OK, *written(answer))


def _plain(data: bytes, content_type: str | None) -> bytes:
    return data


class Awaited:
    """A blocking store with the face of an awaiting one, for a client with one task."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            return method(*args, **kwargs)

        return call


async def run(order: Order, stopping: Callable[[], bool]) -> None:
    if order.bug is not None:
        plant(order.bug)
    # Short waits: a connection that cannot be had is an answer like any other, and the next try comes soon.
    settings = StoreSettings(pool_size=4, patience=Patience.none(), connect_for=timedelta(milliseconds=500))
    recorder = Recorder(Path(order.history) / f"{order.name}.history")
    if order.tasks == 1:
        store: Any = Awaited(PostgresStore(order.dsn, settings=settings))
    else:
        store = AsyncPostgresStore(order.dsn, settings=settings)
        await store.open()
    clients = [
        Client(order, store, recorder, task, random.Random(f"{order.seed}/{order.name}/{task}"))
        for task in range(order.tasks)
    ]

    async def live(client: Client) -> None:
        while not stopping():
            await client.step()
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(live(client))
    await store.close()


def stdin_closed() -> Callable[[], bool]:
    """Looks at most every 20 ms: it is asked before every operation."""
    looked, closed = 0.0, False

    def look() -> bool:
        nonlocal looked, closed
        if not closed and time.monotonic() - looked > 0.02:
            looked = time.monotonic()
            closed = bool(select.select([sys.stdin], [], [], 0)[0])
        return closed

    return look


if __name__ == "__main__":
    logging.disable()  # the pool's complaints about a server that we have killed
    asyncio.run(run(msgspec.json.decode(sys.argv[1], type=Order), stdin_closed()))
