"""Prometheus metrics of the broker. The names match the worker metrics."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from tarry.core.errors import UnknownQueue
from tarry.core.messages.model import Counts
from tarry.edges.telemetry import BUCKETS

if TYPE_CHECKING:
    from tarry.edges.http.app import Broker

COUNT_TO = 10_000
"""Messages of a queue are counted up to here: scraping must stay cheap."""
COUNTED_FOR_S = 5.0
"""Counts are cached this long."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_STATES = ("delayed", "ready", "leased", "dead")


class QueueGauges:
    """What is counted of each queue."""

    def __init__(self, registry: CollectorRegistry) -> None:
        by_state = f"Messages by state; {COUNT_TO:,} means that many or more."
        overdue = "How long the oldest deliverable message has been due."
        self.messages = Gauge("tarry_messages", by_state, ["queue", "state"], registry=registry)
        self.lag = Gauge("tarry_queue_lag_seconds", overdue, ["queue"], registry=registry)


class Meter:
    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        labels = ["method", "route"]
        requests = "Requests that got a response."
        took = "From the first byte of a request to the last byte of its response, including the wait of polls and streams."
        cut_off = "Live streams ended because their client did not keep up."
        connections = "Connections to the database, by state."
        waiting = "Requests that wait for a database connection."
        self._requests = Counter("tarry_http_requests", requests, [*labels, "status"], registry=registry)
        self._took = Histogram("tarry_http_request_seconds", took, labels, registry=registry, buckets=BUCKETS)
        self._polls = Gauge("tarry_long_polls", "Long polls in progress.", registry=registry)
        self._streams = Gauge("tarry_streams", "Live streams open.", registry=registry)
        self._cut_off = Counter("tarry_streams_cut_off", cut_off, registry=registry)
        self._connections = Gauge("tarry_pool_connections", connections, ["state"], registry=registry)
        self._waiting = Gauge("tarry_pool_waiting", waiting, registry=registry)
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._counted_cut_off = 0
        self._counts: dict[str, Counts] = {}
        self._counted_at = float("-inf")

    def count(self, method: str, route: str, status: int, took_s: float) -> None:
        label = method if method in _METHODS else "other"  # a client may invent methods, and each would be kept forever
        children = self._children.get((label, route, status))
        if children is None:  # looked up once: `labels` takes a lock and converts its arguments
            children = self._requests.labels(label, route, str(status)), self._took.labels(label, route)
            self._children[label, route, status] = children
        children[0].inc()
        children[1].observe(took_s)

    async def text(self, broker: Broker, queues: Sequence[str]) -> bytes:
        """The metrics of the broker and of these queues."""
        pool = await broker.store.connections()
        self._connections.labels("idle").set(pool.idle)
        self._connections.labels("used").set(pool.open - pool.idle)
        self._connections.labels("most").set(pool.most)
        self._waiting.set(pool.waiting)
        self._polls.set(broker.authenticator.taken("polls"))
        self._streams.set(broker.live.open)
        self._cut_off.inc(broker.live.cut_off - self._counted_cut_off)
        self._counted_cut_off = broker.live.cut_off
        return generate_latest(self.registry) + await self._messages(broker, queues)

    async def _messages(self, broker: Broker, queues: Sequence[str]) -> bytes:
        """Queue metrics, in a registry per request: each key may read different queues."""
        now = time.monotonic()
        if now >= self._counted_at + COUNTED_FOR_S:
            self._counts, self._counted_at = {}, now
        registry = CollectorRegistry()
        gauges = QueueGauges(registry)
        for queue in queues:
            if queue not in self._counts:
                try:
                    self._counts[queue] = await broker.app.queues.counts(queue, limit=COUNT_TO)
                except UnknownQueue:
                    continue  # deleted since it was listed
            for state in _STATES:
                gauges.messages.labels(queue, state).set(getattr(self._counts[queue], state).n)
            gauges.lag.labels(queue).set(self._counts[queue].lag_for.total_seconds())
        return generate_latest(registry)
