# pyright: basic
"""Messages from the journal to `verify`, and what the queue feels of it.

Every message is offered, leased and acked through the library, except for the last ones, which stay live. Then the whole
pipeline runs over it. Then it runs twice more over a fresh backlog while a process beside it offers, polls and acks, as fast
as it can and 500 messages a second, and its rate is compared with that before and after. What would ruin a queue is a
snapshot that is held open: the longest that any transaction of the pipeline held one is printed.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import psycopg
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

import tarry
from tarry.app import App
from tarry.edges.spark.jobs import anomalies, archive, consumers, facts, forecast, metrics, verify

BATCH = 1_000
ALONE_S = 5.0
STEADY = 500
"""Messages per second of a queue that is not at its limit."""
LIVE = 20
"""One message in so many stays live."""
_HELD = """
    select coalesce(max(extract(epoch from clock_timestamp() - xact_start)), 0)::float8 from pg_stat_activity
    where backend_xmin is not null and backend_type = 'client backend' and datname = current_database()
        and pid <> pg_backend_pid()
"""


def run(console: Console, spark: SparkSession, dsn: str, sizes: Any, cores: int, *, jdbc: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="tarry-lake-") as lake, tarry.connect(dsn, migrate=True) as app:
        started = time.monotonic()
        live(console, app, sizes.messages, keep=sizes.messages // LIVE)
        console.print(f"{sizes.messages:,} messages lived, in {time.monotonic() - started:.0f} s")
        table = Table("", "seconds", "events/s", title=f"{sizes.messages:,} messages, {cores} cores")
        total = 0.0
        events = 0
        for job in jobs(spark, app, lake):
            began = time.monotonic()
            summary = job()
            spent = time.monotonic() - began
            total += spent
            console.print(summary.line())
            name = type(summary).__name__.removesuffix("Summary").lower()
            events = summary.rows if name == "archive" else events
            table.add_row(name, f"{spent:.1f}", f"{events / spent:,.0f}")
            if name == "verify":
                assert summary.ok, summary.line()
        table.add_row("all", f"{total:.1f}", f"{events / total:,.0f}")
        console.print(table)
        console.print("Peak memory: " + ", ".join(f"{name} {mb:,} MB" for name, mb in peaks_mb().items()))
        beside(console, spark, app, lake, sizes.messages // 5, cores)


def jobs(spark: SparkSession, app: App, lake: str) -> list[Callable[[], Any]]:
    return [
        lambda: archive.run(spark, app, archive.ArchiveArgs(lake=lake)),
        lambda: facts.run(spark, app, facts.FactsArgs(lake=lake)),
        lambda: metrics.run(spark, app, metrics.MetricsArgs(lake=lake)),
        lambda: consumers.run(spark, app, consumers.ConsumersArgs(lake=lake)),
        lambda: anomalies.run(spark, app, anomalies.AnomaliesArgs(lake=lake)),
        lambda: forecast.run(spark, app, forecast.ForecastArgs(lake=lake)),
        lambda: verify.run(spark, app, verify.VerifyArgs(lake=lake)),
    ]


def live(console: Console, app: App, messages: int, *, keep: int) -> None:
    queue = app.queue("orders")
    payload = {"n": "x" * 100}
    started, tenth = time.monotonic(), max(10_000, messages // 10)
    for start in range(0, messages, 10_000):
        queue.offer_many([tarry.Message(payload=payload) for _ in range(min(10_000, messages - start))])
        left = min(10_000, messages - start) if start + 10_000 < messages else max(0, messages - start - keep)
        while left > 0 and (deliveries := queue.try_poll_many(min(BATCH, left))):
            queue.leases.ack([delivery.lease_id for delivery in deliveries])
            left -= len(deliveries)
        if (start + 10_000) % tenth < 10_000:
            console.print(f"  {start + 10_000:,} messages in {time.monotonic() - started:.0f} s")


def peaks_mb() -> dict[str, int]:
    """The highest resident sizes so far: of the driver, the JVM, and the largest of Spark's Python processes."""

    def peak(pid: int) -> int:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))

    children = psutil.Process().children(recursive=True)
    jvm = max((peak(child.pid) for child in children if child.name() == "java"), default=0)
    workers = [peak(child.pid) for child in children if child.name().startswith("python")]
    return {"driver": peak(os.getpid()), "JVM": jvm, "a Python worker": max(workers, default=0)}


def beside(console: Console, spark: SparkSession, app: App, lake: str, backlog: int, cores: int) -> None:
    live(console, app, backlog, keep=0)
    dsn = str(app.dsn)
    before = [rate_while(dsn, lambda: time.sleep(ALONE_S))[0] for _ in range(3)]
    longest: list[float] = []

    def pipeline() -> None:
        with Watched(dsn, longest):
            for job in jobs(spark, app, lake):
                console.print(f"  beside the queue: {job().line()}")

    during, spent = rate_while(dsn, pipeline)
    after = [rate_while(dsn, lambda: time.sleep(ALONE_S))[0] for _ in range(3)]
    live(console, app, backlog, keep=0)
    steady, _ = rate_while(dsn, pipeline, STEADY)
    usual = statistics.median(before)
    console.print(
        f"The queue, one process that offers, polls and acks in batches of 100: {usual:,.0f} messages/s before, "
        f"{during:,.0f} while the pipeline ran for {spent:.0f} s ({during / usual:.2f} ×; they share {cores} cores), "
        f"{statistics.median(after):,.0f} afterwards ({statistics.median(after) / usual:.2f} ×)."
    )
    console.print(
        f"A process that offers {STEADY} messages/s and acks them in batches of 50: {steady:,.0f} messages/s while the "
        f"pipeline ran ({steady / STEADY:.2f} ×; target ≥ 0.8)."
    )
    console.print(f"The longest that a transaction held a snapshot meanwhile: {max(longest):.2f} s.")


class Watched:
    """The oldest snapshot of the database, looked at again and again."""

    def __init__(self, dsn: str, longest: list[float]) -> None:
        self._dsn, self._longest = dsn, longest
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *reason: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as conn:
            while not self._over.wait(0.05):
                row = conn.execute(_HELD).fetchone()
                self._longest.append(row[0] if row else 0.0)


def rate_while(dsn: str, work: Callable[[], Any], rate: int | None = None) -> tuple[float, float]:
    """Messages per second of a process beside us, for as long as the work takes; and how long that was. With a rate it
    offers no more than that.
    """
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=busy, args=(dsn, theirs, rate), daemon=True)
    process.start()
    ours.recv()  # it is connected, and has begun
    started = time.monotonic()
    work()
    spent = time.monotonic() - started
    ours.send("stop")
    done, took = ours.recv()
    process.join()
    return done / took, spent


def busy(dsn: str, reports: Any, rate: int | None) -> None:
    size = 100 if rate is None else rate // 10
    with tarry.connect(dsn, consumer="beside") as app:
        queue = app.queue("beside")
        queue.offer("first", 1)
        queue.leases.ack([delivery.lease_id for delivery in queue.try_poll_many(100)])
        reports.send("ready")
        done, turns, started = 0, 0, time.monotonic()
        while not reports.poll():
            if rate is not None:
                time.sleep(max(0.0, started + turns * size / rate - time.monotonic()))
            queue.offer_many([tarry.Message(payload=1) for _ in range(size)])
            done += len(queue.leases.ack([delivery.lease_id for delivery in queue.try_poll_many(size)]))
            turns += 1
        reports.send((done, time.monotonic() - started))
