# pyright: basic
"""Consumers job: statistics per consumer and hour. Rounds store them in the lake; the job publishes changes in PostgreSQL."""

from dataclasses import asdict, dataclass
from datetime import date

from pyspark.sql import SparkSession

from tarry.app import App
from tarry.core.analytics.metrics import Table
from tarry.edges.formats import plural
from tarry.edges.spark.lake.derived import changes
from tarry.edges.spark.session import own_session
from tarry.edges.spark.transforms.consumers import HOURS

JOB = "consumers"
_SERVED = [name for name in HOURS.names if name not in ("last_id", "processing", "taken", "round", "date")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumersArgs:
    lake: str | None = None
    days: tuple[date, date] | None = None
    """Also publish the unchanged results of these days, first to last."""


@dataclass(slots=True, kw_only=True)
class ConsumersSummary:
    lake: str
    days: tuple[date, ...]
    consumers: int = 0
    hours: int = 0
    changed: int = 0

    def line(self) -> str:
        if not self.days:
            return "consumers: nothing new"
        return (
            f"consumers: {plural(self.consumers, 'consumer')}, {plural(self.hours, 'hour')} of theirs on "
            f"{plural(len(self.days), 'day')}, "
            f"{self.changed:,} of them changed"
        )


@own_session
def run(spark: SparkSession, app: App, args: ConsumersArgs) -> ConsumersSummary:
    """Bring the consumer statistics up to date with the archive."""
    with changes(spark, app, args.lake, JOB, args.days) as changed:
        summary = ConsumersSummary(lake=changed.table.lake.root, days=changed.dates())
        if changed.frame is not None:
            summary.consumers = changed.frame.select("consumer").distinct().count()
            summary.hours, summary.changed = changed.put(Table.CONSUMERS, _SERVED)
        changed.run.summary = {**asdict(summary), "days": len(summary.days)}
    return summary
