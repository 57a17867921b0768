"""Pruning drops nothing that is not archived; compaction changes no row; retention takes what is too old, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow.parquet as pq
import pytest

import tarry
from tarry.app import App
from tarry.core.analytics.manifest import BatchState
from tarry.core.errors import InvalidState
from tarry.core.rollups.model import WIDTHS, RollupWindow
from tarry.edges.spark.jobs import archive, compact, facts, prune, verify
from tarry.edges.spark.jobs.archive import ArchiveArgs
from tarry.edges.spark.jobs.compact import CompactArgs
from tarry.edges.spark.jobs.prune import PruneArgs
from tarry.edges.spark.jobs.verify import VerifyArgs
from tarry.edges.spark.lake.lake import Lake, read_events
from tarry.storage.postgres.analytics.retention.store import PostgresRetention
from tarry.testing import MutableClock
from tests.kit.spark import rows_of, write_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Scene:
    def __init__(self, spark: SparkSession, app: App, clock: MutableClock, lake: str) -> None:
        self.spark, self.app, self.clock, self.lake = spark, app, clock, lake
        # Of each test, not of the module: the suite may run past midnight.
        self.today = datetime.now(UTC).date()
        self.yesterday, self.before_yesterday = self.today - timedelta(days=1), self.today - timedelta(days=2)
        self.long_ago = self.today - timedelta(days=40)
        self.clock.set(datetime.combine(self.long_ago, time(6), UTC))

    def live_through(self, day: date, *, partition: bool = True, n: int = 10) -> None:
        """A day on which messages are offered and half of them finished; what earlier days left stays as it is."""
        if partition:
            self.execute("select tarry.journal_partition(%s)", day)
        self.clock.set(datetime.combine(day, time(12), UTC))
        queue, priority = self.app.queue("q"), max(0, 3 - (self.today - day).days)
        queue.offer_many([tarry.Message(payload=i, key=f"{day}-{i}", priority=priority) for i in range(n)])
        for delivery in queue.try_poll_many(n // 2):
            delivery.ack()

    def execute(self, statement: Any, *params: Any) -> None:
        assert self.app.dsn is not None
        with psycopg.connect(self.app.dsn) as conn:
            conn.execute(statement, params)

    def events(self) -> dict[date, int]:
        """What the journal has, by day."""
        assert self.app.dsn is not None
        with psycopg.connect(self.app.dsn) as conn:
            return dict(
                conn.execute("select (at at time zone 'UTC')::date, count(*) from tarry.event group by 1").fetchall()
            )

    def archived(self, **args: Any) -> archive.ArchiveSummary:
        return archive.run(self.spark, self.app, ArchiveArgs(lake=self.lake, **args))

    def pruned(self, **args: Any) -> prune.PruneSummary:
        return prune.run(self.spark, self.app, PruneArgs(lake=self.lake, **args))

    def compacted(self, **args: Any) -> compact.CompactSummary:
        return compact.run(self.spark, self.app, CompactArgs(lake=self.lake, **args))

    def problems(self) -> Any:
        return verify.run(self.spark, self.app, VerifyArgs(lake=self.lake)).problems

    def lake_rows(self) -> list[Any]:
        return sorted(rows_of(read_events(self.spark, self.app, self.lake)))

    @property
    def batches(self) -> list[Any]:
        return self.app.pipeline.manifest.batches(self.lake)


@pytest.fixture
def scene(spark: SparkSession, database: str, lake: str) -> Iterator[Scene]:
    clock = MutableClock(datetime.now(UTC))
    with tarry.connect(database, consumer="tester", clock=clock) as app:
        yield Scene(spark, app, clock, lake)


def test_only_whole_days_that_are_archived_leave_the_journal(scene: Scene) -> None:
    scene.live_through(scene.long_ago, partition=False)
    scene.live_through(scene.before_yesterday)
    scene.archived()
    scene.live_through(scene.yesterday)
    scene.live_through(scene.today)
    before = scene.events()
    summary = scene.pruned()
    assert summary.days == (scene.long_ago, scene.before_yesterday)
    assert summary.rows == before[scene.long_ago] + before[scene.before_yesterday]
    assert [kept.day for kept in summary.kept] == [scene.yesterday]
    assert "20 of its events are not archived" in summary.kept[0].why
    assert scene.events() == {scene.yesterday: 20, scene.today: 20}
    assert [batch.state for batch in scene.batches] == [BatchState.PRUNED]
    assert scene.problems() == ()
    scene.archived()
    assert scene.pruned().days == (scene.yesterday,)
    assert scene.events() == {scene.today: 20}, "today stays, archived or not"
    assert scene.problems() == ()
    midnight = datetime.combine(scene.before_yesterday, time(), UTC)
    window = RollupWindow(max(WIDTHS), midnight, midnight + timedelta(days=2))
    slices = scene.app.store.run(scene.app.store.rollups.slices(window))
    assert sum(each.offered for each in slices) == 20, "the rollups have what is gone"


def test_without_spark_only_days_go_that_no_queue_retains_and_the_lake_has(scene: Scene) -> None:
    def prune(*, archived: bool = True) -> dict[date, str | None]:
        maintenance = scene.app.store.maintenance
        scene.app.store.run(scene.app.store.rollups.roll_up())
        return {day.day: day.why for day in scene.app.store.run(maintenance.prune_journal(archived=archived))}

    scene.live_through(scene.long_ago, partition=False)
    scene.archived()
    scene.live_through(scene.before_yesterday)
    scene.live_through(scene.yesterday)
    assert prune(archived=False) == {}, "the sweeper leaves a journal with a lake to the pipeline"
    assert prune() == {scene.long_ago: None}
    scene.app.queues.edit("q", retention_for=timedelta(0))
    scene.clock.set(datetime.combine(scene.today, time(12), UTC))
    assert [why is not None and scene.lake in why for why in prune().values()] == [True, True]
    scene.archived()
    scene.clock.set(datetime.combine(scene.yesterday, time(23), UTC))
    scene.app.queue("q").offer("late", 1)
    scene.clock.set(datetime.combine(scene.today, time(12), UTC))
    assert [why is None for why in prune().values()] == [True, False]
    scene.archived()
    assert prune() == {scene.yesterday: None}
    assert scene.yesterday not in scene.events()
    assert scene.problems() == ()


def test_a_lake_in_the_place_of_an_abandoned_one_begins_anew(scene: Scene) -> None:
    def files() -> set[Path]:
        return set(Path(scene.lake).rglob("*.parquet"))

    scene.live_through(scene.long_ago, partition=False)
    scene.archived()
    scene.pruned()
    scene.live_through(scene.yesterday)
    before = files()
    assert before
    assert scene.app.pipeline.retention.abandon(scene.lake)
    assert not scene.app.pipeline.retention.abandon(scene.lake)
    assert scene.batches == []
    assert files() == before
    scene.archived()
    assert files().isdisjoint(before)
    assert scene.problems() == ()
    assert scene.pruned().days == (scene.yesterday,)
    assert scene.problems() == ()


def test_an_event_that_comes_late_to_a_pruned_day_is_archived_and_pruned_after_it(scene: Scene) -> None:
    scene.live_through(scene.long_ago, partition=False)
    scene.live_through(scene.yesterday)
    scene.archived()
    scene.pruned()
    for day in (scene.long_ago, scene.yesterday):
        scene.clock.set(datetime.combine(day, time(23), UTC))
        scene.app.queue("q").offer(f"late-{day}", 1)
    assert [kept.why.split(" are ")[0] for kept in scene.pruned().kept] == ["1 of its events"] * 2
    assert scene.events() == {scene.long_ago: 1, scene.yesterday: 1}
    scene.archived()
    assert scene.pruned().rows == 2
    assert scene.events() == {}
    assert scene.problems() == ()


def test_a_day_stays_while_it_is_written_to_and_for_as_long_as_it_differs_from_its_archive(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prune, "_TRIES", 1)
    scene.live_through(scene.yesterday)
    scene.archived()

    def why() -> list[str]:
        return [kept.why for kept in scene.pruned().kept]

    assert scene.app.dsn is not None
    with psycopg.connect(scene.app.dsn) as writer:
        write_events(writer, 3, at=datetime.combine(scene.yesterday, time(23), UTC))
        assert why() == ["it is being written to; it goes another time"], "no writer waits for the prune"
        writer.rollback()

    scene.execute("update tarry.event set attempt = attempt + 7 where id = 3")
    (reason,) = why()
    assert "tarry verify" in reason
    scene.execute("update tarry.event set attempt = attempt - 7 where id = 3")

    (file,) = Path(scene.lake).rglob(f"date={scene.yesterday}/*/*.parquet")
    written = file.read_bytes()
    for crc in file.parent.glob(".*.crc"):
        crc.unlink()
    pq.write_table(pq.ParquetFile(file).read().slice(1), file)
    (reason,) = why()
    assert reason.startswith("1 of its files in ")
    file.write_bytes(written)

    with psycopg.connect(scene.app.dsn) as writer:
        write_events(writer, 3, at=datetime.combine(scene.yesterday, time(23), UTC))
    (reason,) = why()
    assert "3 of its events are not archived" in reason
    assert scene.events() == {scene.yesterday: 1 + 20 + 3}, "all of it has stayed"
    scene.archived()
    assert scene.pruned().days == (scene.yesterday,), "and now it goes"


def test_a_day_stays_while_another_lake_lacks_it(scene: Scene, lake: str) -> None:
    scene.live_through(scene.before_yesterday)
    archive.run(scene.spark, scene.app, ArchiveArgs(lake=f"{lake}-other"))
    scene.live_through(scene.yesterday)
    scene.archived()
    assert scene.pruned().days == (scene.before_yesterday,)
    assert scene.events().get(scene.yesterday) == 20


def test_a_lake_that_is_begun_after_pruning_knows_that_it_begins_late(scene: Scene, lake: str) -> None:
    scene.live_through(scene.yesterday)
    scene.archived()
    scene.pruned()
    scene.live_through(scene.today)
    other = f"{lake}-other"
    archive.run(scene.spark, scene.app, ArchiveArgs(lake=other))
    summary = verify.run(scene.spark, scene.app, VerifyArgs(lake=other))
    assert (summary.problems, summary.beyond_retention) == ((), 5)


def test_many_small_batches_become_one_and_no_row_changes(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(4):
        scene.live_through(scene.yesterday, n=4 + i)
        scene.live_through(scene.today, n=2)
        scene.archived()
    rows, old = scene.lake_rows(), scene.batches
    with monkeypatch.context() as patch:
        patch.setattr(compact, "measure_batch", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            scene.compacted(at_least=3)
    assert scene.lake_rows() == rows, "a compaction that died is no part of the lake"
    summary = scene.compacted(at_least=3)
    assert (summary.batches_before, summary.batches_after) == (4, 1)
    assert summary.files_after < summary.files_before
    assert "4 batches" in summary.line()
    assert scene.lake_rows() == rows
    (merged,) = scene.batches
    assert (merged.start, merged.end) == (old[0].start, old[-1].end)
    assert scene.problems() == ()
    for batch in old:
        assert (Path(scene.lake) / batch.directory).exists(), "an open reader may read on"
    scene.execute(
        "update tarry.archive_batch set replaced_at = replaced_at - interval '2 hours' where replaced_at is not null"
    )
    stray = Path(scene.lake) / "events" / "batch=00009999"
    stray.mkdir()
    assert scene.compacted().swept == 5
    assert not any((Path(scene.lake) / batch.directory).exists() for batch in old)
    manifest = scene.app.pipeline.manifest
    assert {batch.files for batch in manifest.batches(scene.lake, frozenset({BatchState.REPLACED}))} == {()}
    assert manifest.known_directories(scene.lake) == {merged.directory}
    scene.live_through(scene.today, n=2)
    assert scene.archived().batches == 1
    assert scene.pruned().days == (scene.yesterday,)
    assert scene.problems() == ()


def test_a_compaction_whose_parts_were_taken_from_it_is_refused(scene: Scene) -> None:
    scene.live_through(scene.today, n=2)
    scene.archived()
    scene.live_through(scene.today, n=4)
    scene.archived()
    parts = scene.batches
    planned = scene.app.pipeline.retention.plan_compaction(parts, 1)
    scene.execute("update tarry.archive_batch set state = 'replaced' where batch = %s", parts[0].number)
    with pytest.raises(InvalidState):
        scene.app.pipeline.retention.replace(planned, parts, ())
    assert [batch.number for batch in scene.batches] == [parts[1].number], "nothing of it has happened"


def test_what_retention_took_is_deleted_by_the_next_run_if_one_was_killed_before_that(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.live_through(scene.long_ago, partition=False)
    scene.live_through(scene.yesterday)
    scene.archived()
    with monkeypatch.context() as patch:
        patch.setattr(Lake, "sweep_files", lambda *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            scene.pruned(retention=True)
    assert len(scene.lake_rows()) == 20, "no reader sees them"
    assert len(list(Path(scene.lake).rglob(f"date={scene.long_ago}/**/*.parquet"))) == 1, "but they lie there"
    assert scene.pruned(retention=True).retired_files == 0
    assert not [path for path in Path(scene.lake).rglob(f"date={scene.long_ago}/**/*") if path.is_file()]
    assert len(scene.lake_rows()) == 20
    assert scene.problems() == ()


def test_runs_of_long_ago_are_forgotten_except_for_the_last_that_came_through(scene: Scene) -> None:
    manifest = scene.app.pipeline.manifest
    for n in range(3):
        with manifest.run("played") as noted:
            noted.summary = {"n": n}
    scene.execute("update tarry.pipeline_run set ended_at = ended_at - interval '31 days'")
    with pytest.raises(ZeroDivisionError), manifest.run("played"):
        raise ZeroDivisionError
    last = manifest.last_run("played")
    assert last is not None
    assert last.summary == {"n": 2}
    assert scene.app.dsn is not None
    with psycopg.connect(scene.app.dsn) as conn:
        states = conn.execute("select state from tarry.pipeline_run where job = 'played' order by id").fetchall()
    assert [state for (state,) in states] == ["done", "failed"]


def test_retention_takes_old_days_of_one_queue_from_the_lake(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.live_through(scene.long_ago, partition=False)
    scene.app.queues.create("forever", tarry.QueueSettings(retention_for=timedelta(days=365)))
    forever = scene.app.queue("forever")
    forever.offer("a", 1)
    for delivery in forever.try_poll_many(1):
        delivery.ack()
    scene.archived()
    facts.run(scene.spark, scene.app, facts.FactsArgs(lake=scene.lake))
    scene.live_through(scene.yesterday)
    scene.archived()
    scene.pruned()
    rows = scene.lake_rows()
    assert scene.pruned().retired_rows == 0, "only on request"

    def mark_after_a_round(retention: PostgresRetention) -> None:
        facts.run(scene.spark, scene.app, facts.FactsArgs(lake=scene.lake))
        mark_pruned(retention)

    mark_pruned = PostgresRetention.mark_pruned
    with monkeypatch.context() as patch:
        patch.setattr(PostgresRetention, "mark_pruned", mark_after_a_round)
        summary = scene.pruned(retention=True)
    assert (summary.retired_files, summary.retired_rows) == (1, 21)
    assert "retention took 21 events and 5 facts" in summary.line()
    kept = facts.read_facts(scene.spark, scene.lake).where("date is not null").groupBy("queue", "date").count()
    assert sorted(rows_of(kept)) == [("forever", scene.long_ago, 1), ("q", scene.yesterday, 5)]
    assert len(scene.lake_rows()) == len(rows) - 21
    verified = verify.run(scene.spark, scene.app, VerifyArgs(lake=scene.lake))
    assert (verified.problems, verified.beyond_retention) == ((), 5)
    assert "5 messages beyond what the lake keeps" in verified.line()
    assert scene.pruned(retention=True).retired_rows == 0
