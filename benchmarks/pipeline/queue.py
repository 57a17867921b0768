# pyright: basic
"""What the queue feels while the pipeline runs.

Twice the whole pipeline runs over a fresh backlog while a process beside it offers, polls and acks: 500 messages a second,
and as fast as it can. Its rate is compared with that of the same process alone; at 500 messages a second also the delays of
its batches, since it catches up after a stall. What would ruin a queue is a snapshot that is held open: the longest that any
transaction of the pipeline held one is printed.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import psycopg
from pyspark.sql import SparkSession
from rich.console import Console

import tarry
from benchmarks.pipeline.archive import jobs, live

ALONE_S = 2.0
STEADY = 500
"""Messages per second of a queue that is not at its limit."""
_HELD = """
    select coalesce(max(extract(epoch from clock_timestamp() - xact_start)), 0)::float8 from pg_stat_activity
    where backend_xmin is not null and backend_type = 'client backend' and datname = current_database()
        and pid <> pg_backend_pid()
"""


class Beside(NamedTuple):
    """What the process beside us did."""

    rate: float
    """Messages acked per second."""
    delays_s: Sequence[float]
    """With a given rate: from the time at which a batch is due to its ack."""

    def delays(self) -> str:
        p50, p99 = (statistics.quantiles(self.delays_s, n=100, method="inclusive")[at - 1] for at in (50, 99))
        return f"median {p50 * 1000:.0f} ms, 99 % {p99 * 1000:.0f} ms, longest {max(self.delays_s) * 1000:.0f} ms"


def run(console: Console, spark: SparkSession, dsn: str, sizes: Any, cores: int, *, jdbc: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="tarry-lake-") as lake, tarry.connect(dsn, migrate=True) as app:
        longest: list[float] = []

        def alone(rate: int | None = None) -> Beside:
            return beside(dsn, lambda: time.sleep(ALONE_S), rate)

        def pipeline() -> None:
            with Watched(dsn, longest):
                for job in jobs(spark, app, lake):
                    console.print(f"  beside the queue: {job().line()}")

        live(console, app, sizes.backlog, keep=0)
        calm = alone(STEADY)
        started = time.monotonic()
        steady = beside(dsn, pipeline, STEADY)
        spent = time.monotonic() - started
        console.print(
            f"A process that offers {STEADY} messages/s and acks them in batches of 50: {steady.rate:,.0f} messages/s while "
            f"the pipeline ran for {spent:.0f} s, {calm.rate:,.0f} alone ({steady.rate / calm.rate:.2f} ×; target ≥ 0.8)."
        )
        console.print(f"A batch was acked after its time: {steady.delays()}; alone: {calm.delays()}.")
        live(console, app, sizes.backlog, keep=0)
        before = statistics.median(alone().rate for _ in range(3))
        started = time.monotonic()
        during = beside(dsn, pipeline).rate
        spent = time.monotonic() - started
        after = statistics.median(alone().rate for _ in range(3))
        console.print(
            f"The queue, one process that offers, polls and acks in batches of 100: {before:,.0f} messages/s before, "
            f"{during:,.0f} while the pipeline ran for {spent:.0f} s ({during / before:.2f} ×; they share {cores} cores), "
            f"{after:,.0f} afterwards ({after / before:.2f} ×)."
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


def beside(dsn: str, work: Callable[[], Any], rate: int | None = None) -> Beside:
    """What a process beside us does for as long as the work takes. With a rate it offers no more than that."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=busy, args=(dsn, theirs, rate), daemon=True)
    process.start()
    ours.recv()  # it is connected, and has begun
    work()
    ours.send("stop")
    done = Beside(*ours.recv())
    process.join()
    return done


def busy(dsn: str, reports: Any, rate: int | None) -> None:
    size = 100 if rate is None else rate // 10
    with tarry.connect(dsn, consumer="beside") as app:
        queue = app.queue("beside")
        queue.offer("first", 1)
        queue.leases.ack([delivery.lease_id for delivery in queue.try_poll_many(100)])
        reports.send("ready")
        done, turns, started = 0, 0, time.monotonic()
        delays_s: list[float] = []
        while not reports.poll():
            due = time.monotonic()
            if rate is not None:
                due = started + (turns + 1) * size / rate
                time.sleep(max(0.0, due - time.monotonic()))
            queue.offer_many([tarry.Message(payload=1) for _ in range(size)])
            done += len(queue.leases.ack([delivery.lease_id for delivery in queue.try_poll_many(size)]))
            turns += 1
            if rate is not None:
                delays_s.append(time.monotonic() - due)
        reports.send((done / (time.monotonic() - started), delays_s))
