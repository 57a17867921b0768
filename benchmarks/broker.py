"""The broker beside the library, and thousands of clients that wait: `python -m benchmarks.broker`."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

import psutil

import tarry
from benchmarks.server import running_server
from benchmarks.streams import Streams, connections, flooded, measured
from benchmarks.throughput import beside, show
from tarry.http import AsyncClient


@contextmanager
def broker(dsn: str, env: Mapping[str, str] | None = None) -> Generator[tuple[str, psutil.Process]]:
    """A process of its own, as people run it. `env`: to run it from another source tree."""
    command = [sys.executable, "-m", "tarry", "--dsn", dsn, "serve", "--port", "0", "--no-access-log"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env=env)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if match := re.search(rb" (http://\S+)", line):
                yield match[1].decode(), psutil.Process(process.pid)
                break
    finally:
        process.terminate()
        process.communicate()


async def waiting(dsn: str, url: str, process: psutil.Process, options: argparse.Namespace) -> None:
    """So many long polls on 20 queues, then messages that are due at once: how late do they arrive? With so many still
    waiting, the same of live streams."""
    clients, offers = options.polls, options.offers
    where = urlsplit(url)
    sent: dict[str, float] = {}
    arrived: list[float] = []
    streams = Streams(url, process)
    if options.streams:
        await streams.open(options.streams)
    before = process.memory_info().rss
    open_polls = 0
    all_ready = asyncio.Event()

    async def wait(number: int) -> None:
        nonlocal open_polls
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        body = b'{"wait": 60}'
        line = f"POST /v1/queues/w{number % 20}/messages:poll HTTP/1.1\r\n"
        head = f"{line}Host: {where.netloc}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        open_polls += 1
        if open_polls == clients:
            all_ready.set()
        received = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " in received.split(b"\r\n")[0]:
            length = int(re.search(rb"content-length: (\d+)", received)[1])  # pyright: ignore[reportOptionalSubscript]
            polled = json.loads(await reader.readexactly(length))
            key = polled["messages"][0]["key"]
            if key in sent:  # else it was offered for the live streams
                arrived.append(time.perf_counter() - sent[key])
        writer.close()

    async with AsyncClient(url) as client:
        for number in range(20):
            await client.queues.create(f"w{number}", exist_ok=True)
    polls = [asyncio.create_task(wait(number)) for number in range(clients)]
    await all_ready.wait()
    await asyncio.sleep(5)  # until the last of them has been read, and sleeps
    per_client = (process.memory_info().rss - before) / clients
    connected = connections(dsn)
    async with AsyncClient(url) as client:
        for number in range(offers):
            key = f"m{number}"
            sent[key] = time.perf_counter()
            await client.queue(f"w{number % 20}").offer(key, 1)
    await asyncio.sleep(5)  # what has not come by now does not count
    late = list(arrived)  # nothing is acked: later on, the same ones come again
    if options.streams:
        await measured(url, streams, options.streams, offers)
        await flooded(url, streams, options.slow)
        await streams.close()
    for poll in polls:
        poll.cancel()
    await asyncio.gather(*polls, return_exceptions=True)
    print(
        f"{clients:,} long polls: {per_client / 1024:,.0f} KiB of memory each, {connected} connections to the database"
    )
    if late:
        quantiles = statistics.quantiles(late, n=100) if len(late) > 1 else late * 99
        print(
            f"{len(late)} of {offers} messages arrived; p50 {quantiles[49] * 1e3:,.1f} ms, p99 {quantiles[98] * 1e3:,.1f} ms"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.broker", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, metavar="S", help="for each figure")
    parser.add_argument("--tasks", type=int, default=16, metavar="N")
    parser.add_argument("--polls", type=int, default=2_000, metavar="N", help="0: not that")
    parser.add_argument("--offers", type=int, default=200, metavar="N")
    parser.add_argument("--streams", type=int, default=500, metavar="N", help="live streams beside the long polls")
    parser.add_argument("--slow", type=int, default=50, metavar="N", help="live streams that are not read")
    parser.add_argument("--skip-throughput", action="store_true")
    parser.add_argument("--dsn", help="a PostgreSQL of your own, where databases may be created (default: embedded)")
    options = parser.parse_args()
    with running_server(options.dsn) as server:
        dsn = server.database("broker")
        tarry.connect(dsn, migrate=True).close()
        if not options.skip_throughput:
            with broker(dsn) as (url, process):
                show(asyncio.run(beside(dsn, url, process, options.tasks, options.seconds)))
        print(f"load {', '.join(f'{load:.1f}' for load in os.getloadavg())} on {os.cpu_count()} cores")
        if not options.polls:
            return
        with broker(dsn) as (url, process):
            asyncio.run(waiting(dsn, url, process, options))


if __name__ == "__main__":
    main()
