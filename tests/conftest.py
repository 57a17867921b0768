"""Fixtures of the whole suite; they live in `tests/kit`, one module per concern."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = [f"tests.kit.{name}" for name in ("environment", "servers", "clocks", "backends", "sleepers", "cron")]

# No database of examples: the suite writes nothing into the checkout, whoever runs it.
settings.register_profile(
    "ci",
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("deep", settings.get_profile("ci"), max_examples=2_000, stateful_step_count=80)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

_LONGEST_FILES_FIRST = ("spark", "chaos", "concurrency", "docs", "services", "storage", "edges", "plans", "migrations")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """After they were shuffled. A worker takes whole files, so the long ones go first, and the many short ones fill the
    gaps at the end: otherwise one worker is left alone with Spark while the other has nothing to do."""
    items.sort(key=lambda item: _turn(item.path))


def _turn(path: Path) -> int:
    folder = path.relative_to(Path(__file__).parent).parts[0]
    return _LONGEST_FILES_FIRST.index(folder) if folder in _LONGEST_FILES_FIRST else len(_LONGEST_FILES_FIRST)
