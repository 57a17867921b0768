# pyright: basic
"""Metrics job: per queue and minute, for the days that changed since the last run.

A late event changes the depth of every minute after it, so all days after the first changed one are computed again.
After a crash at any point, the next run computes the same days again; rows that were already written are found
unchanged.
"""

from collections import defaultdict
from dataclasses import asdict, dataclass
from datetime import date

from pyspark.sql import SparkSession

from tarry.app import App
from tarry.core.analytics.history import PartKind
from tarry.core.analytics.metrics import Table
from tarry.edges.spark.lake.derived import PercentileArgs, changed_days, exactness
from tarry.edges.spark.lake.history import read_parts
from tarry.edges.spark.sizing import local_frame, on_disk, sized_for
from tarry.edges.spark.transforms import metrics, quantiles

JOB = "metrics"
TABLE = "metrics"
_SERVED = (
    "queue_id", "queue", "minute", *metrics.COUNTED, "bytes_offered", "depth", "dead",
    *(f"{measure}_{name}_s" for measure in metrics.MEASURES for name in quantiles.NAMES), "exact",
)  # fmt: skip


class MetricsArgs(PercentileArgs):
    __slots__ = ()


@dataclass(slots=True, kw_only=True)
class MetricsSummary:
    lake: str
    days: tuple[date, ...] = ()
    minutes: int = 0
    changed: int = 0
    """Minutes that were new or different."""

    def line(self) -> str:
        if not self.days:
            return "metrics: nothing new"
        return f"metrics: {self.minutes:,} minutes of queues on {len(self.days)} days, {self.changed:,} of them changed"


def run(spark: SparkSession, app: App, args: MetricsArgs) -> MetricsSummary:
    """Bring the metrics up to date with the archive."""
    with changed_days(spark, app, args.lake, JOB, PartKind.EVENTS) as work:
        summary = MetricsSummary(lake=work.lake.root)
        used = [part for part in work.parts if work.days and part.day >= min(work.days)]
        if used:
            levels = app.pipeline.analytics.levels_before(summary.lake, min(work.days))
            baseline = local_frame(spark, levels, "queue_id int, depth long, dead long")
            with sized_for(spark, sum(part.rows for part in used)) as layout:
                traced = layout.read(read_parts(spark, work.lake, used))
                measured = metrics.measured(traced, exactness(used, args.exact_up_to))
                with on_disk(metrics.with_depth(measured, baseline)) as per_minute:
                    summary.minutes, summary.changed = work.publish(per_minute, TABLE, Table.METRICS, _SERVED)
                    grown: dict[date, list[tuple[int, int, int]]] = defaultdict(list)
                    for row in metrics.day_nets(per_minute).collect():
                        grown[row.date].append((row.queue_id, row.net, row.dead_net))
            app.pipeline.analytics.put_levels(summary.lake, grown)
        summary.days = tuple(sorted({part.day for part in used}))
        work.run.summary = {**asdict(summary), "days": len(summary.days)}
    return summary
