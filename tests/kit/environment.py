"""Tests do not depend on where they run: no variable of the caller's reaches libpq or Tarry."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

_FOREIGN = ("PG", "TARRY_")


@pytest.fixture(scope="session", autouse=True)
def plain_environment() -> Iterator[None]:
    """Without PG* and TARRY_*; a test that is about them sets its own."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(_FOREIGN)]:
            patch.delenv(name)
        yield
