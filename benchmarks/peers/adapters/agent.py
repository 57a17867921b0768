"""The process of one contender: `python -m benchmarks.peers.adapters.agent NAME`.

It reads one JSON object per line, calls the adapter of that name, and writes the result as one line. It imports nothing of
Tarry, so that it also runs in the environment of the peers.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import signal
import sys
import time
import traceback
from typing import Any


class Unsupported(Exception):
    """The contender has no such call in its public API; the text is printed in place of its figures."""


class Watch:
    """Runs a step again and again for some seconds, and keeps how long each took."""

    def __init__(self, seconds: float, most: int | None = None) -> None:
        self.n = 0
        self._took: list[float] = []
        self._most = most
        self._started = self._last = time.perf_counter()
        self._end = self._started + seconds

    def step(self, n: int) -> None:
        now = time.perf_counter()
        self._took.append(now - self._last)
        self._last = now
        self.n += n

    @property
    def goes_on(self) -> bool:
        return self._last < self._end and (self._most is None or self.n < self._most)

    def result(self) -> dict[str, Any]:
        return {"n": self.n, "wall_s": self._last - self._started, **quantiles("ms", self._took)}


def quantiles(unit: str, seconds: list[float]) -> dict[str, float]:
    if not seconds:
        return {}
    ordered = sorted(seconds)
    return {
        f"{name}_{unit}": 1e3 * ordered[int(share * (len(ordered) - 1))]
        for name, share in (("p50", 0.5), ("p99", 0.99))
    }


def body(i: int) -> dict[str, Any]:
    """About 80 bytes of JSON, the same for all contenders."""
    return {"order": i, "customer": f"customer-{i % 1_000:04}", "total": "129.95", "currency": "EUR"}


class Countdown:
    """Set when a worker has handled `n` jobs; each handler calls `count`. The time runs from the first job to the last."""

    def __init__(self, n: int) -> None:
        self.done = asyncio.Event()
        self._n = self._left = n
        self._first = self._last = 0.0
        self._loop = asyncio.get_running_loop()

    def count(self) -> None:
        if self._left == self._n:
            self._first = time.perf_counter()
        self._left -= 1
        if self._left == 0:
            self._last = time.perf_counter()
            self._loop.call_soon_threadsafe(self.done.set)

    def result(self) -> dict[str, Any]:
        return {"n": self._n, "wall_s": self._last - self._first}


async def until(done: asyncio.Event, running: asyncio.Task[Any]) -> None:
    """Wait until all jobs are done. Raises the error of a worker that has ended before, which would never do them."""
    waiting = asyncio.create_task(done.wait())
    await asyncio.wait((waiting, running), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not done.is_set():
        await running


class Lateness:
    """From the moment a job could be delivered to the start of its handler, on one clock of one process."""

    def __init__(self, n: int) -> None:
        self.due: dict[int, float] = {}
        self._late: list[float] = []
        self._n = n
        self.done = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def handled(self, i: int) -> None:
        now = time.perf_counter()
        self._late.append(max(0.0, now - self.due.get(i, now)))
        if len(self._late) == self._n:
            self._loop.call_soon_threadsafe(self.done.set)

    async def send(self, offer: Any, n: int, every_s: float) -> None:
        """`offer(i)` makes a job that is due at once; the clock starts when the call returns, so the job is durable."""
        for i in range(n):
            self.due[i] = time.perf_counter() + 60.0
            await offer(i)
            self.due[i] = time.perf_counter()
            await asyncio.sleep(every_s)

    def result(self) -> dict[str, Any]:
        return {"n": len(self._late), "wall_s": 0.0, **quantiles("ms", self._late)}


async def serve(adapter: Any) -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, _print_tasks)
    while line := await asyncio.to_thread(sys.stdin.readline):
        request = json.loads(line)
        try:
            method = getattr(adapter, request.pop("call"), None)
            if method is None:
                raise Unsupported("its public API has no such call")
            result = method(**request)
            reply = await result if inspect.isawaitable(result) else result
        except Unsupported as reason:
            reply = {"unsupported": str(reason)}
        except Exception as error:
            traceback.print_exc()
            reply = {"unsupported": f"failed: {type(error).__name__}: {error}"[:300]}
        print(json.dumps(reply or {}), flush=True)


def _print_tasks() -> None:
    """To the log, before a call that takes too long is ended."""
    for task in asyncio.all_tasks():
        task.print_stack(file=sys.stderr)
    sys.stderr.flush()


def main() -> None:
    name, *options = sys.argv[1:]
    module = importlib.import_module(f"benchmarks.peers.adapters.{name}")
    with asyncio.Runner(loop_factory=_event_loop()) as runner:
        runner.run(serve(module.Adapter(*options)))


def _event_loop() -> Any:
    """uvloop where it is installed, as the command lines of Tarry and of PgQueuer choose for their workers."""
    try:
        return importlib.import_module("uvloop").new_event_loop
    except ModuleNotFoundError:
        return asyncio.new_event_loop


if __name__ == "__main__":
    # By its name, so that adapters raise the same `Unsupported`.
    importlib.import_module("benchmarks.peers.adapters.agent").main()
