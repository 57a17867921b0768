# pyright: basic
"""The trace: archived events with the history of their message, stored so that no run reads old events again.

A run reads the batches since the last run and the versions that were open then, and writes under its own number

    {lake}/trace/events/run=N/date=D    events, traced               input of metrics and consumers
    {lake}/trace/facts/run=N/date=D     versions that ended on D     input of facts
    {lake}/trace/open/run=N             versions that are still open

then moves the head in PostgreSQL. A run killed before that has no effect: the next run deletes its files. A day with
parts of many runs is merged into one part by the next run.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tarry.app import App
from tarry.core.analytics.history import HistoryHead, HistoryPart, PartKind
from tarry.core.analytics.manifest import Batch, OtherCluster
from tarry.edges.spark.lake.lake import Lake, read_files
from tarry.edges.spark.sizing import on_disk, sized_for
from tarry.edges.spark.transforms import facts
from tarry.edges.spark.transforms import history as tracing
from tarry.edges.spark.transforms.query import dated

JOB = "trace"
MOST_PARTS = 16
"""Parts per day before they are merged. With a run every minute a day is a few files instead of 1,440."""


def advance(spark: SparkSession, app: App, lake: Lake, *, rebuild: bool = False) -> None:
    """Trace what was archived since the last run. `rebuild`: from the beginning."""
    port = app.pipeline.history
    batches = app.pipeline.manifest.batches(lake.root)
    if _target(batches, None if rebuild else port.head(lake.root)) is None:
        return
    with app.pipeline.manifest.run(JOB, exclusive=f"trace {lake.root}", lake=lake.root) as run:
        # Read again under the lock: no other run can move it now.
        before = port.head(lake.root)
        head = None if rebuild else before
        batches = app.pipeline.manifest.batches(lake.root)
        target = _target(batches, head)
        if target is None:
            return
        old_parts = [part for kind in PartKind for part in port.parts(lake.root, kind)]
        clear(spark, lake, old_parts, before)
        first = 0 if head is None else head.position + 1
        fresh = [batch for batch in batches if first <= batch.position <= target.position]
        with sized_for(spark, _size(app, head, fresh, old_parts)) as layout:
            news = layout.read(read_files(spark, lake, [file.path for batch in fresh for file in batch.files]))
            carried = untouched = None
            if head is not None:
                # By the snapshot of the head: a compacted batch may contain older events.
                news = news.where(f"not {visible(head.snapshot)}")
                carried = layout.read(read_open(spark, lake, head.run_id))
            if carried is not None and not layout.in_one_piece:
                # Millions of messages may be due next year, and the events of a minute touch only a few.
                carried, untouched = facts.split(carried, news)
            parts, merged, events = _write(spark, lake, run.id, news, carried, untouched, old_parts)
            still_open = read_open(spark, lake, run.id).count()
        merged = old_parts if rebuild else merged
        after = HistoryHead(
            lake=lake.root,
            position=target.position,
            snapshot=target.end.snapshot,
            system_id=target.system_id,
            run_id=run.id,
        )
        port.advance(before, after, parts, merged)
        for directory in [part.directory for part in merged] + _open_directory(before):
            lake.remove(spark, directory)
        run.summary = {"lake": lake.root, "events": events, "open": still_open}


def _target(batches: Sequence[Batch], head: HistoryHead | None) -> Batch | None:
    """The last batch that completes a window, if it is new. Within a cut window the events of one key can be out of
    order: the cut is by transaction id, and the transaction with the lower id need not have locked the row first.
    """
    complete = [batch for batch in batches if batch.end.is_complete]
    if not complete or (head is not None and complete[-1].position <= head.position):
        return None
    if head is not None and complete[-1].system_id != head.system_id:
        raise OtherCluster(
            f"the trace of this lake belongs to the database cluster {head.system_id}, and the newest batch to "
            f"{complete[-1].system_id}",
            hint="trace it again from the beginning: rebuild",
        )
    return complete[-1]


def _size(app: App, head: HistoryHead | None, fresh: Sequence[Batch], old: Sequence[HistoryPart]) -> int | None:
    """Number of rows to process: new events, open versions, and the days that will be merged. None: unknown."""
    last = None if head is None else app.pipeline.manifest.last_run(JOB, head.lake)
    known = 0 if head is None else last.summary.get("open") if last is not None and last.id == head.run_id else None
    crowded = sum(part.rows for kind in PartKind for part in _full(old, kind, {part.day for part in old}))
    return None if known is None else known + crowded + sum(batch.digest.rows for batch in fresh)


def visible(snapshot: str) -> str:
    """Whether the transaction `xid` is visible in a `pg_snapshot`, by PostgreSQL's rules."""
    lowest, beyond, running = snapshot.split(":")
    return f"(xid < {lowest} or xid < {beyond}{f' and xid not in ({running})' if running else ''})"


