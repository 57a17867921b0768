"""Public OpenTelemetry API: `tarry.telemetry.trace(worker)` and `tarry.telemetry.Metrics(worker)`."""

from tarry.edges.telemetry import Metrics, trace

__all__ = ["Metrics", "trace"]
