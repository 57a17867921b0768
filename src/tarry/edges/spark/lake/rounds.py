# pyright: basic
"""The derived tables of a lake, updated by rounds that read only new events.

A round reads the events archived since the last round and the open versions of their keys. It adds

    metrics     one row per queue and minute      to the rows of the hours that have new events
    consumers   one row per consumer and hour     likewise
    facts       one row per finished version      never changed afterwards
    trace       events with their history         for anomaly detectors; dropped after they are judged
    open        the versions that can change      one row per change; the latest counts

A plan in PostgreSQL fixes the events of a round before anything is written, and each table's commit carries the number of the
round. So a round repeated after a crash continues with the tables that do not have it yet. `open` is the last table: the
others are derived from its previous content.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from tarry.app import App
from tarry.core.analytics.manifest import Batch, OtherCluster
from tarry.core.analytics.rounds import QueueLevel, Round
from tarry.core.errors import InvalidState
from tarry.edges.spark.lake.lake import Lake, read_files
from tarry.edges.spark.lake.tables import LakeTable, TableFile, worth_merging
from tarry.edges.spark.sizing import FrameLayout, local_frame, sized_for
from tarry.edges.spark.transforms import consumers, facts, metrics
from tarry.edges.spark.transforms import history as tracing
from tarry.edges.spark.transforms.query import dated, query, sql
from tarry.wire.base import same_fields

JOB = "round"
TAIL = timedelta(minutes=10)
UNJUDGED = timedelta(days=7)
"""How long events are kept if the detectors do not run."""
ENDED = 100_000
"""Rows of finished versions that `open` may always have."""


def advance(spark: SparkSession, app: App, lake: Lake) -> None:
    """Update the derived tables from the archive, starting with an unfinished round."""
    rounds = app.pipeline.rounds
    if rounds.planned(lake.root) is None and _target(app, lake, rounds.head(lake.root)) is None:
        return
    with app.pipeline.manifest.run(JOB, exclusive=f"rounds {lake.root}", lake=lake.root) as run:
        events = 0
        if (left := rounds.planned(lake.root)) is not None:
            events += _done(spark, app, lake, left)
        if (target := _target(app, lake, rounds.head(lake.root))) is not None:
            of_batch = same_fields(target, Round, "number")
            planned = Round(number=run.id, snapshot=target.end.snapshot, **of_batch)
            rounds.plan(planned)
            events += _done(spark, app, lake, planned)
        run.summary = {"lake": lake.root, "events": events}


def _target(app: App, lake: Lake, head: Round | None) -> Batch | None:
    """The last batch that completes a window, if it is new. Within a cut window the events of one key can be out of
    order: the cut is by transaction id, and the transaction with the lower id need not have locked the row first.
    """
    batches = app.pipeline.manifest.batches(lake.root, after=0 if head is None else head.position)
    complete = [batch for batch in batches if batch.end.is_complete]
    if complete and head is not None and complete[-1].system_id != head.system_id:
        raise OtherCluster(
            f"the derived tables of this lake belong to the database cluster {head.system_id}, and the newest batch to "
            f"{complete[-1].system_id}",
            hint="archive to another location",
        )
    return complete[-1] if complete else None


def _done(spark: SparkSession, app: App, lake: Lake, planned: Round) -> int:
    """Execute a planned round; returns the number of events read."""
    rounds = app.pipeline.rounds
    head = rounds.head(lake.root)
    events = 0
    if LakeTable(lake, "open").committed() < planned.number:
        events = _derived(spark, app, lake, head, planned)
    # From the table: after a crash the levels of the round can no longer be computed from the open versions.
    rounds.finish(planned, _levels(spark, LakeTable(lake, "metrics"), planned.number))
    return events


def new_events(spark: SparkSession, lake: Lake, batches: Sequence[Batch], since: str | None, until: str) -> DataFrame:
    """Events of these batches between two snapshots: a compacted batch may have others."""
    frame = read_files(spark, lake, [file.path for batch in batches for file in batch.files])
    return frame.where(visible(until) if since is None else f"{visible(until)} and not {visible(since)}")


def refuse_unknown(app: App, events: DataFrame) -> None:
    """Raise for event kinds that this version does not know: without them, derived values would be wrong."""
    unknown = app.pipeline.rounds.unknown_kinds()
    if unknown and not events.where(F.col("kind").isin(unknown)).isEmpty():
        raise InvalidState(
            f"the journal has events of a kind that this version of Tarry does not know: {', '.join(unknown)}",
            hint="upgrade Tarry where the pipeline runs; the archive has them",
        )


def visible(snapshot: str) -> str:
    """Whether the transaction `xid` is visible in a `pg_snapshot`, by PostgreSQL's rules."""
    lowest, beyond, running = snapshot.split(":")
    return f"(xid < {lowest} or xid < {beyond}{f' and xid not in ({running})' if running else ''})"


