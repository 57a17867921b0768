# pyright: basic
"""Output of jobs: lake tables that are overwritten day by day, and rows for PostgreSQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from tarry.core.tracing import PartKind, TracePart
from tarry.edges.spark.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tarry.app import App
    from tarry.core.pipeline import Run

_JSON = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timeZone": "UTC"}


def days_to_do(app: App, lake: Lake, kind: PartKind, job: str) -> tuple[list[TracePart], set[date], int]:
    """All parts, the days with parts that this job has not processed, and the run id up to which it then has."""
    parts = app.pipeline.tracing.parts(lake.root, kind)
    seen = app.pipeline.tracing.seen(lake.root, job)
    return parts, {part.day for part in parts if part.run_id > seen}, max((part.run_id for part in parts), default=seen)


def overwritten(frame: DataFrame, lake: Lake, table: str) -> None:
    """Replace the days contained in this frame; other days of the table stay."""
    frame.write.partitionBy("date").option("partitionOverwriteMode", "dynamic").option("compression", "zstd").mode(
        "overwrite"
    ).parquet(lake.uri(table))


def read_table(spark: SparkSession, app: App, lake: Lake, table: str, job: str) -> DataFrame | None:
    """A table of the lake; None if its job has not written it yet."""
    if not app.pipeline.tracing.seen(lake.root, job):
        return None
    return spark.read.parquet(lake.uri(table))


def exactness(parts: Iterable[TracePart], exact_up_to: int) -> int | None:
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
        stamps = (F.lit(self.run.id).alias("run_id"), F.lit(self.run.started_at).alias("fresh_at"))
        for row in self.frame.select(F.to_json(F.struct(*self.columns, *stamps), _JSON).alias("row")).toLocalIterator():
            self.count += 1
            yield row["row"]
