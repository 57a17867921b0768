"""For the contract suite only."""

from __future__ import annotations

import pytest

from tarry.storage.postgres import verbs
from tests.kit.backends import HTTP

# What is done where the database is, and not by programs behind a broker.
_NOT_OVER_HTTP = {
    "TestNextDue",
    "tests.contracts.test_waking",
    "tests.contracts.test_cron",
    "tests.contracts.test_cron_ticks",
    "tests.contracts.test_dead_groups",
    "tests.contracts.test_leading",
    "tests.contracts.test_redrive_jobs",
    "tests.contracts.test_sweeping",
}


@pytest.fixture(autouse=True)
def what_http_can_do(request: pytest.FixtureRequest) -> None:
    over_http = "backend" in request.fixturenames and request.getfixturevalue("backend").name in HTTP
    where = {request.module.__name__, request.cls and request.cls.__name__}
    if over_http and where & _NOT_OVER_HTTP:
        pytest.skip("not over HTTP")


@pytest.fixture(autouse=True)
def a_head_that_is_never_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a poll looks first depends on how long the last ones took. On a busy machine that is chance, not contract."""
    monkeypatch.setattr(verbs, "monotonic", lambda: 0.0)
