# pyright: basic
"""The data source beside Spark's JDBC source.

All read the same journal, all columns and three, in interleaved rounds, and throw the rows away inside Spark. JDBC gets the
bounds of the ids and as many tasks as cores; ours find their partitions themselves, and that is timed too. For every read by
a source in Python, Spark starts new Python processes that plan it: reading nothing shows what that costs.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

import tarry
from tarry.edges.spark.schemas import EVENTS
from tarry.edges.spark.source.jdbc import has_driver, read

NARROW = ("id", "at", "kind")
NOTHING = "nothing"
TARGETS = {"all columns": 1.0, "three columns": 1.0}
READ = "tarry.spark.read"
"""The default choice: JDBC inside Spark with our queries where its driver is present, else the data source."""
SOURCE = "data source"
# The same rows and types as the source gives; the driver of JDBC knows neither xid8 nor our enum.
AS_JDBC = {
    "xid": "e.xid::text::bigint as xid",
    "kind": "e.kind::text as kind",
    "queue_id": "e.queue as queue_id",
    "queue": "q.name as queue",
    "priority": "e.priority::int as priority",
    "detail": "e.detail::text as detail",
}
Contender = Callable[[], DataFrame]


def fill(dsn: str, events: int) -> None:
    """Lives of messages, three events each, in transactions of a few thousand."""
    with tarry.connect(dsn, migrate=True) as app:
        app.queues.create("orders", exist_ok=True)
    with psycopg.connect(dsn, autocommit=True) as conn:
        for start in range(0, events, 30_000):
            conn.execute(
                """
                insert into tarry.event (at, kind, queue, key, version, attempt, priority, due_at, leased_at, lease_until,
                    consumer, size, payload_hash)
                select now(), (array['offered', 'leased', 'acked'])[1 + n %% 3]::tarry.event_kind, 1,
                    'order-' || md5((n / 3)::text), n / 3, least(n %% 3, 1), n %% 10, now(),
                    case when n %% 3 > 0 then now() end, case when n %% 3 > 0 then now() end,
                    case when n %% 3 > 0 then 'worker-' || n %% 7 end, case when n %% 3 = 0 then 120 end,
                    case when n %% 3 = 0 then substr(sha256(n::text::bytea), 1, 8) end
                from generate_series(%s::bigint, %s::bigint) n
                """,
                (start, min(start + 30_000, events) - 1),
            )
        conn.execute("vacuum (analyze) tarry.event")
        conn.execute("checkpoint")


def by_source(spark: SparkSession, dsn: str, columns: tuple[str, ...], **more: str) -> Contender:
    options: dict[str, Any] = {"dsn": dsn, "columns": ",".join(columns), **more}
    return lambda: spark.read.format("tarry").options(**options).load()


def by_read(spark: SparkSession, dsn: str, columns: tuple[str, ...]) -> Contender:
    return lambda: read(spark, dsn, columns=columns)


def by_jdbc(spark: SparkSession, dsn: str, columns: tuple[str, ...], tasks: int, where: str = "true") -> Contender:
    address = conninfo_to_dict(dsn)
    with psycopg.connect(dsn) as conn:
        first, last = conn.execute("select min(id), max(id) from tarry.event").fetchone() or (0, 0)
    selected = ", ".join(AS_JDBC.get(name, f"e.{name}") for name in columns)
    options: dict[str, Any] = {
        "url": f"jdbc:postgresql://{address.get('host', '127.0.0.1')}:{address.get('port', 5432)}/{address['dbname']}",
        "user": str(address.get("user", "")),
        "password": str(address.get("password", "")),
        "driver": "org.postgresql.Driver",
        "dbtable": f"(select {selected} from tarry.event e join tarry.queue q on q.id = e.queue where {where}) events",
        "partitionColumn": "id",
        "lowerBound": first,
        "upperBound": last + 1,
        "numPartitions": tasks,
        "fetchsize": 10_000,
    }
    return lambda: spark.read.format("jdbc").options(**options).load()


def check_equal(contenders: dict[tuple[str, str], Contender]) -> None:
    """All of one width give the same rows, with the same types."""
    digests: dict[str, dict[str, Any]] = defaultdict(dict)
    for (width, name), contender in contenders.items():
        frame = contender()
        columns = ", ".join(sorted(frame.columns))
        digest = frame.selectExpr("count(*)", f"sum(cast(xxhash64({columns}) as decimal(20, 0)))").collect()
        digests[width][name] = (sorted(frame.dtypes), *digest)
    for width, by_name in digests.items():
        assert len(set(map(str, by_name.values()))) == 1, f"{width}: {by_name}"


def seconds(contender: Contender) -> float:
    """From the query to the last row."""
    started = time.monotonic()
    contender().write.format("noop").mode("overwrite").save()
    return time.monotonic() - started


def run(console: Console, spark: SparkSession, dsn: str, sizes: Any, cores: int, *, jdbc: bool) -> None:
    fill(dsn, sizes.events)
    console.print(f"{READ} uses {'JDBC' if has_driver(spark) and jdbc else 'the data source'}")
    contenders: dict[tuple[str, str], Contender] = {
        (NOTHING, SOURCE): by_source(spark, dsn, NARROW, until="2000-01-01T00:00:00Z")
    }
    if jdbc:
        contenders[NOTHING, "JDBC"] = by_jdbc(spark, dsn, NARROW, cores, "false")
    for width, columns in {"all columns": tuple(EVENTS.names), "three columns": NARROW}.items():
        contenders[width, SOURCE] = by_source(spark, dsn, columns)
        contenders[width, READ] = by_read(spark, dsn, columns)
        if jdbc:
            contenders[width, "JDBC"] = by_jdbc(spark, dsn, columns, cores)
    check_equal(contenders)
    samples: dict[tuple[str, str], list[float]] = {name: [] for name in contenders}
    for turn in range(sizes.rounds + 1):  # the first is to warm up
        for name, contender in contenders.items():
            spent = seconds(contender)
            if turn:
                samples[name].append(spent)
            console.print(f"{'warm-up' if not turn else f'round {turn}'}: {', '.join(name)}: {spent:.2f} s")
    medians = {name: statistics.median(all_of_it) for name, all_of_it in samples.items()}
    show(console, medians, sizes.events, f"{sizes.events:,} events, {cores} tasks, median of {sizes.rounds}")


def show(console: Console, spent: dict[tuple[str, str], float], events: int, title: str) -> None:
    table = Table("", "", "rows/s", "× JDBC", "target", title=title)
    for width, target in TARGETS.items():
        theirs = spent.get((width, "JDBC"))
        for name in (READ, SOURCE, "JDBC"):
            if (width, name) in spent:
                ratio = None if theirs is None else theirs / spent[width, name]
                met = f"≥ {target}, {'met' if ratio >= target else 'missed'}" if ratio and name == READ else ""
                shown = "–" if ratio is None else f"{ratio:.2f}"
                table.add_row(width, name, f"{events / spent[width, name]:,.0f}", shown, met)
    console.print(table)
    starts = ", ".join(f"{contender} {took:.2f} s" for (what, contender), took in spent.items() if what == NOTHING)
    console.print(f"To read nothing: {starts}.")
