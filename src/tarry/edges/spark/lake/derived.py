# pyright: basic
"""Job output: lake tables, and rows for PostgreSQL."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date

from pyspark.sql import DataFrame, SparkSession

from tarry.app import App
from tarry.core.analytics.manifest import Run
from tarry.core.analytics.metrics import Table
from tarry.edges.spark.lake import rounds
from tarry.edges.spark.lake.lake import own_lake
from tarry.edges.spark.lake.tables import LakeTable
from tarry.edges.spark.sizing import sized_for

_JSON = """map('timestampFormat', "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", 'timeZone', 'UTC')"""


@dataclass(frozen=True, slots=True)
class DerivedChanges:
    """Rows of a derived table that changed since the last run of the job that publishes them in PostgreSQL."""

    app: App
    run: Run
    table: LakeTable
    frame: DataFrame | None
    """None: nothing has changed."""

    def put(self, table: Table, columns: Sequence[str]) -> tuple[int, int]:
        """Upsert the rows in PostgreSQL; returns rows and changed rows."""
        if self.frame is None:
            return 0, 0
        return self.app.pipeline.analytics.put(table, rows_of_run(self.frame, columns, self.run))

    def dates(self) -> tuple[date, ...]:
        rows = [] if self.frame is None else self.frame.select("date").distinct().collect()
        return tuple(sorted(row.date for row in rows))


@contextmanager
def changes(
    spark: SparkSession, app: App, location: str | None, job: str, days: tuple[date, date] | None = None
) -> Generator[DerivedChanges]:
    """Update the derived tables, then yield the changes of the job's table. After an error the next run gets them again.

    `days`: also yield all rows of these days, first to last."""
    lake = own_lake(spark, app, location)
    rounds.advance(spark, app, lake)
    table = LakeTable(lake, job)
    with app.pipeline.manifest.run(job, exclusive=f"{job} {lake.root}", lake=lake.root) as run:
        last = app.pipeline.manifest.last_run(job, lake.root)
        known = 0 if last is None else last.summary.get("round", 0)
        files = [file for file in table.files() if days or file.high["round"] > known]
        again = "" if days is None else f" or date between date '{days[0]}' and date '{days[1]}'"
        with sized_for(spark, sum(file.rows for file in files)) as layout, layout.keeping() as kept:
            frame = table.read(spark, files)
            changed = None if frame is None else kept(layout.read(frame.where(f"round > {known}{again}")))
            yield DerivedChanges(app, run, table, changed)
        newest = max((known, *(file.high["round"] for file in files)))
        run.summary = {**run.summary, "round": newest}


def rows_of_run(frame: DataFrame, columns: Sequence[str], run: Run) -> Iterator[str]:
    """Rows for PostgreSQL with run and freshness."""
    fresh_at = f"timestamp '{run.started_at.isoformat()}' as fresh_at"
    return json_rows(frame, *columns, f"{run.id} as run_id", fresh_at)


def json_rows(frame: DataFrame, *columns: str) -> Iterator[str]:
    """Rows as JSON objects. Holds one partition in memory at a time."""
    rows = frame.selectExpr(f"to_json(struct({', '.join(columns)}), {_JSON}) as row")
    return (row["row"] for row in rows.toLocalIterator())
