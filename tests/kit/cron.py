"""Schedules in tests: schedulers on any store, and names that no other test knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, cast

import pytest

from tarry import Queue
from tarry.api._sync.delivery import Delivery
from tarry.app import App
from tarry.core.cron.model import TickRecord
from tarry.services.cron._sync.api import Cron
from tarry.services.cron._sync.scheduler import Scheduler
from tarry.services.cron.scheduler import AsyncScheduler
from tests.kit.backends import new_name
from tests.kit.blocking import Blocking
from tests.kit.clocks import START
from tests.kit.steps import HOUR


def scheduler(app: App) -> Scheduler:
    """One that blocks, whatever the store."""
    if isinstance(app, Blocking):
        inner: Any = app
        return cast("Scheduler", Blocking(AsyncScheduler(inner._target.store), inner._loop))
    return Scheduler(app.store)


def remove_schedules(app: App) -> None:
    for state in app.schedules.list():
        app.schedules.delete(state.name)


@pytest.fixture
def cron(app: App) -> Iterator[Cron]:
    """For installing; it does not plan by itself. All schedules of the store are gone afterwards, and were before."""
    remove_schedules(app)
    yield app.cron()
    remove_schedules(app)


@pytest.fixture
def name() -> str:
    return new_name()


def ticks_of(queue: Queue[Any]) -> list[datetime]:
    """What is deliverable now, by the ticks that the messages are for; they are done with afterwards."""
    ticks: list[datetime] = []
    for delivery in queue.try_poll_many(1_000):
        ticks.append(datetime.fromisoformat(delivery.headers["tarry-tick"]))
        delivery.ack()
    return ticks


def take_all(app: App, queue: Queue[Any]) -> Iterator[Delivery[Any]]:
    """Everything that is due, however many polls it takes: where the head of a queue is expensive, as on a busy machine, a
    poll may leave what was planned late to a later one."""
    while app.queues.counts(queue.name).ready.n:
        yield from queue.try_poll_many(1_000)


def verdicts(records: Sequence[TickRecord]) -> list[tuple[float, str, str]]:
    """Oldest first: hours after the beginning, verdict and reason."""
    return [((r.tick - START) / HOUR, r.verdict.value, r.reason.value) for r in reversed(records)]
