"""Pages of a bounded number of rows and of bytes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

SLICE = 32
LARGEST_SLICE = 128
"""Rows that are read at a time: what is read and then left out is bounded, too."""


class HasPayload(Protocol):
    @property
    def payload(self) -> bytes: ...


R = TypeVar("R", bound=HasPayload)
P = TypeVar("P")


async def bounded(
    read: Callable[[P | None, int], Awaitable[list[R]]],
    place_of: Callable[[R], P],
    *,
    start: P | None,
    limit: int,
    most_bytes: int,
) -> tuple[list[R], P | None]:
    """At most `limit` rows, ended early by the one that fills `most_bytes`; and where the next page begins."""
    found: list[R] = []
    size, rows, place = 0, SLICE, start
    while True:
        wanted = min(rows, limit - len(found))
        some = await read(place, wanted)
        for one in some:
            found.append(one)
            place = place_of(one)
            size += len(one.payload)
            if size >= most_bytes or len(found) >= limit:
                return found, place
        if len(some) < wanted:
            return found, None
        rows = min(2 * rows, LARGEST_SLICE)
