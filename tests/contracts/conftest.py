"""For the contract suite only."""

from __future__ import annotations

import pytest

from tarry.storage.postgres import verbs
from tests.kit.backends import HTTP

# What is done where the database is, and not by programs behind a broker: beginnings of modules, classes and tests.
_NOT_OVER_HTTP = (
    "TestNextDue",
    "test_following",
    "test_waking",
    "test_cron_forgetting",
    "test_what_comes_due_is_counted",
    "test_leading",
    "test_sweeping",
    "test_whoever_asks_without_a_number",
)


@pytest.fixture(autouse=True)
def what_http_can_do(request: pytest.FixtureRequest) -> None:
    callspec = getattr(request.node, "callspec", None)
    over_http = callspec is not None and callspec.params.get("backend") in HTTP
    names = [request.module.__name__.rpartition(".")[2], request.cls.__name__ if request.cls else "", request.node.name]
    if over_http and any(name.startswith(_NOT_OVER_HTTP) for name in names):
        pytest.skip("not over HTTP")


@pytest.fixture(autouse=True)
def a_head_that_is_never_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a poll looks first depends on how long the last ones took. On a busy machine that is chance, not contract."""
    monkeypatch.setattr(verbs, "monotonic", lambda: 0.0)
