# pyright: basic
"""Facts job: versions that have ended, by the day on which they ended. PostgreSQL serves the last days as well."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from functools import reduce

from pyspark.sql import DataFrame, SparkSession

from tarry.app import App
from tarry.core.analytics.history import HistoryPart, PartKind
from tarry.core.analytics.metrics import Table
from tarry.core.errors import InvalidInput
from tarry.edges.spark.lake import history as trace
from tarry.edges.spark.lake.derived import Rows, changed_days, overwritten, read_table
from tarry.edges.spark.lake.lake import Lake
from tarry.edges.spark.sizing import local_frame, on_disk, sized_for
from tarry.edges.spark.transforms import facts
from tarry.edges.spark.transforms.query import query, sql

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


@dataclass(slots=True, kw_only=True)
class FactsSummary:
    lake: str
    days: tuple[date, ...]
    ended: int
    """Versions that ended since the last run, or whose facts changed."""
    served: int = 0
    forgotten: int = 0

    def line(self) -> str:
        if not self.days:
            return "facts: nothing new"
        return f"facts: {self.ended:,} versions ended, on {len(self.days)} days, {self.served:,} of them served"


def run(spark: SparkSession, app: App, args: FactsArgs) -> FactsSummary:
    """Bring the facts up to date with the archive."""
    with changed_days(spark, app, args.lake, JOB, PartKind.FACTS) as work:
        oldest = app.store.run(app.store.queues.now()) - args.serve_for
        of_days = [part for part in work.parts if part.day in work.days]
        ended = sum(part.rows for part in of_days if part.run_id > work.processed)
        summary = FactsSummary(lake=work.lake.root, days=tuple(sorted(work.days)), ended=ended)
        if of_days:
            with sized_for(spark, sum(part.rows for part in of_days)) as layout:
                marked = layout.read(_marked(spark, work.lake, of_days, work.processed))
                with on_disk(latest(marked)) as known:
                    overwritten(known.drop("news"), work.lake, TABLE)
                    # A part that merged older parts repeats their rows; rows that PostgreSQL already has are found
                    # unchanged.
                    recent = known.where(f"news and settled_at >= timestamp '{oldest.isoformat()}'")
                    rows = Rows(recent, [name for name in facts.FACTS.names if name != "date"], work.run)
                    summary.served = app.pipeline.analytics.put(Table.FACTS, rows)
        summary.forgotten = app.pipeline.analytics.delete_facts(oldest)
        work.run.summary = {**asdict(summary), "days": len(work.days)}
    return summary


def _marked(spark: SparkSession, lake: Lake, parts: Sequence[HistoryPart], processed: int) -> DataFrame:
    """The rows of these parts, each marked whether it is new to this job."""
    frames: list[DataFrame] = []
    for is_new in (True, False):
        of_side = [part for part in parts if (part.run_id > processed) == is_new]
        if of_side:
            frames.append(trace.read_parts(spark, lake, of_side).selectExpr("*", f"{is_new} as news"))
    return reduce(DataFrame.unionByName, frames)


def latest(versions: DataFrame) -> DataFrame:
    """The newest row per version: a dead version may have been redriven since."""
    return query(sql("latest"), versions=versions)


def read_facts(spark: SparkSession, app: App, lake: str | None = None) -> DataFrame:
    """All facts of a lake, including live versions: for notebooks, reports and detectors."""
    archive = Lake.at(lake)
    head = app.pipeline.history.head(archive.root)
    if head is None:
        return local_frame(spark, [], facts.FACTS)
    living = facts.published(trace.read_open(spark, archive, head.run_id)).where("outcome = 'live'")
    ended = read_table(spark, app, archive, TABLE, JOB)
    return living if ended is None else ended.select(*facts.FACTS.names).unionByName(living)
