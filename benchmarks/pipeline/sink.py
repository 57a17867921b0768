# pyright: basic
"""The sink beside the other ways to bring a Spark frame into a queue.

All contenders get the same cached frame, the same number of connections and an empty table, in interleaved rounds. Only the
sink and `offer_many` keep conflict rules. The sink alone stores all or nothing and each row once, also if a task is repeated;
with `commit=task` each task by itself and each row once. What is called bare stores messages
without the journal, which is no offer: it shows the price of a row.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from rich.console import Console
from rich.table import Table

import tarry
from tarry.edges.spark.sink import writer as sink

FEW = 200
YARDSTICK = f"INSERT of {FEW} rows"
TASK_SINK = "sink, commit=task"
Contender = Callable[[DataFrame, str], None]


def frame_of(spark: SparkSession, rows: int, connections: int) -> DataFrame:
    """Keys in no order, payloads of 120 bytes."""
    key = F.md5(F.col("id").cast("string"))
    made = spark.range(0, rows, 1, connections).select(
        key.alias("key"),
        F.encode(F.concat(F.lit('{"n":"'), F.repeat(key, 4).substr(1, 112), F.lit('"}')), "utf-8").alias("payload"),
    )
    made = made.persist()
    made.count()
    return made


def by_sink(frame: DataFrame, dsn: str) -> None:
    sink.offer(frame, dsn, queue="q", payload_format="binary")


def by_task_sink(frame: DataFrame, dsn: str) -> None:
    sink.offer(frame, dsn, queue="q", payload_format="binary", commit="task")


def by_sorted_sink(frame: DataFrame, dsn: str) -> None:
    n = frame.rdd.getNumPartitions()
    sink.offer(frame.repartitionByRange(n, "key").sortWithinPartitions("key"), dsn, queue="q", payload_format="binary")


def by_offer_many(frame: DataFrame, dsn: str) -> None:
    def offer(batches: Iterator[Any]) -> Iterator[Any]:
        with tarry.connect(dsn) as app:
            queue = app.queue("q", bytes)
            for batch in batches:
                rows = batch.to_pylist()
                for start in range(0, len(rows), FEW):
                    queue.offer_many([tarry.Message(**row) for row in rows[start : start + FEW]])
        yield from ()

    frame.mapInArrow(offer, "n int").collect()


def by_inserts(frame: DataFrame, dsn: str, *, journal: bool = True) -> None:
    """What one writes by hand: a message and its event, in one statement."""
    placeholders = f"({', '.join(['%s'] * 10)})"
    columns = "key, payload, queue, priority, conflict, due_at, planned_at, created_at, type, max_attempts"
    before, after = ("with stored as (", _JOURNAL) if journal else ("", "")

    def insert(batches: Iterator[Any]) -> Iterator[Any]:
        with psycopg.connect(dsn, autocommit=True) as conn:
            for batch in batches:
                rows = batch.to_pylist()
                for start in range(0, len(rows), FEW):
                    some = rows[start : start + FEW]
                    now = datetime.now(UTC)
                    values = [
                        v for row in some for v in (row["key"], row["payload"], 1, 0, 0, now, now, now, None, None)
                    ]
                    conn.execute(
                        f"{before}insert into tarry.message ({columns}) values {', '.join([placeholders] * len(some))} "  # type: ignore[arg-type]
                        f"on conflict (key, queue) do nothing{after}",
                        values,
                    )
        yield from ()

    frame.mapInArrow(insert, "n int").collect()


_JOURNAL = """ returning *)
insert into tarry.event (kind, at, queue, key, version, attempt, priority, due_at, size, payload_hash)
select 'offered', created_at, queue, key, version, 0, priority, due_at, octet_length(payload), substr(sha256(payload), 1, 8)
from stored"""


def by_bare_inserts(frame: DataFrame, dsn: str) -> None:
    by_inserts(frame, dsn, journal=False)


def by_jdbc(frame: DataFrame, dsn: str) -> None:
    now = F.lit(datetime.now(UTC))
    rows = frame.select(
        "key",
        "payload",
        *(now.alias(name) for name in ("due_at", "planned_at", "created_at")),
        F.lit(1).alias("queue"),
        *(F.lit(0).cast("short").alias(name) for name in ("priority", "conflict")),
    )
    address = conninfo_to_dict(dsn)
    url = f"jdbc:postgresql://{address.get('host', '127.0.0.1')}:{address.get('port', 5432)}/{address['dbname']}"
    options = {
        "user": str(address.get("user", "")),
        "password": str(address.get("password", "")),
        "stringtype": "unspecified",
    }
    rows.write.format("jdbc").options(
        url=f"{url}?reWriteBatchedInserts=true", dbtable="tarry.message", driver="org.postgresql.Driver", **options
    ).mode("append").save()


def emptied(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("truncate tarry.message, tarry.event, tarry.sink_row, tarry.sink_write, tarry.sink_attempt")
        conn.execute("checkpoint")


def measured(frame: DataFrame, dsn: str, rows: int, contender: Contender) -> float:
    """Rows per second; that all rows are there is checked, not timed."""
    emptied(dsn)
    started = time.monotonic()
    contender(frame, dsn)
    spent = time.monotonic() - started
    with psycopg.connect(dsn) as conn:
        counted = conn.execute("select count(*) from tarry.message").fetchone()
    assert counted == (rows,), f"{counted} rows instead of {rows}"
    return rows / spent


def run(console: Console, spark: SparkSession, dsn: str, sizes: Any, cores: int, *, jdbc: bool) -> None:
    with tarry.connect(dsn, migrate=True) as app:
        app.queues.create("q")
    contenders: dict[str, Contender] = {
        "sink": by_sink,
        TASK_SINK: by_task_sink,
        "sink, sorted by Spark": by_sorted_sink,
        YARDSTICK: by_inserts,
        f"{YARDSTICK}, bare": by_bare_inserts,
        f"offer_many of {FEW}": by_offer_many,
    }
    if jdbc:
        contenders["JDBC write, bare"] = by_jdbc
    frame = frame_of(spark, sizes.rows, cores)
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(sizes.rounds + 1):  # the first is to warm up
        for name, contender in contenders.items():
            rate = measured(frame, dsn, sizes.rows, contender)
            if turn:
                samples[name].append(rate)
            console.print(f"{'warm-up' if not turn else f'round {turn}'}: {name}: {rate:,.0f} rows/s")
    frame.unpersist()
    show(console, samples, f"{sizes.rows:,} rows, {cores} connections, median of {sizes.rounds}")


def show(console: Console, samples: dict[str, list[float]], title: str) -> None:
    table = Table("", "rows/s", f"× {YARDSTICK}", title=title)
    yardstick = statistics.median(samples[YARDSTICK])
    for name, rates in sorted(samples.items(), key=lambda each: -statistics.median(each[1])):
        rate = statistics.median(rates)
        table.add_row(name, f"{rate:,.0f}", f"{rate / yardstick:.2f}")
    console.print(table)
    ratios = (f"{name}: {statistics.median(samples[name]) / yardstick:.2f} ×" for name in (TASK_SINK, "sink"))
    console.print(f"Target: at least 2 × {YARDSTICK} with commit=task. {', '.join(ratios)}.")
