"""Pages of a bounded number of rows and of bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

SLICE = 32
LARGEST_SLICE = 128
"""Rows that are read at a time: what is read and then left out is bounded, too."""
SLICE_BYTES = 512 * 1024
"""After a slice with payloads of this size the next one is small again."""


class HasPayload(Protocol):
    @property
    def payload(self) -> bytes | None: ...


R = TypeVar("R", bound=HasPayload)
P = TypeVar("P")


def next_slice(rows: int, size: int) -> int:
    """Rows of the slice after one of `rows` rows and `size` bytes."""
    return SLICE if size >= SLICE_BYTES else min(2 * rows, LARGEST_SLICE)


async def slices(
    read: Callable[[P | None, int], Awaitable[Sequence[R]]],
    place_of: Callable[[R], P],
    *,
    start: P | None = None,
    limit: int | None = None,
) -> AsyncIterator[Sequence[R]]:
    """All rows behind `start`, at most `limit`, as they are read."""
    rows, left, place = SLICE, limit, start
    while left is None or left > 0:
        wanted = rows if left is None else min(rows, left)
        some = await read(place, wanted)
        yield some
        if len(some) < wanted:
            return
        place = place_of(some[-1])
        left = None if left is None else left - len(some)
        rows = next_slice(rows, size_of(some))


async def bounded(
    read: Callable[[P | None, int], Awaitable[Sequence[R]]],
    place_of: Callable[[R], P],
    *,
    start: P | None,
    limit: int,
    most_bytes: int,
) -> tuple[list[R], P | None]:
    """At most `limit` rows, ended early by the one that fills `most_bytes`; and where the next page begins."""
    found: list[R] = []
    size = 0
    async for some in slices(read, place_of, start=start, limit=limit):
        for one in some:
            found.append(one)
            size += len(one.payload or b"")
            if size >= most_bytes or len(found) >= limit:
                return found, place_of(one)
    return found, None


def size_of(rows: Sequence[HasPayload]) -> int:
    return sum(len(row.payload or b"") for row in rows)
