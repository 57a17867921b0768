# Generated from src/tarry/api/waiting.py by tools/generate-blocking. Edit that file, then run `make generate`.
"""The blocking half of `tarry.api.waiting`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar, cast

from tarry.api.waiting import ThreadWaiter
from tarry.core.errors import UnknownQueue
from tarry.core.wakeup.wait_queue import Announce, Poll, WaitHint, WaitKey, WaitQueue, waiting

D = TypeVar("D")
_POLL_AGAIN = WaitHint(timedelta(0))
"""The queue was renamed or deleted since the last poll. Waiting creates no queue; the next poll creates it, or raises."""


def wait_for(
    wait_queue: WaitQueue,
    key: WaitKey,
    timeout: timedelta | None,
    poll: Callable[[], Sequence[D]],
    announce: Callable[[timedelta], WaitHint],
) -> list[D]:
    waiter = ThreadWaiter(wait_queue.condition())
    plan = waiting(wait_queue, key, waiter, timeout)
    try:
        step = next(plan)
        while True:
            result: Any = None
            if isinstance(step, Poll):
                result = poll()
            elif isinstance(step, Announce):
                try:
                    result = announce(timedelta(seconds=step.sleep_s))
                except UnknownQueue:
                    result = _POLL_AGAIN
            else:
                waiter.sleep(step.seconds)
            step = plan.send(result)
    except StopIteration as stop:
        return cast("list[D]", stop.value)
    finally:
        plan.close()  # leaves the wait queue in any case
