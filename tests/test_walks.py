"""How many functions of the project a call passes on its way to the socket: few, so that a reader can follow it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from types import CodeType, FrameType, GeneratorType
from typing import Any

import pytest

from tarry.app import App
from tarry.services.cron._sync.scheduler import Scheduler
from tarry.storage.postgres import runner
from tarry.storage.postgres._sync import runner as blocking_runner
from tarry.storage.postgres._sync.store import PostgresStore
from tarry.storage.postgres.prepared import PreparedStatements
from tests.kit.clocks import START, WatchedClock

HOUR = timedelta(hours=1)
_RUNNERS = (runner.drive.__code__, blocking_runner.drive.__code__)


def of_project(code: CodeType) -> bool:
    """A comprehension is a part of its function."""
    return "/src/tarry/" in code.co_filename and not code.co_name.endswith(("comp>", "genexpr>"))


def passed(frame: FrameType | None) -> Iterator[str]:
    """The functions on the stack, and the suspended generators that have made the statement which is sent."""
    while frame is not None:
        if of_project(frame.f_code):
            yield frame.f_code.co_qualname
            op = frame.f_locals.get("op") if frame.f_code in _RUNNERS else None
            while isinstance(op, GeneratorType):
                if of_project(op.gi_code):
                    yield op.gi_code.co_qualname
                op = op.gi_yieldfrom
        frame = frame.f_back


def longest_walk(call: Callable[[], Any]) -> list[str]:
    """Of all statements that a call sends."""
    walks: list[list[str]] = []

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is PreparedStatements.run.__code__:  # from here on, it is about the socket
            walks.append([*dict.fromkeys(passed(frame))])

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return max((walk for walk in walks if "drive" in walk), key=len)


@pytest.fixture
def clock() -> WatchedClock:
    clock = WatchedClock()
    clock.set(START)
    return clock


@pytest.fixture
def app(database: str, clock: WatchedClock) -> Iterator[App]:
    with App(PostgresStore(database, clock=clock), dsn=database) as app:
        yield app


@pytest.mark.parametrize("key", ["a", None])
def test_an_offer_passes_few_functions(app: App, key: str | None) -> None:
    queue = app.queue("q")
    queue.offer("first", 1)
    walk = longest_walk(lambda: queue.offer(key, 1))
    assert "Queue.offer" in walk
    assert len(walk) <= 8, walk


def test_a_cron_tick_passes_few_functions(app: App, clock: WatchedClock) -> None:
    app.cron().install_periodic("p", HOUR, queue="q")
    clock.advance(HOUR)
    scheduler = Scheduler(app.store)
    walk = longest_walk(scheduler.cycle)
    assert {"Scheduler.cycle", "offer_many"} <= {*walk}
    assert len(walk) <= 20, walk
