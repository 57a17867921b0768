"""Memory under load: `python -m benchmarks.memory`. A producer and a worker of the library, a broker with many clients, and
the pipeline: its driver, its JVM and its Python workers while it archives events.

Resident memory of each process, at rest, at most (sampled) and after the load. Each load is run twice: memory that is bounded
is about the same the second time. Pages that forked Python workers share count in each of them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import psutil

import tarry
from benchmarks.bare import Bare
from benchmarks.broker import broker
from benchmarks.server import running_server
from tarry import Message, Worker
from tarry.services.worker.worker import WorkerSettings

MIB = 1024 * 1024
SAMPLE_EVERY_S = 0.05
BATCH = 1_000
QUEUE = "bench"
PARTS = ("library", "broker", "pipeline")


class Most:
    """The most memory of a process while it is sampled."""

    def __init__(self, process: psutil.Process) -> None:
        self._process = process
        self.rss = 0

    @asynccontextmanager
    async def sampled(self) -> AsyncGenerator[None]:
        async def sample() -> None:
            while True:
                self.rss = max(self.rss, self._process.memory_info().rss)
                await asyncio.sleep(SAMPLE_EVERY_S)

        sampling = asyncio.create_task(sample())
        try:
            yield
        finally:
            sampling.cancel()


async def measured(what: str, process: psutil.Process, load: Callable[[], Awaitable[int]]) -> None:
    at_rest, cells = process.memory_info().rss, list[str]()
    for _ in range(2):
        most, started = Most(process), time.perf_counter()
        async with most.sampled():
            n = await load()
        rate = n / (time.perf_counter() - started)
        cells.append(
            f"{most.rss / MIB:7.0f} at most, {process.memory_info().rss / MIB:4.0f} after {n:,} ({rate:,.0f}/s)"
        )
    print(f"{what:34}{at_rest / MIB:5.0f} at rest;{';'.join(cells)}", flush=True)


async def broker_under_load(url: str, process: psutil.Process, clients: int, n: int) -> None:
    async def each(verb: Callable[[Bare, int], Awaitable[int]], times: int) -> int:
        bare = Bare(url, 100)

        async def work(number: int) -> int:
            return sum([await verb(bare, number) for _ in range(times)])

        done = sum(await asyncio.gather(*(work(number) for number in range(clients))))
        bare.close()
        return done

    await each(Bare.offer, 1)
    print(f"MiB of a broker, {clients} clients at once")
    await measured("offers", process, lambda: each(Bare.offer, n // clients))
    await measured("polls + acks", process, lambda: each(Bare.poll_and_ack, n // clients // 2))
    await measured("offers in batches of 100", process, lambda: each(Bare.offer_batch, max(1, n // clients // 20)))
    await measured(
        "polls + acks, 100 at once", process, lambda: each(Bare.poll_and_ack_batch, max(1, n // clients // 20))
    )


async def produce(app: tarry.AsyncApp, n: int) -> int:
    for _ in range(0, n, BATCH):
        await app.queue(QUEUE).offer_many([Message(payload={"n": i}) for i in range(BATCH)])
    return n


async def work(app: tarry.AsyncApp, n: int) -> int:
    worker, stop, done = Worker(), asyncio.Event(), 0

    @worker.handler(QUEUE, lease_for=timedelta(minutes=5))
    async def handle(payload: dict[str, int]) -> None:
        nonlocal done
        done += 1
        if done == n:
            stop.set()

    await worker.run(app, WorkerSettings(concurrency=64), stop=stop)
    return done


async def library_under_load(dsn: str, what: str, n: int) -> None:
    async with tarry.connect_async(dsn) as app:
        load = produce if what == "producer" else work
        # Connections are open after this, and statements prepared. A worker ends with a few more than it counts.
        await load(app, 10 * BATCH if load is produce else BATCH)
        await measured(f"{what} of the library", psutil.Process(), lambda: load(app, n // 2))


def of_pipeline(driver: psutil.Process) -> dict[str, int]:
    """Resident memory now, by kind of process."""
    sizes = {"driver": driver.memory_info().rss, "JVM": 0, "Python workers": 0}
    for process in driver.children(recursive=True):
        with suppress(psutil.Error):
            sizes["JVM" if "java" in process.name() else "Python workers"] += process.memory_info().rss
    return sizes | {"together": sum(sizes.values())}


def pipeline_under_load(dsn: str, events: int) -> None:
    """Archive so many events, twice."""
    from benchmarks.pipeline.source import fill
    from tarry.edges.spark.jobs import archive
    from tarry.edges.spark.session import session

    driver, most = psutil.Process(), list[dict[str, int]]()
    with tempfile.TemporaryDirectory(prefix="tarry-lake-") as lake:
        spark = session(f"local[{os.cpu_count()}]")
        for _ in range(2):
            fill(dsn, events)
            most.append(dict.fromkeys(of_pipeline(driver), 0))
            over = threading.Event()

            def sample(sizes: dict[str, int] = most[-1], over: threading.Event = over) -> None:
                while not over.wait(SAMPLE_EVERY_S):
                    for kind, size in of_pipeline(driver).items():
                        sizes[kind] = max(sizes[kind], size)

            sampling = threading.Thread(target=sample)
            sampling.start()
            try:
                with tarry.connect(dsn) as app:
                    archived = archive.run(spark, app, archive.ArchiveArgs(lake=lake, batch_rows=max(1, events // 4)))
            finally:
                over.set()
                sampling.join()
            assert archived.rows >= events
        heap = spark.conf.get("spark.driver.memory", "not set")
        spark.stop()
    print(f"MiB of the pipeline, {events:,} events archived, twice; heap of the JVM at most {heap}")
    for kind, size in most[0].items():
        again = most[1][kind]
        print(f"{kind:34}{size / MIB:7.0f} at most;{again / MIB:7.0f} the second time ({again / max(1, size):.2f} ×)")


def in_process(dsn: str, what: str, n: int) -> None:
    subprocess.run([sys.executable, "-m", "benchmarks.memory", "--turn", dsn, what, str(n)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--messages", type=int, default=200_000, metavar="N", help="through the library")
    parser.add_argument(
        "--requests", type=int, default=20_000, metavar="N", help="to the broker, for each figure, twice"
    )
    parser.add_argument("--clients", type=int, default=200, metavar="N", help="of the broker, at once")
    parser.add_argument("--dsn", help="a PostgreSQL of your own, where databases may be created (default: embedded)")
    parser.add_argument("--events", type=int, default=1_000_000, metavar="N", help="that the pipeline archives, twice")
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}"
    )
    parser.add_argument("--turn", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.turn:
        dsn, what, n = options.turn
        if what == "pipeline":
            pipeline_under_load(dsn, int(n))
        else:
            asyncio.run(library_under_load(dsn, what, int(n)))
        return
    with running_server(options.dsn) as server:
        dsn = server.database("memory")
        tarry.connect(dsn, migrate=True).close()
        if "library" in options.only:
            print(f"MiB of a process, while {options.messages:,} messages pass", flush=True)
            for what in ("producer", "worker"):  # a process each, as people run them
                in_process(dsn, what, options.messages)
        if "broker" in options.only:
            with broker(dsn) as (url, process):
                asyncio.run(broker_under_load(url, process, options.clients, options.requests))
        if "pipeline" in options.only:
            in_process(server.database("pipeline"), "pipeline", options.events)
    print(f"load {', '.join(f'{load:.1f}' for load in os.getloadavg())} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
