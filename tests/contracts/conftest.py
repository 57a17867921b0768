"""For the contract suite only."""

from __future__ import annotations

import pytest

from tarry.storage.postgres import verbs
from tests.kit.backends import HTTP

# What a program behind a broker does not have: the broker waits, so its clients need not know for how long.
_NOT_OVER_HTTP = {"TestNextDue", "tests.contracts.test_waking"}


@pytest.fixture(autouse=True)
def what_http_can(request: pytest.FixtureRequest) -> None:
    over_http = "backend" in request.fixturenames and request.getfixturevalue("backend").name in HTTP
    where = {request.module.__name__, request.cls and request.cls.__name__}
    if over_http and where & _NOT_OVER_HTTP:
        pytest.skip("a broker waits for its clients")


@pytest.fixture(autouse=True)
def a_head_that_is_never_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a poll looks first depends on how long the last ones took. On a busy machine that is chance, not contract."""
    monkeypatch.setattr(verbs, "monotonic", lambda: 0.0)
