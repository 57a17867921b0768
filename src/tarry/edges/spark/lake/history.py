# pyright: basic
"""The trace: archived events with the history of their message, stored so that no run reads old events again.

A run reads the batches since the last run and the versions that were open then, and writes under its own number

    {lake}/trace/events/run=N/date=D    events, traced               input of metrics and consumers
    {lake}/trace/facts/run=N/date=D     versions that ended on D     input of facts
    {lake}/trace/open/run=N             versions that are still open

then moves the head in PostgreSQL. A run killed before that has no effect: the next run deletes its files. A day with
parts of many runs is merged into one part by the next run.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from tarry.core.pipeline import OtherCluster
from tarry.core.tracing import PartKind, TraceHead, TracePart
from tarry.edges.spark.lake import Lake, read_files
from tarry.edges.spark.sizing import ON_DISK, sized_for
from tarry.edges.spark.transforms import facts, tracing
from tarry.edges.spark.transforms.instants import dated

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from tarry.app import App
    from tarry.core.pipeline import Batch

JOB = "trace"
MOST_PARTS = 16
"""Parts per day before they are merged. With a run every minute a day is a few files instead of 1,440."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    lake: str
    events: int
    days: tuple[date, ...]
    open: int
    """Versions that are live, or dead and may be redriven."""
    seconds: float

    def line(self) -> str:
        if not self.events:
            return "trace: nothing new"
        return (
            f"trace: {self.events:,} events on {len(self.days)} days, {self.open:,} versions still open, "
            f"in {self.seconds:.1f} s"
        )


def advance(spark: SparkSession, app: App, lake: Lake, *, rebuild: bool = False) -> TraceSummary | None:
    """Trace what was archived since the last run; None if there is nothing. `rebuild`: from the beginning."""
    started = time.monotonic()
    port = app.pipeline.tracing
    batches = app.pipeline.manifest.batches(lake.root)
    if _target(batches, None if rebuild else port.head(lake.root)) is None:
        return None
    with app.pipeline.manifest.run(JOB, alone_at=f"trace {lake.root}", lake=lake.root) as run:
        # Read again under the lock: no other run can move it now.
        before = port.head(lake.root)
        head = None if rebuild else before
        batches = app.pipeline.manifest.batches(lake.root)
        target = _target(batches, head)
        if target is None:
            return None
        old_parts = [part for kind in PartKind for part in port.parts(lake.root, kind)]
        clear(spark, lake, old_parts, before)
        fresh = _fresh(batches, head, target)
        with sized_for(spark, _size(app, head, fresh, old_parts)) as layout:
            news = layout.read(_news(spark, lake, fresh, head))
            carried = None if head is None else layout.read(read_open(spark, lake, head))
            untouched = None
            if carried is not None and not layout.in_one_piece:
                # Millions of messages may be due next year, and the events of a minute touch only a few.
                carried, untouched = facts.split(carried, news)
            written = _write(spark, lake, run.id, news, carried, untouched, old_parts)
        merged = old_parts if rebuild else written.merged
        after = TraceHead(
            lake=lake.root,
            place=target.place,
            snapshot=target.end.snapshot,
            system_id=target.system_id,
            run_id=run.id,
        )
        port.advance(before, after, written.parts, merged)
        _forget(spark, lake, merged, before)
        events = [part for part in written.parts if part.kind is PartKind.EVENTS]
        summary = TraceSummary(
            lake=lake.root,
            events=written.events,
            days=tuple(sorted(part.day for part in events)),
            open=written.open,
            seconds=time.monotonic() - started,
        )
        run.summary = {"lake": lake.root, "events": summary.events, "open": summary.open}
    return summary


def _target(batches: Sequence[Batch], head: TraceHead | None) -> Batch | None:
    """The last batch that completes a window, if it is new. Within a cut window the events of one key can be out of
    order: the cut is by transaction id, and the transaction with the lower id need not have locked the row first.
    """
    complete = [batch for batch in batches if batch.end.is_complete]
    if not complete or (head is not None and complete[-1].place <= head.place):
        return None
    if head is not None and complete[-1].system_id != head.system_id:
        raise OtherCluster(
            f"the trace of this lake belongs to the database cluster {head.system_id}, and the newest batch to "
            f"{complete[-1].system_id}",
            hint="trace it again from the beginning: rebuild",
        )
    return complete[-1]


def _fresh(batches: Sequence[Batch], head: TraceHead | None, target: Batch) -> list[Batch]:
    return [batch for batch in batches if batch.place <= target.place and (head is None or batch.place > head.place)]


def _size(app: App, head: TraceHead | None, fresh: Sequence[Batch], old: Sequence[TracePart]) -> int | None:
    """Number of rows to process: new events, open versions, and the days that will be merged. None: unknown."""
    last = None if head is None else app.pipeline.manifest.last_run(JOB, head.lake)
    known = 0 if head is None else last.summary.get("open") if last is not None and last.id == head.run_id else None
    crowded = sum(part.rows for kind in PartKind for part in _full(old, kind, {part.day for part in old}))
    return None if known is None else known + crowded + sum(batch.digest.rows for batch in fresh)


def _news(spark: SparkSession, lake: Lake, fresh: Sequence[Batch], head: TraceHead | None) -> DataFrame:
    """Events committed after the head. A compacted batch may contain older events, so the snapshot decides, not the
    batch.
    """
    events = read_files(spark, lake, [file.path for batch in fresh for file in batch.files])
    return events if head is None else events.where(~visible(F.col("xid"), head.snapshot))


