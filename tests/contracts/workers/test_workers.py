"""Running workers: they report, are listed, drained, and dropped when they are gone; in every kind of store."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tarry.app import App
from tarry.core.workers.model import KEPT_FOR, LATE_AFTER, RELEASES_KEPT_FOR, RunningWorker, WorkerReport, releases_of
from tests.kit.backends import Backend, new_name, where_the_messages_are
from tests.kit.clocks import START, WatchedClock
from tests.kit.steps import SECOND

pytestmark = where_the_messages_are


@pytest.fixture
def app(backend: Backend) -> App:
    return backend.app("tester")


@pytest.fixture
def consumer() -> str:
    return new_name()


def report(app: App, consumer: str, n: int = 1, **more: Any) -> bool:
    fields: dict[str, Any] = {"id": f"{consumer}-{n}", "host": "h", "pid": n, "version": "1.0", "queues": ("b", "a")}
    fields |= {"concurrency": 10, "at": START} | more
    return app.store.run(app.store.workers.report(WorkerReport(consumer=consumer, **fields)))


def listed(app: App, consumer: str) -> list[RunningWorker]:
    return [worker for worker in app.store.run(app.store.workers.list()) if worker.consumer == consumer]


def test_the_last_report_is_listed_with_the_skew_of_its_clock(app: App, consumer: str, clock: WatchedClock) -> None:
    assert report(app, consumer, at=START - SECOND) is False
    clock.advance(15 * SECOND)
    assert report(app, consumer, at=START + 17 * SECOND, running=3, extensions=7, is_stopping=True) is False
    (worker,) = listed(app, consumer)
    assert worker == RunningWorker(
        id=f"{consumer}-1", consumer=consumer, host="h", pid=1, version="1.0", queues=("b", "a"), concurrency=10, running=3,
        extensions=7, is_stopping=True, skew=2 * SECOND, started_at=START, seen_at=START + 15 * SECOND,
    )  # fmt: skip
    assert not worker.is_late(START + 15 * SECOND + LATE_AFTER)
    assert worker.is_late(START + 16 * SECOND + LATE_AFTER)


def test_a_worker_that_leaves_or_no_longer_reports_is_dropped(app: App, consumer: str, clock: WatchedClock) -> None:
    for n in (1, 2, 3):
        report(app, consumer, n)
    app.store.run(app.store.workers.leave(f"{consumer}-1"))
    app.store.run(app.store.workers.leave(f"{consumer}-1"))  # the reply was lost
    clock.advance(KEPT_FOR)
    report(app, consumer, 3)
    assert [worker.pid for worker in listed(app, consumer)] == [2, 3]
    clock.advance(timedelta(seconds=1))
    assert [worker.pid for worker in listed(app, consumer)] == [3]
    report(app, consumer, 3)  # which removes the other for good
    clock.set(START)
    assert [worker.pid for worker in listed(app, consumer)] == [3]
    clock.advance(3 * KEPT_FOR)
    report(app, consumer, 3)  # its machine was suspended
    assert [worker.seen_at for worker in listed(app, consumer)] == [START + 3 * KEPT_FOR]


def test_it_is_known_later_which_release_a_consumer_ran(app: App, consumer: str, clock: WatchedClock) -> None:
    def ran(*seconds: float) -> list[list[str]]:
        known = app.store.run(app.store.workers.releases(START))
        instants = [START + timedelta(seconds=second) for second in seconds]
        return [releases_of(known, consumer, at, at) for at in instants]

    report(app, consumer, 1)
    assert ran(0) == [[]]
    report(app, consumer, 2, release="1.0")
    clock.advance(100 * SECOND)
    report(app, consumer, 2, release="1.0")
    assert listed(app, consumer)[1].release == "1.0"
    clock.advance(10 * SECOND)
    app.store.run(app.store.workers.leave(f"{consumer}-2"))
    report(app, consumer, 3, release="2.0")
    assert ran(-1, 50, 105, 110, 111, 500) == [[], ["1.0"], ["1.0"], ["2.0"], ["2.0"], []]
    report(app, consumer, 4, release="1.0")  # both for a while
    clock.advance(100 * SECOND)
    report(app, consumer, 3, release="2.0")
    report(app, consumer, 4, release="1.0")
    assert ran(150) == [["1.0", "2.0"]]
    clock.advance(RELEASES_KEPT_FOR + SECOND)
    report(app, f"{consumer}-other", release="3.0")  # which removes the others
    assert ran(50, 150) == [[], []]


def test_all_workers_of_a_consumer_drain_after_their_next_report(app: App, consumer: str, clock: WatchedClock) -> None:
    drain = app.store.workers.drain
    assert app.store.run(drain(consumer)) == 0
    report(app, consumer, 1)
    report(app, consumer, 2)
    report(app, f"{consumer}-other")
    assert app.store.run(drain(consumer)) == 2
    clock.advance(SECOND)
    assert app.store.run(drain(consumer)) == 2
    assert [worker.drain_at for worker in listed(app, consumer)] == [START, START]
    assert [report(app, consumer, 1), report(app, consumer, 2), report(app, f"{consumer}-other")] == [True, True, False]
    assert report(app, consumer, 3) is False  # started since
