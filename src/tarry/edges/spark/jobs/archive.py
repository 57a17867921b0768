"""Archive job: copy new journal events to the lake, exactly once.

Each batch is planned in the manifest before a file is written, written into its own directory, read back and compared
with the journal, and only then visible to readers. After a crash at any point, the next run plans the same window again
under another number; files of the abandoned batch are not part of the lake.
"""

from dataclasses import dataclass
from datetime import date, timedelta

from pyspark.sql import SparkSession

from tarry.app import App
from tarry.core.analytics.manifest import GRACE, ArchiveDamaged, Batch, by_day
from tarry.core.errors import InvalidInput
from tarry.core.journal.snapshots import BEGINNING, Digest, SnapshotBound, Window
from tarry.edges.formats import plural
from tarry.edges.spark.lake import delta
from tarry.edges.spark.lake.lake import Lake, measure_batch, own_lake, write_batch
from tarry.edges.spark.session import own_session
from tarry.edges.spark.source.options import window_text
from tarry.edges.spark.source.reader import register

JOB = "archive"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveArgs:
    lake: str | None = None
    """A directory, or a URI that Spark can write to. None: next to the embedded data."""
    batch_rows: int = 1_000_000
    """Maximum number of events per batch. It bounds the work repeated after a crash, and the size of the read-back."""

    def __post_init__(self) -> None:
        if self.batch_rows < 1:
            raise InvalidInput("batch_rows must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSummary:
    lake: str
    rows: int
    batches: int
    redone: int
    """Batches that an earlier run had planned but not completed."""
    files: int
    bytes: int
    days: tuple[date, ...]

    def line(self) -> str:
        if not self.batches:
            return f"archive: nothing new; {self.lake} has everything that was committed"
        again = f", {self.redone} done again after a crash" if self.redone else ""
        size = f"{self.bytes / 1e6:,.1f} MB"
        return (
            f"archive: {plural(self.rows, 'event')} in {plural(self.batches, 'batch', 'batches')}{again}, "
            f"{plural(self.files, 'file')}, {size}, "
            f"read back and equal to the journal → {self.lake}"
        )


@own_session
def run(spark: SparkSession, app: App, args: ArchiveArgs) -> ArchiveSummary:
    """Archive all events committed until now."""
    lake = own_lake(spark, app, args.lake)
    register(spark)
    pipeline = app.pipeline
    done: list[Batch] = []
    redone = 0
    with pipeline.manifest.run(JOB, exclusive=f"lake {lake.root}", lake=lake.root) as noted:
        system_id = pipeline.windows.system_id()
        head = pipeline.manifest.head(lake.root)
        if head is None:
            pipeline.retention.begin_lake(lake.root)
        else:
            pipeline.windows.check(head.end, head.system_id)
        if (left := pipeline.manifest.take_over(lake.root, noted.id)) is not None:
            done.append(_archived(spark, app, lake, left))
            redone = 1
        clear(spark, app, lake)
        edge = done[-1].end if done else head.end if head is not None else BEGINNING
        target = pipeline.windows.edge()
        while (window := _next(app, edge, target, args.batch_rows)) is not None:
            noted.verify_held()
            batch = pipeline.manifest.plan(lake.root, window, system_id, noted.id)
            done.append(_archived(spark, app, lake, batch))
            edge = window.end
        if not delta.append(lake, head, done):
            delta.publish(lake, pipeline.manifest.batches(lake.root))
        summary = ArchiveSummary(
            lake=lake.root,
            rows=sum(batch.digest.rows for batch in done),
            batches=len(done),
            redone=redone,
            files=sum(len(batch.files) for batch in done),
            bytes=sum(file.bytes for batch in done for file in batch.files),
            days=tuple(sorted({file.day for batch in done for file in batch.files})),
        )
        noted.summary = {"rows": summary.rows, "batches": summary.batches, "lake": lake.root}
    return summary


def clear(spark: SparkSession, app: App, lake: Lake, grace: timedelta = GRACE) -> int:
    """Delete the files of batches that have not been part of the lake for `grace`."""
    left = app.pipeline.manifest.uncleared(lake.root, grace)
    if left:
        delta.publish(lake, app.pipeline.manifest.batches(lake.root))
    for batch in left:
        lake.remove(spark, batch.directory)
    app.pipeline.manifest.mark_cleared([batch.number for batch in left])
    return len(left)


def _next(app: App, edge: SnapshotBound, target: SnapshotBound, batch_rows: int) -> Window | None:
    """The window of the next batch: the rest of a cut window first, then up to the target."""
    if not edge.is_complete:
        return app.pipeline.windows.cut(Window(edge, edge.closed), batch_rows)
    window = Window(edge, target)
    return app.pipeline.windows.cut(window, batch_rows) if app.pipeline.windows.has_rows(window) else None


def _archived(spark: SparkSession, app: App, lake: Lake, batch: Batch) -> Batch:
    window = window_text(batch.window)
    events = spark.read.format("tarry").options(dsn=app.pipeline.dsn, window=window).load()
    write_batch(events, lake, batch)
    measured = measure_batch(spark, lake, batch)
    check_equal(batch, by_day(measured.files), app.pipeline.windows.digest(batch.window))
    return app.pipeline.manifest.complete(batch, measured.files, min_at=measured.min_at, max_at=measured.max_at)


def check_equal(batch: Batch, measured: dict[date, Digest], expected: dict[date, Digest]) -> None:
    if measured != expected:
        days = sorted(day for day in measured.keys() | expected.keys() if measured.get(day) != expected.get(day))
        first = days[0]
        raise ArchiveDamaged(
            f"batch {batch.number} differs from the journal: on {first} {measured.get(first, Digest())} was read back "
            f"and {expected.get(first, Digest())} is expected",
            hint="the batch is not part of the lake; run archive again, and check the disk of the lake",
        )
