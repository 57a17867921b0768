"""Verify job: re-derive the live tables from archive and journal and compare them as sets. Read-only.

Four independent checks. The files match the manifest. Events that are archived and not pruned are unchanged in the
journal. The events are a possible sequence, each once. They fold to exactly the live messages and dead letters that
exist.

Spark's tasks read the live tables in ranges of keys, each in a snapshot of its own, and a range is compared with the events
that are visible in it: no statement is long, and no table passes through the driver. The digests of a day before today are
computed once; later runs look whether its files exist with their size, unless all digests are computed again.
"""

# pyright: basic
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, date
from functools import partial
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
from tarry.edges.spark.lake.rounds import refuse_unknown
from tarry.edges.spark.schemas import struct
from tarry.edges.spark.session import own_session
from tarry.edges.spark.sizing import ON_DISK, FrameLayout, Keep, local_frame
from tarry.edges.spark.source.options import window_text
from tarry.edges.spark.source.reader import register
from tarry.edges.spark.transforms import state_from_events
from tarry.pipeline import pipeline_on

JOB = "verify"
MOST_SAMPLES = 5
_BEYOND = "beyond"
_EVENT = struct(
    "id long, xid long, kind string, queue_id int, key string, version long, attempt int, priority int, due_at timestamp, "
    "detail string"
)
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
    """Also compute the digests of days that an earlier run has verified."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyProblem:
    what: str
    """A sentence that begins with the number of cases."""
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
    """Queues without a journal, now or for some time: their state cannot be derived."""
    beyond_retention: int
    """Messages whose whole history is older than the lake's retention of their queue."""
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
        verified = set[date]() if args.full else _verified(app, lake, accounts)
        measured = measure_files(spark, lake, [file for file in files if file.day not in verified])
        measured |= _of_size(spark, lake, [file for file in files if file.day in verified])
        links = [BEGINNING, *(batch.end for batch in batches)]
        broken = [batch for batch, before in zip(batches, links, strict=False) if batch.start != before]
        problems = [
            *_problem("batches do not begin where the one before ends", [f"batch {batch.number}" for batch in broken]),
            *_files(spark, lake, files, measured),
            *_accounts(app, batches, accounts, verified),
        ]
        there = [file for file in files if file.path in measured]
        with FrameLayout(in_one_piece=False).keeping() as kept:
            facts = _Facts(spark, app, lake, edge, there, kept)
            problems += [*facts.doubled(), *facts.impossible(), *facts.live(), *facts.dead()]
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
        past = [day for day in accounts if day.day < noted.started_at.astimezone(UTC).date()]
        noted.summary = {
            "ok": summary.ok,
            "events": facts.count,
            "problems": [problem.what for problem in problems],
            "verified": {day.day.isoformat(): _state(day) for day in past} if summary.ok else {},
        }
    return summary


def _files(
    spark: SparkSession, lake: Lake, files: Sequence[LakeFile], measured: dict[str, Digest]
) -> list[VerifyProblem]:
    unread = [file.path for file in files if file.path not in measured]
    missing = [path for path in unread if not lake.has(spark, path)]
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


def _verified(app: App, lake: Lake, accounts: Sequence[ArchivedDay]) -> set[date]:
    """Days whose accounts are as they were when the last run found them right."""
    last = app.pipeline.manifest.last_run(JOB, lake.root)
    states = {} if last is None else last.summary.get("verified", {})
    return {day.day for day in accounts if states.get(day.day.isoformat()) == _state(day)}


def _state(day: ArchivedDay) -> str:
    return f"{day.archived} {day.pruned} {day.retired}"


def _of_size(spark: SparkSession, lake: Lake, files: Sequence[LakeFile]) -> dict[str, Digest]:
    """The digests that files should have, if they exist with their size."""
    sizes = lake.sizes(spark, [file.path for file in files])
    return {file.path: file.digest for file in files if sizes.get(file.path) == file.bytes}


def _accounts(
    app: App, batches: Sequence[Batch], accounts: Sequence[ArchivedDay], verified: Set[date]
) -> list[VerifyProblem]:
    """Per day: the manifest is consistent, and the journal has what was archived and not pruned."""
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
    """A problem with these cases, or with `count` cases, of which these are some; none if there are none."""
    if not cases:
        return []
    return [
        VerifyProblem(what=f"{what}: {len(cases) if count is None else count:,}", samples=tuple(cases[:MOST_SAMPLES]))
    ]


