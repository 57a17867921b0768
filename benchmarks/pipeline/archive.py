# pyright: basic
"""Messages from the journal to `verify`.

Every message is offered, leased and acked through the library, except for the last ones, which stay live. Then the whole
pipeline runs over it. Memory is looked at all the time: Python processes of Spark end when they are idle, and their peaks
with them.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

import tarry
from tarry.app import App
from tarry.edges.spark.jobs import anomalies, archive, consumers, facts, forecast, metrics, verify

BATCH = 1_000
LIVE = 20
"""One message in so many stays live."""


def run(console: Console, spark: SparkSession, dsn: str, sizes: Any, cores: int, *, jdbc: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="tarry-lake-") as lake, tarry.connect(dsn, migrate=True) as app:
        started = time.monotonic()
        live(console, app, sizes.messages, keep=sizes.messages // LIVE)
        console.print(f"{sizes.messages:,} messages lived, in {time.monotonic() - started:.0f} s")
        table = Table("", "seconds", "events/s", title=f"{sizes.messages:,} messages, {cores} cores")
        total = 0.0
        events = 0
        with Memory() as memory:
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
        console.print("Peak memory: " + ", ".join(f"{name} {mb:,.0f} MB" for name, mb in memory.peaks_mb.items()))


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


class Memory:
    """The highest resident sizes: the driver's, the JVM's, and of Spark's Python processes the largest and all together."""

    def __init__(self) -> None:
        self.peaks_mb: dict[str, float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        driver = psutil.Process()
        while True:
            pythons = 0.0
            self._saw("driver", _kb(driver.pid, "VmHWM"))
            for child in driver.children(recursive=True):
                with suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
                    if child.name() == "java":
                        self._saw("JVM", _kb(child.pid, "VmHWM"))
                    elif "pyspark.daemon" in child.cmdline():
                        self._saw("a Python worker", _kb(child.pid, "VmHWM"))
                        pythons += _kb(child.pid, "VmRSS")
            self._saw("all Python workers at once", pythons)
            if self._over.wait(0.2):
                return

    def _saw(self, name: str, kb: float) -> None:
        self.peaks_mb[name] = max(kb / 1024, self.peaks_mb.get(name, 0.0))


def _kb(pid: int, name: str) -> float:
    """A size of a process; of one that ends it is gone."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((float(line.split()[1]) for line in lines if line.startswith(name)), 0.0)
