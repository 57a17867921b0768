"""What many tests do, said once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from tarry.app import App
from tarry.core.messages import StoredMessage
from tarry.handles.delivery import Delivery
from tarry.handles.queue import Queue

T = TypeVar("T")

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
PATIENCE = timedelta(seconds=30)
PATIENCE_S = PATIENCE.total_seconds()


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
    found = queue.read(key)
    assert found is not None, f"{key!r} is not live"
    return found


def keys(found: Iterable[Keyed]) -> list[str]:
    return [one.key for one in found]


def numbers(app: App, queue: Queue[Any]) -> tuple[int, int, int, int]:
    """Delayed, ready, leased, dead."""
    counts = app.queues.counts(queue.name)
    return counts.delayed.n, counts.ready.n, counts.leased.n, counts.dead.n


EMPTY = (0, 0, 0, 0)


@contextmanager
def in_background(work: Any, *args: Any, **kwargs: Any) -> Iterator[Future[Any]]:
    """Runs beside the test; it must end before the block does, or within our patience after it."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        future = pool.submit(work, *args, **kwargs)
        yield future
        future.result(PATIENCE_S)


def all_at_once(jobs: Iterable[Any]) -> list[Any]:
    """Every job in a thread of its own; their answers in order."""
    work = list(jobs)
    with ThreadPoolExecutor(max_workers=len(work)) as pool:
        futures = [pool.submit(job) for job in work]
        return [future.result(PATIENCE_S) for future in futures]
