"""The trace that an offer belongs to travels with the message, where the program uses OpenTelemetry."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from tarry.core.messages import TRACE_HEADERS

TRACING = "opentelemetry.trace"
"""A program with an active span has imported this. So nobody else pays for the question."""


def traced(headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """The headers with the active span's `traceparent`. Headers that name a trace already are left as they are."""
    trace: Any = sys.modules.get(TRACING)
    if trace is None or not trace.get_current_span().get_span_context().is_valid:
        return headers
    if headers is not None and TRACE_HEADERS[0] in headers:
        return headers
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = dict(headers or {})
    TraceContextTextMapPropagator().inject(carrier)
    return carrier
