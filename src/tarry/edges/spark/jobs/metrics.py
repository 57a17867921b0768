# pyright: basic
"""Metrics job: per queue and minute, for the days that changed since the last run.

A late event changes the depth of every minute after it, so all days after the first changed one are computed again.
After a crash at any point, the next run computes the same days again; rows that were already written are found
unchanged.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from tarry.core.errors import InvalidInput
from tarry.core.serving import Level, Table
from tarry.core.tracing import PartKind
from tarry.edges.spark import trace
from tarry.edges.spark.derived import Rows, days_to_do, exactness, overwritten
from tarry.edges.spark.lake import Lake
from tarry.edges.spark.sizing import ON_DISK, local_frame, sized_for
from tarry.edges.spark.transforms import metrics, quantiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tarry.app import App

JOB = "metrics"
TABLE = "metrics"
_SERVED = (
    "queue_id", "queue", "minute", *metrics.COUNTED, "bytes_offered", "depth", "dead",
    *(f"{measure}_{name}_s" for measure in metrics.MEASURES for name in quantiles.NAMES), "exact",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsArgs:
    lake: str | None = None
    exact_up_to: int = quantiles.EXACT_UP_TO
    """Percentiles of minutes with more events of a queue than this are estimates."""

    def __post_init__(self) -> None:
        if self.exact_up_to < 0:
            raise InvalidInput("exact_up_to must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSummary:
    lake: str
    days: tuple[date, ...]
    minutes: int
    changed: int
    """Minutes that were new or different."""
    seconds: float

    def line(self) -> str:
        if not self.days:
            return "metrics: nothing new"
        return (
            f"metrics: {self.minutes:,} minutes of queues on {len(self.days)} days, {self.changed:,} of them changed, "
            f"in {self.seconds:.1f} s"
        )


def run(spark: SparkSession, app: App, args: MetricsArgs) -> MetricsSummary:
    """Bring the metrics up to date with the archive."""
    started = time.monotonic()
    lake = Lake.at(args.lake)
    trace.advance(spark, app, lake)
    with app.pipeline.manifest.run(JOB, alone_at=f"{JOB} {lake.root}", lake=lake.root) as noted:
        parts, touched, upto = days_to_do(app, lake, PartKind.EVENTS, JOB)
        minutes = changed = 0
        days: tuple[date, ...] = ()
        if touched:
            first = min(touched)
            days = tuple(sorted({part.day for part in parts if part.day >= first}))
            used = [part for part in parts if part.day >= first]
            levels = [(of.queue_id, of.depth, of.dead) for of in app.pipeline.serving.levels_before(lake.root, first)]
            baseline = local_frame(spark, levels, "queue_id int, depth long, dead long")
            with sized_for(spark, sum(part.rows for part in used)) as layout:
                traced = layout.read(trace.read_parts(spark, lake, used))
                measured = metrics.measured(traced, exactness(used, args.exact_up_to))
                found = metrics.with_depth(measured, baseline).persist(ON_DISK)
                try:
                    overwritten(found, lake, TABLE)
                    rows = Rows(found, _SERVED, noted)
                    changed = app.pipeline.serving.put(Table.METRICS, rows)
                    minutes = rows.count
                    grown: dict[date, list[Level]] = defaultdict(list)
                    for row in metrics.day_nets(found).collect():
                        grown[row.date].append(Level(row.queue_id, row.net, row.dead_net))
                finally:
                    found.unpersist()
            app.pipeline.serving.put_levels(lake.root, grown)
            app.pipeline.tracing.see(lake.root, JOB, upto)
        summary = MetricsSummary(
            lake=lake.root, days=days, minutes=minutes, changed=changed, seconds=time.monotonic() - started
        )
        noted.summary = {"lake": lake.root, "days": len(days), "minutes": minutes, "changed": changed}
    return summary
