"""Propagation of the OpenTelemetry trace context from an offer to its message."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from tarry.core.messages import TRACE_HEADERS

TRACING = "opentelemetry.trace"
"""A program with an active span has imported this module; other programs pay nothing for the check."""


def traced(headers: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """The headers with the active span's `traceparent`. Headers that already have one are unchanged."""
    trace: Any = sys.modules.get(TRACING)
    if trace is None or not trace.get_current_span().get_span_context().is_valid:
        return headers
    if headers is not None and TRACE_HEADERS[0] in headers:
        return headers
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = dict(headers or {})
    TraceContextTextMapPropagator().inject(carrier)
    return carrier
