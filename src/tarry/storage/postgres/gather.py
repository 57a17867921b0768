"""Group commit in the client: what many tasks ask for at the same time becomes one statement and one commit.

One flush is under way at a time; what arrives meanwhile goes with the next. There is no timer, so an idle caller waits
for nobody, and every caller awaits its own durable answer. A flush that meets a row which another transaction has locked
fails after the short `lock_timeout` of our sessions; the blocked items are then set aside and tried again on their own,
and the others are flushed without them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

from tarry.core.errors import HeldUp, StoreUnavailable

I = TypeVar("I")  # noqa: E741 - I and O are what goes in and what comes out
O = TypeVar("O")  # noqa: E741

LARGEST = 1_000
ASIDE_PAUSE_S = 0.05
"""Between two tries of what was set aside."""


class Entry(NamedTuple, Generic[I, O]):
    item: I
    future: asyncio.Future[O]


class Gatherer(Generic[I, O]):
    def __init__(
        self,
        flush: Callable[[Sequence[I]], Awaitable[Sequence[O]]],
        *,
        identity: Callable[[I], Hashable],
        locked: Callable[[Sequence[I]], Awaitable[Sequence[bool]]],
        lock_for_s: float,
    ) -> None:
        """`identity`: two items of the same identity never share a flush, so each gets the answer it would get alone.
        `locked`: which items another transaction is known to block. `lock_for_s`: how long a blocked item is tried."""
        self._flush = flush
        self._identity = identity
        self._locked = locked
        self._lock_for_s = lock_for_s
        self._waiting: list[Entry[I, O]] = []
        self._flusher: asyncio.Task[None] | None = None
        self._aside: dict[Hashable, tuple[Entry[I, O], float]] = {}
        """Blocked items by identity, each with the moment at which it fails. Later ones of the same identity wait."""
        self._retrier: asyncio.Task[None] | None = None

    async def submit(self, item: I) -> O:
        future: asyncio.Future[O] = asyncio.get_running_loop().create_future()
        self._waiting.append(Entry(item, future))
        self._start()
        return await future

    def _start(self) -> None:
        if self._flusher is None:
            self._flusher = asyncio.create_task(self._flush_until_empty(), name="tarry-gather")

    async def drain(self, within_s: float) -> None:
        """Until everything asked for so far is answered; what is not answered in time is cancelled."""
        try:
            async with asyncio.timeout(within_s):
                while tasks := [task for task in (self._flusher, self._retrier) if task is not None]:
                    await asyncio.wait(tasks)
        except TimeoutError:
            for task in (self._flusher, self._retrier):
                if task is not None:
                    task.cancel()

    async def _flush_until_empty(self) -> None:
        try:
            while batch := self._next_batch():
                await self._answer(batch)
        except asyncio.CancelledError:
            for entry in self._waiting:  # no other task answers them
                entry.future.cancel()
            raise
        finally:
            self._flusher = None

    def _next_batch(self) -> list[Entry[I, O]]:
        batch: list[Entry[I, O]] = []
        later: list[Entry[I, O]] = []
        taken: set[Hashable] = set(self._aside)
        for entry in self._waiting:
            if entry.future.done():  # its caller gave up
                continue
            identity = self._identity(entry.item)
            if len(batch) < LARGEST and identity not in taken:
                batch.append(entry)
            else:
                later.append(entry)
            taken.add(identity)
        self._waiting = later
        return batch

    async def _answer(self, batch: Sequence[Entry[I, O]]) -> None:
        try:
            answers = await self._flush([entry.item for entry in batch])
        except asyncio.CancelledError:
            for entry in batch:
                entry.future.cancel()
            raise
        except HeldUp as error:
            await self._part(batch, error)
        except Exception as error:
            # When the database is away nobody is to blame, and alone each would wait as long again.
            if len(batch) == 1 or isinstance(error, StoreUnavailable):
                self._fail(batch, error)
                return
            # One of them is to blame, and the others must not pay for it.
            for entry in batch:
                await self._answer([entry])
        else:
            for entry, answer in zip(batch, answers, strict=True):
                self._aside.pop(self._identity(entry.item), None)
                if not entry.future.done():
                    entry.future.set_result(answer)

    async def _part(self, batch: Sequence[Entry[I, O]], error: HeldUp) -> None:
        """Set the blocked ones aside and answer the others. Where it is not known which these are (another transaction has
        created the key, and no snapshot shows it), each half is tried for itself."""
        if len(batch) == 1:
            self._set_aside(batch[0], error)
            return
        known = await self._known_locked(batch)
        if any(known):
            for entry, is_locked in zip(batch, known, strict=True):
                if is_locked:
                    self._set_aside(entry, error)
            parts = [[entry for entry, is_locked in zip(batch, known, strict=True) if not is_locked]]
        else:
            parts = [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
        for part in parts:
            if part:
                await self._answer(part)

    async def _known_locked(self, batch: Sequence[Entry[I, O]]) -> Sequence[bool]:
        if not batch:
            return ()
        try:
            return await self._locked([entry.item for entry in batch])
        except asyncio.CancelledError:
            for entry in batch:
                entry.future.cancel()
            raise
        except Exception:
            return [False] * len(batch)  # what fails here fails the next flush, too, and is reported by that

    def _set_aside(self, entry: Entry[I, O], error: HeldUp) -> None:
        identity, now_s = self._identity(entry.item), time.monotonic()
        _, until_s = self._aside.setdefault(identity, (entry, now_s + self._lock_for_s))
        if now_s >= until_s:
            self._fail([entry], error)
        elif self._retrier is None:
            self._retrier = asyncio.create_task(self._retry_until_empty(), name="tarry-gather-aside")

    async def _retry_until_empty(self) -> None:
        """One connection for a moment at a time, however many are blocked: what still is, is known without waiting."""
        try:
            while self._aside:
                await asyncio.sleep(ASIDE_PAUSE_S)
                for identity in [identity for identity, (entry, _) in self._aside.items() if entry.future.done()]:
                    del self._aside[identity]  # its caller gave up
                entries = [entry for entry, _ in self._aside.values()]
                blocked = await self._known_locked(entries)
                for entry, is_locked in zip(entries, blocked, strict=True):
                    if is_locked and time.monotonic() < self._aside[self._identity(entry.item)][1]:
                        continue
                    await self._answer([entry])
                self._start()  # those of the same identity that came later
        except asyncio.CancelledError:
            for entry, _ in self._aside.values():
                entry.future.cancel()
            raise
        finally:
            self._retrier = None

    def _fail(self, batch: Sequence[Entry[I, O]], error: Exception) -> None:
        for entry in batch:
            self._aside.pop(self._identity(entry.item), None)
            if not entry.future.done():
                entry.future.set_exception(error)
