"""What the broker counts of itself, as Prometheus reads it. The names are of one family with those of the workers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from tarry.core.errors import UnknownQueue
from tarry.core.messages import Counts
from tarry.edges.telemetry import BUCKETS

if TYPE_CHECKING:
    from tarry.edges.http.broker import Broker

COUNT_TO = 10_000
"""Counting a queue stops here: a look at it must stay cheap."""
COUNTED_FOR_S = 5.0
"""Counts are not taken again before: who looks more often sees the same ones."""
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_STATES = ("delayed", "ready", "leased", "dead")


class Meter:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = Counter(
            "tarry_http_requests", "Requests answered.", ["method", "route", "status"], registry=self.registry
        )
        self._took = Histogram(
            "tarry_http_request_seconds",
            "From the first byte of a request to the last of its answer; polls wait, and streams last.",
            ["method", "route"],
            registry=self.registry,
            buckets=BUCKETS,
        )
        self._polls = Gauge("tarry_long_polls", "Long polls under way.", registry=self.registry)
        self._streams = Gauge("tarry_streams", "Live streams open.", registry=self.registry)
        self._cut_off = Counter(
            "tarry_streams_cut_off", "Live streams ended because they did not keep up.", registry=self.registry
        )
        self._connections = Gauge(
            "tarry_pool_connections", "Connections to the database, by state.", ["state"], registry=self.registry
        )
        self._waiting = Gauge("tarry_pool_waiting", "Requests that wait for a connection.", registry=self.registry)
        self._told_cut_off = 0
        self._counts: dict[str, Counts] = {}
        self._counted_at = float("-inf")

    def answered(self, method: str, route: str, status: int, took_s: float) -> None:
        said = method if method in _METHODS else "other"  # anybody may invent one, and each would be kept for ever
        self._requests.labels(said, route, str(status)).inc()
        self._took.labels(said, route).observe(took_s)

    async def text(self, broker: Broker, queues: Sequence[str]) -> bytes:
        """Of the broker as a whole, and of these queues."""
        pool = await broker.store.connections()
        self._connections.labels("idle").set(pool.idle)
        self._connections.labels("used").set(pool.open - pool.idle)
        self._connections.labels("most").set(pool.most)
        self._waiting.set(pool.waiting)
        self._polls.set(broker.gate.taken("polls"))
        self._streams.set(broker.live.open)
        self._cut_off.inc(broker.live.cut_off - self._told_cut_off)
        self._told_cut_off = broker.live.cut_off
        return generate_latest(self.registry) + await self._messages(broker, queues)

    async def _messages(self, broker: Broker, queues: Sequence[str]) -> bytes:
        """In a registry of their own: who may see which queues differs from reader to reader."""
        now = time.monotonic()
        if now >= self._counted_at + COUNTED_FOR_S:
            self._counts, self._counted_at = {}, now
        registry = CollectorRegistry()
        gauge = Gauge(
            "tarry_messages", f"Messages by state; {COUNT_TO:,} means so many or more.", ["queue", "state"],
            registry=registry,
        )  # fmt: skip
        lag = Gauge(
            "tarry_queue_lag_seconds", "For how long the oldest message that could be delivered now has been due.",
            ["queue"], registry=registry,
        )  # fmt: skip
        for queue in queues:
            if queue not in self._counts:
                try:
                    self._counts[queue] = await broker.app.queues.counts(queue, limit=COUNT_TO)
                except UnknownQueue:
                    continue  # deleted since it was listed
            for state in _STATES:
                gauge.labels(queue, state).set(getattr(self._counts[queue], state).n)
            lag.labels(queue).set(self._counts[queue].lag_for.total_seconds())
        return generate_latest(registry)
