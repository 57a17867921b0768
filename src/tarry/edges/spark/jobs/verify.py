"""Verify job: derive the live tables from archive and journal again and compare them as sets. It changes neither.

It makes four independent checks. The files match the manifest. Events that are archived and not pruned are unchanged in the
journal. The events form a possible sequence without duplicates. They fold to exactly the existing live messages and dead
letters.

Spark tasks read the live tables in key ranges, each in its own snapshot, and a range is compared with the events visible in
that snapshot: no statement is long, and no table passes through the driver.

Days before today are checkpoints: their digests are computed once, and their events are folded once into the table
`verified`, which later events build on. Later runs only check that the files exist with the right size, and fold today's
events, unless `full` is set.
"""

# pyright: basic
import os
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from functools import partial
from itertools import takewhile
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, LongType
from pyspark.sql.utils import is_remote

from tarry.app import App
from tarry.core.analytics.manifest import ArchivedDay, Batch, LakeFile, by_day
from tarry.core.journal.snapshots import BEGINNING, Digest, Slice, SnapshotBound, TableRange, Window
from tarry.edges.formats import plural
from tarry.edges.spark.lake.lake import Lake, measure_files, read_files
from tarry.edges.spark.lake.rounds import refuse_unknown, visible
from tarry.edges.spark.lake.tables import LakeTable, log_uri
from tarry.edges.spark.schemas import struct
from tarry.edges.spark.session import own_session
from tarry.edges.spark.sizing import ON_DISK, FrameLayout, Keep, local_frame
from tarry.edges.spark.source.options import window_text
from tarry.edges.spark.source.reader import register
from tarry.edges.spark.transforms import state_from_events
from tarry.pipeline import pipeline_on

