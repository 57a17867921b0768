"""How late a delivery is after its time, and what waiting costs while nothing happens: Tarry beside pollers.

The pollers are consumers of the same store that look every so many seconds, as other queues do by default. They are not
measurements of those queues: a poll of theirs costs what it costs, and only the interval is taken from them.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from benchmarks.bench import Bench
from benchmarks.contenders import REGISTRY, TARRY
from benchmarks.results import quantile
from tarry.api._sync.delivery import Delivery
from tarry.api._sync.queue import Queue
from tarry.app import App
from tarry.core.operation import Operation
from tarry.core.settings import StoreSettings
from tarry.storage.postgres._sync.store import PostgresStore

WAITING = "tarry, waiting"
POLLERS = {
    1.0: "a poller every 1 s, the default of DBOS and of River's fetch",
    2.0: "a poller every 2 s, the default of pg-boss and Graphile Worker",
    3.0: "a poller every 3 s, the default of DelayedQueue",
    5.0: "a poller every 5 s, the default of Procrastinate and of River's scheduler",
    10.0: "a poller every 10 s, the default of db-scheduler",
}
IDLE_CONSUMERS = 50
_EVERY_S = 0.25

Wait = Callable[[Queue[Any], threading.Event], Sequence[Delivery[Any]]]


def run(bench: Bench) -> None:
    dsn = bench.database(REGISTRY[TARRY], "lateness")
    figures: dict[str, Any] = {"consumers": IDLE_CONSUMERS}
    with bench.progress.stage("lateness", 3) as step:
        step("idle")
        figures["idle"] = _lateness(bench, dsn, "idle")
        step("under load")
        with _load(dsn):
            figures["under load"] = _lateness(bench, dsn, "loaded")
        step(f"{IDLE_CONSUMERS} idle consumers")
        figures["statements_per_s"] = _idle_statements(dsn, bench.plan.lateness_s)
    bench.results.facts["lateness"] = figures


R = TypeVar("R")


@dataclass(slots=True)
class Consumer:
    """Takes from a queue of its own until it is stopped."""

    name: str
    queue: Queue[Any]
    wait: Wait
    leased_at: dict[int, tuple[datetime, datetime]] = field(default_factory=dict)
    committed_at: dict[int, datetime] = field(default_factory=dict)
    stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.stopping.is_set():
            for delivery in self.wait(self.queue, self.stopping):
                self.leased_at[delivery.payload] = delivery.due_at, delivery.leased_at
                delivery.ack()

    @property
    def late_ms(self) -> list[float]:
        """Since it was due and committed. The server and we have the same clock, being on the same machine."""
        delays_ms = [
            (leased_at - max(due_at, self.committed_at[n])).total_seconds() * 1000
            for n, (due_at, leased_at) in self.leased_at.items()
        ]
        return [max(0.0, late) for late in delays_ms]


def _waits(queue: Queue[Any], stopping: threading.Event) -> Sequence[Delivery[Any]]:
    return queue.poll_many(100, timedelta(seconds=1))


def _polls(every_s: float) -> Wait:
    def look(queue: Queue[Any], stopping: threading.Event) -> Sequence[Delivery[Any]]:
        if deliveries := queue.try_poll_many(100):
            return deliveries
        stopping.wait(every_s)
        return []

    return look


def _lateness(bench: Bench, dsn: str, phase: str) -> dict[str, Any]:
    """The same messages for all at the same time: half of them due at once, half of them some time later.

    Each phase has queues of its own: a slow poller may leave something behind.
    """
    ways: list[tuple[str, Wait]] = [(WAITING, _waits), *((name, _polls(every)) for every, name in POLLERS.items())]
    with ExitStack() as stack:
        producer = stack.enter_context(_app(dsn))
        consumers = [
            Consumer(name, stack.enter_context(_app(dsn)).queue(f"late-{phase}-{i}"), wait)
            for i, (name, wait) in enumerate(ways)
        ]
        stack.enter_context(_running([consumer.run for consumer in consumers], [c.stopping for c in consumers]))
        offered, ends = 0, time.monotonic() + bench.plan.lateness_s
        while time.monotonic() < ends:
            after = timedelta(seconds=0 if offered % 2 else random.uniform(0.1, 2))
            for consumer in consumers:
                producer.queue(consumer.queue.name).offer(None, offered, after=after)
                consumer.committed_at[offered] = datetime.now(UTC)
            offered += 1
            time.sleep(_EVERY_S * random.uniform(0.5, 1.5))
        connection_retry = time.monotonic() + (3 + max(POLLERS) if bench.plan.judges else 0.2)
        while time.monotonic() < connection_retry and any(len(c.leased_at) < offered for c in consumers):
            time.sleep(0.05)
        return {consumer.name: _summary(consumer.late_ms) for consumer in consumers}


def _summary(late_ms: Sequence[float]) -> dict[str, float]:
    if not late_ms:
        return {"n": 0}
    return {"n": len(late_ms), "p50": quantile(late_ms, 0.5), "p99": quantile(late_ms, 0.99), "max": max(late_ms)}


class Counting(PostgresStore):
    """Counts the statements it sends. PostgreSQL's own count lags, and has no client."""

    statements = 0

    def run(self, operation: Operation[R], conn: Any = None) -> R:
        self.statements += 1
        return super().run(operation, conn)


def _idle_statements(dsn: str, seconds: float) -> dict[str, float]:
    """Of fifty consumers in one process while nothing comes, after they have settled down for half as long."""
    timeout = timedelta(seconds=1.5 * seconds + 1)
    ways: dict[str, Wait] = {
        WAITING: lambda queue, _: queue.poll_many(1, timeout),
        POLLERS[1.0]: _polls(1.0),
        POLLERS[3.0]: _polls(3.0),
    }
    with ExitStack() as stack:
        stores: dict[str, Counting] = {}
        for i, (name, wait) in enumerate(ways.items()):
            store = stores[name] = Counting(dsn)
            queue = stack.enter_context(App(store, dsn=dsn)).queue(f"idle-{i}")
            crowd = [Consumer(name, queue, wait) for _ in range(IDLE_CONSUMERS)]
            stack.enter_context(_running([each.run for each in crowd], [each.stopping for each in crowd]))
        time.sleep(seconds / 2)
        before = {name: store.statements for name, store in stores.items()}
        time.sleep(seconds)
        return {name: (store.statements - before[name]) / seconds for name, store in stores.items()}


@contextmanager
def _running(work: Sequence[Callable[[], None]], stopping: Sequence[threading.Event]) -> Generator[None]:
    threads = [threading.Thread(target=each, daemon=True) for each in work]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for event in stopping:
            event.set()
        for thread in threads:
            thread.join(60)


def _app(dsn: str) -> App:
    return App(PostgresStore(dsn, settings=StoreSettings(pool_size=2)), dsn=dsn)


_LOAD = """
import sys, threading
import tarry
def work(app):
    queue = app.queue("load")
    while True:
        queue.offer(None, {"load": True})
        if delivery := queue.try_poll():
            delivery.ack()
with tarry.connect(sys.argv[1], allow_unsafe=True) as app:
    threads = [threading.Thread(target=work, args=(app,), daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    sys.stdin.read()
"""


@contextmanager
def _load(dsn: str) -> Generator[None]:
    """Four consumers of another queue that offer, poll and ack as fast as they can, in a process of their own."""
    process = subprocess.Popen([sys.executable, "-c", _LOAD, dsn], stdin=subprocess.PIPE)
    try:
        yield
    finally:
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