class _Facts:
    """Events and tables as frames, and the checks on them."""

    def __init__(
        self, spark: SparkSession, app: App, lake: Lake, edge: SnapshotBound, files: Sequence[LakeFile], kept: Keep
    ) -> None:
        self._horizons = app.pipeline.manifest.horizons(lake.root)
        self._live, live_ranges = _ranged(spark, app, "messages", _LIVE)
        self._dead, dead_ranges = _ranged(spark, app, "dead_letters", _DEAD)
        until = app.pipeline.windows.current_snapshot()  # every snapshot of a range is before it
        events = read_files(spark, lake, [file.path for file in files], lenient=True).select(*_EVENT.names)
        windows = (
            [Window(edge.closed, until)]
            if edge.is_complete
            else [Window(edge, edge.closed), Window(edge.closed, until)]
        )
        register(spark)
        for window in windows:
            options = {"dsn": app.pipeline.dsn, "columns": ",".join(_EVENT.names), "window": window_text(window)}
            events = events.unionByName(spark.read.format("tarry").options(**options).load())
        from_version = "bigint(get_json_object(detail, '$.from_version')) as from_version"
        journal = "get_json_object(detail, '$.journal') as journal"
        events = events.selectExpr("*", from_version, journal).drop("detail")
        refuse_unknown(app, events)
        of_key = F.expr(f"(low is null or key >= low) and (high is null or key < high) and {_VISIBLE}")
        seen = events.join(F.broadcast(live_ranges.selectExpr("*", "true as found")), of_key, "left")
        # Stored: both ends of the journal are read once, and several checks follow.
        self.events = kept(seen.selectExpr(*events.columns, "coalesce(found, false) as visible"))
        self.count = self.events.count()
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

    def _without_journal(self, app: App) -> list[int]:
        """Queues whose journal is off, or was off for some time."""
        edited = self.events.where("kind in ('queue_created', 'queue_edited') and journal = 'off'")
        once = {row[0] for row in edited.select("queue_id").distinct().collect()}
        return sorted(once | {queue.id for queue in app.pipeline.live_tables.queues() if queue.journal == "off"})

    def doubled(self) -> list[VerifyProblem]:
        return _rows(state_from_events.doubled(self.events), "events occur more than once", "id {id}, {times} times")

    def impossible(self) -> list[VerifyProblem]:
        return _rows(
            state_from_events.impossible(self._sequence, sorted(self._horizons)),
            "events cannot follow their predecessor: an event between them is missing or duplicated",
            "{kind} (id {id}, version {version}) after {before} (version {version_before}), queue {queue_id}, key {key}",
        )

    def live(self) -> list[VerifyProblem]:
        keys = ("queue_id", "key")
        stored = self._live.select(*state_from_events.STATE)
        differ = state_from_events.compared(state_from_events.folded(self._sequence), stored, keys).join(
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
        expected = state_from_events.folded_dead(self._letters).selectExpr("*", "true as there")
        differ = state_from_events.compared(expected, self._dead.selectExpr(*keys, "true as there"), keys)
        return self._judged(differ.join(self._dead, list(keys), "left"), "died_at", "dead letters")

    def _judged(self, differ: DataFrame, since: str, what: str) -> list[VerifyProblem]:
        """Count the differences in one pass, and collect a few samples of each kind only if there are any."""
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
    """The rows of a live table, and its ranges with the snapshots in which they were read."""
    ranges, dsn = app.pipeline.live_tables.ranges(table), app.pipeline.dsn
    queries = local_frame(spark, [(n, each.query) for n, each in enumerate(ranges)], "n int, query string")
    tasks = min(len(ranges), spark.sparkContext.defaultParallelism) if not is_remote() else len(ranges)
    rows = queries.repartition(tasks, "n").mapInArrow(partial(_fetched, dsn), f"n int, snapshot string, {columns}")
    # Not computed again if a task is lost, which would read other rows: then the job fails.
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
