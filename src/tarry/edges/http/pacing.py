"""Long work on the event loop, in slices."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

SLICE_S = 0.005


class Pace:
    """Lets the other tasks of the loop run after every few milliseconds of work.

    To await what is there already (the rest of a body, a lock that is free) does not: only `rest` gives way.
    """

    def __init__(self) -> None:
        self._until = time.monotonic() + SLICE_S

    @property
    def is_up(self) -> bool:
        """Whether this slice was long enough."""
        return time.monotonic() >= self._until

    async def rest(self) -> None:
        await asyncio.sleep(0)
        self._until = time.monotonic() + SLICE_S


async def paced(do: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """`do` for each of the items, in slices."""
    pace, done = Pace(), list[R]()
    for item in items:
        done.append(do(item))
        if pace.is_up:
            await pace.rest()
    return done
