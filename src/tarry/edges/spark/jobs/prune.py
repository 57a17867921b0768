"""Prune job: drop journal days that are in the lake and, if requested, lake files past their retention.

Only whole days are dropped, never today, and only if every lake has each row of the day: the manifest's row count and
digest of the day are compared with a new count of the journal and a new read of the lake's files before anything is
dropped.
"""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from pyspark.sql import SparkSession

from tarry.app import App
from tarry.core.analytics.manifest import Batch, LakeFile, LakeHead
from tarry.core.journal.snapshots import Digest
from tarry.edges.formats import plural
from tarry.edges.spark.lake import delta
from tarry.edges.spark.lake.lake import Lake, measure_files, own_lake
from tarry.edges.spark.lake.tables import LakeTable, log_uri
from tarry.edges.spark.session import own_session

JOB = "prune"
_TRIES = 10
_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneArgs:
    lake: str | None = None
    retention: bool = False
    """Also remove lake files that are older than their queue's `retention_for`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    day: date
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneSummary:
    lake: str
    days: tuple[date, ...]
    rows: int
    kept: tuple[Kept, ...]
    """Days that could not be dropped, and why."""
    retired_files: int
    retired_rows: int
    retired_facts: int

    def line(self) -> str:
        gone = (
            f"{plural(len(self.days), 'day')} with {plural(self.rows, 'event')} left the journal"
            if self.days
            else "no day could go"
        )
        kept = f"; {len(self.kept)} stay, {self.kept[0].day} because {self.kept[0].why}" if self.kept else ""
        taken = f"{plural(self.retired_rows, 'event')} and {plural(self.retired_facts, 'fact')}"
        retired = f"; retention took {taken} from the lake" if self.retired_files or self.retired_facts else ""
        return f"prune: {gone}{kept}{retired}"


@own_session
def run(spark: SparkSession, app: App, args: PruneArgs) -> PruneSummary:
    lake = own_lake(spark, app, args.lake)
    pipeline = app.pipeline
    gone: dict[date, int] = {}
    kept: list[Kept] = []
    with pipeline.manifest.run(JOB, exclusive=f"lake {lake.root}", lake=lake.root) as noted:
        while not app.store.run(app.store.rollups.roll_up()).complete:
            pass
        batches = pipeline.manifest.batches(lake.root)
        heads = pipeline.retention.lakes()
        for head in heads:
            pipeline.windows.check(head.edge, head.system_id)
        for day, is_partition in pipeline.retention.journal_days().items():
            if (why := _why_not(spark, app, lake, batches, heads, day)) is not None:
                kept.append(Kept(day=day, why=why))
            elif (rows := _dropped(app, heads, day, is_partition=is_partition)) is not None:
                gone[day] = rows
            else:
                kept.append(Kept(day=day, why="it is being written to; it goes another time"))
        pipeline.retention.mark_pruned()
        retired = _retired(spark, app, lake) if args.retention else []
        facts = _old_facts(spark, app, lake) if args.retention else 0
        summary = PruneSummary(
            lake=lake.root,
            days=tuple(gone),
            rows=sum(gone.values()),
            kept=tuple(kept),
            retired_files=len(retired),
            retired_rows=sum(file.rows for file in retired),
            retired_facts=facts,
        )
        noted.summary = {
            "days": len(gone),
            "rows": summary.rows,
            "retired_rows": summary.retired_rows,
            "retired_facts": facts,
        }
    return summary


def _why_not(
    spark: SparkSession, app: App, lake: Lake, batches: Sequence[Batch], heads: Sequence[LakeHead], day: date
) -> str | None:
    if not any(head.lake == lake.root for head in heads):
        return f"nothing is archived in {lake.root} yet"
    if not app.pipeline.retention.is_rolled_up(day):
        return "its events are not all in the rollups yet"
    for head in heads:
        account = {entry.day: entry for entry in app.pipeline.manifest.days(head.lake)}.get(day)
        kept = account.archived - account.pruned if account is not None else Digest()
        there, not_archived = app.pipeline.windows.day_digest(head.edge, day)
        if not_archived:
            return f"{not_archived:,} of its events are not archived in {head.lake}"
        if there != kept:
            return (
                f"the journal has {there.rows:,} events of it and {head.lake} should have {kept.rows:,}: tarry verify"
            )
    files = [file for batch in batches for file in batch.files if file.day == day]
    measured = measure_files(spark, lake, files)
    damaged = [file for file in files if measured.get(file.path) != file.digest]
    return f"{len(damaged)} of its files in {lake.root} are not as they were written: tarry verify" if damaged else None


def _dropped(app: App, heads: Sequence[LakeHead], day: date, *, is_partition: bool) -> int | None:
    """Number of dropped events. None: another transaction is writing to this day, or has locked the journal for too long."""
    rows = app.pipeline.windows.day_digest(heads[0].edge, day)[0].rows
    if not is_partition:
        return app.pipeline.retention.drop_overflow(day, [head.edge for head in heads])
    for attempt in range(_TRIES):
        if app.pipeline.retention.drop_day(day, rows):
            return rows
        if app.pipeline.windows.day_digest(heads[0].edge, day)[1]:
            return None
        if attempt + 1 < _TRIES:
            time.sleep(_PAUSE_S)
    return None


def _retired(spark: SparkSession, app: App, lake: Lake) -> list[LakeFile]:
    """Remove files past the retention of their queue, of days that the journal has already dropped."""
    first_days = app.pipeline.retention.first_days()
    pruned = {day.day for day in app.pipeline.manifest.days(lake.root) if day.pruned == day.archived}
    taken: Mapping[Batch, list[LakeFile]] = defaultdict(list)
    horizons: dict[int, date] = {}
    for batch in app.pipeline.manifest.batches(lake.root):
        for file in batch.files:
            before = first_days.get(file.queue_id)
            if before is not None and file.day < before and file.day in pruned:
                taken[batch].append(file)
                horizons[file.queue_id] = before
    if taken:
        app.pipeline.retention.retire(lake.root, taken, horizons)
        delta.publish(lake, app.pipeline.manifest.batches(lake.root))
    # Delete every file that the manifest no longer names, including those of runs that were killed before this line.
    lake.sweep_files(spark, app.pipeline.manifest.batches(lake.root))
    return [file for files in taken.values() for file in files]


def _old_facts(spark: SparkSession, app: App, lake: Lake) -> int:
    """Remove facts past the retention of their queue. Counts and percentiles stay."""
    if log_uri(lake) is None:
        return 0  # the lake cannot have tables, so it has no facts
    table, first_days = LakeTable(lake, "facts"), app.pipeline.retention.first_days()
    newest = max(first_days.values(), default=date.min)
    if not any(file.date is not None and file.date < newest for file in table.files()):
        return 0
    with app.pipeline.manifest.excluding(f"rounds {lake.root}"):
        expired = (f"(queue_id = {id} and date < date '{day}')" for id, day in sorted(first_days.items()))
        return table.erase(spark, " or ".join(expired), before=newest)
