# pyright: basic
"""Facts job: finished versions by the day of their end. Only in the lake: PostgreSQL has the journal."""

from dataclasses import asdict, dataclass
from datetime import date

from pyspark.sql import DataFrame, SparkSession

from tarry.app import App
from tarry.edges.formats import plural
from tarry.edges.spark.lake.derived import changes
from tarry.edges.spark.lake.lake import Lake, currently_named
from tarry.edges.spark.lake.rounds import read_open
from tarry.edges.spark.lake.tables import LakeTable
from tarry.edges.spark.session import own_session
from tarry.edges.spark.sizing import local_frame
from tarry.edges.spark.transforms import facts

JOB = "facts"


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsArgs:
    lake: str | None = None


@dataclass(slots=True, kw_only=True)
class FactsSummary:
    lake: str
    days: tuple[date, ...]
    ended: int
    """Versions that ended since the last run."""

    def line(self) -> str:
        if not self.days:
            return "facts: nothing new"
        return f"facts: {plural(self.ended, 'version')} ended, on {plural(len(self.days), 'day')}"


@own_session
def run(spark: SparkSession, app: App, args: FactsArgs) -> FactsSummary:
    """Bring the facts up to date with the archive."""
    with changes(spark, app, args.lake, JOB) as changed:
        per_day = [] if changed.frame is None else changed.frame.groupBy("date").count().collect()
        summary = FactsSummary(
            lake=changed.table.lake.root,
            days=tuple(sorted(row.date for row in per_day)),
            ended=sum(row["count"] for row in per_day),
        )
        changed.run.summary = {**asdict(summary), "days": len(summary.days)}
    return summary


def read_facts(spark: SparkSession, lake: str | None = None, app: App | None = None) -> DataFrame:
    """All facts of a lake, including live versions and dead letters, for notebooks, reports and detectors. With `app`,
    `queue` is the current name of each queue; without it, the name at that time. `queue_id` never changes.
    """
    archive = Lake.at(lake)
    still_open, ended = read_open(spark, archive), LakeTable(archive, "facts").read(spark)
    if still_open is None:
        return local_frame(spark, [], facts.FACTS)
    changing = facts.published(still_open)
    frame = changing if ended is None else ended.select(*facts.FACTS.names).unionByName(changing)
    return frame if app is None else currently_named(frame, app.pipeline.analytics.queue_names().values())
