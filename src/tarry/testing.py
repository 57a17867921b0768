"""Test kit for programs that use Tarry: in-memory apps, a clock that only tests move, and workers that run until no message
is due."""

import asyncio
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from tarry.api.queue import AsyncQueue
from tarry.app import App, AsyncApp, connect_async
from tarry.core import limits
from tarry.core.clock import Clock
from tarry.core.errors import InvalidInput
from tarry.core.monotonic import elapsed_s
from tarry.core.settings import StoreSettings
from tarry.services.worker.dispatch import Dispatch
from tarry.services.worker.handlers import Source
from tarry.services.worker.heartbeat import Heartbeat
from tarry.services.worker.job import Job
from tarry.services.worker.results import Handled
from tarry.services.worker.threads import Threads
from tarry.services.worker.worker import Worker, WorkerSettings
from tarry.storage.memory import AsyncMemoryStore, MemoryStore
from tarry.storage.postgres._sync.store import PostgresStore

__all__ = ["MutableClock", "async_memory_app", "awaiting", "drain", "drain_async", "memory_app"]

_START = datetime(2024, 1, 1, tzinfo=UTC)
_SETTINGS = StoreSettings(scan_every=timedelta(milliseconds=5))


class MutableClock:
    """Pins every statement of a store to one instant. Like a real clock, it may be set back."""

    def __init__(self, start: datetime = _START) -> None:
        self._lock = threading.Lock()
        self._now = limits.check_instant(start, "start").astimezone(UTC)

    def pinned(self) -> datetime:
        with self._lock:
            return self._now

    def set(self, at: datetime) -> datetime:
        instant = limits.check_instant(at).astimezone(UTC)
        with self._lock:
            self._now = instant
            return instant

    def advance(self, by: timedelta) -> datetime:
        """Move forward, or backward by a negative `by`. Returns the new instant."""
        if not isinstance(by, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"by must be a timedelta, not {type(by).__name__}")
        # Read and write under one lock: a concurrent advance must not be lost.
        with self._lock:
            self._now += by
            return self._now


def memory_app(clock: Clock | None = None, *, settings: StoreSettings = _SETTINGS) -> App:
    """An `App` on a new memory store. With a `MutableClock`, time passes only by `clock.advance(…)`."""
    return App(MemoryStore(clock=clock or MutableClock(), settings=settings), consumer="test")


def async_memory_app(clock: Clock | None = None, *, settings: StoreSettings = _SETTINGS) -> AsyncApp:
    """`memory_app` for async code."""
    return awaiting(memory_app(clock, settings=settings))


def awaiting(app: App) -> AsyncApp:
    """An async app that shares the messages of a `memory_app`."""
    store = app.store
    if not isinstance(store, MemoryStore):
        raise InvalidInput("only a memory app can be shared like this", hint="tarry.connect_async(app.dsn)")
    return AsyncApp(AsyncMemoryStore(store), consumer=app.consumer, blocking=lambda: store)


def drain(worker: Worker, app: App, *, most: int = 10_000, resources: Any = None) -> list[Handled]:
    """Handle due messages, including those that handlers offer, until none is left. Returns the results in order.

    Works in rounds, each with one message per queue and type. Rates and concurrency limits do not apply, and nothing
    waits: advance the clock for messages that are due later. `most`: maximum number of messages, against endless loops.
    `resources`: passed to the handlers instead of the worker's own.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_drain_blocking(worker, app, most, resources))
    raise InvalidInput("drain blocks, and an event loop runs here", hint="await drain_async(worker, async_app)")


async def _drain_blocking(worker: Worker, app: App, most: int, resources: Any) -> list[Handled]:
    store = app.store
    if isinstance(store, MemoryStore):
        return await drain_async(worker, awaiting(app), most=most, resources=resources)
    if app.dsn is None or not isinstance(store, PostgresStore):
        raise InvalidInput("drain works in memory and on PostgreSQL", hint="await drain_async(worker, async_app)")
    async with connect_async(app.dsn, clock=store.clock, consumer=app.consumer, settings=store.settings) as shared:
        return await drain_async(worker, shared, most=most, resources=resources)


async def drain_async(worker: Worker, app: AsyncApp, *, most: int = 10_000, resources: Any = None) -> list[Handled]:
    """`drain` for async tests, on any app."""
    blocking = app.blocking()
    dispatch = Dispatch(Heartbeat(elapsed_s), worker.hooks, Threads(1), elapsed_s, blocking.queue)
    try:
        async with worker.opened(app, WorkerSettings(), resources) as sources:
            return await _drain(dispatch, sources, app, most)
    finally:
        blocking.close()


async def _drain(dispatch: Dispatch, sources: Sequence[Source], app: AsyncApp, most: int) -> list[Handled]:
    queues = [AsyncQueue(app.store, source.queue, source.codec, consumer=app.consumer) for source in sources]
    handled: list[Handled] = []
    while True:
        before = len(handled)
        for source, queue in zip(sources, queues, strict=True):
            deliveries = await queue.try_poll_many(
                1, type=source.type, lease_for=source.options.lease_for, max_attempts=source.max_attempts
            )
            if deliveries:
                job = Job(queue, deliveries[0], source.handler_of(deliveries[0].type), dispatch.interrupt)
                await _handle(dispatch, job)
                handled.append(job.handled)
        if len(handled) == before:
            return handled
        if len(handled) >= most:
            raise InvalidInput(
                f"{len(handled):,} messages were handled (the limit `most`), and more are due",
                hint="check for a handler that always releases, retries at once or offers another message",
            )


async def _handle(dispatch: Dispatch, job: Job) -> None:
    """Run the handler in its own task and context, as a worker does. Cancelling the drain cancels the handler."""
    job.task = asyncio.create_task(dispatch.handle(job))
    try:
        await asyncio.shield(job.task)
    except asyncio.CancelledError:
        dispatch.is_cancelled = True
        job.task.cancel()
        await asyncio.wait({job.task})
        raise
