"""Random traffic through the real store on a clock that the test moves; `recount` counts it independently."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import tarry
from tarry.api._sync.delivery import Delivery
from tarry.api._sync.queue import Queue
from tarry.app import App
from tarry.core.cron.model import CronMessage
from tarry.core.limits import PURGE_CONFIRMATION
from tarry.testing import MutableClock

EVENING = datetime(2024, 1, 1, 23, 40, tzinfo=UTC)
"""Traffic from here on crosses midnight."""


class Traffic:
    """Two queues, three consumers, everything that can happen to a message, in an order that a seed decides."""

    def __init__(self, dsn: str, seed: int) -> None:
        self.clock = MutableClock(EVENING)
        self.random = Random(seed)
        self.app = tarry.connect(dsn, clock=self.clock, consumer="w0")
        self.app.queues.create("orders", tarry.QueueSettings(max_attempts=3))
        self.app.queues.create("mails", tarry.QueueSettings(lease_for=timedelta(seconds=10)))
        self.consumers = [self.app, *(tarry.connect(dsn, clock=self.clock, consumer=name) for name in ("w1", "w2"))]
        self.held: list[Delivery[Any]] = []

    def close(self) -> None:
        for app in self.consumers:
            app.close()

    def steps(self, n: int) -> None:
        for _ in range(n):
            self.clock.advance(timedelta(microseconds=self.random.randint(0, 6_000_000)))
            self._step(self.random.choice(self.consumers).queue(self.random.choice(("orders", "mails"))))

    def the_rest(self) -> None:
        """The kinds of events that no step makes."""
        queues, cron = self.app.queues, self.app.cron()
        orders, spare = self.app.queue("orders"), self.app.queue("spare")
        orders.offer("edited", 1)
        orders.edit("edited", payload=2)
        soon = self.clock.pinned() + timedelta(hours=2)
        for config in ("v1", "v2"):  # the second replaces the tick of the first
            cron.install_tick(config, "nightly", [CronMessage({"config": config}, soon)], queue="orders")
        spare.offer("purged", 1)
        spare.purge(PURGE_CONFIRMATION)
        queues.pause("spare")
        queues.resume("spare")
        queues.edit("spare", max_attempts=9)
        queues.rename("spare", "spared")
        queues.delete("spared")

    def _step(self, queue: Queue[Any]) -> None:
        draw, key = self.random.random(), f"k{self.random.randint(0, 40)}"
        if draw < 0.35:
            delay = timedelta(seconds=self.random.choice((-30, 0, 0, 1.5, 20, 90)))
            at = self.clock.pinned() + delay
            queue.offer(key, "x" * self.random.randint(0, 50), at=at, priority=self.random.randint(0, 9))
        elif draw < 0.6:
            self.held += queue.try_poll_many(self.random.randint(1, 4))
        elif draw < 0.63:
            queue.drop(key)
        elif draw < 0.645:
            queue.dead_letters.redrive(limit=5)
        elif draw < 0.65:
            queue.dead_letters.discard()
        elif self.held:
            self._settle(self.held.pop(self.random.randrange(len(self.held))))

    def _settle(self, delivery: Delivery[Any]) -> None:
        draw = self.random.random()
        if draw < 0.55:
            delivery.ack()
        elif draw < 0.75:
            delivery.nack(f"failed {self.random.randint(0, 9)}")
        elif draw < 0.83:
            delivery.release()
        elif draw < 0.88:
            delivery.bury("no use")
        elif draw < 0.94:
            delivery.touch()
            self.held.append(delivery)


def depth_now(app: App) -> dict[str, tuple[int, int]]:
    counts = {name: app.queues.counts(name) for name in ("orders", "mails")}
    return {name: (of.delayed.n + of.ready.n + of.leased.n, of.dead.n) for name, of in counts.items()}
