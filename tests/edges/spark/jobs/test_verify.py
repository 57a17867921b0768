"""Verify finds every row that was removed, doubled or changed by hand, wherever it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, LiteralString

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tarry
from tarry.app import App
from tarry.core.errors import InvalidState
from tarry.core.journal.events import JournalLevel
from tarry.edges.spark.jobs import archive, facts, verify
from tarry.edges.spark.jobs.archive import ArchiveArgs
from tarry.edges.spark.jobs.facts import FactsArgs
from tarry.edges.spark.jobs.verify import VerifyArgs, VerifySummary
from tests.kit.servers import Server
from tests.kit.spark import busy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Scene:
    """A database and its lake: half of the life archived, half still in the journal."""

    def __init__(self, spark: SparkSession, app: App, lake: Path) -> None:
        self._spark = spark
        self.app = app
        self.lake = lake
        busy(app)
        archive.run(spark, app, ArchiveArgs(lake=str(lake), batch_rows=130))
        queue = app.queue("orders")
        queue.offer_many([tarry.Message(payload=i, key=f"t{i}", priority=9) for i in range(10)])
        for delivery in queue.try_poll_many(6):
            delivery.ack()
        queue.offer("t9", "new")

    def verified(self) -> VerifySummary:
        return verify.run(self._spark, self.app, VerifyArgs(lake=str(self.lake)))

    def execute(self, *statements: LiteralString) -> None:
        assert self.app.dsn is not None
        with psycopg.connect(self.app.dsn) as conn:
            for statement in statements:
                assert conn.execute(statement).rowcount != 0, statement


def test_messages_that_schedules_make_and_withdraw_are_verified_like_any_other(
    spark: SparkSession, pipeline_app: App, tmp_path: Path
) -> None:
    hour, cron = timedelta(hours=1), pipeline_app.cron()
    for n in range(3):
        cron.install_periodic(f"p{n}", hour, queue="ticks", payload=n, in_advance_for=5 * hour)
    cron.schedules.trigger("p0")
    (delivery,) = pipeline_app.queue("ticks").try_poll_many(9)
    delivery.nack("again", after=timedelta(0))
    cron.install_periodic("p0", 2 * hour, queue="ticks", payload="changed")
    cron.install_periodic("p1", hour, queue="others", payload=1)
    cron.schedules.pause("p2")
    lake = str(tmp_path / "lake")
    archive.run(spark, pipeline_app, ArchiveArgs(lake=lake))
    cron.schedules.resume("p2")
    cron.schedules.delete("p1")
    verified = verify.run(spark, pipeline_app, VerifyArgs(lake=lake))
    assert verified.problems == ()
    assert verified.live == 1 + 1 + 5  # the triggered one that is tried again, and what p0 and p2 have planned


@pytest.fixture(scope="module")
def template(spark: SparkSession, server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    dsn = server.new_database()
    with tarry.connect(dsn, consumer="tester") as app:
        yield Scene(spark, app, tmp_path_factory.mktemp("verify") / "lake")
    server.drop_database(dsn)


@pytest.fixture
def scene(template: Scene) -> Iterator[Scene]:
    """The common scene; what a test does to it is undone."""
    kept = {path: path.read_bytes() for path in template.lake.rglob("*.parquet")}
    tables = ("message", "dead_letter", "event", "archive_day")
    assert template.app.dsn is not None
    with psycopg.connect(template.app.dsn) as conn:
        for table in tables:
            conn.execute(f"create table kept_{table} as table tarry.{table}".encode())
    yield template
    for path, content in kept.items():
        path.write_bytes(content)
    with psycopg.connect(template.app.dsn) as conn:
        for table in tables:
            conn.execute(f"delete from tarry.{table}".encode())
            conn.execute(f"insert into tarry.{table} table kept_{table}".encode())
            conn.execute(f"drop table kept_{table}".encode())
        conn.execute("create unique index if not exists message_key on tarry.message (key, queue)")


def problems(summary: VerifySummary) -> dict[str, list[str]]:
    assert not summary.ok
    assert summary.line().startswith("verify: FAILED")
    return {problem.what: list(problem.samples) for problem in summary.problems}


class ANY(str):
    """Equal to every text that contains it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and str(self) in str(other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]


