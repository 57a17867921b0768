# pyright: basic
"""What a round costs when the day already has many events: CPU seconds of driver, JVM and Python processes per job.

The journal is filled with lives of messages (offered, leased, acked; one in twenty stays live) in twenty queues over the last
20 hours, and archived and processed. Then come rounds of new events, as one minute would bring them; the first is a warm-up.
The queues are some days older, with a message in ten minutes, so that every minute is compared with what is usual.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections import defaultdict
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

import tarry
from benchmarks.pipeline.archive import jobs

QUEUES = 20
HOURS = 20
_TICKS = os.sysconf("SC_CLK_TCK")
_ENDED = (FileNotFoundError, ProcessLookupError)
"""A process or a thread that ended while it was read."""
_FILL = """
insert into tarry.event (at, kind, queue, key, version, attempt, priority, due_at, leased_at, lease_until, consumer, size)
select at + step.waited * wait + step.worked * work, step.kind::tarry.event_kind, queue, 'key-' || n, n, step.waited, 0, at,
    case when step.waited > 0 then at + wait end, case when step.waited > 0 then at + wait + interval '30 s' end,
    case when step.waited > 0 then 'worker-' || n %% 7 end, 100 + n %% 300
from (
    select n, (%(queues)s::int[])[1 + n %% {queues}] as queue,
        %(since)s::timestamptz + (n - %(first)s) * %(step)s::interval as at,
        (1 + n * 7919 %% 997) * interval '1 ms' as wait, (1 + n * 104729 %% 1999) * interval '1 ms' as work
    from generate_series(%(first)s::bigint, %(last)s::bigint) n
) message
cross join (values ('offered', 0, 0), ('leased', 1, 0), ('acked', 1, 1)) as step(kind, waited, worked)
where step.waited = 0 or n %% 20 <> 0
order by 1
"""


def run(console: Console, spark: SparkSession, dsn: str, sizes: Any, cores: int, *, jdbc: bool) -> None:
    with tarry.connect(dsn, migrate=True) as app:
        for n in range(QUEUES):
            app.queues.create(f"queue-{n}")
    with psycopg.connect(dsn) as conn:
        conn.execute(
            "update tarry.queue set created_at = created_at - make_interval(days => %s)", [sizes.past_days + 1]
        )
    names: list[str] = []
    costs: dict[int, dict[str, float]] = {}
    past = int(QUEUES * 2.9 * 144 * sizes.past_days)
    first, before = fill(dsn, past, 1, hours=24 * sizes.past_days, ended_hours_ago=HOURS), 0
    console.print(f"{past:,} events of {sizes.past_days} days before are in the journal")
    with tempfile.TemporaryDirectory(prefix="tarry-lake-") as lake, tarry.connect(dsn) as app:
        for base in sizes.bases:
            first = fill(dsn, base - before, first, hours=HOURS)
            console.print(f"{base:,} events are in the journal")
            spent = _measured(console, spark, app, lake)
            console.print(f"{base:,} events, processed with {sum(spent.values()):.0f} CPU seconds")
            before = base
            rounds: dict[str, list[float]] = defaultdict(list)
            for n in range(1 + sizes.rounds):
                first = fill(dsn, sizes.news, first, hours=0)
                before += sizes.news
                for name, cpu_s in _measured(console, spark, app, lake).items():
                    if n > 0:
                        rounds[name].append(cpu_s)
            costs[base] = {name: statistics.median(of) for name, of in rounds.items()}
            console.print(f"{sizes.news:,} events more, with {sum(costs[base].values()):.0f} CPU seconds")
            names = list(rounds)
        table = Table("CPU seconds", *(f"{base:,} events before" for base in costs), title=f"{sizes.news:,} new events")
        for name in names:
            table.add_row(name, *(f"{of[name]:.1f}" for of in costs.values()))
        table.add_row("all", *(f"{sum(of.values()):.1f}" for of in costs.values()))
        console.print(table)
        files = {
            name: sum(1 for _ in Path(lake, name).rglob("*.parquet"))
            for name in sorted(entry.name for entry in Path(lake).iterdir())
        }
        console.print("Files in the lake: " + ", ".join(f"{name} {n}" for name, n in files.items()))


def _measured(console: Console, spark: SparkSession, app: tarry.App, lake: str) -> dict[str, float]:
    """CPU seconds by job, without verify."""
    spent: dict[str, float] = {}
    for job in jobs(spark, app, lake)[:-1]:
        before, started = cpu_s(os.getpid()), time.monotonic()
        summary = job()
        name = type(summary).__name__.removesuffix("Summary").lower()
        spent[name] = cpu_s(os.getpid()) - before
        console.print(f"  {name}: {spent[name]:.1f} CPU seconds in {time.monotonic() - started:.0f} s")
    return spent


def cpu_s(pid: int) -> float:
    """Of a process and its descendants, including those that have ended and were waited for."""
    children: list[int] = []
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(*_ENDED):
                children += map(int, (thread / "children").read_text().split())
    except _ENDED:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS + sum(map(cpu_s, children))


def fill(dsn: str, events: int, first: int, *, hours: float, ended_hours_ago: float = 0) -> int:
    """So many events of new messages, evenly over these hours or, without any, over a minute; the next number."""
    messages = max(1, round(events / 2.9))
    span_s = max(hours * 3600, 50)
    with psycopg.connect(dsn, autocommit=True) as conn:
        queues = [row[0] for row in conn.execute("select id from tarry.queue where name like 'queue-%' order by id")]
        for start in range(first, first + messages, 200_000):
            last = min(start + 200_000, first + messages) - 1
            since = time.time() - 3600 * ended_hours_ago - 60 - span_s * (1 - (start - first) / messages)
            conn.execute(
                _FILL.format(queues=QUEUES).encode(),
                {
                    "queues": queues,
                    "first": start,
                    "last": last,
                    "since": datetime.fromtimestamp(since, UTC),
                    "step": f"{span_s / messages:.9f} s",
                },
            )
    return first + messages
