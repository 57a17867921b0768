"""A worker by hand: everything that is due, one after the other, and then it is over."""

from __future__ import annotations

import asyncio

from tarry.app import App, AsyncApp
from tarry.core.errors import InvalidInput
from tarry.handles.aio import AsyncQueue
from tarry.handles.elapsed import elapsed_s
from tarry.services.dispatch import Dispatch, Job
from tarry.services.handlers import RAW
from tarry.services.leases import Leases
from tarry.services.reports import Handled
from tarry.services.threads import Threads
from tarry.services.worker import Worker, WorkerSettings
from tarry.storage.memory import AsyncMemoryStore, MemoryStore


def drain(worker: Worker, app: App, *, most: int = 10_000) -> list[Handled]:
    """Handle what is due now, also what handlers offer on the way, until nothing is; what each came to, in order.

    In rounds: one message of every queue and type, then the next. Rates and limits of concurrency do not count here, and
    nothing waits: move the clock for what is due later.
    """
    store = app.store
    if not isinstance(store, MemoryStore):
        raise InvalidInput("drain works on a memory app", hint="elsewhere: await drain_async(worker, async_app)")
    shared = AsyncApp(AsyncMemoryStore(store), consumer=app.consumer, blocking=lambda: store)
    return asyncio.run(drain_async(worker, shared, most=most))


async def drain_async(worker: Worker, app: AsyncApp, *, most: int = 10_000) -> list[Handled]:
    """`drain` for tests that await, on any app."""
    blocking = app.blocking()
    dispatch = Dispatch(Leases(elapsed_s), worker.hooks, Threads(1), elapsed_s, blocking.queue)
    lanes = [
        (source, AsyncQueue(app.store, source.queue, RAW, consumer=app.consumer))
        for source in worker.sources(WorkerSettings())
    ]
    handled: list[Handled] = []
    try:
        while True:
            before = len(handled)
            for source, queue in lanes:
                options, limit = source.options, source.max_attempts
                found = await queue.try_poll_many(1, type=source.type, lease_for=options.lease_for, max_attempts=limit)
                if found:
                    handled.append(await dispatch.handle(Job(queue, found[0], source.handler_of(found[0].type))))
            if len(handled) == before:
                return handled
            if len(handled) >= most:
                raise InvalidInput(
                    f"{len(handled):,} messages were handled, and there is no end",
                    hint="does a handler release, retry at once or offer for ever?",
                )
    finally:
        blocking.close()