def test_everything_that_happened_adds_up_to_what_is_there(scene: Scene) -> None:
    summary = scene.verified()
    assert summary.problems == ()
    assert summary.ok
    assert summary.live > 40
    assert summary.dead == 4
    assert summary.line().startswith("verify: ok")


def test_rows_removed_doubled_changed_or_made_up_in_the_live_tables_are_noticed(scene: Scene) -> None:
    scene.execute(
        "drop index tarry.message_key",
        "delete from tarry.message where key = 't7'",
        "insert into tarry.message select * from tarry.message where key = 't8'",
        "update tarry.message set priority = 1 where key = 't9'",
        "insert into tarry.message (queue, key, payload, due_at, planned_at, created_at, priority, conflict) "
        "select queue, 'made up', payload, due_at, planned_at, created_at, priority, conflict from tarry.message limit 1",
        "delete from tarry.dead_letter where version = (select min(version) from tarry.dead_letter)",
        "update tarry.dead_letter set key = 'other' where version = (select max(version) from tarry.dead_letter)",
    )
    differences = problems(scene.verified())
    assert differences["messages are missing: 1"] == [ANY("key t7")]
    assert sorted(differences["messages differ from their events: 2"]) == [ANY("key t8"), ANY("key t9")]
    assert differences["messages exist without an event: 1"] == [ANY("key made up")]
    assert len(differences["dead letters are missing: 2"]) == 2
    assert differences["dead letters exist without an event: 1"] == [ANY("key other")]
    assert len(differences) == 5


