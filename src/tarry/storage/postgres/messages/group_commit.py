"""Group commit in the client: what many tasks ask for at the same time becomes one statement and one commit.

One flush of new items is under way at a time; what arrives meanwhile goes with the next. There is no timer, so an idle
caller does not wait, and every caller awaits its own durable answer. A flush that meets a row which another transaction has
locked fails after the short `lock_timeout` of our sessions. Its items are then set aside: a second task finds out which of
them are blocked and answers the others, while new items are flushed.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tarry.core.errors import HeldUp, StoreUnavailable

I = TypeVar("I")  # noqa: E741 - I and O are what goes in and what comes out
O = TypeVar("O")  # noqa: E741
I_contra = TypeVar("I_contra", contravariant=True)
O_co = TypeVar("O_co", covariant=True)

LARGEST = 1_000
ASIDE_PAUSE_S = 0.05
"""Before blocked items are tried again."""


class Flush(Protocol[I_contra, O_co]):
    def __call__(self, items: Sequence[I_contra], /, *, again: bool, brief: bool) -> Awaitable[Sequence[O_co]]:
        """`again`: the items were in a flush that failed, and which may have stored them. `brief`: wait for locks for a few
        milliseconds only."""
        ...


@dataclass(eq=False, slots=True)
class Entry(Generic[I, O]):
    item: I
    identity: Hashable
    future: asyncio.Future[O]
    until_s: float
    """When a blocked item fails."""


class Gatherer(Generic[I, O]):
    def __init__(
        self,
        flush: Flush[I, O],
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
        self._unanswered: set[asyncio.Future[O]] = set()
        self._waiting: list[Entry[I, O]] = []
        self._flusher: asyncio.Task[None] | None = None
        self._aside: dict[Hashable, Entry[I, O]] = {}
        """What met a lock, by identity. Later items of the same identity wait."""
        self._undecided: deque[Sequence[Entry[I, O]]] = deque()
        """Groups of what is aside that are to be tried. Those that are in none are known to be blocked."""
        self._retrier: asyncio.Task[None] | None = None
        self._held_up: HeldUp
        """What the last flush that met a lock has raised."""

    async def submit(self, item: I) -> O:
        future: asyncio.Future[O] = asyncio.get_running_loop().create_future()
        self._unanswered.add(future)
        future.add_done_callback(self._unanswered.discard)
        self._waiting.append(Entry(item, self._identity(item), future, time.monotonic() + self._lock_for_s))
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
            self._abandon()

    def _abandon(self) -> None:
        """Cancel every caller, wherever its item is."""
        self._waiting.clear()
        self._aside.clear()
        self._undecided.clear()
        for future in list(self._unanswered):
            future.cancel()

    async def _flush_until_empty(self) -> None:
        try:
            while batch := self._next_batch():
                await self._answer(batch, again=False)
        except asyncio.CancelledError:
            self._abandon()
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
            if len(batch) < LARGEST and entry.identity not in taken:
                batch.append(entry)
            else:
                later.append(entry)
            taken.add(entry.identity)
        self._waiting = later
        return batch

    async def _answer(self, batch: Sequence[Entry[I, O]], *, again: bool) -> None:
        try:
            await self._flush_and_answer(batch, again=again, brief=again)
        except HeldUp as error:
            self._set_aside(batch, error)
        except Exception as error:
            if self._is_for_all(batch, error):
                self._fail(batch, error)
                return
            for entry in batch:
                await self._answer([entry], again=True)

    async def _flush_and_answer(self, batch: Sequence[Entry[I, O]], *, again: bool, brief: bool) -> None:
        answers = await self._flush([entry.item for entry in batch], again=again, brief=brief)
        for entry, answer in zip(batch, answers, strict=True):
            self._aside.pop(entry.identity, None)
            if not entry.future.done():
                entry.future.set_result(answer)

    def _is_for_all(self, batch: Sequence[Entry[I, O]], error: Exception) -> bool:
        """Else one of the items is the cause, and each is tried alone. If the database is unavailable, that would repeat the
        time-out for each."""
        return len(batch) == 1 or isinstance(error, StoreUnavailable)

    def _set_aside(self, batch: Sequence[Entry[I, O]], error: HeldUp) -> None:
        self._held_up = error
        self._aside |= {entry.identity: entry for entry in batch}
        self._undecided.append(batch)
        if self._retrier is None:
            self._retrier = asyncio.create_task(self._retry_until_empty(), name="tarry-gather-aside")

    async def _retry_until_empty(self) -> None:
        """One connection at a time, however many are blocked. A group that meets a lock is halved, and its halves take their
        turn after what was set aside meanwhile."""
        try:
            while self._aside:
                if self._undecided:
                    await self._retry(self._undecided.popleft(), brief=True)
                else:  # all are blocked: often by one transaction, whose end lets all of them go on
                    await asyncio.sleep(ASIDE_PAUSE_S)
                    await self._retry(list(self._aside.values()), brief=False)
                self._start()  # those of the same identity that came later
        except asyncio.CancelledError:
            self._abandon()
            raise
        finally:
            self._retrier = None

    async def _retry(self, group: Sequence[Entry[I, O]], *, brief: bool) -> None:
        self._expire()
        group = [entry for entry in group if not entry.future.done()]
        known = await self._known_locked(group)
        group = [entry for entry, is_locked in zip(group, known, strict=True) if not is_locked]
        if not group:
            return
        try:
            await self._flush_and_answer(group, again=True, brief=brief)
        except HeldUp as error:
            # Another transaction has created one of the keys, which no snapshot shows: only trying tells which.
            self._held_up = error
            if len(group) > 1:
                self._undecided += [group[: len(group) // 2], group[len(group) // 2 :]]
        except Exception as error:
            if self._is_for_all(group, error):
                self._fail(group, error)
            else:
                self._undecided += [[entry] for entry in group]

    async def _known_locked(self, group: Sequence[Entry[I, O]]) -> Sequence[bool]:
        if not group:
            return ()
        try:
            return await self._locked([entry.item for entry in group])
        except Exception:
            return [False] * len(group)  # what fails here fails the next flush, too, and is reported by that

    def _expire(self) -> None:
        """Fail what was blocked for too long, and what has waited behind it for as long. Nothing of it is being flushed."""
        now_s = time.monotonic()
        over = [entry for entry in self._aside.values() if entry.future.done() or now_s >= entry.until_s]
        if not over:
            return
        identities = {entry.identity for entry in over}
        over += [entry for entry in self._waiting if entry.identity in identities and now_s >= entry.until_s]
        self._fail(over, self._held_up)

    def _fail(self, batch: Sequence[Entry[I, O]], error: Exception) -> None:
        for entry in batch:
            self._aside.pop(entry.identity, None)
            if not entry.future.done():
                entry.future.set_exception(error)
