"""Compact job: merge small batches of a day into one with few files. Readers see either the old files or the new ones."""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from functools import partial
from itertools import groupby
from math import inf

from pyspark.sql import SparkSession

from tarry.app import App
from tarry.core.analytics.manifest import Batch, by_day
from tarry.core.errors import InvalidInput
from tarry.edges.formats import plural
from tarry.edges.spark.jobs.archive import check_equal, clear
from tarry.edges.spark.lake import delta
from tarry.edges.spark.lake.lake import measure_batch, own_lake, read_files, write_batch
from tarry.edges.spark.session import own_session

JOB = "compact"
FIRST_TIER = 512
TIER = 8
"""A tier has batches of up to this many times the rows of the tier below."""
RECENT = timedelta(days=2)
"""Gradual runs ignore older days, which do not change any more: otherwise they would read the whole manifest."""
MANY = 60
"""Number of batches of one tier that are merged even if they do not fill it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactArgs:
    lake: str | None = None
    gradual: bool = False
    """Merge only neighbours of similar size, as `tarry pipeline run` does: each row is rewritten a few times at most."""
    target_mb: int = 128
    """Batches whose files have at least this average size are not merged."""
    at_least: int = TIER
    """Minimum number of neighbours that makes a rewrite worthwhile."""

    def __post_init__(self) -> None:
        if self.target_mb < 1 or self.at_least < 2:
            raise InvalidInput("target_mb must be at least 1, and at_least 2")


@dataclass(slots=True, kw_only=True)
class CompactSummary:
    lake: str
    batches_before: int = 0
    batches_after: int = 0
    files_before: int = 0
    files_after: int = 0
    rows: int = 0
    swept: int = 0
    """Deleted directories and files that were not part of the lake."""

    def line(self) -> str:
        if self.batches_before == self.batches_after:
            return f"compact: nothing to merge in {self.lake}"
        return (
            f"compact: {plural(self.batches_before, 'batch', 'batches')} with {plural(self.files_before, 'file')} became "
            f"{self.batches_after} with {self.files_after}, {plural(self.rows, 'event')}"
        )


@own_session
def run(spark: SparkSession, app: App, args: CompactArgs) -> CompactSummary:
    lake = own_lake(spark, app, args.lake)
    pipeline = app.pipeline
    with pipeline.manifest.run(JOB, exclusive=f"lake {lake.root}", lake=lake.root) as noted:
        pipeline.manifest.abandon_compactions(lake.root)
        summary = CompactSummary(lake=lake.root)
        since = noted.started_at - RECENT if args.gradual else None
        for parts in groups(pipeline.manifest.batches(lake.root, since=since), args):
            noted.verify_held()
            batch = pipeline.retention.plan_compaction(parts, noted.id)
            old = [file for part in parts for file in part.files]
            write_batch(read_files(spark, lake, [file.path for file in old]), lake, batch, is_sorted=True)
            measured = measure_batch(spark, lake, batch)
            check_equal(batch, by_day(measured.files), by_day(old))
            done = pipeline.retention.replace(batch, parts, measured.files)
            summary.batches_before += len(parts)
            summary.batches_after += 1
            summary.files_before += len(old)
            summary.files_after += len(done.files)
            summary.rows += done.digest.rows
        if summary.batches_before:
            delta.publish(lake, pipeline.manifest.batches(lake.root))
        summary.swept = clear(spark, app, lake) + lake.sweep(spark, pipeline.manifest.known_directories(lake.root))
        noted.summary = {"before": summary.batches_before, "after": summary.batches_after, "rows": summary.rows}
    return summary


def groups(batches: Sequence[Batch], args: CompactArgs) -> list[list[Batch]]:
    """Groups of neighbouring batches to merge: of one day and one cluster, and smaller than the target."""
    chosen: list[list[Batch]] = []
    taken: set[int] = set()
    for limit in _tiers(batches) if args.gradual else (inf,):
        for (is_small, *_), same in groupby(
            batches, key=partial(_neighbours_share, limit=limit, args=args, taken=taken)
        ):
            run = list(same)
            is_full = not args.gradual or len(run) >= MANY or sum(batch.digest.rows for batch in run) >= limit
            if is_small and is_full and len(run) >= args.at_least and any(batch.files for batch in run):
                chosen.append(run)
                taken.update(batch.number for batch in run)
    return chosen


def _tiers(batches: Sequence[Batch]) -> Iterator[int]:
    limit, largest = FIRST_TIER, max((batch.digest.rows for batch in batches), default=0)
    yield limit
    while limit <= largest:
        limit *= TIER
        yield limit


def _neighbours_share(
    batch: Batch, *, limit: float, args: CompactArgs, taken: Set[int]
) -> tuple[bool, str, date | None]:
    """The properties that neighbours must share to be merged in a tier."""
    parts = {(file.day, file.queue_id) for file in batch.files}
    size = sum(file.bytes for file in batch.files)
    is_small = batch.digest.rows < limit and size < args.target_mb * 2**20 * max(1, len(parts))
    day = None if batch.max_at is None else batch.max_at.astimezone(UTC).date()
    return is_small and batch.number not in taken, batch.system_id, day
