"""The client roles that are not a random mix of verbs: worker, configurer and follower."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from collections.abc import Callable
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Any

import tarry
import tarry.http
from tarry.core.errors import StoreUnavailable
from tarry.core.journal.positions import Gap, LiveEvent
from tarry.core.settings import RetrySettings, StoreSettings
from tarry.services.worker.results import Handled, HandlerResult
from tarry.services.worker.worker import WorkerSettings
from tarry.storage.postgres.store import AsyncPostgresStore
from tests.chaos import layout
from tests.chaos.client import Order
from tests.chaos.recording import OK, UNKNOWN, Recorder, now_us, read_one
from tests.chaos.workload import NO_EFFECT, row_of, us

QUICK = timedelta(milliseconds=500)
PAGE = 20_000
"""Each page of a window reads the rest of it: a follower that fell behind on a busy machine must be able to catch up."""
MOST = 10_000_000
"""Events that a follower may be behind: more than a run makes, so that falling behind is no gap."""
VERBS = {
    HandlerResult.ACKED: "ack",
    HandlerResult.FAILED: "nack",
    HandlerResult.BURIED: "bury",
    HandlerResult.SNOOZED: "release",
    HandlerResult.RELEASED: "release",
}


async def _store(order: Order, connection_retry: RetrySettings) -> AsyncPostgresStore:
    settings = StoreSettings(pool_size=4, connection_retry=connection_retry, connect_for=QUICK, create_queues=False)
    store = AsyncPostgresStore(order.dsn, settings=settings)
    await store.open()
    return store


async def worker(order: Order, stopping: Callable[[], bool]) -> None:
    """Handlers that succeed, fail, snooze, bury and take longer than a lease, depending on the payload."""
    recorder = Recorder(order.file)
    crew = tarry.Worker()
    settling: dict[str, int] = {}

    def settle(delivery: Any, verb: str, delay: int = 0) -> None:
        facts = [[[delivery.key, str(delivery.token)]], delay, True]
        settling[str(delivery.token)] = recorder.begin(verb, layout.WORK.name, *facts)

    @crew.handler(layout.WORK.name, concurrency=8)
    async def handle(payload: str, delivery: tarry.AsyncDelivery[Any]) -> Any:
        number = recorder.begin("poll", layout.WORK.name, 1, at=us(delivery.leased_at))
        recorder.end(number, OK, [row_of(delivery)])
        lot = hashlib.sha256(payload.encode()).digest()[0]
        if lot < 20:
            await asyncio.sleep(layout.LEASE_S * 1.5)  # the heartbeat keeps the lease
        if lot < 60:
            settle(delivery, "nack")
            raise RuntimeError("failed on purpose")
        if lot < 70:
            settle(delivery, "release")
            return tarry.Snooze(after=timedelta(milliseconds=100))
        if lot < 75:
            settle(delivery, "bury")
            return tarry.Bury("buried on purpose")
        settle(delivery, "ack")
        return None

    @crew.on("finished")
    def finished(handled: Handled) -> None:
        number = settling.pop(str(handled.delivery.token), None)
        if number is not None and handled.result in VERBS:
            recorder.end(number, OK, ["done"])
        elif number is not None:
            recorder.end(number, UNKNOWN, handled.result.value)

    stop = asyncio.Event()

    async def watch() -> None:
        while not stopping():  # noqa: ASYNC110 - standard input is not a socket of the loop
            await asyncio.sleep(0.05)
        stop.set()

    store = await _store(order, RetrySettings(retries=3, cap_for=QUICK, total_for=timedelta(seconds=3)))
    watching = asyncio.create_task(watch())
    await crew.run(tarry.AsyncApp(store, dsn=order.dsn), WorkerSettings(grace=timedelta(seconds=2)), stop=stop)
    await watching
    await store.close()


async def configurer(order: Order, stopping: Callable[[], bool]) -> None:
    """One process changes all schedules, one after the other, so that each has one sequence of changes."""
    recorder, chance = Recorder(order.file), random.Random(f"{order.seed}/{order.name}")
    store = await _store(order, RetrySettings.none())
    cron = tarry.AsyncApp(store, dsn=order.dsn).cron()
    while not stopping():
        name, period_s = chance.choice(layout.SCHEDULES), chance.choice(layout.PERIODS_S)
        number = recorder.begin("put", layout.CRON.name, name, period_s * 1_000_000)
        try:
            installed = await cron.install_periodic(
                name, timedelta(seconds=period_s), queue=layout.CRON.name, payload=name, misfire="all"
            )
        except StoreUnavailable as error:
            recorder.end(number, UNKNOWN, str(error))
        except NO_EFFECT as error:
            # A conflict with a scheduler may be reported after several tries, of which the last was not answered.
            recorder.end(number, UNKNOWN, str(error))
        else:
            assert installed.state is not None
            recorder.end(number, OK, installed.state.spec.hash)
        await asyncio.sleep(chance.uniform(0.2, 0.8))
    await store.close()


async def follower(order: Order, stopping: Callable[[], bool]) -> None:
    """From the last position that its file has: a killed follower goes on where it was. It ends when nothing is new."""
    after = _last_position(order.file)
    recorder = Recorder(order.file, numbers_from=_last_number(order.file))
    if order.url is not None:
        await _tail_stream(order, recorder, after, stopping)
        return
    store = await _store(order, RetrySettings.none())
    while True:
        ending = stopping()
        number = recorder.begin("feed", "", after)
        try:
            page = await store.run(store.journal.tail(after, limit=PAGE, most=MOST))
        except (StoreUnavailable, *NO_EFFECT) as error:
            recorder.end(number, UNKNOWN, str(error))
            await asyncio.sleep(0.05)
            continue
        events = [[event.id, us(event.at)] for _, event in page.events]
        gap = None if page.gap is None else page.gap.value
        recorder.end(number, OK, events, gap, page.position, page.complete)
        after = page.position
        if ending and page.complete and not events:
            break
        if page.complete:
            await asyncio.sleep(0.1)
    await store.close()


async def _tail_stream(order: Order, recorder: Recorder, after: str | None, stopping: Callable[[], bool]) -> None:
    """One operation per batch of events that came within a tenth of a second. It ends after a second without any."""
    settings = StoreSettings(
        connection_retry=RetrySettings(retries=100, cap_for=QUICK), connect_for=timedelta(seconds=5)
    )
    arrived: asyncio.Queue[LiveEvent | Gap] = asyncio.Queue()

    async def listen(client: tarry.http.AsyncClient) -> None:
        position = after
        while True:
            try:
                async with aclosing(client.events(after=position)) as events:
                    async for event in events:
                        position = event.position
                        arrived.put_nowait(event)
            except (StoreUnavailable, *NO_EFFECT):
                await asyncio.sleep(0.05)

    async with tarry.http.AsyncClient(order.url, settings=settings) as client:
        listening = asyncio.create_task(listen(client))
        quiet_since = now_us()
        while not (stopping() and arrived.empty() and now_us() - quiet_since > 1_500_000):
            number = recorder.begin("feed", "", after)
            await asyncio.sleep(0.1)
            batch: list[Any] = []
            gap: str | None = None
            while not arrived.empty() and gap is None:
                event = arrived.get_nowait()
                quiet_since, after = now_us(), event.position
                if isinstance(event, LiveEvent):
                    batch.append([event.event.id, us(event.event.at)])
                else:
                    gap = event.reason.value
            # A stream has no mark of its end: its progress is that of the events received.
            recorder.end(number, OK, batch, gap, after, False)
        listening.cancel()


def _last_position(path: Path) -> str | None:
    if not path.exists():
        return None
    return next((op.result[2] for op in reversed(list(read_one(path))) if op.status == OK), None)


def _last_number(path: Path) -> int:
    if not path.exists():
        return 0
    lines = path.read_bytes().split(b"\n")
    if lines[-1]:  # cut off by a kill: end the line, so that the next one is whole
        path.write_bytes(b"\n".join(lines[:-1]) + b"\n")
    return max((abs(json.loads(line)[0]) for line in lines[:-1] if line), default=0)
