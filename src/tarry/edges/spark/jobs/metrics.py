# pyright: basic
"""Metrics job: metrics per queue and minute. Rounds store them in the lake; the job publishes changes in PostgreSQL."""

from dataclasses import asdict, dataclass
from datetime import date

from pyspark.sql import SparkSession

from tarry.app import App
from tarry.core.analytics.metrics import Table
from tarry.edges.formats import plural
from tarry.edges.spark.lake.derived import changes
from tarry.edges.spark.session import own_session
from tarry.edges.spark.transforms.metrics import COUNTED, PERCENTILES

JOB = "metrics"
TABLE = "metrics"
_SERVED = ("queue_id", "queue", "minute", *COUNTED, "bytes_offered", "depth", "dead", *PERCENTILES, "exact")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsArgs:
    lake: str | None = None
    days: tuple[date, date] | None = None
    """Also publish the unchanged results of these days, first to last."""


@dataclass(slots=True, kw_only=True)
class MetricsSummary:
    lake: str
    days: tuple[date, ...] = ()
    minutes: int = 0
    changed: int = 0
    """Minutes that were new or different in PostgreSQL."""

    def line(self) -> str:
        if not self.days:
            return "metrics: nothing new"
        minutes = f"{plural(self.minutes, 'minute')} of queues on {plural(len(self.days), 'day')}"
        return f"metrics: {minutes}, {self.changed:,} of them changed"


@own_session
def run(spark: SparkSession, app: App, args: MetricsArgs) -> MetricsSummary:
    """Bring the metrics up to date with the archive."""
    with changes(spark, app, args.lake, JOB, args.days) as changed:
        summary = MetricsSummary(lake=changed.table.lake.root, days=changed.dates())
        summary.minutes, summary.changed = changed.put(Table.METRICS, _SERVED)
        changed.run.summary = {**asdict(summary), "days": len(summary.days)}
    return summary