def test_of_many_that_differ_all_are_counted_and_a_few_looked_up(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def gathered(*columns: object) -> None:
        pytest.fail("all that differ would come together in the memory of one task")

    monkeypatch.setattr(verify.F, "collect_list", gathered)
    scene.execute("delete from tarry.message where version in (select version from tarry.message limit 20)")
    differences = problems(scene.verified())
    assert len(differences["messages are missing: 20"]) == verify.MOST_SAMPLES


def test_one_archived_event_removed_from_the_journal_is_noticed(scene: Scene) -> None:
    scene.execute("delete from tarry.event where id = 20")
    assert list(problems(scene.verified())) == ["days of the journal are not as they were archived: 1"]


@pytest.mark.parametrize(
    "statement",
    [
        "insert into tarry.event select * from tarry.event where id = 20",
        "update tarry.event set consumer = 'x' where id = (select min(id) from tarry.event where kind = 'leased')",
    ],
    ids=["doubled", "changed"],
)
def test_one_archived_event_doubled_or_changed_is_noticed(scene: Scene, statement: LiteralString) -> None:
    """Without Spark: the account of the day is enough."""
    windows, manifest = scene.app.pipeline.windows, scene.app.pipeline.manifest
    head = manifest.head(str(scene.lake))
    (day,) = manifest.days(str(scene.lake))
    assert head is not None
    assert windows.day_digest(head.end, day.day)[0] == day.archived
    scene.execute(statement)
    assert windows.day_digest(head.end, day.day)[0] != day.archived


def test_events_removed_or_doubled_before_they_are_archived_are_noticed(scene: Scene) -> None:
    scene.execute(
        "delete from tarry.event where kind = 'leased' and key = 't0'",
        "delete from tarry.event where kind = 'acked' and key = 't1'",
        "delete from tarry.event where kind = 'updated' and key = 't9'",
        "insert into tarry.event select * from tarry.event where kind = 'acked' and key = 't2'",
    )
    differences = problems(scene.verified())
    assert differences["events occur more than once: 1"]
    assert sorted(
        differences["events cannot follow their predecessor: an event between them is missing or duplicated: 2"]
    ) == [
        ANY("key t0"),
        ANY("key t2"),
    ]
    assert differences["messages are missing: 1"] == [ANY("key t1")]
    assert differences["messages differ from their events: 1"] == [ANY("key t9")]


def rewritten(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    for crc in path.parent.glob(".*.crc"):
        crc.unlink()
    pq.write_table(change(pq.ParquetFile(path).read()), path)


def test_rows_doubled_or_changed_and_files_damaged_or_gone_are_noticed(scene: Scene) -> None:
    damaged, doubled, changed, gone = sorted(scene.lake.rglob("*.parquet"))
    rewritten(damaged, lambda table: table)
    damaged.write_bytes(damaged.read_bytes()[:-20])
    rewritten(doubled, lambda table: pa.concat_tables([table, table.slice(0, 1)]))
    rewritten(changed, lambda table: table.set_column(0, "id", pa.array(range(10**6, 10**6 + len(table)))))
    gone.unlink()
    differences = problems(scene.verified())
    assert len(differences["files of the lake are not as they were written: 2"]) == 2
    assert differences["files of the lake are damaged and cannot be read: 1"] == [ANY(damaged.name)]
    assert differences["files of the lake are gone: 1"] == [ANY(gone.name)]
    assert differences["events occur more than once: 1"]


def test_queues_without_journal_are_skipped_and_named_and_a_message_beyond_its_last_attempt_is_no_difference(
    spark: SparkSession, pipeline_app: App, lake: str
) -> None:
    """A poll counts the attempt and buries the message in two steps; verify may look in between."""
    pipeline_app.queues.create("quiet", tarry.QueueSettings(journal=JournalLevel.OFF))
    pipeline_app.queues.create("once", tarry.QueueSettings(journal=JournalLevel.OFF))
    pipeline_app.queue("quiet").offer("a", 1)
    pipeline_app.queue("once").offer("a", 1)
    pipeline_app.queues.edit("once", journal=JournalLevel.EVENTS)
    loud = pipeline_app.queue("loud")
    loud.offer("a", 1, max_attempts=1)
    assert loud.try_poll() is not None
    assert pipeline_app.dsn is not None
    with psycopg.connect(pipeline_app.dsn) as conn:
        beyond = "update tarry.message set attempt = attempt + 1 where max_attempts = 1"
        assert conn.execute(beyond).rowcount == 1
    summary = verify.run(spark, pipeline_app, VerifyArgs(lake=lake))
    assert summary.ok
    assert summary.skipped == ("once", "quiet")
    assert "without journal: once, quiet" in summary.line()


def test_a_manifest_with_a_hole_is_noticed(spark: SparkSession, pipeline_app: App, lake: str) -> None:
    for i in range(3):
        pipeline_app.queue("q").offer(f"k{i}", 1)
        archive.run(spark, pipeline_app, ArchiveArgs(lake=lake))
    assert pipeline_app.dsn is not None
    with psycopg.connect(pipeline_app.dsn) as conn:
        conn.execute("delete from tarry.archive_batch where batch = 2")
    assert list(problems(verify.run(spark, pipeline_app, VerifyArgs(lake=lake)))) == [
        "batches do not begin where the one before ends: 1",
        "days have other files in the manifest than were archived: 1",
        "messages exist without an event: 1",
    ]


def test_events_of_a_newer_version_are_archived_and_not_interpreted(
    spark: SparkSession, pipeline_app: App, lake: str
) -> None:
    pipeline_app.queue("q").offer("a", 1)
    assert pipeline_app.dsn is not None
    with psycopg.connect(pipeline_app.dsn, autocommit=True) as conn:
        conn.execute("alter type tarry.event_kind add value 'teleported'")
        conn.execute(
            "insert into tarry.event (at, kind, queue, key, version) "
            "select at, 'teleported', queue, key, version from tarry.event where key = 'a'"
        )
    assert archive.run(spark, pipeline_app, ArchiveArgs(lake=lake)).rows == 3
    for job in (
        lambda: verify.run(spark, pipeline_app, VerifyArgs(lake=lake)),
        lambda: facts.run(spark, pipeline_app, FactsArgs(lake=lake)),
    ):
        with pytest.raises(InvalidState, match="a kind that this version of Tarry does not know: teleported"):
            job()


def test_verify_waits_for_no_archive(spark: SparkSession, pipeline_app: App, lake: str) -> None:
    with (
        pipeline_app.pipeline.manifest.run("archive", exclusive=f"lake {lake}"),
        pytest.raises(InvalidState, match="under way"),
    ):
        verify.run(spark, pipeline_app, VerifyArgs(lake=lake))


def test_ranges_of_keys_are_compared_with_the_events_of_their_own_snapshots(
    spark: SparkSession, pipeline_app: App, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages come, change and go while verify reads range after range."""
    from tarry.storage.postgres.analytics.windows import live_tables

    monkeypatch.setattr(live_tables, "RANGE_ROWS", 4)
    queue = pipeline_app.queue("q")
    pipeline_app.queues.create("q", tarry.QueueSettings(max_attempts=1))
    queue.offer_many([tarry.Message(payload=i, key=f"k{i:02}") for i in range(40)])
    for delivery in queue.try_poll_many(20):
        delivery.nack("dead")
    archive.run(spark, pipeline_app, ArchiveArgs(lake=lake))
    tables = pipeline_app.pipeline.live_tables
    ranges, letters = tables.ranges("messages"), tables.ranges("dead_letters")
    assert len(ranges) > 3
    assert len(letters) > 3
    assert (ranges[0].low, ranges[-1].high) == (None, None)
    assert all(before.high == after.low for before, after in pairwise(ranges))
    ranged, turns = verify._ranged, list[str]()

    def meanwhile(spark: SparkSession, app: App, table: str, columns: str) -> Any:
        frames = ranged(spark, app, table, columns)
        queue.offer(f"k00-{table}", 1)
        for delivery in queue.try_poll_many(3):
            delivery.ack() if delivery.key == "k20" else delivery.nack("dead too")
        queue.dead_letters.redrive(limit=1)
        turns.append(table)
        return frames

    monkeypatch.setattr(verify, "_ranged", meanwhile)
    summary = verify.run(spark, pipeline_app, VerifyArgs(lake=lake))
    assert summary.problems == ()
    assert (summary.live, summary.dead) == (20, 20 + 2 - 1)
    assert turns == ["messages", "dead_letters"]


def test_days_that_were_verified_are_read_again_only_in_full_and_their_files_must_exist(
    spark: SparkSession, pipeline_app: App, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline_app.queues.create("q", tarry.QueueSettings(max_attempts=1))
    pipeline_app.queues.create("once", tarry.QueueSettings(journal=JournalLevel.OFF))
    pipeline_app.queue("once").offer("unknown", 1)
    pipeline_app.queues.edit("once", journal=JournalLevel.EVENTS)
    queue = pipeline_app.queue("q")
    queue.offer_many([tarry.Message(payload=n, key=f"k{n}", priority=9 - n) for n in range(6)])
    for delivery in queue.try_poll_many(4):
        delivery.ack() if delivery.key == "k0" else delivery.nack("dead")
    queue.offer("k1", "again")
    assert pipeline_app.dsn is not None
    with psycopg.connect(pipeline_app.dsn) as conn:
        conn.execute("update tarry.event set at = at - interval '1 day'")
    archive.run(spark, pipeline_app, ArchiveArgs(lake=lake))
    yesterday = {file.path for batch in pipeline_app.pipeline.manifest.batches(lake) for file in batch.files}
    read: dict[str, set[str]] = {}

    def watch(name: str, path: Callable[[Any], str]) -> None:
        of = getattr(verify, name)

        def watched(spark: SparkSession, lake: Any, some: Any, **more: Any) -> Any:
            read[name] = {*map(path, some)}
            return of(spark, lake, some, **more)

        monkeypatch.setattr(verify, name, watched)

    watch("measure_files", lambda file: file.path)
    watch("read_files", str)

    def verified(*, full: bool = False) -> tuple[VerifySummary, list[set[str]]]:
        return verify.run(spark, pipeline_app, VerifyArgs(lake=lake, full=full)), list(read.values())

    first, files = verified()
    assert (first.problems, first.skipped, files) == ((), ("once",), [yesterday, yesterday])
    queue.offer("k0", "again")
    queue.dead_letters.redrive(limit=1)
    for delivery in queue.try_poll_many(2):
        delivery.ack()
    archive.run(spark, pipeline_app, ArchiveArgs(lake=lake))
    queue.offer("k4", "changed")
    today = {file.path for batch in pipeline_app.pipeline.manifest.batches(lake) for file in batch.files} - yesterday
    then, files = verified()
    assert (then.problems, then.skipped, files) == ((), ("once",), [today, today])
    again, files = verified(full=True)
    assert (again, files) == (then, [yesterday | today] * 2)
    with psycopg.connect(pipeline_app.dsn) as conn:
        conn.execute("delete from tarry.message where key = 'k5'")
        conn.execute("delete from tarry.dead_letter where version = (select max(version) from tarry.dead_letter)")
    gone = Path(lake, min(yesterday))
    gone.unlink()
    assert [*problems(verified()[0])] == [
        "files of the lake are gone: 1",
        "messages are missing: 1",
        "dead letters are missing: 1",
    ]
    assert read["read_files"] == today
