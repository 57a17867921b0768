"""Schedules in a running program, by the database's own clock: planned beside it, and changed under its consumers."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import tarry
from tarry.core.cron.model import CronMessage, Verdict
from tests.kit.steps import TIMEOUT, TIMEOUT_S, all_at_once

SECOND = timedelta(seconds=1)
LONG_AGO = datetime(2024, 1, 1, tzinfo=UTC)
CHANGES = 60
TICKS = 20


def test_a_program_that_blocks_plans_beside_its_own_work(database: str) -> None:
    with tarry.connect(database) as app:
        queue = app.queue("beats")
        with app.cron() as cron:
            cron.install_periodic("beat", SECOND, queue="beats", payload=lambda tick: tick.isoformat())
            deliveries = [queue.poll(TIMEOUT) for _ in range(2)]
        assert [delivery.payload for delivery in deliveries if delivery] == [
            delivery.headers["tarry-tick"] for delivery in deliveries if delivery
        ]
        assert len({delivery.key for delivery in deliveries if delivery}) == 2


def test_a_program_that_awaits_does_too(database: str) -> None:
    async def test() -> None:
        async with tarry.connect_async(database) as app:
            queue = app.queue("beats")
            async with app.cron() as cron:
                await cron.install_periodic("beat", SECOND, queue="beats", payload=lambda tick: tick.isoformat())
                deliveries = [await queue.poll(TIMEOUT) for _ in range(2)]
            assert len({delivery.key for delivery in deliveries if delivery}) == 2

    asyncio.run(test())


def test_nothing_of_an_old_configuration_begins_after_the_commit_of_the_new(database: str) -> None:
    """Consumers poll all the time; a poll after a commit gets nothing older."""
    committed, over = [0], threading.Event()
    begun: Counter[str] = Counter()
    stale: list[Any] = []

    def consume() -> None:
        with tarry.connect(database) as app:
            queue = app.queue("q")
            while not over.is_set():
                newest = committed[0]
                for delivery in queue.try_poll_many(3):
                    begun[delivery.key] += 1
                    stale.extend([delivery.key] if delivery.payload < newest else [])
                    delivery.ack()

    with tarry.connect(database) as app:
        app.queues.create("q")
        consumers = [threading.Thread(target=consume) for _ in range(2)]
        for consumer in consumers:
            consumer.start()
        try:
            for n in range(1, CHANGES + 1):
                messages = [CronMessage(n, LONG_AGO + i * SECOND) for i in range(TICKS)]
                app.cron().install_tick(f"h{n}", "p", messages, queue="q")
                committed[0] = n
        finally:
            over.set()
            for consumer in consumers:
                consumer.join(TIMEOUT_S)
        app.cron().uninstall_tick(f"h{CHANGES}", "p")
        records = app.schedules.history("p", limit=10_000)
    assert stale == []
    assert set(begun.values()) == {1}
    taken_back = sum(record.verdict is Verdict.WITHDRAWN for record in records)
    assert (len(records), taken_back + len(begun)) == (CHANGES * TICKS, CHANGES * TICKS)
    assert taken_back > 0 < len(begun)


def test_one_of_two_concurrent_installations_wins_and_no_message_of_the_other_is_left(database: str) -> None:
    with tarry.connect(database) as app:
        app.queue("q").offer("first", 0)
        for n in range(10):
            ways = [timedelta(hours=1 + n), timedelta(hours=20 + n), timedelta(hours=40 + n)]
            all_at_once([lambda way=way: app.cron().install_periodic("p", way, queue="q") for way in ways])
            (record,) = app.store.run(app.store.cron.waiting_ticks("p"))
            assert record.hash == app.schedules.get("p").spec.hash
