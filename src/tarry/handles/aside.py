"""A thread for computations that would keep an event loop from answering."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Aside:
    """Runs one computation at a time in a thread of its own. One, so that the event loop competes with a single thread for
    the interpreter, however many requests compute; and its own, so that they do not fill the pool of the loop."""

    def __init__(self, name: str) -> None:
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)  # starts with the first computation

    async def run(self, compute: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.wrap_future(self._threads.submit(compute, *args, **kwargs))
