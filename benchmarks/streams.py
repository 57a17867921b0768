"""Live streams beside long polls: what each costs the broker, how late events arrive, and clients that do not read."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import statistics
import time
from urllib.parse import urlsplit

import httpx
import psutil
import psycopg

import tarry
from tarry.http import AsyncClient

MIB = 1024 * 1024
QUEUES = 20
FLOOD = 1_000
"""Messages that are offered together to fill the buffers of clients that do not read."""


class Streams:
    """So many clients that read what was offered to queues named `w…`, and remember when it came."""

    def __init__(self, url: str, process: psutil.Process) -> None:
        self.process = process
        self._where = urlsplit(url)
        self._tasks: list[asyncio.Task[None]] = []
        self._ready = 0
        self._all = asyncio.Event()
        self.sent: dict[str, float] = {}
        self.late: list[float] = []
        self.gaps = 0

    async def open(self, clients: int) -> None:
        before = self.process.memory_info().rss
        self._tasks = [asyncio.create_task(self._read(clients)) for _ in range(clients)]
        await self._all.wait()
        per_client = (self.process.memory_info().rss - before) / clients
        print(f"{clients:,} live streams: {per_client / 1024:,.0f} KiB of memory each")

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _read(self, clients: int) -> None:
        reader, writer = await asyncio.open_connection(self._where.hostname, self._where.port)
        # Not of the flood, which is for clients that do not read: reading is not measured here.
        queues = "&".join(f"queue=w{number}" for number in range(QUEUES))
        line = f"GET /v1/events?kind=offered&{queues} HTTP/1.1\r\nHost: {self._where.netloc}\r\n\r\n"
        writer.write(line.encode())
        try:
            while line := await reader.readline():
                if line.startswith(b": hello"):
                    self._ready += 1
                    if self._ready == clients:
                        self._all.set()
                elif line.startswith(b"data: "):
                    key = json.loads(line[6:]).get("key")
                    self.gaps += key is None
                    if key in self.sent:
                        self.late.append(time.perf_counter() - self.sent[key])
        finally:
            writer.close()


async def sleepers(url: str, clients: int) -> list[socket.socket]:
    """Clients that open a stream and never read."""
    where = urlsplit(url)
    opened: list[socket.socket] = []
    for _ in range(clients):
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect((where.hostname, where.port))
        raw.sendall(f"GET /v1/events HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode())
        opened.append(raw)
    return opened


def figure(text: str, name: str) -> float:
    match = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    return float(match[1]) if match else 0.0


def connections(dsn: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as conn:
        counted = conn.execute("select count(*) from pg_stat_activity where datname = current_database()").fetchone()
        return counted[0] - 1 if counted else 0


async def measured(url: str, streams: Streams, clients: int, offers: int) -> None:
    """How late events arrive, while the polls wait."""
    before, started = sum(streams.process.cpu_times()[:2]), time.perf_counter()
    async with AsyncClient(url) as client:
        for number in range(offers):
            key = f"s{number}"
            streams.sent[key] = time.perf_counter()
            await client.queue(f"w{number % QUEUES}").offer(key, 1)
            await asyncio.sleep(0.02)
    await _settled(streams, clients * offers)
    used, took = sum(streams.process.cpu_times()[:2]) - before, time.perf_counter() - started
    quantiles = statistics.quantiles(streams.late, n=100)
    print(
        f"{len(streams.late):,} of {clients * offers:,} events arrived at live streams; "
        f"p50 {quantiles[49] * 1e3:,.0f} ms, p99 {quantiles[98] * 1e3:,.0f} ms, last {max(streams.late) * 1e3:,.0f} ms; "
        f"the broker used {used:,.1f} s of a core in {took:,.1f} s"
    )


async def flooded(url: str, streams: Streams, slow: int) -> None:
    """Wait until all clients that do not read are disconnected."""
    idle = await sleepers(url, slow)
    async with httpx.AsyncClient(base_url=url) as http, AsyncClient(url) as client:
        before, most, offered, cut = streams.process.memory_info().rss, 0, 0, 0.0
        started = time.perf_counter()
        while cut < slow and offered < 200_000:
            messages = [tarry.Message(key=f"flood-{offered + i}-{'x' * 150}", payload=1) for i in range(FLOOD)]
            await client.queue("flood").offer_many(messages)
            offered += FLOOD
            most = max(most, streams.process.memory_info().rss)
            cut = figure((await http.get("/metrics")).text, "tarry_streams_cut_off_total")
        left = figure((await http.get("/metrics")).text, "tarry_streams")
    print(
        f"{slow} clients that do not read: {cut:.0f} cut off after {offered:,} events and "
        f"{time.perf_counter() - started:,.1f} s, memory grew by {(most - before) / MIB:,.0f} MiB at most; "
        f"{left:.0f} streams continue, with {streams.gaps} reported gaps"
    )
    for raw in idle:
        raw.close()


async def _settled(streams: Streams, expected: int) -> None:
    for _ in range(200):
        if len(streams.late) >= expected:
            return
        await asyncio.sleep(0.05)