def _write(
    spark: SparkSession,
    lake: Lake,
    run_id: int,
    news: DataFrame,
    carried: DataFrame | None,
    untouched: DataFrame | None,
    old: Sequence[HistoryPart],
) -> tuple[list[HistoryPart], list[HistoryPart], int]:
    """The written parts, the old parts that are merged into them, and the number of new events."""
    with on_disk(tracing.sequenced(news, carried)) as sequence, on_disk(facts.fold(sequence, carried)) as known:
        traced, ended = tracing.traced(sequence), facts.published(known.where("fresh")).where("outcome <> 'live'")
        still_open = facts.still_open(known)
        if untouched is not None:
            still_open = still_open.unionByName(untouched)
        events = _counted(traced)
        parts: list[HistoryPart] = []
        merged: list[HistoryPart] = []
        for kind, rows, counts in ((PartKind.EVENTS, traced, dict(events)), (PartKind.FACTS, ended, _counted(ended))):
            full = [] if carried is None else _full(old, kind, counts)
            for part in full:
                counts[part.day] += part.rows
            everything = rows.unionByName(read_parts(spark, lake, full)) if full else rows
            _put(everything.repartition("date") if full else everything, lake, _directory(kind, run_id), by_date=True)
            parts += [HistoryPart(kind, day, run_id, n) for day, n in sorted(counts.items())]
            merged += full
        _put(still_open, lake, _directory("open", run_id), by_date=False)
        return parts, merged, sum(events.values())


def _counted(rows: DataFrame) -> dict[date, int]:
    return {row.date: row["count"] for row in rows.groupBy("date").count().collect()}


def _put(rows: DataFrame, lake: Lake, directory: str, *, by_date: bool) -> None:
    writer = rows.write.option("compression", "zstd").mode("overwrite")
    (writer.partitionBy("date") if by_date else writer).parquet(lake.uri(directory))
    lake.synced(directory)


def _full(parts: Iterable[HistoryPart], kind: PartKind, days: Iterable[date]) -> list[HistoryPart]:
    """All parts of those of these days that have too many."""
    mine = [part for part in parts if part.kind is kind]
    counted = Counter(part.day for part in mine)
    crowded = {day for day in days if counted[day] >= MOST_PARTS}
    return [part for part in mine if part.day in crowded]


_SCHEMAS = {PartKind.EVENTS: (tracing.TRACED, "at"), PartKind.FACTS: (facts.FACTS, "settled_at")}


def read_parts(spark: SparkSession, lake: Lake, parts: Sequence[HistoryPart]) -> DataFrame:
    """The rows of these parts, which are all of one kind."""
    schema, instant = _SCHEMAS[parts[0].kind]
    # The date is in the path, and reading a single path does not add it as a column.
    stored = StructType([field for field in schema if field.name != "date"])
    frame = spark.read.schema(stored).parquet(*(lake.uri(part.directory) for part in parts))
    return frame.selectExpr("*", f"{dated(instant)} as date")


def read_open(spark: SparkSession, lake: Lake, run_id: int) -> DataFrame:
    """The versions that were open after a run, in the form of `facts.folded`."""
    return spark.read.schema(tracing.FOLDED).parquet(lake.uri(_directory("open", run_id)))


def _directory(kind: str, run_id: int) -> str:
    return f"trace/{kind}/run={run_id:08d}"


def _open_directory(head: HistoryHead | None) -> list[str]:
    return [] if head is None else [_directory("open", head.run_id)]


def clear(spark: SparkSession, lake: Lake, parts: Sequence[HistoryPart], head: HistoryHead | None) -> None:
    """Delete files of runs that died before they moved the head. Only while no other run can write."""
    known = {*(_directory(part.kind, part.run_id) for part in parts), *_open_directory(head)}
    for folder in (f"trace/{kind}" for kind in (*PartKind, "open")):
        for name in lake.entries(spark, folder):
            if f"{folder}/{name}" not in known:
                lake.remove(spark, f"{folder}/{name}")
