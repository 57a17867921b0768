"""Group commit in the client: what many tasks ask for at the same time becomes one statement and one commit.

One flush is under way at a time; what arrives meanwhile goes with the next. There is no timer, so an idle caller waits
for nobody, and every caller awaits its own durable answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

from tarry.core.errors import StoreUnavailable

I = TypeVar("I")  # noqa: E741 - I and O are what goes in and what comes out
O = TypeVar("O")  # noqa: E741

LARGEST = 1_000


class Gatherer(Generic[I, O]):
    def __init__(
        self, flush: Callable[[Sequence[I]], Awaitable[Sequence[O]]], *, identity: Callable[[I], Hashable]
    ) -> None:
        """`identity`: two items of the same identity never share a flush, so each gets the answer it would get alone."""
        self._flush = flush
        self._identity = identity
        self._waiting: list[tuple[I, asyncio.Future[O]]] = []
        self._flusher: asyncio.Task[None] | None = None

    async def submit(self, item: I) -> O:
        future: asyncio.Future[O] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._flusher is None:
            self._flusher = asyncio.create_task(self._flush_until_empty(), name="tarry-gather")
        return await future

    async def drain(self) -> None:
        """Until everything asked for so far is answered."""
        while self._flusher is not None:
            await asyncio.wait([self._flusher])

    async def _flush_until_empty(self) -> None:
        try:
            while batch := self._next_batch():
                await self._answer(batch)
        finally:
            self._flusher = None
            for _, future in self._waiting:  # only when we were cancelled: nobody else will answer them
                future.cancel()

    def _next_batch(self) -> list[tuple[I, asyncio.Future[O]]]:
        batch: list[tuple[I, asyncio.Future[O]]] = []
        later: list[tuple[I, asyncio.Future[O]]] = []
        taken: set[Hashable] = set()
        for entry in self._waiting:
            if entry[1].done():  # its caller gave up
                continue
            identity = self._identity(entry[0])
            if len(batch) < LARGEST and identity not in taken:
                batch.append(entry)
            else:
                later.append(entry)
            taken.add(identity)
        self._waiting = later
        return batch

    async def _answer(self, batch: Sequence[tuple[I, asyncio.Future[O]]]) -> None:
        try:
            answers = await self._flush([item for item, _ in batch])
        except asyncio.CancelledError:
            for _, future in batch:
                future.cancel()
            raise
        except Exception as error:
            # When the database is away nobody is to blame, and alone each would wait as long again.
            if len(batch) == 1 or isinstance(error, StoreUnavailable):
                for _, future in batch:
                    _fail(future, error)
                return
            # One of them is to blame, and the others must not pay for it.
            for entry in batch:
                await self._answer([entry])
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)


def _fail(future: asyncio.Future[O], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
