# pyright: basic
"""Facts job: versions that have ended, by the day on which they ended. PostgreSQL serves the last days as well."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from tarry.core.errors import InvalidInput
from tarry.core.serving import Table
from tarry.core.tracing import PartKind, TracePart
from tarry.edges.spark import trace
from tarry.edges.spark.derived import Rows, days_to_do, overwritten, read_table
from tarry.edges.spark.lake import Lake
from tarry.edges.spark.sizing import ON_DISK, local_frame, sized_for
from tarry.edges.spark.transforms import facts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tarry.app import App

JOB = "facts"
TABLE = "facts"


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsArgs:
    lake: str | None = None
    serve_for: timedelta = timedelta(days=7)
    """Retention of a fact in PostgreSQL; the lake keeps all facts."""

    def __post_init__(self) -> None:
        if self.serve_for < timedelta(0):
            raise InvalidInput("serve_for must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsSummary:
    lake: str
    days: tuple[date, ...]
    ended: int
    """Versions that ended since the last run, or whose facts changed."""
    served: int
    forgotten: int
    seconds: float

    def line(self) -> str:
        if not self.days:
            return "facts: nothing new"
        return (
            f"facts: {self.ended:,} versions ended, on {len(self.days)} days, {self.served:,} of them served, "
            f"in {self.seconds:.1f} s"
        )


def run(spark: SparkSession, app: App, args: FactsArgs) -> FactsSummary:
    """Bring the facts up to date with the archive."""
    started = time.monotonic()
    lake = Lake.at(args.lake)
    trace.advance(spark, app, lake)
    with app.pipeline.manifest.run(JOB, alone_at=f"{JOB} {lake.root}", lake=lake.root) as noted:
        seen = app.pipeline.tracing.seen(lake.root, JOB)
        parts, touched, upto = days_to_do(app, lake, PartKind.FACTS, JOB)
        oldest = app.store.now() - args.serve_for
        ended = put = 0
        if touched:
            of_days = [part for part in parts if part.day in touched]
            new = [part for part in of_days if part.run_id > seen]
            with sized_for(spark, sum(part.rows for part in of_days)) as layout:
                known = latest(layout.read(_marked(spark, lake, of_days, seen))).persist(ON_DISK)
                try:
                    overwritten(known.drop("news"), lake, TABLE)
                    # A part that merged older parts repeats their rows; rows that PostgreSQL already has are found
                    # unchanged.
                    recent = known.where(F.col("news") & (F.col("settled_at") >= F.lit(oldest)))
                    rows = Rows(recent, [name for name in facts.FACTS.names if name != "date"], noted)
                    put = app.pipeline.serving.put(Table.FACTS, rows)
                    ended = sum(part.rows for part in new)
                finally:
                    known.unpersist()
            app.pipeline.tracing.see(lake.root, JOB, upto)
        forgotten = app.pipeline.serving.forget_facts(oldest)
        summary = FactsSummary(
            lake=lake.root,
            days=tuple(sorted(touched)),
            ended=ended,
            served=put,
            forgotten=forgotten,
            seconds=time.monotonic() - started,
        )
        noted.summary = {"lake": lake.root, "days": len(touched), "ended": ended, "served": put}
    return summary


def _marked(spark: SparkSession, lake: Lake, parts: Sequence[TracePart], seen: int) -> DataFrame:
    """The rows of these parts, each marked whether it is new to this job."""
    sides = [(True, [part for part in parts if part.run_id > seen]), (False, [p for p in parts if p.run_id <= seen])]
    frames = [trace.read_parts(spark, lake, some).withColumn("news", F.lit(news)) for news, some in sides if some]
    return reduce(DataFrame.unionByName, frames)


def latest(told: DataFrame) -> DataFrame:
    """The newest row per version: a dead version may have been redriven since."""
    newest = Window.partitionBy("queue_id", "version").orderBy(F.desc("last_id"))
    return told.withColumn("_place", F.row_number().over(newest)).where("_place = 1").drop("_place")


def read_facts(spark: SparkSession, app: App, lake: str | None = None) -> DataFrame:
    """All facts of a lake, including live versions: for notebooks, reports and detectors."""
    place = Lake.at(lake)
    head = app.pipeline.tracing.head(place.root)
    if head is None:
        return local_frame(spark, [], facts.FACTS)
    living = facts.told(trace.read_open(spark, place, head)).where("outcome = 'live'")
    ended = read_table(spark, app, place, TABLE, JOB)
    return living if ended is None else ended.select(*facts.FACTS.names).unionByName(living)
