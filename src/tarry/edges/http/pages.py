"""Pages limited in rows and bytes, and time slices for long computations on the event loop."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tarry.core.dead_letters.redrive import EVERY_LETTER, DeadFilter, DeadPosition
from tarry.core.journal.events import Event
from tarry.core.messages.model import EVERYTHING, DeadLetter, Filter, MessagePosition, StoredMessage
from tarry.core.messages.states import State
from tarry.core.ports import AsyncStore

SLICE = 32
LARGEST_SLICE = 128
"""Rows per read, which also limits how many rows are read and then discarded."""
SLICE_BYTES = 512 * 1024
"""After a slice with this many payload bytes, the next slice is small again."""
SLICE_S = 0.005

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")
Source = tuple[Callable[[P | None, int], Awaitable[Sequence[R]]], Callable[[R], P]]
"""The first two arguments of `slices` and `bounded`: a function that reads rows after a position, and one that returns the
position of a row."""


def live_messages(
    store: AsyncStore,
    queue: str,
    state: State | None = None,
    filter: Filter = EVERYTHING,
    with_payloads: Callable[[], bool] = lambda: True,
) -> Source[MessagePosition, StoredMessage[bytes]]:
    """Live messages in due order. `with_payloads` is called for each slice."""

    def read(after: MessagePosition | None, n: int) -> Awaitable[list[StoredMessage[bytes]]]:
        page = replace(filter, after=after, payloads=with_payloads())
        return store.run(store.messages.list(queue, state=state, limit=n, filter=page))

    return read, lambda message: MessagePosition(message.due_at, message.version)


def dead_letters(
    store: AsyncStore, queue: str, where: DeadFilter = EVERY_LETTER
) -> Source[DeadPosition, DeadLetter[bytes]]:
    """Dead letters, newest first."""

    def read(before: DeadPosition | None, n: int) -> Awaitable[list[DeadLetter[bytes]]]:
        return store.run(store.dead_letters.list(queue, where=where, limit=n, before=before))

    return read, lambda letter: DeadPosition(letter.died_at, letter.version)


def timeline(store: AsyncStore, queue: str, key: str) -> Source[int, Event]:
    """Events of a key, newest first."""

    async def read(before: int | None, n: int) -> list[Event]:
        return (await store.run(store.journal.timeline(queue, key, limit=n, before=before)))[::-1]

    return read, lambda event: event.id


def payload_size(row: Any) -> int:
    return len(row.payload or b"")


def next_slice(rows: int, size: int) -> int:
    """The size of the next slice, after a slice with `rows` rows and `size` bytes."""
    return SLICE if size >= SLICE_BYTES else min(2 * rows, LARGEST_SLICE)


async def slices(
    read: Callable[[P | None, int], Awaitable[Sequence[R]]],
    position_of: Callable[[R], P],
    *,
    start: P | None = None,
    limit: int | None = None,
    size_of: Callable[[R], int] = payload_size,
) -> AsyncIterator[Sequence[R]]:
    """Yield the rows after `start`, slice by slice, at most `limit` in total."""
    rows, left, position = SLICE, limit, start
    while left is None or left > 0:
        size = rows if left is None else min(rows, left)
        some = await read(position, size)
        yield some
        if len(some) < size:
            return
        position = position_of(some[-1])
        left = None if left is None else left - len(some)
        rows = next_slice(rows, sum(map(size_of, some)))


async def bounded(
    read: Callable[[P | None, int], Awaitable[Sequence[R]]],
    position_of: Callable[[R], P],
    *,
    start: P | None,
    limit: int,
    most_bytes: int,
    size_of: Callable[[R], int] = payload_size,
) -> tuple[list[R], P | None]:
    """A page of at most `limit` rows, fewer if their sizes reach `most_bytes`, and the position of the next page."""
    page: list[R] = []
    size = 0
    async for some in slices(read, position_of, start=start, limit=limit, size_of=size_of):
        for row in some:
            page.append(row)
            size += size_of(row)
            if size >= most_bytes or len(page) >= limit:
                return page, position_of(row)
    return page, None


async def in_time_slices(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items, and let other tasks of the event loop run every few milliseconds.

    Awaiting a result that is already available (the rest of a body, a free lock) does not let them run.
    """
    until = time.monotonic() + SLICE_S
    for item in items:
        yield item
        if time.monotonic() >= until:
            await asyncio.sleep(0)
            until = time.monotonic() + SLICE_S


async def paced(do: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Apply `do` to each item, in time slices."""
    return [do(item) async for item in in_time_slices(items)]
