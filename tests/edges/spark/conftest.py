"""Tests that need Spark. They share one session per process, so run them in one process: `-n` makes one JVM per worker."""

from __future__ import annotations

import pytest

from tests.kit.spark import lake, pipeline_app, spark

__all__ = ["lake", "pipeline_app", "spark"]

TIMEOUT_S = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test waits for the JVM, and Spark on a busy machine is slow without being stuck. Chaos takes its time."""
    for item in items:
        if item.nodeid.startswith("tests/edges/spark/"):
            limited = any(item.get_closest_marker(name) for name in ("timeout", "chaos", "soak"))
            if not limited:
                item.add_marker(pytest.mark.timeout(TIMEOUT_S))