def _derived(spark: SparkSession, app: App, lake: Lake, head: Round | None, planned: Round) -> int:
    """Commit the tables that do not have the round yet; returns the number of its events."""
    batches = app.pipeline.manifest.batches(lake.root, after=0 if head is None else head.position)
    open_versions = LakeTable(lake, "open")
    opened = [] if head is None else open_versions.files()
    size = sum(batch.digest.rows for batch in batches) + sum(file.rows for file in opened)
    with sized_for(spark, size) as layout, layout.keeping() as kept:
        events = new_events(spark, lake, batches, None if head is None else head.snapshot, planned.snapshot)
        events = kept(layout.read(events.drop("payload", "payload_hash")))
        refuse_unknown(app, events)
        carried = open_versions.read(spark, opened)
        if carried is not None:
            carried = kept(facts.still_open(facts.latest(facts.touched(layout.read(carried), events))))
        sequence = kept(tracing.sequenced(events, carried))
        known = kept(facts.fold(sequence, carried).where("fresh"))
        traced = tracing.traced(sequence)
        totals = query(sql("round_totals"), traced=traced).collect()
        levels = {level.queue_id: level for level in ([] if head is None else app.pipeline.rounds.levels(head.lake))}
        for row in totals:
            _, depth, dead = levels.get(row.queue_id, (row.queue_id, 0, 0))
            levels[row.queue_id] = QueueLevel(row.queue_id, depth + row.net, dead + row.dead_net)
        after = layout.read(local_frame(spark, list(levels.values()), "queue_id int, depth long, dead long"))
        write = _Writer(spark, layout, planned.number, is_first=head is None)

        def minutes(stored: DataFrame | None) -> DataFrame:
            merged = metrics.with_depth(metrics.measured(traced, stored), after, number=planned.number)
            return merged.select(*metrics.MINUTES.names)

        def hours(stored: DataFrame | None) -> DataFrame:
            return consumers.consumer_hours(traced, stored, number=planned.number).select(*consumers.HOURS.names)

        if totals:
            # All hours from the first changed one on: the depth of every minute after it may have changed.
            hour = datetime.fromtimestamp(min(row.first_hour for row in totals), UTC)
            write.hours(LakeTable(lake, "metrics"), "minute", hour, minutes)
            write.hours(LakeTable(lake, "consumers"), "hour", hour, hours)
        last = app.pipeline.manifest.last_run("anomalies", lake.root)
        judged = 0 if last is None else last.summary.get("round", 0)
        write.ended(LakeTable(lake, "facts"), known)
        write.recent(LakeTable(lake, "trace"), tracing.with_history(events, sequence), judged)
        write.changed(open_versions, known, sum(level.depth + level.dead for level in levels.values()))
        return sum(row.events for row in totals)


