"""A broker as a store for code that awaits. `verbs` has the verbs of `core.ports.AsyncStore`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from typing import Any

import httpx

from tarry.core.following import LiveEvent, Missed
from tarry.core.settings import StoreSettings
from tarry.storage.http.call import Answer, Call, Op
from tarry.storage.http.feed import Feed
from tarry.storage.http.lanes import AsyncLanes
from tarry.storage.http.transport import FAULTS, Tries, connection, refuse_conn
from tarry.storage.http.verbs import VERBS, Verb, op_of


class AsyncHttpStore:
    def __init__(self, url: str, key: str | None = None, *, settings: StoreSettings = StoreSettings()) -> None:
        self.settings = settings
        self._connection = connection(url, key)
        self._client = httpx.AsyncClient(**self._connection, transport=AsyncLanes(settings.pool_size))

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        if name not in VERBS:
            raise AttributeError(f"a broker has no verb {name!r}")
        create = self.settings.create_queues
        return self.asking(lambda *args, **options: op_of(name, args, options, create=create))

    def asking(self, verb: Verb) -> Callable[..., Coroutine[Any, Any, Any]]:
        """The verb, driven."""

        async def asked(*args: Any, conn: Any = None, **options: Any) -> Any:
            refuse_conn(conn)
            return await self._drive(verb(*args, **options))

        return asked

    async def events(
        self, queues: Sequence[str], kinds: Sequence[str], after: str | None
    ) -> AsyncGenerator[LiveEvent | Missed]:
        """On a connection of its own, which is there for as long as somebody iterates."""
        feed = Feed(self.settings, queues, kinds, after)
        while True:
            await asyncio.sleep(feed.pause_s)
            try:
                async with httpx.AsyncClient(**self._connection) as client, client.stream(**feed.request()) as found:
                    if found.status_code != 200:
                        await found.aread()
                        feed.refused(found)
                        continue
                    async for chunk in found.aiter_bytes():
                        for one in feed.heard(chunk):
                            yield one
            except FAULTS as error:
                feed.failed(error)

    async def close(self) -> None:
        await self._client.aclose()

    async def _drive(self, op: Op[Any]) -> Any:
        try:
            call = next(op)
            while True:
                call = op.send(await self._answered(call))
        except StopIteration as stop:
            return stop.value

    async def _answered(self, call: Call) -> Answer:
        tries = Tries(self.settings, call)
        while True:
            try:
                answer = tries.answered(await self._client.request(**tries.next()))
            except FAULTS as error:
                answer = tries.failed(error)
            if answer is not None:
                return answer
            await asyncio.sleep(tries.pause_s)
