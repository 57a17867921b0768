"""Traces go with the message, spans follow the conventions, and metrics count what happened."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import tarry
from tarry import Message, Outcome, Retry, Worker
from tarry.telemetry import Metrics, trace
from tarry.testing import drain, memory_app
from tests.services.kit import MINUTE


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(otel, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


def test_without_a_span_an_offer_has_no_trace() -> None:
    with memory_app() as app:
        app.queue("orders").offer("a", 1)
        stored = app.queue("orders").read("a")
        assert stored is not None
        assert stored.headers is None


def test_the_span_that_offers_is_linked_to_the_span_that_handles(spans: InMemorySpanExporter) -> None:
    worker, tracer, inside = Worker(), otel.get_tracer("test"), []
    trace(worker)

    @worker.handler("orders", type="good")
    async def good(order: int, delivery: tarry.AsyncDelivery[Any]) -> None:
        inside.append(otel.get_current_span().get_span_context().span_id)

    @worker.handler("orders", type="bad", retry=Retry.fixed(MINUTE))
    def bad(order: int) -> None:
        inside.append(otel.get_current_span().get_span_context().span_id)
        raise ValueError("trouble")

    with memory_app() as app:
        orders = app.queue("orders")
        with tracer.start_as_current_span("checkout") as checkout:
            orders.offer("a", 1, type="good", headers={"mine": "stays"})
            orders.offer_many([Message(key="b", payload=2, type="bad")])
            assert orders.offer("a", 1, type="good", headers={"mine": "stays"}, at=None) is Outcome.IGNORED
        stored = orders.read("a")
        assert stored is not None
        assert stored.headers is not None
        assert stored.headers["mine"] == "stays"
        drain(worker, app)
    first, second = (span for span in spans.get_finished_spans() if span.name == "process orders")
    origin = checkout.get_span_context()
    for span, key in ((first, "a"), (second, "b")):
        assert (span.kind, span.parent) == (SpanKind.CONSUMER, None)
        assert [(link.context.trace_id, link.context.span_id) for link in span.links] == [
            (origin.trace_id, origin.span_id)
        ]
        assert span.attributes is not None
        assert span.attributes["messaging.system"] == "tarry"
        assert span.attributes["messaging.destination.name"] == "orders"
        assert span.attributes["messaging.operation.type"] == "process"
        assert span.attributes["messaging.message.id"] == key
    assert [first.status.status_code, second.status.status_code] == [StatusCode.UNSET, StatusCode.ERROR]
    assert inside == [span.get_span_context().span_id for span in (first, second)]  # pyright: ignore[reportOptionalMemberAccess]


def test_a_trace_that_the_caller_names_is_left_as_it_is(spans: InMemorySpanExporter) -> None:
    own = f"00-{1:032x}-{2:016x}-01"
    with memory_app() as app, otel.get_tracer("test").start_as_current_span("other"):
        app.queue("orders").offer("a", 1, headers={"traceparent": own})
        stored = app.queue("orders").read("a")
        assert stored is not None
        assert stored.headers == {"traceparent": own}


def test_metrics_count_by_queue() -> None:
    worker = Worker()
    metrics = Metrics(worker)

    @worker.handler("orders", retry=Retry.fixed(MINUTE))
    def handle(order: int) -> None:
        assert metrics.registry.get_sample_value("tarry_in_flight", {"queue": "orders"}) == 1
        if order == 2:
            raise ValueError

    with memory_app() as app:
        app.queue("orders").offer_many([Message(key=f"k{i}", payload=i) for i in range(4)])
        app.queue("orders").offer("poison", "no number")
        drain(worker, app)

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, {"queue": "orders", **labels})

    assert value("tarry_handled_total", result="acked") == 3
    assert value("tarry_handled_total", result="failed") == 1
    assert value("tarry_handled_total", result="buried") == 1
    assert value("tarry_failed_total") == 2
    assert (value("tarry_retried_total"), value("tarry_dead_total")) == (1, 1)
    assert value("tarry_in_flight") == 0
    assert value("tarry_handler_seconds_count") == 5
    assert value("tarry_lateness_seconds_count") == 4
    assert 'tarry_handled_total{queue="orders",result="acked"} 3.0' in metrics.text().decode()
