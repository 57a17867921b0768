"""For the contract suite only."""

from __future__ import annotations

import pytest

from tarry.storage.postgres import verbs


@pytest.fixture(autouse=True)
def a_head_that_is_never_dear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a poll looks first depends on how long the last ones took. On a busy machine that is chance, not contract."""
    monkeypatch.setattr(verbs, "monotonic", lambda: 0.0)