def visible(xid: Column, snapshot: str) -> Column:
    """Whether a transaction is visible in a `pg_snapshot`, by PostgreSQL's rules."""
    lowest, beyond, running = snapshot.split(":")
    below = (xid < int(beyond)) & ~xid.isin([int(one) for one in running.split(",")]) if running else xid < int(beyond)
    return (xid < int(lowest)) | below


@dataclass(frozen=True, slots=True)
class _Written:
    parts: tuple[TracePart, ...]
    merged: tuple[TracePart, ...]
    events: int
    open: int


def _write(
    spark: SparkSession,
    lake: Lake,
    run_id: int,
    news: DataFrame,
    carried: DataFrame | None,
    untouched: DataFrame | None,
    old: Sequence[TracePart],
) -> _Written:
    sequence = tracing.sequenced(news, carried).persist(ON_DISK)
    known = facts.fold(sequence, carried).persist(ON_DISK)
    try:
        traced, ended = tracing.traced(sequence), facts.told(known.where("fresh")).where("outcome <> 'live'")
        still_open = facts.still_open(known)
        if untouched is not None:
            still_open = still_open.unionByName(untouched)
        events = _counted(traced)
        parts: list[TracePart] = []
        merged: list[TracePart] = []
        for kind, rows, counts in ((PartKind.EVENTS, traced, dict(events)), (PartKind.FACTS, ended, _counted(ended))):
            full = [] if carried is None else _full(old, kind, counts)
            for part in full:
                counts[part.day] += part.rows
            everything = rows.unionByName(read_parts(spark, lake, full)) if full else rows
            _put(everything.repartition("date") if full else everything, lake, _place(kind, run_id), by_date=True)
            parts += [TracePart(kind, day, run_id, n) for day, n in sorted(counts.items())]
            merged += full
        _put(still_open, lake, _place("open", run_id), by_date=False)
        return _Written(tuple(parts), tuple(merged), sum(events.values()), _read_open(spark, lake, run_id).count())
    finally:
        known.unpersist()
        sequence.unpersist()


def _counted(rows: DataFrame) -> dict[date, int]:
    return {row.date: row["count"] for row in rows.groupBy("date").count().collect()}


def _put(rows: DataFrame, lake: Lake, place: str, *, by_date: bool) -> None:
    writer = rows.write.option("compression", "zstd").mode("overwrite")
    (writer.partitionBy("date") if by_date else writer).parquet(lake.uri(place))
    lake.synced(place)


def _full(parts: Iterable[TracePart], kind: PartKind, days: Iterable[date]) -> list[TracePart]:
    """All parts of those of these days that have too many."""
    mine = [part for part in parts if part.kind is kind]
    counted = Counter(part.day for part in mine)
    crowded = {day for day in days if counted[day] >= MOST_PARTS}
    return [part for part in mine if part.day in crowded]


_SCHEMAS = {PartKind.EVENTS: (tracing.TRACED, "at"), PartKind.FACTS: (facts.FACTS, "settled_at")}


def read_parts(spark: SparkSession, lake: Lake, parts: Sequence[TracePart]) -> DataFrame:
    """The rows of these parts, which are all of one kind."""
    schema, instant = _SCHEMAS[parts[0].kind]
    # The date is in the path, and reading a single path does not add it as a column.
    stored = StructType([field for field in schema if field.name != "date"])
    frame = spark.read.schema(stored).parquet(*(lake.uri(part.directory) for part in parts))
    return frame.withColumn("date", dated(F.col(instant)))


def read_open(spark: SparkSession, lake: Lake, head: TraceHead) -> DataFrame:
    """The versions that were open at the head, in the form of `facts.folded`."""
    return _read_open(spark, lake, head.run_id)


def _read_open(spark: SparkSession, lake: Lake, run_id: int) -> DataFrame:
    return spark.read.schema(facts.FOLDED).parquet(lake.uri(_place("open", run_id)))


def _place(kind: str, run_id: int) -> str:
    return f"trace/{kind}/run={run_id:08d}"


def _forget(spark: SparkSession, lake: Lake, merged: Iterable[TracePart], before: TraceHead | None) -> None:
    for part in merged:
        lake.remove(spark, part.directory)
    if before is not None:
        lake.remove(spark, _place("open", before.run_id))


def clear(spark: SparkSession, lake: Lake, parts: Sequence[TracePart], head: TraceHead | None) -> int:
    """Delete files of runs that died before they moved the head. Only while no other run can write."""
    ours = {_place(part.kind, part.run_id) for part in parts} | ({_place("open", head.run_id)} if head else set())
    strays = [
        place for kind in (*PartKind, "open") for place in _listed(spark, lake, f"trace/{kind}") if place not in ours
    ]
    for place in strays:
        lake.remove(spark, place)
    return len(strays)


def _listed(spark: SparkSession, lake: Lake, folder: str) -> list[str]:
    if lake.path is not None:
        found = Path(lake.path, folder)
        return sorted(f"{folder}/{entry.name}" for entry in found.iterdir()) if found.is_dir() else []
    context: Any = spark.sparkContext
    where = context._jvm.org.apache.hadoop.fs.Path(lake.uri(folder))
    files = where.getFileSystem(context._jsc.hadoopConfiguration())
    return (
        [f"{folder}/{status.getPath().getName()}" for status in files.listStatus(where)] if files.exists(where) else []
    )
