"""Steps that many tests share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from tarry.api._sync.delivery import Delivery
from tarry.api._sync.queue import Queue
from tarry.app import App
from tarry.core.messages.model import StoredMessage

T = TypeVar("T")

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
TIMEOUT = timedelta(seconds=30)
TIMEOUT_S = TIMEOUT.total_seconds()


class Keyed(Protocol):
    @property
    def key(self) -> Any: ...


def take(queue: Queue[Any], **options: Any) -> Delivery[Any]:
    """The next delivery, which must be there."""
    delivery = queue.try_poll(**options)
    assert delivery is not None, "nothing was deliverable"
    return delivery


def seen(queue: Queue[Any], key: str) -> StoredMessage[Any]:
    """The live message of this key, which must be there."""
    message = queue.read(key)
    assert message is not None, f"{key!r} is not live"
    return message


def keys(items: Iterable[Keyed]) -> list[str]:
    return [item.key for item in items]


def numbers(app: App, queue: Queue[Any]) -> tuple[int, int, int, int]:
    """Delayed, ready, leased, dead."""
    counts = app.queues.counts(queue.name)
    return counts.delayed.n, counts.ready.n, counts.leased.n, counts.dead.n


EMPTY = (0, 0, 0, 0)


def roll_up(app: App) -> None:
    """Window by window: a server that many tests have used has more transactions than one window holds."""
    for _ in range(100):
        if app.store.run(app.store.rollups.roll_up()).complete:
            return
    raise AssertionError("the journal was not rolled up after 100 windows")


@contextmanager
def in_background(work: Any, *args: Any, **kwargs: Any) -> Iterator[Future[Any]]:
    """Runs beside the test; it must end before the block does, or within the timeout after it."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        future = pool.submit(work, *args, **kwargs)
        yield future
        future.result(TIMEOUT_S)


def all_at_once(jobs: Iterable[Any]) -> list[Any]:
    """Every job in a thread of its own; their results in order."""
    work = list(jobs)
    with ThreadPoolExecutor(max_workers=len(work)) as pool:
        futures = [pool.submit(job) for job in work]
        return [future.result(TIMEOUT_S) for future in futures]
