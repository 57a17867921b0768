"""Schedules in a running program, by the database's own clock: planned beside it, and changed under its consumers."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import tarry
from tarry.core.cron import CronMessage, Verdict
from tests.kit.steps import PATIENCE, PATIENCE_S, all_at_once

SECOND = timedelta(seconds=1)
LONG_AGO = datetime(2024, 1, 1, tzinfo=UTC)
CHANGES = 60
TICKS = 20


def test_a_program_that_blocks_plans_beside_its_own_work(database: str) -> None:
    with tarry.connect(database) as app:
        queue = app.queue("beats")
        with app.cron() as cron:
            cron.install_periodic("beat", SECOND, queue="beats", payload=lambda tick: tick.isoformat())
            found = [queue.poll(PATIENCE) for _ in range(2)]
        assert [one.payload for one in found if one] == [one.headers["tarry-tick"] for one in found if one]
        assert len({one.key for one in found if one}) == 2


def test_a_program_that_awaits_does_too(database: str) -> None:
    async def test() -> None:
        async with tarry.connect_async(database) as app:
            queue = app.queue("beats")
            async with app.cron() as cron:
                await cron.install_periodic("beat", SECOND, queue="beats", payload=lambda tick: tick.isoformat())
                found = [await queue.poll(PATIENCE) for _ in range(2)]
            assert len({one.key for one in found if one}) == 2

    asyncio.run(test())


def test_nothing_of_an_old_configuration_begins_after_the_commit_of_the_new(database: str) -> None:
    """Consumers poll all the time; whoever asks after a commit is given nothing older."""
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
                consumer.join(PATIENCE_S)
        app.cron().uninstall_tick(f"h{CHANGES}", "p")
        records = app.schedules.history("p", limit=10_000)
    assert stale == []
    assert set(begun.values()) == {1}
    taken_back = sum(record.verdict is Verdict.WITHDRAWN for record in records)
    assert (len(records), taken_back + len(begun)) == (CHANGES * TICKS, CHANGES * TICKS)
    assert taken_back > 0 < len(begun)


def test_of_two_that_are_installed_at_once_one_holds_and_nothing_of_the_other_waits(database: str) -> None:
    with tarry.connect(database) as app:
        app.queue("q").offer("first", 0)
        for n in range(10):
            ways = [timedelta(hours=1 + n), timedelta(hours=20 + n), timedelta(hours=40 + n)]
            all_at_once([lambda way=way: app.cron().install_periodic("p", way, queue="q") for way in ways])
            (record,) = app.store.waiting_ticks("p")
            assert record.hash == app.schedules.get("p").spec.hash
