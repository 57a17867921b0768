"""Timer implementations: Tarry's strategies on a delay queue, and three of the standard library."""

from __future__ import annotations

import asyncio
import sched
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, NoReturn, Protocol

from tarry.storage.memory import BusyWait, DelayQueue, Strategy, TimingWheel, WaitNotify, WaitNotifyScan


class Contender(Protocol):
    def start(self, due: float) -> Any: ...
    def cancel(self, timer: Any) -> object: ...
    def collect(self, n: int) -> list[float]:
        """Waits for the next `n` timers. How late each of them was, in seconds."""
        ...

    def idle(self, seconds: float) -> None:
        """Waits, with all timers far away."""
        ...

    def close(self) -> None: ...


class Queue:
    """The waiting thread takes the items itself."""

    def __init__(self, strategy: Strategy) -> None:
        self._queue: DelayQueue[float] = DelayQueue(strategy=strategy)

    def start(self, due: float) -> Any:
        return self._queue.put(due, at=due)

    def cancel(self, timer: Any) -> object:
        return self._queue.cancel(timer)

    def collect(self, n: int) -> list[float]:
        late: list[float] = []
        for _ in range(n):
            due = self._queue.take()
            assert due is not None
            late.append(time.monotonic() - due)
        return late

    def idle(self, seconds: float) -> None:
        self._queue.take(timedelta(seconds=seconds))

    def close(self) -> None:
        self._queue.close()


class _Enough(Exception): ...


class Scheduler:
    """`sched`: a heap, for one thread. Cancelling searches the whole of it."""

    def __init__(self) -> None:
        self._scheduler = sched.scheduler(time.monotonic, time.sleep)
        self._late: list[float] = []
        self._expected = 0

    def start(self, due: float) -> Any:
        return self._scheduler.enterabs(due, 0, self._fired, (due,))

    def cancel(self, timer: Any) -> object:
        self._scheduler.cancel(timer)
        return None

    def collect(self, n: int) -> list[float]:
        self._late, self._expected = [], n
        self._run()
        return self._late

    def idle(self, seconds: float) -> None:
        self._scheduler.enterabs(time.monotonic() + seconds, 0, self._enough)
        self._run()

    def close(self) -> None: ...

    def _run(self) -> None:
        with suppress(_Enough):
            self._scheduler.run()

    def _fired(self, due: float) -> None:
        self._late.append(time.monotonic() - due)
        if len(self._late) == self._expected:
            self._enough()

    def _enough(self) -> NoReturn:
        raise _Enough


class EventLoop:
    """`asyncio`: a heap, for one thread, which also serves sockets."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._late: list[float] = []
        self._expected = 0

    def start(self, due: float) -> Any:
        return self._loop.call_at(due, self._fired, due)

    def cancel(self, timer: Any) -> object:
        return timer.cancel()

    def collect(self, n: int) -> list[float]:
        self._late, self._expected = [], n
        self._loop.run_forever()
        return self._late[:n]

    def idle(self, seconds: float) -> None:
        self._loop.run_until_complete(asyncio.sleep(seconds))

    def close(self) -> None:
        self._loop.close()

    def _fired(self, due: float) -> None:
        self._late.append(time.monotonic() - due)
        if len(self._late) == self._expected:
            self._loop.stop()


class Threads:
    """`threading.Timer`: a thread for each timer."""

    def __init__(self) -> None:
        self._late: list[float] = []
        self._timers: list[threading.Timer] = []
        self._fires = threading.Semaphore(0)

    def start(self, due: float) -> Any:
        timer = threading.Timer(due - time.monotonic(), self._fired, (due,))
        timer.start()
        self._timers.append(timer)
        return timer

    def cancel(self, timer: Any) -> object:
        return timer.cancel()

    def collect(self, n: int) -> list[float]:
        for _ in range(n):
            self._fires.acquire()
        return self._late[:n]

    def idle(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        for timer in self._timers:
            timer.cancel()

    def _fired(self, due: float) -> None:
        self._late.append(time.monotonic() - due)
        self._fires.release()


CONTENDERS: dict[str, Callable[[], Contender]] = {
    "busy-wait": lambda: Queue(BusyWait()),
    "wait/notify": lambda: Queue(WaitNotify()),
    "wait/notify + scan": lambda: Queue(WaitNotifyScan()),
    "timing wheel": lambda: Queue(TimingWheel()),
    "sched": Scheduler,
    "asyncio": EventLoop,
    "threading.Timer": Threads,
}
MOST = {"threading.Timer": 100}
"""More timers than this would be more threads than a machine should have."""
CANCELLED = {"sched": 5}
"""Enough cancellations to measure the cost of one; the others cancel a thousand."""
