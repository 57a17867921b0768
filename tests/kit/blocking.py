"""Drives what awaits from code that blocks: one loop in the background, and a proxy that waits for its results."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Self, TypeVar

from tarry.api.api_keys import AsyncApiKeys
from tarry.api.dead_letters import AsyncDeadLetters
from tarry.api.delivery import AsyncDelivery
from tarry.api.leases import AsyncLeases
from tarry.api.queue import AsyncQueue
from tarry.api.queues import AsyncQueues
from tarry.api.redrives import AsyncRedrive, AsyncRedrives
from tarry.api.schedules import AsyncSchedules
from tarry.app import AsyncApp
from tarry.http import AsyncClient
from tarry.services.cron.api import AsyncCron
from tarry.services.cron.scheduler import AsyncScheduler
from tarry.storage.http import AsyncHttpStore
from tarry.storage.memory import AsyncMemoryStore
from tarry.storage.postgres.store import AsyncPostgresStore
from tarry.storage.redis.store import AsyncRedisStore

R = TypeVar("R")

TIMEOUT_S = 60.0
_AWAITING = (
    AsyncApp,
    AsyncApiKeys,
    AsyncClient,
    AsyncLeases,
    AsyncQueue,
    AsyncQueues,
    AsyncDeadLetters,
    AsyncRedrive,
    AsyncRedrives,
    AsyncDelivery,
    AsyncMemoryStore,
    AsyncPostgresStore,
    AsyncRedisStore,
    AsyncSchedules,
    AsyncCron,
    AsyncScheduler,
    AsyncHttpStore,
)


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kit-loop", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(TIMEOUT_S)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()


class Blocking:
    """An awaiting object as its blocking twin: same names, same arguments, results instead of coroutines."""

    def __init__(self, target: Any, loop: Loop) -> None:
        self._target = target
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        return self._called(value) if callable(value) else self._adapted(value)

    def __enter__(self) -> Self:
        self._loop.run(self._target.__aenter__())
        return self

    def __exit__(self, *reason: Any) -> None:
        self._loop.run(self._target.__aexit__(*reason))

    def __repr__(self) -> str:
        return repr(self._target)

    def _called(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            if inspect.iscoroutine(result):
                return self._adapted(self._loop.run(result))
            if inspect.isasyncgen(result):
                return self._iterated(result)
            return self._adapted(result)

        return call

    def _adapted(self, result: Any) -> Any:
        if isinstance(result, _AWAITING):
            return Blocking(result, self._loop)
        if isinstance(result, list):
            return [self._adapted(item) for item in result]
        return result

    def _iterated(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        generator: Any = items
        try:
            while True:
                try:
                    yield self._adapted(self._loop.run(_next(generator)))
                except StopAsyncIteration:
                    return
        finally:
            self._loop.run(generator.aclose())


async def _next(items: AsyncIterator[Any]) -> Any:
    return await anext(items)