JOB = "verify"
TABLE = "verified"
MOST_SAMPLES = 5
_BEYOND = "beyond"
_EVENT = ("id", "xid", "kind", "queue_id", "key", "version", "attempt", "priority", "due_at", "detail")
_LIVE = (
    "queue_id int, key string, version long, attempt int, priority int, due_at timestamp, created_at timestamp, "
    "max_attempts int"
)
_DEAD = "queue_id int, key string, version long, died_at timestamp"
_RANGES = struct(
    "low string, high string, low_version long, high_version long, xmin long, xmax long, running array",
    running=ArrayType(LongType()),
)
_VISIBLE = "(xid < xmin or xid < xmax and not array_contains(running, xid))"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyArgs:
    lake: str | None = None
    full: bool = False
    """Also read days that an earlier run has verified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyProblem:
    what: str
    """A description that ends with the number of cases."""
    samples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifySummary:
    ok: bool
    lake: str
    events: int
    live: int
    dead: int
    batches: int
    files: int
    skipped: tuple[str, ...]
    """Queues whose journal is or was off: their state cannot be derived."""
    beyond_retention: int
    """Messages whose entire history is past the lake's retention of their queue."""
    problems: tuple[VerifyProblem, ...]

    def line(self) -> str:
        apart = f"; without journal: {', '.join(self.skipped)}" if self.skipped else ""
        if self.beyond_retention:
            apart += f"; {plural(self.beyond_retention, 'message')} beyond what the lake keeps"
        if not self.ok:
            return f"verify: FAILED, {'; '.join(problem.what for problem in self.problems)}{apart}"
        return (
            f"verify: ok, {plural(self.events, 'event')} fold to {plural(self.live, 'live message')} and "
            f"{plural(self.dead, 'dead letter')}, as the tables have them; {plural(self.batches, 'batch', 'batches')}, "
            f"{plural(self.files, 'file')} checked{apart}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The position up to which `verified` has folded the events of a lake."""

    number: int
    """Commit number of the table."""
    position: int
    snapshot: str
    events: int


@own_session
def run(spark: SparkSession, app: App, args: VerifyArgs) -> VerifySummary:
    lake = Lake.at(args.lake)
    pipeline = app.pipeline
    with pipeline.manifest.run(JOB, exclusive=f"lake {lake.root}", lake=lake.root) as noted:
        batches = pipeline.manifest.batches(lake.root)
        edge = batches[-1].end if batches else BEGINNING
        if batches:
            pipeline.windows.check(edge, batches[-1].system_id)
        files = [file for batch in batches for file in batch.files]
        accounts = pipeline.manifest.days(lake.root)
        today = noted.started_at.astimezone(UTC).date()
        last = {} if args.full else _last_summary(app, lake)
        checkpoint = _checkpoint(lake, last)
        verified = {day.day for day in accounts if last.get("verified", {}).get(day.day.isoformat()) == _state(day)}
        measured = measure_files(spark, lake, [file for file in files if file.day not in verified])
        measured |= _of_size(spark, lake, [file for file in files if file.day in verified])
        links = [BEGINNING, *(batch.end for batch in batches)]
        broken = [batch for batch, before in zip(batches, links, strict=False) if batch.start != before]
        problems = [
            *_problem("batches do not begin where the one before ends", [f"batch {batch.number}" for batch in broken]),
            *_files(spark, lake, files, measured),
            *_accounts(app, batches, accounts, verified),
        ]
        with FrameLayout().keeping() as kept:
            after = 0 if checkpoint is None else checkpoint.position
            new = [file for batch in batches if batch.position > after for file in batch.files]
            facts = _Facts(spark, app, lake, checkpoint, [file for file in new if file.path in measured], edge, kept)
            problems += [*facts.doubled(), *facts.impossible(), *facts.live(), *facts.dead()]
            if not problems and (end := _settled(batches, today)) is not None and end.position > after:
                checkpoint = facts.fold_until(end, noted.id)
        summary = VerifySummary(
            ok=not problems,
            lake=lake.root,
            events=facts.count,
            live=facts.live_count,
            dead=facts.dead_count,
            batches=len(batches),
            files=len(files),
            skipped=facts.skipped,
            beyond_retention=facts.beyond_retention,
            problems=tuple(problems),
        )
        noted.summary = {"ok": summary.ok, "events": facts.count, "problems": [problem.what for problem in problems]}
        if summary.ok:
            past = {day.day.isoformat(): _state(day) for day in accounts if day.day < today}
            noted.summary |= {"verified": past, "checkpoint": None if checkpoint is None else asdict(checkpoint)}
    return summary


def _files(
    spark: SparkSession, lake: Lake, files: Sequence[LakeFile], measured: dict[str, Digest]
) -> list[VerifyProblem]:
    unread = [file.path for file in files if file.path not in measured]
    existing = lake.sizes(spark, unread)
    missing = [path for path in unread if path not in existing]
    changed = [
        f"{file.path}: {measured[file.path].rows} rows, {file.rows} were written"
        for file in files
        if file.path in measured and measured[file.path] != file.digest
    ]
    return [
        *_problem("files of the lake are gone", missing),
        *_problem("files of the lake are damaged and cannot be read", [path for path in unread if path not in missing]),
        *_problem("files of the lake are not as they were written", changed),
    ]


def _last_summary(app: App, lake: Lake) -> Mapping[str, Any]:
    last = app.pipeline.manifest.last_run(JOB, lake.root)
    return {} if last is None else last.summary


def _checkpoint(lake: Lake, last: Mapping[str, Any]) -> Checkpoint | None:
    """The last run's checkpoint, if that run found no problem and its table is unchanged."""
    checkpoint = Checkpoint(**last["checkpoint"]) if last.get("checkpoint") else None
    return checkpoint if checkpoint and LakeTable(lake, TABLE).committed() == checkpoint.number else None


def _settled(batches: Sequence[Batch], today: date) -> Batch | None:
    """The last batch before today's events that can be a checkpoint. Within a cut window, the events of one key can be out of
    order.
    """
    midnight = datetime.combine(today, datetime.min.time(), UTC)
    before = takewhile(lambda batch: batch.max_at is None or batch.max_at < midnight, batches)
    return next((batch for batch in reversed(list(before)) if batch.end.is_complete), None)


def _state(day: ArchivedDay) -> str:
    return f"{day.archived} {day.pruned} {day.retired}"


def _of_size(spark: SparkSession, lake: Lake, files: Sequence[LakeFile]) -> dict[str, Digest]:
    """The expected digests of the files that exist with the right size."""
    sizes = lake.sizes(spark, [file.path for file in files])
    return {file.path: file.digest for file in files if sizes.get(file.path) == file.bytes}


def _accounts(
    app: App, batches: Sequence[Batch], accounts: Sequence[ArchivedDay], verified: Set[date]
) -> list[VerifyProblem]:
    """Check per day that the manifest is consistent and the journal has the archived, unpruned events."""
    edge = batches[-1].end if batches else BEGINNING
    listed = by_day([file for batch in batches for file in batch.files])
    manifest: list[str] = []
    journal: list[str] = []
    for day in accounts:
        if listed.get(day.day, Digest()) != day.archived - day.retired:
            manifest.append(f"{day.day}")
        if day.day in verified:
            continue
        there, _ = app.pipeline.windows.day_digest(edge, day.day)
        kept = day.archived - day.pruned
        if there != kept:
            journal.append(f"{day.day}: {there.rows:,} rows, {kept.rows:,} were archived and not pruned")
    return [
        *_problem("days have other files in the manifest than were archived", manifest),
        *_problem("days of the journal are not as they were archived", journal),
    ]


def _problem(what: str, cases: Sequence[str], count: int | None = None) -> list[VerifyProblem]:
    """A problem with these cases, or with `count` cases if these are a sample; none without cases."""
    if not cases:
        return []
    return [
        VerifyProblem(what=f"{what}: {len(cases) if count is None else count:,}", samples=tuple(cases[:MOST_SAMPLES]))
    ]


class _Facts:
    """Events and tables as frames, and the checks on them."""

    def __init__(
        self,
        spark: SparkSession,
        app: App,
        lake: Lake,
        checkpoint: Checkpoint | None,
        files: Sequence[LakeFile],
        edge: SnapshotBound,
        kept: Keep,
    ) -> None:
        """The events to fold: from the checkpoint, from the files after it, and from the journal after `edge`."""
        self._lake, self._checkpoint = lake, checkpoint
        self._horizons = app.pipeline.manifest.horizons(lake.root)
        self._live, live_ranges = _ranged(spark, app, "messages", _LIVE)
        self._dead, dead_ranges = _ranged(spark, app, "dead_letters", _DEAD)
        until = app.pipeline.windows.current_snapshot()  # every snapshot of a range is before it
        events = read_files(spark, lake, [file.path for file in files], lenient=True).select(*_EVENT)
        if checkpoint is not None:  # a compacted batch may have earlier events
            events = events.where(f"not {visible(checkpoint.snapshot)}")
        register(spark)
        rest = [] if edge.is_complete else [Window(edge, edge.closed)]
        for window in (*rest, Window(edge.closed, until)):
            options = {"dsn": app.pipeline.dsn, "columns": ",".join(_EVENT), "window": window_text(window)}
            events = events.unionByName(spark.read.format("tarry").options(**options).load())
        from_version = "bigint(get_json_object(detail, '$.from_version')) as from_version"
        journal = "get_json_object(detail, '$.journal') as journal"
        events = events.selectExpr("*", from_version, journal, "false as carried").drop("detail")
        if checkpoint is not None and (carried := LakeTable(lake, TABLE).read(spark)) is not None:
            events = events.unionByName(carried)
        refuse_unknown(app, events)
        of_key = F.expr(f"(low is null or key >= low) and (high is null or key < high) and {_VISIBLE}")
        seen = events.join(F.broadcast(live_ranges.selectExpr("*", "true as found")), of_key, "left")
        # Stored: both ends of the journal are read once, and several checks follow.
        self.events = kept(seen.selectExpr(*events.columns, "coalesce(found, false) as visible"))
        self.count = self._count("true")
        self.live_count, self.dead_count = self._live.count(), self._dead.count()
        without_journal = self._without_journal(app)
        names = {queue.id: queue.name for queue in app.pipeline.live_tables.queues()}
        self.skipped = tuple(sorted(names[queue] for queue in without_journal if queue in names))
        self.beyond_retention = 0
        journaled = ~F.col("queue_id").isin(*without_journal)
        self._journaled = self.events.where(journaled)
        self._live, self._dead = self._live.where(journaled), self._dead.where(journaled)
        of_version = F.expr(
            "(low_version is null or letter >= low_version) and (high_version is null or letter < high_version) "
            f"and {_VISIBLE}"
        )
        letters = self._journaled.where("kind in ('buried', 'redriven', 'discarded')").selectExpr(
            "*", "if(kind = 'redriven', from_version, version) as letter"
        )
        self._letters = letters.join(F.broadcast(dead_ranges), of_version, "left_semi")
        self._sequence = kept(state_from_events.in_sequence(self._journaled))

    def _count(self, condition: str) -> int:
        """Number of events that match a condition, including those before the checkpoint."""
        before = 0 if self._checkpoint is None else self._checkpoint.events
        return before + self.events.where(f"not carried and {condition}").count()

    def fold_until(self, end: Batch, number: int) -> Checkpoint | None:
        """Store in `verified` what later events build on: the last events of live messages, the burials of dead letters, and
        the queues that had no journal. Keeps the old checkpoint if the lake cannot have the table.
        """
        if log_uri(self._lake) is None or (self._lake.path is not None and not os.access(self._lake.path, os.W_OK)):
            return self._checkpoint
        is_before = visible(end.end.snapshot)
        before = self.events.where(is_before)
        live = state_from_events.folded(state_from_events.in_sequence(before.withColumn("visible", F.lit(True))))
        dead = state_from_events.folded_dead(before)
        off = before.where("journal = 'off'")
        columns = [*(name for name in _EVENT if name != "detail"), "from_version", "journal", "true as carried"]
        rows = live.selectExpr(*columns).unionAll(dead.selectExpr(*columns)).unionAll(off.selectExpr(*columns))
        table = LakeTable(self._lake, TABLE)
        table.commit(rows.coalesce(4), table.files(), number)
        return Checkpoint(
            number=number, position=end.position, snapshot=end.end.snapshot, events=self._count(is_before)
        )

    def _without_journal(self, app: App) -> list[int]:
        """Queues whose journal is or was off."""
        edited = self.events.where("kind in ('queue_created', 'queue_edited') and journal = 'off'")
        once = {row[0] for row in edited.select("queue_id").distinct().collect()}
        return sorted(once | {queue.id for queue in app.pipeline.live_tables.queues() if queue.journal == "off"})

    def doubled(self) -> list[VerifyProblem]:
        return _rows(state_from_events.doubled(self.events), "events occur more than once", "id {id}, {times} times")

    def impossible(self) -> list[VerifyProblem]:
        new = self._sequence.where("not carried")
        return _rows(
            state_from_events.impossible(new, sorted(self._horizons)),
            "events cannot follow their predecessor: an event between them is missing or duplicated",
            "{kind} (id {id}, version {version}) after {before} (version {version_before}), queue {queue_id}, key {key}",
        )

    def live(self) -> list[VerifyProblem]:
        keys = ("queue_id", "key")
        stored = self._live.select(*state_from_events.STATE)
        expected = state_from_events.folded(self._sequence).select(*state_from_events.STATE)
        differ = state_from_events.compared(expected, stored, keys).join(
            self._live.select(*keys, "created_at", "max_attempts").dropDuplicates(list(keys)), list(keys), "left"
        )
        # A poll counts an attempt beyond the last one without an event; the message is buried immediately afterwards.
        same = (
            "least(expected.attempt, coalesce(max_attempts, 2147483647)) = "
            "least(found.attempt, coalesce(max_attempts, 2147483647)) and coalesce(times, 1) = 1 "
            "and expected.version <=> found.version and expected.priority <=> found.priority "
            "and expected.due_at <=> found.due_at"
        )
        return self._judged(differ.where(f"not coalesce({same}, false)"), "created_at", "messages")

    def dead(self) -> list[VerifyProblem]:
        keys = ("queue_id", "key", "version")
        expected = state_from_events.folded_dead(self._letters).selectExpr(*keys, "true as there")
        differ = state_from_events.compared(expected, self._dead.selectExpr(*keys, "true as there"), keys)
        return self._judged(differ.join(self._dead, list(keys), "left"), "died_at", "dead letters")

    def _judged(self, differ: DataFrame, since: str, what: str) -> list[VerifyProblem]:
        """Count the differences in one pass, and collect samples only of the kinds that occur."""
        old = " or ".join(
            f"queue_id = {id} and {since} < timestamp '{day}T00:00:00Z'" for id, day in self._horizons.items()
        )
        verdict = (
            f"case when found is null then '{what} are missing' "
            f"when expected is not null then '{what} differ from their events' "
            f"when coalesce({old or 'false'}, false) then '{_BEYOND}' else '{what} exist without an event' end as verdict"
        )
        judged = differ.selectExpr(verdict, "struct(queue_id, key, expected, found, times) as sample")
        problems: list[VerifyProblem] = []
        text = "queue {queue_id}, key {key}: expected {expected}, found {found}"
        for row in judged.groupBy("verdict").agg(F.expr("count(*) as n")).orderBy("verdict").collect():
            if row.verdict == _BEYOND:
                self.beyond_retention += row.n
            else:
                some = judged.where(f"verdict = '{row.verdict}'").select("sample.*").limit(MOST_SAMPLES).collect()
                problems += _problem(row.verdict, [_shown(text, sample) for sample in some], row.n)
        return problems


def _ranged(spark: SparkSession, app: App, table: str, columns: str) -> tuple[DataFrame, DataFrame]:
    """The rows of a live table, and its ranges with their snapshots."""
    ranges, dsn = app.pipeline.live_tables.ranges(table), app.pipeline.dsn
    queries = local_frame(spark, [(n, each.query) for n, each in enumerate(ranges)], "n int, query string")
    tasks = min(len(ranges), spark.sparkContext.defaultParallelism) if not is_remote() else len(ranges)
    rows = queries.repartition(tasks, "n").mapInArrow(partial(_fetched, dsn), f"n int, snapshot string, {columns}")
    # A lost task would read other rows when repeated, so the job fails instead.
    rows = rows.localCheckpoint(storageLevel=ON_DISK)
    snapshots = dict(rows.select("n", "snapshot").distinct().collect())
    read = [_bounds(each, snapshots[n]) for n, each in enumerate(ranges)]
    return rows.where("key is not null").drop("n", "snapshot"), local_frame(spark, read, _RANGES)


def _fetched(dsn: str, queries: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    windows = pipeline_on(dsn).windows
    for some in queries:
        for row in some.to_pylist():
            for batch in windows.batches(Slice(row["query"])):
                numbers = pa.array([row["n"]] * batch.num_rows, pa.int32())
                yield pa.RecordBatch.from_arrays([numbers, *batch.columns], ["n", *batch.schema.names])


def _bounds(part: TableRange, snapshot: str) -> tuple[Any, ...]:
    xmin, xmax, running = snapshot.split(":")
    keys = (part.low, part.high) if isinstance(part.low or part.high, str) else (None, None)
    versions = (part.low, part.high) if isinstance(part.low or part.high, int) else (None, None)
    return (*keys, *versions, int(xmin), int(xmax), [int(xid) for xid in running.split(",") if xid])


def _rows(frame: DataFrame, what: str, text: str) -> list[VerifyProblem]:
    """A problem whose cases are the rows of a frame."""
    some = frame.limit(MOST_SAMPLES).collect()
    count = len(some) if len(some) < MOST_SAMPLES else frame.count()
    return _problem(what, [_shown(text, row) for row in some], count)


def _shown(text: str, row: Any) -> str:
    def plain(value: Any) -> str:
        if hasattr(value, "asDict"):
            return ", ".join(f"{name} {field}" for name, field in value.asDict().items())
        return "nothing" if value is None else str(value)

    return text.format(**{name: plain(value) for name, value in row.asDict().items()})
