"""Compact job: merge many small batches into one with few files. Readers see the old files or the new."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from tarry.app import App
from tarry.core.analytics.manifest import Batch, by_day
from tarry.core.errors import InvalidInput
from tarry.edges.spark.jobs.archive import check_equal, clear
from tarry.edges.spark.lake import delta
from tarry.edges.spark.lake.lake import measure_batch, merged, own_lake, write_batch

JOB = "compact"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactArgs:
    lake: str | None = None
    target_rows: int = 1_000_000
    """Merge neighbours up to about this many rows; a batch of this size is left alone."""
    at_least: int = 8
    """Minimum number of small neighbours that makes a rewrite worthwhile, as long as they are less than the target."""

    def __post_init__(self) -> None:
        if self.target_rows < 1 or self.at_least < 2:
            raise InvalidInput("target_rows must be at least 1, and at_least 2")


@dataclass(slots=True, kw_only=True)
class CompactSummary:
    lake: str
    batches_before: int = 0
    batches_after: int = 0
    files_before: int = 0
    files_after: int = 0
    rows: int = 0
    swept: int = 0
    """Deleted directories and files that were no longer part of the lake."""

    def line(self) -> str:
        if self.batches_before == self.batches_after:
            return f"compact: nothing to merge in {self.lake}"
        return (
            f"compact: {self.batches_before} batches with {self.files_before} files became {self.batches_after} with "
            f"{self.files_after}, {self.rows:,} events"
        )


def run(spark: SparkSession, app: App, args: CompactArgs) -> CompactSummary:
    lake = own_lake(spark, app, args.lake)
    pipeline = app.pipeline
    with pipeline.manifest.run(JOB, exclusive=f"lake {lake.root}", lake=lake.root) as noted:
        pipeline.manifest.abandon_compactions(lake.root)
        summary = CompactSummary(lake=lake.root)
        for parts in groups(pipeline.manifest.batches(lake.root), args):
            noted.verify_held()
            batch = pipeline.retention.plan_compaction(parts, noted.id)
            old = [file for part in parts for file in part.files]
            write_batch(merged(spark, lake, old), lake, batch)
            measured = measure_batch(spark, lake, batch)
            check_equal(batch, by_day(measured.files), by_day(old))
            done = pipeline.retention.replace(batch, parts, measured.files)
            summary.batches_before += len(parts)
            summary.batches_after += 1
            summary.files_before += len(old)
            summary.files_after += len(done.files)
            summary.rows += done.digest.rows
        delta.publish(lake, pipeline.manifest.batches(lake.root))
        summary.swept = clear(spark, app, lake) + lake.sweep(spark, pipeline.manifest.known_directories(lake.root))
        noted.summary = {"before": summary.batches_before, "after": summary.batches_after, "rows": summary.rows}
    return summary


def groups(batches: Sequence[Batch], args: CompactArgs) -> list[list[Batch]]:
    """Groups of neighbours in the chain of about the target size. All of one cluster, and with at least one row.

    Only the last group can grow, so it waits for `at_least` batches. The others are complete: the batch after them does not
    fit. They would never reach that number where batches are large.
    """
    grouped: list[list[Batch]] = [[]]
    rows = 0
    for batch in batches:
        small = batch.digest.rows < args.target_rows
        fits = rows + batch.digest.rows <= args.target_rows
        if not (small and fits) or (grouped[-1] and grouped[-1][-1].system_id != batch.system_id):
            grouped.append([])
            rows = 0
        if small:
            grouped[-1].append(batch)
            rows += batch.digest.rows
    *complete, growing = grouped
    worth = [group for group in complete if len(group) > 1] + ([growing] if len(growing) >= args.at_least else [])
    return [group for group in worth if any(batch.files for batch in group)]
