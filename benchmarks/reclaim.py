"""All consumers die at once, holding many leases: how fast is each expiry recorded and each exhausted message buried?

Two ways: by a sweeper, without polls; and by the polls of consumers that come back, for which no sweeper is
needed. `python -m benchmarks.reclaim --help`. Target T11: at least 5,000 messages a second.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from datetime import timedelta
from typing import NamedTuple

import psycopg

import tarry
from benchmarks.server import Server, running_server
from tarry.core.settings import SweeperSettings

TARGET = 5_000
WAYS = (
    "swept: expiry recorded, attempts left",
    "swept: expiry recorded, dead letter created",
    "polled again, no sweeper",
)
_LEASE = timedelta(hours=1)
_BATCH = 1_000


class Figure(NamedTuple):
    what: str
    messages: int
    wall_s: float

    @property
    def rate(self) -> float:
        return self.messages / self.wall_s


def strand(dsn: str, n: int, *, max_attempts: int | None) -> None:
    """`n` messages whose consumers are gone and whose leases have run out."""
    with tarry.connect(dsn, migrate=True) as app:
        app.queues.create("orders", tarry.QueueSettings(max_attempts=max_attempts), exist_ok=True)
        orders = app.queue("orders")
        for start in range(0, n, _BATCH):
            size = min(_BATCH, n - start)
            orders.offer_many([tarry.Message(payload={"order": start + i, "total": "129.95"}) for i in range(size)])
        held = 0
        while held < n:
            held += len(orders.try_poll_many(_BATCH, lease_for=_LEASE))
    with psycopg.connect(dsn, autocommit=True) as conn:
        # As if the leases had been over for an hour, without waiting for it.
        conn.execute("update tarry.message set lease_until = lease_until - interval '2 hours'")
        conn.execute("vacuum analyze tarry.message")


async def swept(dsn: str, n: int, what: str) -> Figure:
    async with tarry.connect_async(dsn) as app:
        sweeper = app.sweeper(SweeperSettings())
        started, count = time.perf_counter(), 0
        while count < n:
            report = await sweeper.run_once()
            assert report.leading
            count += report.expired
        took = time.perf_counter() - started
        await sweeper.resign()
    return Figure(what, count, took)


def polled(dsn: str, n: int) -> Figure:
    with tarry.connect(dsn) as app:
        orders = app.queue("orders")
        started, count = time.perf_counter(), 0
        while count < n:
            count += len(orders.try_poll_many(_BATCH))
        return Figure(WAYS[2], count, time.perf_counter() - started)


def run(server: Server, n: int) -> list[Figure]:
    strand(live := server.database("live"), n, max_attempts=None)
    strand(dead := server.database("dead"), n, max_attempts=1)
    strand(again := server.database("again"), n, max_attempts=None)
    return [
        asyncio.run(swept(live, n, WAYS[0])),
        asyncio.run(swept(dead, n, WAYS[1])),
        polled(again, n),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reclaim", description=__doc__)
    parser.add_argument("--messages", type=int, default=50_000, metavar="N")
    parser.add_argument("--dsn", help="a PostgreSQL of your own, where databases may be created (default: embedded)")
    options = parser.parse_args()
    with running_server(options.dsn) as server:
        for figure in run(server, options.messages):
            verdict = "met" if figure.rate >= TARGET else "missed"
            print(
                f"{figure.what:44} {figure.messages:>9,} {figure.wall_s:>8.2f} s {figure.rate:>10,.0f}/s  T11 {verdict}"
            )


if __name__ == "__main__":
    main()
