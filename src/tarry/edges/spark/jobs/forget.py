"""Forget job: erase the history of one key from the journal, from every lake and from all their tables.

The key must be neither live nor dead. Everything is archived and counted first, so metrics and rollups, which contain no
keys, stay exact. Then, in this order: its events leave the journal and count as pruned; batches with its events are rewritten
without them, as compactions; tables with its rows are rewritten; files of earlier versions are deleted. Each step is atomic
and idempotent: after a crash the same command completes the rest.
"""

# pyright: basic
import hashlib
from collections import Counter
from dataclasses import asdict, dataclass
from datetime import timedelta

from pyspark.sql import SparkSession

from tarry.app import App
from tarry.core import limits
from tarry.core.analytics.manifest import by_day, readable_files
from tarry.core.errors import InvalidState
from tarry.core.journal.snapshots import Digest
from tarry.edges.formats import plural
from tarry.edges.spark.jobs import anomalies, archive
from tarry.edges.spark.jobs.archive import ArchiveArgs, check_equal, clear
from tarry.edges.spark.lake import delta, rounds
from tarry.edges.spark.lake.lake import Lake, measure_batch, measure_rows, own_lake, read_files, write_batch
from tarry.edges.spark.lake.tables import LakeTable
from tarry.edges.spark.session import own_session

JOB = "forget"
TABLES = ("facts", "trace", "open", "anomalies", "verified")
"""The derived tables that contain keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetArgs:
    queue: str
    key: str

    def __post_init__(self) -> None:
        limits.check_queue_name(self.queue)
        limits.check_key(self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetSummary:
    queue: str
    key_hash: str
    """The first 16 digits of its SHA-256: the record of an erasure must not contain the key."""
    journal: int
    """Erased journal events."""
    published: int
    """Erased anomalies in PostgreSQL."""
    lakes: tuple[str, ...]
    archived: int
    """Erased events in lakes."""
    rows: dict[str, int]
    """Erased rows of derived tables, by table."""

    def line(self) -> str:
        tables = "".join(f", {n:,} of {name}" for name, n in self.rows.items())
        where = ", ".join(self.lakes) if self.lakes else "no lake"
        return (
            f"forget: {plural(self.journal, 'event')} left the journal and "
            f"{plural(self.published, 'anomaly', 'anomalies')} PostgreSQL; from {where}: "
            f"{plural(self.archived, 'event')}{tables}; no file of an earlier version is left"
        )


@own_session
def run(spark: SparkSession, app: App, args: ForgetArgs) -> ForgetSummary:
    queue_id = app.pipeline.analytics.queue_id(args.queue)
    lakes = [own_lake(spark, app, head.lake) for head in app.pipeline.retention.lakes()]
    while not app.store.run(app.store.rollups.roll_up()).complete:
        pass
    for lake in lakes:
        archive.run(spark, app, ArchiveArgs(lake=lake.root))
        rounds.advance(spark, app, lake)
    locks = [lock for lake in lakes for lock in (f"lake {lake.root}", f"rounds {lake.root}")]
    manifest = app.pipeline.manifest
    with manifest.run(JOB) as noted, manifest.excluding(*locks, anomalies.JOB):
        if any(app.pipeline.rounds.planned(lake.root) for lake in lakes):
            raise InvalidState("another process has started a round and not completed it", hint="run it again")
        erased = app.pipeline.retention.forget(queue_id, args.key)
        if erased.live or erased.dead:
            verb = "drop" if erased.live else "dlq discard"
            state = "live" if erased.live else "a dead letter"
            raise InvalidState(
                f"the message is {state}, and its history is needed as long as it exists",
                hint=f"first: tarry {verb} {args.queue} KEY",
            )
        if erased.left_over:
            raise InvalidState(f"{erased.left_over:,} new events of the key are not archived yet", hint="run it again")
        rows: Counter[str] = Counter(dict.fromkeys(TABLES, 0))
        archived = 0
        for lake in lakes:
            archived += _archive(spark, app, lake, queue_id, args.key, noted.id)
            for name in TABLES:
                rows[name] += LakeTable(lake, name).erase(spark, _about(queue_id, args.key))
        summary = ForgetSummary(
            queue=args.queue,
            key_hash=hash_of(args.key),
            journal=erased.events,
            published=erased.anomalies,
            lakes=tuple(lake.root for lake in lakes),
            archived=archived,
            rows=dict(rows),
        )
        noted.summary = asdict(summary)
    return summary


def hash_of(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def _about(queue_id: int, key: str) -> str:
    return f"queue_id = {queue_id} and key = decode(unhex('{key.encode().hex()}'), 'UTF-8')"


def _archive(spark: SparkSession, app: App, lake: Lake, queue_id: int, key: str, run: int) -> int:
    """Rewrite the batches with events of the key; returns the number of erased events."""
    manifest, retention = app.pipeline.manifest, app.pipeline.retention
    manifest.abandon_compactions(lake.root)
    batches, about = manifest.batches(lake.root), _about(queue_id, key)
    names = app.pipeline.analytics.queue_names()[queue_id]
    parts = {part.path: part for part in measure_rows(spark, lake, list(readable_files(batches, queue=names)), about)}
    for batch in batches:
        erased = by_day([parts[file.path] for file in batch.files if file.path in parts])
        if not erased:
            continue
        planned = retention.plan_compaction([batch], run)
        rows = read_files(spark, lake, [file.path for file in batch.files]).where(f"({about}) is not true")
        write_batch(rows, lake, planned, is_sorted=True)
        measured = measure_batch(spark, lake, planned)
        expected = {day: digest - erased.get(day, Digest()) for day, digest in by_day(batch.files).items()}
        check_equal(planned, by_day(measured.files), {day: digest for day, digest in expected.items() if digest.rows})
        retention.replace(planned, [batch], measured.files, erased)
    delta.publish(lake, manifest.batches(lake.root))
    clear(spark, app, lake, timedelta(0))
    lake.sweep(spark, {batch.directory for batch in manifest.batches(lake.root)})
    return sum(part.rows for part in parts.values())
