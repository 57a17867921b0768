"""Queues at sizes that hurt: `python -m benchmarks.capacity`. It prints the rows of docs/explanation/capacity.md.

- `dead`: polls, `wait`, `counts` and a sweep beside so many dead index entries at the head of the queue. A held snapshot
  keeps them, as a vacuum that PostgreSQL skips would.
- `reclaim`: 10,000 expired leases behind such a head and as many leases that have not expired.
- `queues`: 10,000 queues: list them, look up those of a worker, sweep them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg

import tarry
from benchmarks import reclaim
from benchmarks.server import Server, running_server
from tarry.app import App
from tarry.core.settings import SweeperSettings

QUEUE = "orders"
REPEATS = 7
LOOKED_UP = 10
"""Queues of one worker."""
_HEAD = """
    insert into tarry.message (due_at, planned_at, created_at, queue, priority, conflict, key, payload, lease_until,
        leased_at, token, attempt, consumer)
    select t.due_at, t.due_at, now(), q.id, 0, 0, %(what)s || lpad(i::text, 29, '0'), '{}', %(until)s::timestamptz,
        now(), 1, 1, 'worker-17.example:12345'
    from tarry.queue q cross join generate_series(1, %(n)s::int) i
        cross join lateral (select now() - make_interval(days => 1, secs => i * 0.0001) as due_at) t
    where q.name = 'orders'
"""
_DELETE = "delete from tarry.message where key like 'dead-%'"


@contextmanager
def expensive_head(dsn: str, *, dead: int, leased: int = 0) -> Generator[None]:
    """In front of everything else: leases that end in an hour, and entries of deleted messages that no vacuum removes."""
    with psycopg.connect(dsn, autocommit=True) as conn, psycopg.connect(dsn) as holder:
        values = {"what": "dead-", "until": "-infinity", "n": dead}
        conn.execute(_HEAD, values)
        conn.execute(_HEAD, {"what": "leased-", "until": "infinity", "n": leased})
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("select 1")
        conn.execute(_DELETE)
        conn.execute("analyze tarry.message")
        yield
        holder.rollback()


def milliseconds(work: Callable[[], Any], repeats: int = REPEATS) -> tuple[float, float]:
    """The first call, and the median of those after it."""
    took: list[float] = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        work()
        took.append(1e3 * (time.perf_counter() - started))
    return took[0], statistics.median(took[1:])


def rows_of(app: App, dsn: str) -> dict[str, tuple[float, float]]:
    queue = app.queue(QUEUE)

    def poll() -> None:
        delivery = queue.try_poll(lease_for=timedelta(hours=1))
        assert delivery is not None
        delivery.ack()

    def wait() -> None:
        app.store.run(app.store.wakeup.announce(QUEUE, sleep_for=timedelta(seconds=1)))

    return {
        "poll + ack, one message": milliseconds(poll),
        "`wait`": milliseconds(wait),
        "`counts`": milliseconds(lambda: app.queues.counts(QUEUE)),
        "a sweep that has nothing to do": asyncio.run(_sweeps(dsn)),
    }


async def _sweeps(dsn: str, repeats: int = REPEATS) -> tuple[float, float]:
    async with tarry.connect_async(dsn) as app:
        sweeper = app.sweeper(SweeperSettings())
        took: list[float] = []
        for _ in range(repeats + 1):
            started = time.perf_counter()
            report = await sweeper.run_once()
            took.append(1e3 * (time.perf_counter() - started))
            assert report.leading
        await sweeper.resign()
    return took[0], statistics.median(took[1:])


def run_dead(server: Server, options: argparse.Namespace) -> None:
    dsn = server.database("dead_head")
    with tarry.connect(dsn, migrate=True) as app:
        queue = app.queue(QUEUE)
        queue.offer_many([tarry.Message(payload={"n": i}) for i in range(200)])
        empty = rows_of(app, dsn)
        with expensive_head(dsn, dead=options.dead), tarry.connect(dsn) as fresh:
            full = rows_of(fresh, dsn)
    print(
        f"\n| ms, beside {options.dead:,} dead entries at the head | empty | first call | after it |\n|---|---|---|---|"
    )
    for what, (first, later) in full.items():
        print(f"| {what} | {empty[what][1]:.1f} | {first:.1f} | {later:.1f} |")


def run_reclaim(server: Server, options: argparse.Namespace) -> None:
    n = options.expired
    print(
        f"\n| {n:,} expired leases behind {options.dead:,} dead entries and {n:,} leases | messages/s | |\n|---|---|---|"
    )
    for way in ("swept", "polled"):
        dsn = server.database(f"behind_{way}")
        reclaim.strand(dsn, n, max_attempts=None)
        with expensive_head(dsn, dead=options.dead, leased=n):
            figure = asyncio.run(reclaim.swept(dsn, n, "swept")) if way == "swept" else reclaim.polled(dsn, n)
        verdict = "met" if figure.rate >= reclaim.TARGET else "missed"
        print(f"| {figure.what} | {figure.rate:,.0f} | T11 {verdict} |", flush=True)


def run_queues(server: Server, options: argparse.Namespace) -> None:
    dsn = server.database("many_queues")
    with tarry.connect(dsn, migrate=True) as app:
        for i in range(options.queues):
            app.queues.create(f"queue-{i:06}")
        app.queue("queue-000000").offer_many([tarry.Message(payload={"n": i}) for i in range(50)])
        names = [f"queue-{i * options.queues // LOOKED_UP:06}" for i in range(LOOKED_UP)]
        figures = {
            "list all": milliseconds(app.queues.list),
            f"look up the {LOOKED_UP} of a worker": milliseconds(lambda: [app.queues.get(name) for name in names]),
            "poll of one": milliseconds(lambda: app.queue("queue-000000").try_poll()),
            "a sweep of all": asyncio.run(_sweeps(dsn, repeats=1)),
        }
    print(f"\n| ms, {options.queues:,} queues | first call | after it |\n|---|---|---|")
    for what, (first, later) in figures.items():
        print(f"| {what} | {first:.1f} | {later:.1f} |")


PARTS = {"dead": run_dead, "reclaim": run_reclaim, "queues": run_queues}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.capacity", description=__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=list(PARTS), default=list(PARTS), metavar="PART", help="%(choices)s"
    )
    parser.add_argument("--dead", type=int, default=1_000_000, metavar="N", help="dead index entries at the head")
    parser.add_argument("--expired", type=int, default=10_000, metavar="N", help="expired leases behind them")
    parser.add_argument("--queues", type=int, default=10_000, metavar="N")
    parser.add_argument("--dsn", help="a PostgreSQL of your own, where databases may be created (default: embedded)")
    options = parser.parse_args(arguments)
    with running_server(options.dsn) as server:
        for name in options.only:
            PARTS[name](server, options)
    print(f"\nload {', '.join(f'{load:.1f}' for load in os.getloadavg())} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
