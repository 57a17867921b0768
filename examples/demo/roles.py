"""Producers and consumers of the demo: processes with their own connections; one is killed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from multiprocessing.connection import Connection
from typing import Any

import tarry
from tarry.core.messages.outcomes import Outcome

QUEUE = "demo"
LEASE_FOR = timedelta(seconds=2)
DOOMED = 3
"""Orders that cannot be paid: they use up their attempts and become dead letters."""
RETRY = tarry.Retry.fixed(timedelta(milliseconds=300), max_attempts=3)


@dataclass(frozen=True, slots=True)
class Offered:
    key: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Doomed:
    """A message that is never acknowledged."""

    key: str


@dataclass(frozen=True, slots=True)
class Delivered:
    consumer: str
    key: str
    attempt: int
    due_at: datetime
    leased_at: datetime


@dataclass(frozen=True, slots=True)
class Acked:
    key: str
    settled: tarry.Settled


def produce(dsn: str, name: str, tag: str, n: int, seconds: float, reports: Connection[Any, Any]) -> None:
    """Offer `n` messages over the first half of the demo, each due one to two seconds later, some of them twice."""
    with tarry.connect(dsn) as app:
        queue = app.queue(QUEUE)
        started = time.monotonic()
        for i in range(DOOMED if name == "a" else 0):
            queue.offer(f"unpaid-{tag}-{i}", {"order": i, "card": "expired"}, retry=RETRY)
            reports.send(Doomed(f"unpaid-{tag}-{i}"))
        for i in range(n):
            time.sleep(max(0.0, started + seconds / 2 * i / n - time.monotonic()))
            key, order = f"order-{tag}-{name}-{i:03}", {"order": i, "total": 10 + i % 7}
            due = timedelta(seconds=1 + (i * 7 % 10) / 10)
            reports.send(Offered(key, queue.offer(key, order, after=due, priority=9 if i % 20 == 0 else 0)))
            if i % 10 == 0:  # the customer changed the order: the last version wins
                reports.send(Offered(key, queue.offer(key, {**order, "total": 99}, after=due)))
    reports.close()


def consume(dsn: str, name: str, careless: bool, reports: Connection[Any, Any]) -> None:
    """Poll and ack until the pipe has a message. The careless consumer leases messages and does not settle them."""
    with tarry.connect(dsn, consumer=name) as app:
        queue = app.queue(QUEUE)
        while not reports.poll():
            for delivery in queue.poll_many(5 if careless else 1, timedelta(milliseconds=200), lease_for=LEASE_FOR):
                reports.send(Delivered(name, delivery.key, delivery.attempt, delivery.due_at, delivery.leased_at))
                if careless:
                    continue  # it is killed with these leases
                if "card" in delivery.payload:
                    delivery.nack(f"the card of order {delivery.payload['order']} has expired")
                    continue
                reports.send(Acked(delivery.key, delivery.ack()))
    reports.close()
