"""Waiting for messages: `core.wakeup.wait_queue` decides when to poll, this module sleeps until then."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar, cast

from tarry.core.errors import UnknownQueue
from tarry.core.wakeup.wait_queue import Announce, Condition, Poll, WaitHint, WaitKey, WaitQueue, waiting

D = TypeVar("D")

_LONGEST_S = 3_600.0
"""Upper bound of a single sleep that all platforms support; the plan then sleeps again."""
_POLL_AGAIN = WaitHint(timedelta(0))
"""The queue was renamed or deleted since the last poll. Waiting creates no queue; the next poll creates it, or raises."""


class ThreadWaiter:
    def __init__(self, condition: Condition) -> None:
        self._changed = condition
        self._woken = False

    def wake(self) -> bool:
        with self._changed:
            self._woken = True
            self._changed.notify()
        return True

    def sleep(self, seconds: float) -> None:
        with self._changed:
            if not self._woken:
                self._changed.wait(min(seconds, _LONGEST_S))
            self._woken = False


class TaskWaiter:  # ASYNC
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    def wake(self) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._woken.set)
        except RuntimeError:  # the loop is closed
            return False
        return True

    async def sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(min(seconds, _LONGEST_S)):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._woken.clear()


async def wait_for(
    wait_queue: WaitQueue,
    key: WaitKey,
    timeout: timedelta | None,
    poll: Callable[[], Awaitable[Sequence[D]]],
    announce: Callable[[timedelta], Awaitable[WaitHint]],
) -> list[D]:
    if True:  # ASYNC  # noqa: SIM108
        waiter = TaskWaiter()
    else:
        waiter = ThreadWaiter(wait_queue.condition())
    plan = waiting(wait_queue, key, waiter, timeout)
    try:
        step = next(plan)
        while True:
            result: Any = None
            if isinstance(step, Poll):
                result = await poll()
            elif isinstance(step, Announce):
                try:
                    result = await announce(timedelta(seconds=step.sleep_s))
                except UnknownQueue:
                    result = _POLL_AGAIN
            else:
                await waiter.sleep(step.seconds)
            step = plan.send(result)
    except StopIteration as stop:
        return cast("list[D]", stop.value)
    finally:
        plan.close()  # leaves the wait queue in any case
