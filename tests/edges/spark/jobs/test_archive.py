"""The archive: everything that was committed, once, in the lake; resumed after a crash at any step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import tarry
from tarry.app import App
from tarry.core.analytics.manifest import ArchiveDamaged, BatchState, OtherCluster
from tarry.core.errors import InvalidInput, InvalidState
from tarry.edges.spark.jobs import archive, compact, forecast, prune
from tarry.edges.spark.jobs.archive import ArchiveArgs
from tarry.edges.spark.jobs.compact import CompactArgs
from tarry.edges.spark.jobs.forecast import ForecastArgs
from tarry.edges.spark.jobs.prune import PruneArgs
from tarry.edges.spark.lake.lake import Lake, inside, read_events
from tarry.edges.spark.schemas import EVENTS
from tests.kit.spark import busy, journal, rows_of, write_events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def archived(spark: SparkSession, app: App, lake: str, **args: Any) -> archive.ArchiveSummary:
    return archive.run(spark, app, ArchiveArgs(lake=lake, **args))


def lake_ids(spark: SparkSession, app: App, lake: str) -> list[int]:
    return sorted(row[0] for row in rows_of(read_events(spark, app, lake).select("id")))


def test_the_lake_has_what_the_journal_has_column_by_column(spark: SparkSession, pipeline_app: App, lake: str) -> None:
    busy(pipeline_app)
    summary = archived(spark, pipeline_app, lake)
    frame = read_events(spark, pipeline_app, lake)
    assert frame.schema == EVENTS
    assert sorted(map(repr, rows_of(frame))) == sorted(map(repr, map(tuple, journal(spark, pipeline_app))))
    assert summary.rows == frame.count()
    assert "read back and equal to the journal" in summary.line()
    nothing = archived(spark, pipeline_app, lake)
    assert (nothing.rows, nothing.batches) == (0, 0)
    assert "nothing new" in nothing.line()


def test_a_lake_belongs_to_one_installation(spark: SparkSession, pipeline_app: App, database: str, lake: str) -> None:
    pipeline_app.queue("orders").offer("a", 1)
    archived(spark, pipeline_app, lake)
    before = lake_ids(spark, pipeline_app, lake)
    with tarry.connect(database, schema="tenant_b", migrate=True) as other:
        other.queue("orders").offer("b", 1)
        for job, args in ((archive, ArchiveArgs), (compact, CompactArgs), (prune, PruneArgs), (forecast, ForecastArgs)):
            with pytest.raises(InvalidState, match="belongs to another installation"):
                job.run(spark, other, args(lake=lake))
        assert archived(spark, other, f"{lake}-b").rows == 2, "the queue, and its message"
    assert lake_ids(spark, pipeline_app, lake) == before
    assert archived(spark, pipeline_app, lake).rows == 0


def test_the_first_of_two_installations_owns_a_lake_also_at_a_uri(spark: SparkSession, lake: str) -> None:
    for location in (Lake.at(lake), Lake(f"file://{lake}-uri")):
        location.claim(spark, "1/2/3")
        location.claim(spark, "1/2/3")
        with pytest.raises(InvalidState, match="belongs to another installation"):
            location.claim(spark, "1/2/4")


def test_files_lie_by_batch_date_and_queue(spark: SparkSession, pipeline_app: App, lake: str) -> None:
    pipeline_app.queue("orders").offer("a", 1)
    pipeline_app.queue("7").offer("a", 1)
    archived(spark, pipeline_app, lake)
    today = datetime.now(UTC).date().isoformat()
    directories = {path.parent.relative_to(lake).as_posix() for path in Path(lake).rglob("*.parquet")}
    assert directories == {f"events/batch=00000001/date={today}/queue={name}" for name in ("orders", "7")}
    names = read_events(spark, pipeline_app, lake, queue="7").select("queue").distinct()
    assert rows_of(names) == [("7",)]


def test_windows_are_cut_and_late_commits_come_with_the_next_run(
    spark: SparkSession, pipeline_app: App, lake: str
) -> None:
    pipeline_app.queue("q").offer_many([tarry.Message(payload=i) for i in range(45)])
    assert pipeline_app.dsn is not None
    with psycopg.connect(pipeline_app.dsn) as late:
        write_events(late, 5, at=datetime(2026, 1, 1, tzinfo=UTC))
        pipeline_app.queue("q").offer("x", 1)
        assert archived(spark, pipeline_app, lake, batch_rows=20).batches == 3
        late.commit()
    summary = archived(spark, pipeline_app, lake, batch_rows=20)
    assert (summary.rows, summary.days) == (5, (date(2026, 1, 1),))
    assert lake_ids(spark, pipeline_app, lake) == [row.id for row in sorted(journal(spark, pipeline_app))]
    january = read_events(spark, pipeline_app, lake, until=date(2026, 1, 31))
    assert january.count() == 5


class Crash(BaseException):
    pass


@contextmanager
def crash_in(monkeypatch: pytest.MonkeyPatch, target: Any, name: str) -> Iterator[None]:
    """Die where this is called next: nothing of what would follow happens."""

    def die(*args: Any, **kwargs: Any) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(target, name, die)
        with pytest.raises(Crash):
            yield


@pytest.mark.parametrize("step", ["write_batch", "measure_batch", "check_equal"])
def test_a_batch_that_was_begun_is_done_again_with_the_same_window(
    spark: SparkSession, pipeline_app: App, lake: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    pipeline_app.queue("q").offer_many([tarry.Message(payload=i) for i in range(10)])
    with crash_in(monkeypatch, archive, step):
        archived(spark, pipeline_app, lake)
    assert lake_ids(spark, pipeline_app, lake) == []
    pipeline_app.queue("q").offer("later", 1)
    summary = archived(spark, pipeline_app, lake)
    assert (summary.redone, summary.batches) == (1, 2)
    again, after = pipeline_app.pipeline.manifest.batches(lake)
    assert (again.digest.rows, after.digest.rows) == (11, 1)
    assert lake_ids(spark, pipeline_app, lake) == [row.id for row in sorted(journal(spark, pipeline_app))]
    assert not (Path(lake) / "events/batch=00000001").exists(), "what the dead run left is gone"


def test_a_run_that_was_taken_for_dead_cannot_complete_its_batch(
    spark: SparkSession, pipeline_app: App, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline_app.queue("q").offer("a", 1)
    manifest = pipeline_app.pipeline.manifest
    with crash_in(monkeypatch, archive, "check_equal"):
        archived(spark, pipeline_app, lake)
    (slow,) = manifest.batches(lake, frozenset({BatchState.PLANNED}))
    archived(spark, pipeline_app, lake)
    with pytest.raises(InvalidState, match="another run has written to the lake"):
        manifest.complete(slow, [])
    assert len(lake_ids(spark, pipeline_app, lake)) == 2


def test_two_runs_at_a_time_are_refused(spark: SparkSession, pipeline_app: App, lake: str) -> None:
    with (
        pipeline_app.pipeline.manifest.run("archive", exclusive=f"lake {lake}"),
        pytest.raises(InvalidState, match="under way"),
    ):
        archived(spark, pipeline_app, lake)


def test_what_is_read_back_must_be_what_the_journal_has(
    spark: SparkSession, pipeline_app: App, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline_app.queue("q").offer_many([tarry.Message(payload=i) for i in range(10)])
    write = archive.write_batch

    def lossy(frame: Any, *args: Any) -> None:
        write(frame.where("id <> 5"), *args)

    with monkeypatch.context() as patch:
        patch.setattr(archive, "write_batch", lossy)
        with pytest.raises(ArchiveDamaged, match="batch 1 differs from the journal"):
            archived(spark, pipeline_app, lake)
    assert lake_ids(spark, pipeline_app, lake) == []
    assert archived(spark, pipeline_app, lake).rows == 11


def test_a_lake_of_another_cluster_is_refused(spark: SparkSession, pipeline_app: App, lake: str) -> None:
    pipeline_app.queue("q").offer("a", 1)
    archived(spark, pipeline_app, lake)
    assert pipeline_app.dsn is not None
    with psycopg.connect(pipeline_app.dsn) as conn:
        conn.execute("update tarry.archive_batch set system_id = '4711'")
    with pytest.raises(OtherCluster, match="4711"):
        archived(spark, pipeline_app, lake)
    assert archived(spark, pipeline_app, f"{lake}-2").rows == 2


def test_runs_are_written_down_with_how_they_ended(pipeline_app: App) -> None:
    manifest = pipeline_app.pipeline.manifest
    with manifest.run("job") as run:
        run.summary = {"rows": 7, "at": timedelta(seconds=1)}
    done = manifest.last_run("job")
    assert done is not None
    assert (done.id, done.state, done.summary["rows"]) == (run.id, "done", 7)
    with pytest.raises(ZeroDivisionError), manifest.run("job"):
        raise ZeroDivisionError
    still = manifest.last_run("job")
    assert still is not None
    assert still.id == run.id, "the failed one does not count"


@pytest.mark.parametrize(
    ("given", "root", "uri"),
    [
        ("/data/lake/", "/data/lake", "file:/data/lake/x"),
        ("file:///data/lake", "/data/lake", "file:/data/lake/x"),
        ("s3a://bucket/lake/", "s3a://bucket/lake", "s3a://bucket/lake/x"),
    ],
)
def test_a_place_has_one_name(given: str, root: str, uri: str) -> None:
    lake = Lake.at(given)
    assert (lake.root, lake.uri("x")) == (root, uri)


@pytest.mark.parametrize(
    "root", ["file:///srv/lake", "file:///data/events/tarry", "s3a://events/events", "file:///events/batch=00000007/x"]
)
def test_a_file_is_found_in_its_lake_wherever_that_lies(root: str) -> None:
    file = "events/batch=00000007/date=2030-01-31/queue=events/part-0.zstd.parquet"
    assert inside("events", f"{root}/{file}") == file
    assert inside("events/batch=00000007", f"{root}/{file}") == file


@pytest.mark.parametrize("given", ["/data/lake-{1,2}", "s3a://bucket/*/lake", "/data/[old]"])
def test_a_place_that_spark_would_take_for_many_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput, match="as a path pattern"):
        Lake.at(given)
