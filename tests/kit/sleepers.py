"""Wait until consumers wait: a test reads the wait queue, and never sleeps for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tarry.app import App
from tarry.core.wakeup import wait_queue

TIMEOUT_S = 30.0


def until(condition: Callable[[], object], what: str = "it never happened", *, timeout_s: float | None = None) -> None:
    deadline = time.monotonic() + (timeout_s or TIMEOUT_S)
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.002)


def until_asleep(app: App, queue: str, lines: int = 1) -> None:
    """Wait until the leaders of so many wait queues sleep: an earlier offer will wake them."""
    until(lambda: app.store.wakeup.wait_queue.asleep(queue) == lines, "no leader went to sleep")


def until_waiting(app: App, queue: str, consumers: int) -> None:
    until(lambda: app.store.wakeup.wait_queue.waiting(queue) == consumers, "the consumers are not in the wait queue")


@pytest.fixture
def deep_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first nap is long: a waiter wakes by a wakeup or when its message is due."""
    monkeypatch.setattr(wait_queue, "FIRST_SLEEP_S", 600.0)
