"""A worker beside a plain loop on the public API: `python -m benchmarks.worker`.

Every turn is a process of its own, and the turns of a round follow each other, so that other load on the machine falls on all
contenders alike. Compare inside one run: the ratio of rates, and the CPU per message.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import timedelta

import psycopg

import tarry
from benchmarks.measure import Meter, Slice
from benchmarks.results import Results, Sample
from benchmarks.server import running_server
from tarry import Message, Worker
from tarry.app import AsyncApp
from tarry.services.worker.worker import WorkerSettings

PLAIN, ASYNC, SYNC = "plain loop", "worker, async", "worker, sync"
CONTENDERS = (PLAIN, ASYNC, SYNC)
QUEUE = "jobs"
LEASE_FOR = timedelta(minutes=5)
TARGET = 0.7
"""P1: a worker with a trivial async handler, relative to the plain loop."""


class Counted:
    """Measures from message `warm_up` to the end: connections are open by then, and statements prepared."""

    def __init__(self, meter: Meter, warm_up: int, n: int) -> None:
        self._meter = meter
        self._warm_up, self._last = warm_up, warm_up + n
        self._done = 0
        self._open: AbstractContextManager[Slice] | None = None
        self._slice: Slice | None = None
        self._left = n

    def add(self, n: int = 1) -> bool:
        """Count finished messages. Returns whether these were the last."""
        before, self._done = self._done, self._done + n
        if before < self._warm_up <= self._done:
            self._left = self._last - self._done
            self._open = self._meter.slice()
            self._slice = self._open.__enter__()
        return self._done >= self._last

    def end(self) -> Sample:
        assert self._open is not None
        assert self._slice is not None
        self._open.__exit__(None, None, None)
        return self._meter.sample(self._slice, self._left)


async def plain_loop(app: AsyncApp, counted: Counted, concurrency: int) -> None:
    """What a user would write: poll as many as may run at once, ack each as it ends."""
    queue, last = app.queue(QUEUE), False
    while not last:
        deliveries = await queue.try_poll_many(concurrency, lease_for=LEASE_FOR)
        await asyncio.gather(*(delivery.ack() for delivery in deliveries))
        last = counted.add(len(deliveries))


async def worker_loop(app: AsyncApp, counted: Counted, concurrency: int, *, is_async: bool) -> None:
    worker, stop, loop, lock = Worker(), asyncio.Event(), asyncio.get_running_loop(), threading.Lock()

    async def awaits(payload: dict[str, int]) -> None:
        if counted.add():
            stop.set()

    def blocks(payload: dict[str, int]) -> None:
        with lock:
            if counted.add():
                loop.call_soon_threadsafe(stop.set)

    worker.handler(QUEUE, lease_for=LEASE_FOR)(awaits if is_async else blocks)
    await worker.run(app, WorkerSettings(concurrency=concurrency), stop=stop)


async def turn(dsn: str, contender: str, concurrency: int, n: int) -> Sample:
    warm_up = max(2 * concurrency, n // 10)
    with psycopg.connect(dsn, autocommit=True, application_name="bench") as admin:
        counted = Counted(Meter(admin), warm_up, n)
        async with tarry.connect_async(dsn, allow_unsafe=True) as app:
            for start in range(0, warm_up + n, 1_000):
                size = min(1_000, warm_up + n - start)
                await app.queue(QUEUE).offer_many([Message(payload={"n": i}) for i in range(size)])
            if contender == PLAIN:
                await plain_loop(app, counted, concurrency)
            else:
                await worker_loop(app, counted, concurrency, is_async=contender == ASYNC)
            return counted.end()


def in_process(dsn: str, contender: str, concurrency: int, n: int, *, uvloop: bool) -> Sample:
    turn_of = [dsn, contender, str(concurrency), str(n), "uvloop" if uvloop else "asyncio"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.worker", "--turn", *turn_of], stdout=subprocess.PIPE, check=True
    )
    return Sample(**json.loads(done.stdout))


def one_turn(dsn: str, contender: str, concurrency: str, n: str, loop: str) -> None:
    if loop == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    else:
        factory = asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        sample = runner.run(turn(dsn, contender, int(concurrency), int(n)))
    print(json.dumps(dataclasses.asdict(sample)))


def show(results: Results, concurrencies: Sequence[int]) -> None:
    print(f"{'':28}{'jobs/s':>10}{'client µs':>11}{'backend µs':>12}{'commits':>9}{'ratio':>8}")
    for concurrency in concurrencies:
        measure = str(concurrency)
        for contender in CONTENDERS:
            figures = [
                results.median(measure, contender, figure)
                for figure in (
                    lambda sample: sample.rate,
                    lambda sample: sample.client_us,
                    lambda sample: sample.backend_us,
                    lambda sample: sample.commits_per_message,
                )
            ]
            if figures[0] is None:
                continue
            rate, client, backend, commits = (figure or 0.0 for figure in figures)
            ratio = results.ratio((measure, contender), (measure, PLAIN)) or 0.0
            verdict = ""
            if contender == ASYNC and concurrency > 1:
                verdict = f"  P1 {'met' if ratio >= TARGET else 'missed'}: {TARGET} wanted"
            name = f"{contender}, {concurrency} at once"
            print(f"{name:28}{rate:10,.0f}{client:11.0f}{backend:12.0f}{commits:9.3f}{ratio:8.2f}{verdict}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.worker", description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000, metavar="N", help="of a turn; a fifth of it one by one")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 64, 256], metavar="N")
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=CONTENDERS, metavar="CONTENDER")
    parser.add_argument("--uvloop", action="store_true", help="all contenders on uvloop")
    parser.add_argument("--dsn", help="a PostgreSQL of your own, where databases may be created (default: embedded)")
    parser.add_argument("--turn", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.turn:
        one_turn(*options.turn)
        return
    results = Results()
    with running_server(options.dsn) as server:
        server.check_durable()
        dsn = server.database("worker")
        tarry.connect(dsn, migrate=True).close()
        for _ in range(options.rounds):
            for concurrency in options.concurrency:
                n = options.messages if concurrency > 1 else max(1, options.messages // 5)
                for contender in options.only:
                    sample = in_process(dsn, contender, concurrency, n, uvloop=options.uvloop)
                    results.add(str(concurrency), contender, sample)
    show(results, options.concurrency)
    print(f"load {', '.join(f'{load:.1f}' for load in os.getloadavg())} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
