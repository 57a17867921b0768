"""Group commit in the client: concurrent operations of many tasks become one statement and one commit.

One flush of new items runs at a time; items that arrive meanwhile belong to the next one. There is no timer, so an idle
caller does not wait, and every caller awaits its own durable result. A flush that meets a row which another transaction has
locked fails after the short `lock_timeout` of our sessions. Its items are then set aside: a second task finds out which of
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

I = TypeVar("I")  # noqa: E741 - I and O are what goes in and what comes out
O = TypeVar("O")  # noqa: E741
I_contra = TypeVar("I_contra", contravariant=True)
O_co = TypeVar("O_co", covariant=True)
R = TypeVar("R")

LARGEST = 1_000
ASIDE_PAUSE_S = 0.05
"""Before blocked items are tried again."""


class Flush(Protocol[I_contra, O_co]):
    def __call__(self, items: Sequence[I_contra], /, *, again: bool, brief: bool) -> Awaitable[Sequence[O_co]]:
        """`again`: the items were in a flush that failed, and which may have stored them. `brief`: wait for locks for a few
        milliseconds only."""
        ...


class Entry(msgspec.Struct, Generic[I, O], eq=False):
    item: I
    identity: Hashable
    future: asyncio.Future[O]
    until_s: float
    """When a blocked item fails."""


class GroupCommit(Generic[I, O]):
    def __init__(
        self,
        flush: Flush[I, O],
        *,
        identity: Callable[[I], Hashable],
        locked: Callable[[Sequence[I]], Awaitable[Sequence[bool]]],
        lock_for_s: float,
    ) -> None:
        """`identity`: two items of the same identity never share a flush, so each gets the result it would get alone.
        `locked`: which items another transaction is known to block. `lock_for_s`: how long a blocked item is tried."""
        self._flush = flush
        self._identity = identity
        self._locked = locked
        self._lock_for_s = lock_for_s
        self._waiting: list[Entry[I, O]] = []
        self._flushing: Sequence[Entry[I, O]] = ()
        self._flusher: asyncio.Task[None] | None = None
        self._suspects: deque[Entry[I, O]] = deque()
        """Items of a flush that failed because of one of them. Each is flushed alone, before new ones."""
        self._aside: dict[Hashable, Entry[I, O]] = {}
        """Items that met a lock, by identity. Later items of the same identity wait."""
        self._undecided: deque[Sequence[Entry[I, O]]] = deque()
        """Groups of what is aside that are to be tried. Those that are in none are known to be blocked."""
        self._retrier: asyncio.Task[None] | None = None
        self._lock_timeout: LockTimeout
        """The error of the last flush that met a lock."""

    def submit(self, item: I) -> asyncio.Future[O]:
        future: asyncio.Future[O] = asyncio.get_running_loop().create_future()
        self._waiting.append(Entry(item, self._identity(item), future, time.monotonic() + self._lock_for_s))
        self._start()
        return future

    def _start(self) -> None:
        if self._flusher is None:
            self._flusher = asyncio.create_task(self._flush_until_empty(), name="tarry-group-commit")

    async def drain(self, within_s: float) -> None:
        """Wait until all submitted items are done; cancel those that are not done in time."""
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
        """Else one of the items is the cause, and each is tried alone. If the database is unavailable, that would repeat the
        time-out for each."""
        return len(batch) == 1 or isinstance(error, StoreUnavailable)

    def _set_aside(self, batch: Sequence[Entry[I, O]], error: LockTimeout) -> None:
        self._lock_timeout = error
        self._aside |= {entry.identity: entry for entry in batch}
        self._undecided.append(batch)
        if self._retrier is None:
            self._retrier = asyncio.create_task(self._retry_until_empty(), name="tarry-group-commit-aside")

    async def _retry_until_empty(self) -> None:
        """One connection at a time, however many are blocked. A group that meets a lock is halved, and its halves take their
        turn after what was set aside meanwhile."""
        try:
            while self._aside:
                if self._undecided:
                    await self._retry(self._undecided.popleft(), brief=True)
                else:  # all are blocked: often by one transaction: when it ends, all can be flushed
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
            await self._flush_and_resolve(group, again=True, brief=brief)
        except LockTimeout as error:
            # Another transaction has created one of the keys, which no snapshot shows: only trying shows which.
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
            return [False] * len(group)  # what fails here fails the next flush, too, and is reported by that

    def _expire(self) -> None:
        """Fail what was blocked for too long, and what has waited behind it for as long. Nothing of it is being flushed."""
        now_s = time.monotonic()
        over = [entry for entry in self._aside.values() if entry.future.done() or now_s >= entry.until_s]
        if not over:
            return
        identities = {entry.identity for entry in over}
        over += [entry for entry in self._waiting if entry.identity in identities and now_s >= entry.until_s]
        self._fail(over, self._lock_timeout)

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
    """The group commits of an awaiting store, one per verb and queue."""

    def __init__(self, retried: Retried, try_: Try, *, lock_for_s: float) -> None:
        """`retried` and `try_` run an operation on a connection of the store."""
        self._retried = retried
        self._try = try_
        self._lock_for_s = lock_for_s
        self._group_commits: dict[tuple[str, str], GroupCommit[GroupItem[Any], Any]] = {}

    def submit(self, item: GroupItem[R]) -> Awaitable[R]:
        group_commit = self._group_commits.get((item.verb, item.queue))
        if group_commit is None:
            group_commit = self._group_commits[item.verb, item.queue] = GroupCommit(
                self._flush, identity=lambda item: item.identity, locked=self._locked, lock_for_s=self._lock_for_s
            )
        return group_commit.submit(item)

    async def drain(self, end_s: float) -> None:
        """Wait until `end_s` for the items submitted so far; cancel the rest."""
        group_commits = self._group_commits.values()
        await asyncio.gather(
            *(group_commit.drain(max(0.0, end_s - time.monotonic())) for group_commit in group_commits)
        )

    async def _flush(self, items: Sequence[GroupItem[Any]], *, again: bool, brief: bool) -> Sequence[Any]:
        operation = items[0].batch([item.value for item in items], again)
        return await self._retried(partial(self._try, operation, brief=brief), wait_for_locks=False)

    async def _locked(self, items: Sequence[GroupItem[Any]]) -> list[bool]:
        keys = [item.key for item in items]
        look: PostgresOperation[frozenset[str]] = PostgresOperation(
            lambda own: statements.locked(items[0].queue, keys).run()
        )
        locked = await self._retried(partial(self._try, look, brief=False), wait_for_locks=False)
        return [key in locked for key in keys]
