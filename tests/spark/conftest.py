"""Tests that need Spark. They share one session per process, so run them in one process: `-n` makes one JVM per worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.spark import lake, pipeline_app, spark

__all__ = ["lake", "pipeline_app", "spark"]

HERE = Path(__file__).parent
TIMEOUT_S = 600


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test waits for the JVM, and Spark on a busy machine is slow without being stuck."""
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))
