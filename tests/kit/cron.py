"""Schedules in tests: schedulers on any store, and prefixes that no other test knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from tarry.app import App
from tarry.services.cron import Cron
from tarry.services.scheduler import AsyncScheduler, Scheduler
from tests.kit.blocking import Blocking


def scheduler(app: App) -> Scheduler:
    """One that blocks, whatever the store."""
    if isinstance(app, Blocking):
        inner: Any = app
        return cast("Scheduler", Blocking(AsyncScheduler(inner._target.store), inner._loop))
    return Scheduler(app.store)


def remove_schedules(app: App) -> None:
    for state in app.schedules.list():
        app.schedules.delete(state.prefix)


@pytest.fixture
def cron(app: App) -> Iterator[Cron]:
    """For installing; it does not plan by itself. All schedules of the store are gone afterwards, and were before."""
    remove_schedules(app)
    yield app.cron()
    remove_schedules(app)
