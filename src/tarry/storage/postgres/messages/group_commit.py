"""Client-side group commit: concurrent operations of many tasks share one statement and one commit.

One flush of new items runs at a time; items that arrive during it are part of the next. There is no timer, so a single caller
does not wait, and every caller awaits its own durable result. A flush that needs a row which another transaction has locked
fails after the short `lock_timeout` of the store's sessions. Its items are then set aside: a second task determines which of
them are blocked and completes the others, while new items are flushed.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from psycopg import AsyncConnection

from tarry.core.errors import LockTimeout, StoreUnavailable
from tarry.storage.postgres.messages import statements
from tarry.storage.postgres.operation import GroupItem, PostgresOperation

I = TypeVar("I")  # noqa: E741 - I and O are input and output
O = TypeVar("O")  # noqa: E741
I_contra = TypeVar("I_contra", contravariant=True)
O_co = TypeVar("O_co", covariant=True)
R = TypeVar("R")

LARGEST = 1_000
ASIDE_PAUSE_S = 0.05
"""Pause before blocked items are retried."""


class Flush(Protocol[I_contra, O_co]):
    def __call__(self, items: Sequence[I_contra], /, *, again: bool, brief: bool) -> Awaitable[Sequence[O_co]]:
        """`again`: an earlier flush of these items failed and may have stored them. `brief`: wait only a few milliseconds for
        locks."""
        ...


class Entry(msgspec.Struct, Generic[I, O], eq=False):
    item: I
    identity: Hashable
    future: asyncio.Future[O]
    until_s: float
    """Deadline of a blocked item."""


class GroupCommit(Generic[I, O]):
    def __init__(
        self,
        flush: Flush[I, O],
        *,
        identity: Callable[[I], Hashable],
        locked: Callable[[Sequence[I]], Awaitable[Sequence[bool]]],
        lock_for_s: float,
    ) -> None:
        """`identity`: two items with the same identity never share a flush, so each gets the result it would get alone.
        `locked`: which items another transaction is known to block. `lock_for_s`: how long a blocked item is retried."""
        self._flush = flush
        self._identity = identity
        self._locked = locked
        self._lock_for_s = lock_for_s
        self._waiting: list[Entry[I, O]] = []
        self._flushing: Sequence[Entry[I, O]] = ()
        self._flusher: asyncio.Task[None] | None = None
        self._suspects: deque[Entry[I, O]] = deque()
        """Items of a flush that one of them made fail. Each is flushed alone, before new items."""
        self._aside: dict[Hashable, Entry[I, O]] = {}
        """Items of flushes that timed out on a lock, by identity. Later items with the same identity wait."""
        self._undecided: deque[Sequence[Entry[I, O]]] = deque()
        """Groups of items set aside that are to be retried. Items in none of them are known to be blocked."""
        self._retrier: asyncio.Task[None] | None = None
        self._lock_timeout: LockTimeout
        """The error of the last flush that timed out on a lock."""

    def submit(self, item: I) -> asyncio.Future[O]:
        future: asyncio.Future[O] = asyncio.get_running_loop().create_future()
        self._waiting.append(Entry(item, self._identity(item), future, time.monotonic() + self._lock_for_s))
        self._start()
        return future

    def _start(self) -> None:
        if self._flusher is None:
            self._flusher = asyncio.create_task(self._flush_until_empty(), name="tarry-group-commit")

    async def drain(self, within_s: float) -> None:
        """Wait until all submitted items are done; cancel the rest at the deadline."""
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
        """Cancel all callers."""
        for entry in (*self._waiting, *self._flushing, *self._suspects, *self._aside.values()):
            entry.future.cancel()
        self._waiting.clear()
        self._suspects.clear()
        self._aside.clear()
        self._undecided.clear()

    async def _flush_until_empty(self) -> None:
        try:
            while True:
                again = bool(self._suspects)
                self._flushing = batch = [self._suspects.popleft()] if again else self._next_batch()
                if not batch:
                    break
                try:
                    await self._flush_and_resolve(batch, again=again, brief=again)
                except LockTimeout as error:
                    self._set_aside(batch, error)
                except Exception as error:
                    if self._is_for_all(batch, error):
                        self._fail(batch, error)
                    else:
                        self._suspects += batch
        except asyncio.CancelledError:
            self._abandon()
            raise
        finally:
            self._flusher, self._flushing = None, ()

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

    async def _flush_and_resolve(self, batch: Sequence[Entry[I, O]], *, again: bool, brief: bool) -> None:
        results = await self._flush([entry.item for entry in batch], again=again, brief=brief)
        for entry, result in zip(batch, results, strict=True):
            self._aside.pop(entry.identity, None)
            if not entry.future.done():
                entry.future.set_result(result)

    def _is_for_all(self, batch: Sequence[Entry[I, O]], error: Exception) -> bool:
        """Whether the error fails all items. Otherwise one of them is the cause, and each is retried alone; if the database
        is unavailable, that would repeat the timeout for each."""
        return len(batch) == 1 or isinstance(error, StoreUnavailable)

    def _set_aside(self, batch: Sequence[Entry[I, O]], error: LockTimeout) -> None:
        self._lock_timeout = error
        self._aside |= {entry.identity: entry for entry in batch}
        self._undecided.append(batch)
        if self._retrier is None:
            self._retrier = asyncio.create_task(self._retry_until_empty(), name="tarry-group-commit-aside")

    async def _retry_until_empty(self) -> None:
        """Retry groups, one connection at a time. A group that times out on a lock is split into halves, which follow the
        groups already set aside."""
        try:
            while self._aside:
                if self._undecided:
                    await self._retry(self._undecided.popleft(), brief=True)
                else:  # all are blocked, often by one transaction
                    await asyncio.sleep(ASIDE_PAUSE_S)
                    await self._retry(list(self._aside.values()), brief=False)
                self._start()  # flush later items with the same identities
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
            await self._flush_and_resolve(group, again=True, brief=brief)
        except LockTimeout as error:
            # Another transaction has created one of the keys and not committed. No snapshot shows which.
            self._lock_timeout = error
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
            return [False] * len(group)  # the next flush fails too, and reports the error

    def _expire(self) -> None:
        """Fail items that were blocked until their deadline, and those of the same identity behind them. None is in a
        flush."""
        now_s = time.monotonic()
        expired = [entry for entry in self._aside.values() if entry.future.done() or now_s >= entry.until_s]
        identities = {entry.identity for entry in expired}
        expired += [entry for entry in self._waiting if entry.identity in identities and now_s >= entry.until_s]
        if expired:
            self._fail(expired, self._lock_timeout)

    def _fail(self, batch: Sequence[Entry[I, O]], error: Exception) -> None:
        for entry in batch:
            self._aside.pop(entry.identity, None)
            if not entry.future.done():
                entry.future.set_exception(error)


class Retried(Protocol):
    def __call__(
        self, work: Callable[[AsyncConnection[Any]], Awaitable[R]], *, wait_for_locks: bool = True
    ) -> Awaitable[R]: ...


class Try(Protocol):
    def __call__(self, operation: PostgresOperation[R], own: AsyncConnection[Any], *, brief: bool) -> Awaitable[R]:
        """`brief`: see `transaction`."""
        ...


class GroupCommits:
    """Group commits of an awaiting store, one per verb and queue."""

    def __init__(self, retried: Retried, try_: Try, *, lock_for_s: float) -> None:
        """`retried` and `try_` run an operation on one of the store's connections."""
        self._retried = retried
        self._try = try_
        self._lock_for_s = lock_for_s
        self._group_commits: dict[tuple[str, str], GroupCommit[GroupItem[Any], Any]] = {}

    def of(self, item: GroupItem[R]) -> GroupCommit[GroupItem[R], R]:
        group_commit = self._group_commits.get((item.verb, item.queue))
        if group_commit is None:
            group_commit = self._group_commits[item.verb, item.queue] = GroupCommit(
                self._flush, identity=lambda item: item.identity, locked=self._locked, lock_for_s=self._lock_for_s
            )
        return group_commit

    async def drain(self, end_s: float) -> None:
        """Wait until `end_s` for the items submitted so far; cancel the rest."""
        within_s = max(0.0, end_s - time.monotonic())
        await asyncio.gather(*(group_commit.drain(within_s) for group_commit in self._group_commits.values()))

    async def _flush(self, items: Sequence[GroupItem[Any]], *, again: bool, brief: bool) -> Sequence[Any]:
        operation = items[0].batch([item.value for item in items], again)
        return await self._retried(partial(self._try, operation, brief=brief), wait_for_locks=False)

    async def _locked(self, items: Sequence[GroupItem[Any]]) -> list[bool]:
        keys = [item.key for item in items]
        read = PostgresOperation[frozenset[str]](lambda own: statements.locked(items[0].queue, keys).run())
        locked = await self._retried(partial(self._try, read, brief=False), wait_for_locks=False)
        return [key in locked for key in keys]
