"""The two ways to wait: a blocked thread and an awaiting task. `core.waiting` decides, this module waits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar, cast

from tarry.core.conditions import Condition
from tarry.core.errors import UnknownQueue
from tarry.core.waiting import Ask, LineKey, Lobby, Look, Waited, waiting

D = TypeVar("D")

_LONGEST_S = 3_600.0
"""Upper bound of a single wait, for all platforms; the plan then waits again."""
_LOOK_AGAIN = Waited(timedelta(0))
"""The queue was renamed or deleted since the last look. Waiting creates no queue; the next look creates it, or raises."""


class ThreadTicket:
    def __init__(self, condition: Condition) -> None:
        self._changed = condition
        self._woken = False

    def wake(self) -> bool:
        with self._changed:
            self._woken = True
            self._changed.notify()
        return True

    def park(self, seconds: float) -> None:
        with self._changed:
            if not self._woken:
                self._changed.wait(min(seconds, _LONGEST_S))
            self._woken = False


class TaskTicket:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    def wake(self) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._woken.set)
        except RuntimeError:  # the loop is closed
            return False
        return True

    async def park(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(min(seconds, _LONGEST_S)):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._woken.clear()


def wait_for(
    lobby: Lobby,
    key: LineKey,
    timeout: timedelta | None,
    look: Callable[[], Sequence[D]],
    ask: Callable[[timedelta], Waited],
) -> list[D]:
    ticket = ThreadTicket(lobby.condition())
    plan = waiting(lobby, key, ticket, timeout)
    try:
        step = next(plan)
        while True:
            answer: Any = None
            if isinstance(step, Look):
                answer = look()
            elif isinstance(step, Ask):
                try:
                    answer = ask(timedelta(seconds=step.sleep_s))
                except UnknownQueue:
                    answer = _LOOK_AGAIN
            else:
                ticket.park(step.seconds)
            step = plan.send(answer)
    except StopIteration as stop:
        return cast("list[D]", stop.value)
    finally:
        plan.close()  # leaves the wait queue in any case


async def await_for(
    lobby: Lobby,
    key: LineKey,
    timeout: timedelta | None,
    look: Callable[[], Awaitable[Sequence[D]]],
    ask: Callable[[timedelta], Awaitable[Waited]],
) -> list[D]:
    ticket = TaskTicket()
    plan = waiting(lobby, key, ticket, timeout)
    try:
        step = next(plan)
        while True:
            answer: Any = None
            if isinstance(step, Look):
                answer = await look()
            elif isinstance(step, Ask):
                try:
                    answer = await ask(timedelta(seconds=step.sleep_s))
                except UnknownQueue:
                    answer = _LOOK_AGAIN
            else:
                await ticket.park(step.seconds)
            step = plan.send(answer)
    except StopIteration as stop:
        return cast("list[D]", stop.value)
    finally:
        plan.close()
