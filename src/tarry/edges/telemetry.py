"""Worker spans and metrics. OpenTelemetry and prometheus-client are optional dependencies."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tarry.api.delivery import DeliveredMessage
from tarry.core.extras import needs_extra
from tarry.services.worker.results import Handled, HandlerResult
from tarry.services.worker.worker import Worker

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)


def trace(worker: Worker) -> None:
    """Create a consumer span around every handler call, linked to the span that offered the message.

    Names and attributes follow OpenTelemetry's messaging conventions. The offering span is a link, not a parent: the message
    may have waited for days.
    """
    with needs_extra("telemetry", "a span"):
        from opentelemetry import trace as otel
        from opentelemetry.context import Context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    tracer = otel.get_tracer("tarry")

    @worker.middleware
    @contextmanager
    def span(delivery: DeliveredMessage[Any]) -> Generator[None]:  # pyright: ignore[reportUnusedFunction]
        queue: str = getattr(delivery, "queue", "")
        offered = TraceContextTextMapPropagator().extract(dict(delivery.headers), Context())
        origin = otel.get_current_span(offered).get_span_context()
        with tracer.start_as_current_span(
            f"process {queue}",
            context=Context(),
            kind=otel.SpanKind.CONSUMER,
            links=[otel.Link(origin)] if origin.is_valid else None,
            attributes={
                "messaging.system": "tarry",
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.destination.name": queue,
                "messaging.message.id": delivery.key,
                "tarry.message.version": delivery.version,
                "tarry.message.attempt": delivery.attempt,
                **({"tarry.message.type": delivery.type} if delivery.type else {}),
            },
        ):
            yield


class Metrics:
    """Prometheus metrics by queue, in a new registry unless one is given."""

    def __init__(self, worker: Worker, registry: CollectorRegistry | None = None) -> None:
        with needs_extra("telemetry", "a metric"):
            import prometheus_client as prometheus
        self.registry = registry or prometheus.CollectorRegistry()
        handled = "Deliveries handled, by result."
        failed = "Deliveries whose handler failed, or was buried."
        retried = "Deliveries whose handler failed, and that are tried again."
        dead = "Deliveries that ended as dead letters."
        took = "From the start of a handler until its message was settled."
        late = "From due to leased, by the database's clock."
        by_queue: dict[str, Any] = {"labelnames": ["queue"], "registry": self.registry}
        self._handled = prometheus.Counter("tarry_handled", handled, ["queue", "result"], registry=self.registry)
        self._failed = prometheus.Counter("tarry_failed", failed, **by_queue)
        self._retried = prometheus.Counter("tarry_retried", retried, **by_queue)
        self._dead = prometheus.Counter("tarry_dead", dead, **by_queue)
        self._took = prometheus.Histogram("tarry_handler_seconds", took, **by_queue, buckets=BUCKETS)
        self._late = prometheus.Histogram("tarry_lateness_seconds", late, **by_queue, buckets=BUCKETS)
        self._running = prometheus.Gauge("tarry_in_flight", "Handlers running.", **by_queue)
        for queue in worker.queues:
            self._running.labels(queue).set(0)
            for counter in (self._failed, self._retried, self._dead):
                counter.labels(queue)
        worker.on("started")(self._on_started)
        worker.on("finished")(self._on_finished)

    def text(self) -> bytes:
        """The metrics in Prometheus's text format."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)

    def _on_started(self, delivery: Any) -> None:
        self._running.labels(delivery.queue).inc()
        self._late.labels(delivery.queue).observe(max(0.0, (delivery.leased_at - delivery.due_at).total_seconds()))

    def _on_finished(self, handled: Handled) -> None:
        if handled.started:
            self._running.labels(handled.queue).dec()
        self._handled.labels(handled.queue, handled.result.value).inc()
        self._took.labels(handled.queue).observe(handled.took_s)
        if handled.result in (HandlerResult.FAILED, HandlerResult.BURIED):
            self._failed.labels(handled.queue).inc()
            (self._dead if handled.dead else self._retried).labels(handled.queue).inc()