@dataclass(frozen=True, slots=True)
class _Writer:
    """The commits of one round."""

    spark: SparkSession
    layout: FrameLayout
    number: int
    is_first: bool
    """The first round of its lake replaces the content of the tables."""

    def hours(
        self, table: LakeTable, column: str, since: datetime, merged: Callable[[DataFrame | None], DataFrame]
    ) -> None:
        """Replace the rows of all hours from this one on by the merged rows. An hour is one file."""
        files = [file for file in table.files() if self.is_first or file.high[column] >= since]
        rows = merged(self._read(table, files)).selectExpr(
            "*", f"int(floor(unix_seconds({column}) / 3600 % 24)) as of_hour"
        )
        table.commit(self.layout.by(rows, "date", "of_hour"), files, self.number, "of_hour")

    def ended(self, table: LakeTable, known: DataFrame) -> None:
        """Add the facts of finished versions."""
        rows = facts.published(known.where("not is_open")).selectExpr("*", f"{self.number}L as round")
        files = table.files()
        self._add(table, rows, worth_merging(files), files if self.is_first else [])

    def recent(self, table: LakeTable, events: DataFrame, judged: int) -> None:
        """Add events for detectors and drop those of judged rounds, except for the last minutes."""
        files = table.files()
        newest = max((file.high["at"] for file in files), default=datetime.max.replace(tzinfo=UTC))
        gone = [
            file
            for file in files
            if self.is_first
            or file.high["at"] < newest - UNJUDGED
            or (file.high["round"] <= judged and file.high["at"] < newest - TAIL)
        ]
        rows = events.selectExpr(f"{self.number}L as round", "*", f"{dated('at')} as date")
        self._add(table, rows, worth_merging([file for file in files if file not in gone]), gone)

    def _add(self, table: LakeTable, rows: DataFrame, merged: list[TableFile], gone: list[TableFile]) -> None:
        """Add rows, together with those of the `merged` files, and drop the files `gone`."""
        stored = self._read(table, merged)
        rows = rows if stored is None else rows.unionByName(stored)
        table.commit(self.layout.by(rows, "date"), list(dict.fromkeys([*gone, *merged])), self.number)

    def changed(self, table: LakeTable, known: DataFrame, count: int) -> None:
        """Add the new states of versions that are or were open. Besides the rows of `count` open versions, at most as many
        outdated rows are kept.
        """
        rows = known.where("is_open or was_open").selectExpr(*facts.OPEN.names[:-1], f"{self.number}L as round")
        files = table.files()
        is_whole = self.is_first or sum(file.rows for file in files) > 2 * count + ENDED
        files = files if is_whole else worth_merging(files)
        stored = self._read(table, files)
        if stored is not None:
            rows = facts.latest(rows.unionByName(stored))
        rows = (rows.where("is_open") if is_whole else rows).coalesce(1 if self.layout.in_one_piece else 4)
        table.commit(rows, files, self.number)

    def _read(self, table: LakeTable, files: Sequence[TableFile]) -> DataFrame | None:
        stored = None if self.is_first else table.read(self.spark, files)
        return None if stored is None else self.layout.read(stored)


def _levels(spark: SparkSession, table: LakeTable, number: int) -> list[QueueLevel]:
    """The levels of the queues that a round changed, from its `metrics` rows."""
    files = table.files()
    changed = [file.low["minute"] for file in files if file.high["round"] >= number]
    minutes = table.read(spark, [file for file in files if changed and file.high["minute"] >= min(changed)])
    if minutes is None:
        return []
    rows = query(sql("round_levels"), {"number": number}, minutes=minutes).collect()
    return [QueueLevel(row.queue_id, row.depth, row.dead) for row in rows]


def read_open(spark: SparkSession, lake: Lake) -> DataFrame | None:
    """The versions that are live or dead after the last round, in the form of `facts.fold`; None before the first."""
    stored = LakeTable(lake, "open").read(spark)
    return None if stored is None else facts.still_open(facts.latest(stored))
