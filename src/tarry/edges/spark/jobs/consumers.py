# pyright: basic
"""Consumers job: statistics per consumer and hour, for the days that changed since the last run."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from tarry.core.errors import InvalidInput
from tarry.core.serving import Table
from tarry.core.tracing import PartKind
from tarry.edges.spark import trace
from tarry.edges.spark.derived import Rows, days_to_do, exactness, overwritten
from tarry.edges.spark.lake import Lake
from tarry.edges.spark.sizing import ON_DISK, sized_for
from tarry.edges.spark.transforms import consumers, quantiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tarry.app import App

JOB = "consumers"
TABLE = "consumers"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumersArgs:
    lake: str | None = None
    exact_up_to: int = quantiles.EXACT_UP_TO
    """Percentiles of consumers with more events than this in an hour are estimates."""

    def __post_init__(self) -> None:
        if self.exact_up_to < 0:
            raise InvalidInput("exact_up_to must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumersSummary:
    lake: str
    days: tuple[date, ...]
    consumers: int
    hours: int
    changed: int
    seconds: float

    def line(self) -> str:
        if not self.days:
            return "consumers: nothing new"
        return (
            f"consumers: {self.consumers:,} consumers, {self.hours:,} hours of theirs on {len(self.days)} days, "
            f"{self.changed:,} of them changed, in {self.seconds:.1f} s"
        )


def run(spark: SparkSession, app: App, args: ConsumersArgs) -> ConsumersSummary:
    """Bring the consumer statistics up to date with the archive."""
    started = time.monotonic()
    lake = Lake.at(args.lake)
    trace.advance(spark, app, lake)
    with app.pipeline.manifest.run(JOB, alone_at=f"{JOB} {lake.root}", lake=lake.root) as noted:
        parts, touched, upto = days_to_do(app, lake, PartKind.EVENTS, JOB)
        people = hours = changed = 0
        if touched:
            used = [part for part in parts if part.day in touched]
            with sized_for(spark, sum(part.rows for part in used)) as layout:
                traced = layout.read(trace.read_parts(spark, lake, used))
                found = consumers.consumer_hours(traced, exactness(used, args.exact_up_to))
                found = found.persist(ON_DISK)
                try:
                    overwritten(found, lake, TABLE)
                    rows = Rows(found, [name for name in found.columns if name != "date"], noted)
                    changed = app.pipeline.serving.put(Table.CONSUMERS, rows)
                    hours, people = rows.count, found.select("consumer").distinct().count()
                finally:
                    found.unpersist()
            app.pipeline.tracing.see(lake.root, JOB, upto)
        summary = ConsumersSummary(
            lake=lake.root,
            days=tuple(sorted(touched)),
            consumers=people,
            hours=hours,
            changed=changed,
            seconds=time.monotonic() - started,
        )
        noted.summary = {"lake": lake.root, "days": len(touched), "hours": hours, "changed": changed}
    return summary
