# pyright: basic
"""Consumers job: statistics per consumer and hour, for the days that changed since the last run."""

from dataclasses import asdict, dataclass
from datetime import date

from pyspark.sql import SparkSession

from tarry.app import App
from tarry.core.analytics.history import PartKind
from tarry.core.analytics.metrics import Table
from tarry.edges.spark.lake.derived import PercentileArgs, changed_days, exactness
from tarry.edges.spark.lake.history import read_parts
from tarry.edges.spark.sizing import on_disk, sized_for
from tarry.edges.spark.transforms import consumers

JOB = "consumers"
TABLE = "consumers"


class ConsumersArgs(PercentileArgs):
    __slots__ = ()


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
            f"consumers: {self.consumers:,} consumers, {self.hours:,} hours of theirs on {len(self.days)} days, "
            f"{self.changed:,} of them changed"
        )


def run(spark: SparkSession, app: App, args: ConsumersArgs) -> ConsumersSummary:
    """Bring the consumer statistics up to date with the archive."""
    with changed_days(spark, app, args.lake, JOB, PartKind.EVENTS) as work:
        summary = ConsumersSummary(lake=work.lake.root, days=tuple(sorted(work.days)))
        used = [part for part in work.parts if part.day in work.days]
        if used:
            with sized_for(spark, sum(part.rows for part in used)) as layout:
                traced = layout.read(read_parts(spark, work.lake, used))
                with on_disk(consumers.consumer_hours(traced, exactness(used, args.exact_up_to))) as per_hour:
                    columns = [name for name in per_hour.columns if name != "date"]
                    summary.hours, summary.changed = work.publish(per_hour, TABLE, Table.CONSUMERS, columns)
                    summary.consumers = per_hour.select("consumer").distinct().count()
        work.run.summary = {**asdict(summary), "days": len(work.days)}
    return summary
