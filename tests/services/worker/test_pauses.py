"""A pause takes effect within a second everywhere, and nothing is lost or counted by it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import tarry
from tarry import Message, Worker
from tarry.app import App, AsyncApp
from tarry.edges.http.settings import BrokerSettings
from tarry.http import Client
from tarry.services.worker.worker import WorkerSettings
from tests.kit.blocking import Loop
from tests.kit.brokers import broker_on
from tests.kit.sleepers import until
from tests.kit.steps import SECOND, in_background

QUEUE = "orders"
MESSAGES = 2_000
WORK_S = 0.02
LIMIT_S = 3.0
"""Promised is one, and the machine may be busy."""


class Consumer:
    """Polls messages one by one until it is stopped; each takes a moment."""

    def __init__(self) -> None:
        self.took_at: list[float] = []
        self.stop = threading.Event()

    def work(self) -> None:
        self.took_at.append(time.monotonic())
        self.stop.wait(WORK_S)


def by_poll(dsn: str, consumer: Consumer) -> None:
    with tarry.connect(dsn) as app:
        while not consumer.stop.is_set():
            if delivery := app.queue(QUEUE).poll(SECOND):
                with delivery:
                    consumer.work()


def by_consume(dsn: str, consumer: Consumer) -> None:
    with tarry.connect(dsn) as app:
        for delivery in app.queue(QUEUE).consume(prefetch=200):
            with delivery:
                consumer.work()
            if consumer.stop.is_set():
                return


def by_worker(dsn: str, consumer: Consumer) -> None:
    worker = Worker()

    @worker.handler(QUEUE, prefetch=100)
    def handle(payload: int) -> None:
        consumer.work()

    async def work() -> None:
        stop = asyncio.Event()
        async with tarry.connect_async(dsn) as app:
            running = asyncio.create_task(worker.run(app, WorkerSettings(concurrency=4), stop=stop))
            await asyncio.to_thread(consumer.stop.wait)
            stop.set()
            await running

    asyncio.run(work())


def by_http(dsn: str, consumer: Consumer, consume: Callable[[Client, Consumer], None]) -> None:
    loop = Loop()
    try:
        behind = loop.run(_opened(dsn))
        with broker_on(behind, loop, BrokerSettings(anonymous=True)) as url, Client(url) as client:
            consume(client, consumer)
        loop.run(behind.close())
    finally:
        loop.stop()


async def _opened(dsn: str) -> AsyncApp:
    return await tarry.connect_async(dsn)


def by_long_poll(dsn: str, consumer: Consumer) -> None:
    def consume(client: Client, consumer: Consumer) -> None:
        while not consumer.stop.is_set():
            if delivery := client.queue(QUEUE).poll(SECOND):
                with delivery:
                    consumer.work()

    by_http(dsn, consumer, consume)


def by_http_consume(dsn: str, consumer: Consumer) -> None:
    def consume(client: Client, consumer: Consumer) -> None:
        for delivery in client.queue(QUEUE).consume(prefetch=100):
            with delivery:
                consumer.work()
            if consumer.stop.is_set():
                return

    by_http(dsn, consumer, consume)


@contextmanager
def running(way: Callable[[str, Consumer], None], dsn: str) -> Iterator[Consumer]:
    consumer = Consumer()
    with in_background(way, dsn, consumer) as ended:
        try:
            yield consumer
        finally:
            consumer.stop.set()
        ended.result(30)


@pytest.mark.parametrize("way", [by_poll, by_consume, by_worker, by_long_poll, by_http_consume])
def test_a_pause_takes_effect_within_a_second(
    database: str, way: Callable[[str, Consumer], None], record_property: Callable[[str, object], None]
) -> None:
    with tarry.connect(database) as app:
        app.queue(QUEUE).offer_many([Message(key=f"k{n}", payload=n) for n in range(MESSAGES)])
        with running(way, database) as consumer:
            until(lambda: len(consumer.took_at) >= 30, "it does not work at all")
            app.queues.pause(QUEUE, reason="lunch")
            paused_at = time.monotonic()
            until(lambda: leased(app) == 0, "what was leased ahead was not given back")
            last_s = consumer.took_at[-1] - paused_at
            record_property("last_taken_after_s", round(last_s, 3))
            assert last_s < LIMIT_S
            taken = len(consumer.took_at)
            assert taken < MESSAGES, "there was nothing left to pause"
            app.queues.resume(QUEUE)
            until(lambda: len(consumer.took_at) >= taken + 30, "it did not go on")
        until(lambda: leased(app) == 0, "something is still held")
        left = app.store.run(app.store.messages.list(QUEUE, limit=MESSAGES))
        assert len(left) == MESSAGES - len(consumer.took_at)
        assert {message.attempt for message in left} == {0}, "what was given back was counted"


def leased(app: App) -> int:
    return app.queues.counts(QUEUE).leased.n
