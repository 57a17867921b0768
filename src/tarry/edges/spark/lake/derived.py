# pyright: basic
"""Output of jobs: lake tables that are overwritten day by day, and rows for PostgreSQL."""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date

from pyspark.sql import DataFrame, SparkSession

from tarry.app import App
from tarry.core.analytics.history import HistoryPart, PartKind
from tarry.core.analytics.manifest import Run
from tarry.core.analytics.metrics import Table
from tarry.core.errors import InvalidInput
from tarry.edges.spark.lake import history
from tarry.edges.spark.lake.lake import Lake
from tarry.edges.spark.transforms.quantiles import EXACT_UP_TO

_JSON = """map('timestampFormat', "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", 'timeZone', 'UTC')"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PercentileArgs:
    """The arguments of a job that computes percentiles per group: minutes of a queue, or hours of a consumer."""

    lake: str | None = None
    exact_up_to: int = EXACT_UP_TO
    """Percentiles of groups with more events than this are estimates."""

    def __post_init__(self) -> None:
        if self.exact_up_to < 0:
            raise InvalidInput("exact_up_to must not be negative")


@dataclass(frozen=True, slots=True)
class ChangedDays:
    """A run of a job that computes days of the history again."""

    app: App
    lake: Lake
    run: Run
    parts: list[HistoryPart]
    """All parts of the history."""
    days: set[date]
    """The days with parts that the job has not processed."""
    processed: int
    """The last run of the history that the job has processed."""

    def publish(self, frame: DataFrame, name: str, table: Table, columns: Sequence[str]) -> tuple[int, int]:
        """Replace the days of a lake table and upsert the rows in PostgreSQL; returns rows and changed rows."""
        overwritten(frame, self.lake, name)
        rows = Rows(frame, columns, self.run)
        changed = self.app.pipeline.analytics.put(table, rows)
        return rows.count, changed


@contextmanager
def changed_days(
    spark: SparkSession, app: App, location: str | None, job: str, kind: PartKind
) -> Generator[ChangedDays]:
    """Bring the history up to date and run the job on it. After an error the days count as not processed."""
    lake = Lake.at(location)
    history.advance(spark, app, lake)
    with app.pipeline.manifest.run(job, exclusive=f"{job} {lake.root}", lake=lake.root) as run:
        parts = app.pipeline.history.parts(lake.root, kind)
        processed = app.pipeline.history.processed_run(lake.root, job)
        days = {part.day for part in parts if part.run_id > processed}
        yield ChangedDays(app, lake, run, parts, days, processed)
        if days:
            app.pipeline.history.mark_processed(lake.root, job, max(part.run_id for part in parts))


def overwritten(frame: DataFrame, lake: Lake, table: str) -> None:
    """Replace the days contained in this frame; other days of the table stay."""
    frame.write.partitionBy("date").option("partitionOverwriteMode", "dynamic").option("compression", "zstd").mode(
        "overwrite"
    ).parquet(lake.uri(table))


def read_table(spark: SparkSession, app: App, lake: Lake, table: str, job: str) -> DataFrame | None:
    """A table of the lake; None if its job has not written it yet."""
    if not app.pipeline.history.processed_run(lake.root, job):
        return None
    return spark.read.parquet(lake.uri(table))


def exactness(parts: Iterable[HistoryPart], exact_up_to: int) -> int | None:
    """The limit for exact percentiles; None if no day exceeds it, so that no group needs to be counted first."""
    rows: Counter[date] = Counter()
    for part in parts:
        rows[part.day] += part.rows
    return exact_up_to if max(rows.values(), default=0) > exact_up_to else None


@dataclass(slots=True)
class Rows:
    """Rows for PostgreSQL as JSON objects with run and freshness. Holds one partition in memory at a time."""

    frame: DataFrame
    columns: Sequence[str]
    run: Run
    count: int = 0
    """Rows yielded by the current iteration."""

    def __iter__(self) -> Iterator[str]:
        self.count = 0
        fresh_at = f"timestamp '{self.run.started_at.isoformat()}' as fresh_at"
        for row in json_rows(self.frame, *self.columns, f"{self.run.id} as run_id", fresh_at):
            self.count += 1
            yield row


def json_rows(frame: DataFrame, *columns: str) -> Iterator[str]:
    """The rows as JSON objects."""
    rows = frame.selectExpr(f"to_json(struct({', '.join(columns)}), {_JSON}) as row")
    return (row["row"] for row in rows.toLocalIterator())
