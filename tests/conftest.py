"""Fixtures of the whole suite; they live in `tests/kit`, one module per concern."""

from __future__ import annotations

import os

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
