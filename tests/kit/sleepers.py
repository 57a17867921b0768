"""Wait until consumers wait: a test reads the wait queue, and never sleeps for a fixed time."""

from __future__ import annotations

import math
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


def asleep(queues: wait_queue.WaitQueue, queue: str) -> int:
    """Number of groups of a queue whose leader sleeps and would be notified."""
    now = queues.monotonic()
    return sum(group.asleep_until < math.inf and group.notified_until > now for group in _groups(queues, queue))


def waiting(queues: wait_queue.WaitQueue, queue: str) -> int:
    """Number of consumers that wait for a queue."""
    return sum(len(group.waiters) for group in _groups(queues, queue))


def _groups(queues: wait_queue.WaitQueue, queue: str) -> list[wait_queue.WaitGroup]:
    with queues._lock:  # pyright: ignore[reportPrivateUsage]
        groups = queues._groups.items()  # pyright: ignore[reportPrivateUsage]
        return [group for key, group in groups if key.queue == queue]


def until_asleep(app: App, queue: str, lines: int = 1) -> None:
    """Wait until the leaders of so many wait queues sleep: an earlier offer will wake them."""
    until(lambda: asleep(app.store.wakeup.wait_queue, queue) == lines, "no leader went to sleep")


def until_waiting(app: App, queue: str, consumers: int) -> None:
    until(lambda: waiting(app.store.wakeup.wait_queue, queue) == consumers, "the consumers are not in the wait queue")


@pytest.fixture
def deep_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first nap is long: a waiter wakes by a wakeup or when its message is due."""
    monkeypatch.setattr(wait_queue, "FIRST_SLEEP_S", 600.0)
