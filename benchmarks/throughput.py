"""Offers, polls and acks through the broker, beside the library and beside what Relay published."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import psutil

import tarry
from benchmarks.bare import Bare
from tarry.core.settings import StoreSettings
from tarry.http import AsyncClient
from tarry.storage.http import call

BATCH = 100


class Line(NamedTuple):
    what: str
    verb: str
    tasks: int
    relay: float | None = None
    """What Relay published: inside its own process, without HTTP and with its activity log switched off."""
    keyed: bool = False
    """The client sends an Idempotency-Key."""


class Figure(NamedTuple):
    line: Line
    library: float
    client: float
    unkeyed: float | None
    """By the client without an Idempotency-Key, where it sends one."""
    bare: float
    cpu_us: float
    """Of the broker's process, for each message of the bare client."""


class Verbs:
    """What is measured, on the library or on a client of the broker: they have the same verbs."""

    def __init__(self, app: Any) -> None:
        self._queue = app.queue("bench")

    async def offer(self, _: int) -> int:
        await self._queue.offer(None, {"n": 1})
        return 1

    async def offer_batch(self, _: int) -> int:
        return len(await self._queue.offer_many([tarry.Message(payload={"n": 1}) for _ in range(BATCH)]))

    async def poll_and_ack(self, _: int) -> int:
        delivery = await self._queue.try_poll()
        if delivery is None:
            return 0
        await delivery.ack()
        return 1

    async def poll_and_ack_batch(self, _: int) -> int:
        deliveries = await self._queue.try_poll_many(BATCH)
        if deliveries:
            await self._queue.leases.ack([delivery.lease_id for delivery in deliveries])
        return len(deliveries)

    async def cycle(self, number: int) -> int:
        await self.offer(number)
        return await self.poll_and_ack(number)


def lines(tasks: int) -> list[Line]:
    return [
        Line("offer, one at a time", "offer", 1, 847, keyed=True),
        Line("offer, 5 at once", "offer", 5, 2_134, keyed=True),
        Line(f"offer, {tasks} at once", "offer", tasks, keyed=True),
        Line(f"offer, batches of {BATCH}", "offer_batch", 1, 12_453, keyed=True),
        Line(f"offer, batches of {BATCH}, 2 at once", "offer_batch", 2, keyed=True),
        Line("poll + ack, one at a time", "poll_and_ack", 1),
        Line(f"poll + ack, {tasks} at once", "poll_and_ack", tasks),
        Line("offer + poll + ack, one at a time", "cycle", 1, 312, keyed=True),
        Line(f"poll + ack, {BATCH} together, 2 at once", "poll_and_ack_batch", 2),
    ]


async def rate(tasks: int, seconds: float, do: Callable[[int], Awaitable[int]]) -> tuple[float, int]:
    """How many a second, with so many at once, after each has done it once: connections are open by then. And how many."""
    await asyncio.gather(*(do(number) for number in range(tasks)))
    started, done = time.perf_counter(), 0

    async def work(number: int) -> None:
        nonlocal done
        while time.perf_counter() - started < seconds:
            finished = await do(number)  # not in one line: that would forget what others added meanwhile
            done += finished

    await asyncio.gather(*(work(number) for number in range(tasks)))
    return done / (time.perf_counter() - started), done


@contextmanager
def no_keys() -> Generator[None]:
    new_key = call.new_key
    call.new_key = lambda: None  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        call.new_key = new_key


async def fill(app: Any, line: Line) -> None:
    """Polls are to find something, however slow the offers before them were."""
    if line.verb.startswith("poll"):
        for _ in range(10):
            await app.queue("bench").offer_many([tarry.Message(payload={"n": 1}) for _ in range(1_000)])


async def beside(dsn: str, url: str, process: psutil.Process, tasks: int, seconds: float) -> list[Figure]:
    """Line by line, one way after the other, so that what else the machine does falls on all of them alike."""
    settings, figures = StoreSettings(pool_size=tasks), []
    async with tarry.connect_async(dsn, settings=settings) as app, AsyncClient(url, settings=settings) as client:
        for line in lines(tasks):

            async def measured(on: Any, line: Line = line) -> tuple[float, int]:
                await fill(app, line)
                return await rate(line.tasks, seconds, getattr(on, line.verb))

            library, _ = await measured(Verbs(app))
            by_client, _ = await measured(Verbs(client))
            unkeyed = None
            if line.keyed:
                with no_keys():
                    unkeyed, _ = await measured(Verbs(client))
            await fill(app, line)
            bare = Bare(url, BATCH)  # anew: what was idle during the others may have been closed by the broker
            before = process.cpu_times()
            by_bare, n = await rate(line.tasks, seconds, getattr(bare, line.verb))
            after = process.cpu_times()
            bare.close()
            cpu_s = after.user + after.system - before.user - before.system
            figures.append(Figure(line, library, by_client, unkeyed, by_bare, cpu_s / max(n, 1) * 1e6))
        await app.queue("bench").purge("Yes, please, I know what I'm doing!")
    return figures


def show(figures: Sequence[Figure]) -> None:
    def cell(value: float | None) -> str:
        return f"{'–' if value is None else f'{value:,.0f}':>9}"

    print(f"{'messages a second':36}{'library':>9}{'client':>9}{'no key':>9}{'bare':>9}{'Relay':>9}{'CPU µs':>9}")
    for figure in figures:
        rates = (figure.library, figure.client, figure.unkeyed, figure.bare, figure.line.relay, figure.cpu_us)
        print(f"{figure.line.what:36}{''.join(map(cell, rates))}")
    print(
        "client: tarry.http.AsyncClient; no key: the same without Idempotency-Key; bare: bytes on open sockets, with keys.\n"
        "CPU: of the broker, for each message of the bare client. Relay: as it published, in its own process, without HTTP\n"
        "or activity log."
    )
