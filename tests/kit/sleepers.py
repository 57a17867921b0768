"""How a test knows that somebody waits: it asks the lobby, and never sleeps blindly."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tarry.app import App
from tarry.core import waiting

PATIENCE_S = 30.0


def until(condition: Callable[[], object], what: str = "it never happened", *, patience_s: float | None = None) -> None:
    deadline = time.monotonic() + (patience_s or PATIENCE_S)
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.002)


def until_asleep(app: App, queue: str, lines: int = 1) -> None:
    """The leaders of so many lines sleep, and whoever offers something earlier will call them."""
    until(lambda: app.store.lobby.asleep(queue) == lines, "nobody went to sleep")


def until_waiting(app: App, queue: str, consumers: int) -> None:
    until(lambda: app.store.lobby.waiting(queue) == consumers, "they are not in line")


@pytest.fixture
def deep_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Naps do not begin short: whoever wakes was called, or its time had come."""
    monkeypatch.setattr(waiting, "FIRST_NAP_S", 600.0)
