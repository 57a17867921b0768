# pyright: basic
"""How many files a day of one-minute rounds leaves: 17,000 events a minute in twenty queues, archived and compacted.

Rounds are real ones, a part of a day. What as many and what 1,440 of them leave is computed by the same rule from their
sizes, and printed as such: the first can be compared with the files, and 1,440 rounds of real events would take hours.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console

import tarry
from benchmarks.pipeline.rounds import QUEUES, cpu_s, fill
from tarry.core.analytics.manifest import Batch
from tarry.core.journal.snapshots import Digest
from tarry.edges.spark.jobs import archive, compact
from tarry.edges.spark.jobs.compact import CompactArgs, groups

A_MINUTE = 17_000
A_DAY = 1_440


def run(console: Console, spark: SparkSession, dsn: str, sizes: Any, cores: int, *, jdbc: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="tarry-lake-") as lake, tarry.connect(dsn, migrate=True) as app:
        for n in range(QUEUES):
            app.queues.create(f"queue-{n}")
        counts: list[int] = []
        spent = {"archive": 0.0, "compact": 0.0}
        first, started = 1, time.monotonic()
        for n in range(sizes.minutes):
            first = fill(dsn, A_MINUTE, first, hours=0)
            for name, job in {
                "archive": lambda: archive.run(spark, app, archive.ArchiveArgs(lake=lake)),
                "compact": lambda: compact.run(spark, app, CompactArgs(lake=lake, gradual=True)),
            }.items():
                before = cpu_s(os.getpid())
                job()
                spent[name] += cpu_s(os.getpid()) - before
            counts.append(sum(len(batch.files) for batch in app.pipeline.manifest.batches(lake)))
            if n % 12 == 11:
                console.print(f"  {n + 1} rounds in {time.monotonic() - started:.0f} s: {counts[-1]} files")
        batches = app.pipeline.manifest.batches(lake)
        stored = sum(1 for _ in Path(lake, "events").rglob("*.parquet"))
        console.print(
            f"{sizes.minutes} rounds of {A_MINUTE:,} events in {QUEUES} queues, in {time.monotonic() - started:.0f} s: the "
            f"lake has {counts[-1]} files of {sum(batch.digest.rows for batch in batches):,} events and had at most "
            f"{max(counts)}; {stored} are stored, since replaced ones stay for an hour. CPU seconds of a round: "
            + ", ".join(f"{name} {cpu / sizes.minutes:.1f}" for name, cpu in spent.items())
        )
        for rounds in (sizes.minutes, A_DAY):
            most, last, rewritten = simulated(batches[-1], rounds)
            console.print(
                f"By the same rule, {rounds:,} rounds of that size leave {last} files and have at most {most}; each event is "
                f"rewritten {rewritten:.1f} times (computed, not run)"
            )


def simulated(like: Batch, rounds: int) -> tuple[int, int, float]:
    """Files at most and in the end, and how often a row is rewritten, of so many rounds like this batch."""
    midnight = datetime(2026, 1, 1, tzinfo=UTC)
    chain: list[Batch] = []
    most = rewritten = 0
    files = tuple(like.files[:QUEUES])
    size = sum(file.bytes for file in files) / sum(file.rows for file in files)

    def made(number: int, rows: int) -> Batch:
        each = [replace(file, rows=rows // QUEUES, bytes=round(size * rows / QUEUES)) for file in files]
        return replace(
            like, number=number, files=tuple(each), digest=Digest(rows, 0), max_at=midnight + timedelta(minutes=number)
        )

    for n in range(rounds):
        chain.append(made(n, A_MINUTE))
        for group in groups(chain, CompactArgs(gradual=True)):
            at, rows = chain.index(group[0]), sum(batch.digest.rows for batch in group)
            chain[at : at + len(group)] = [made(group[-1].number, rows)]
            rewritten += rows
        most = max(most, QUEUES * len(chain))
    return most, QUEUES * len(chain), rewritten / (rounds * A_MINUTE)
