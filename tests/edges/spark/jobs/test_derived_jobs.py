"""Facts, metrics and consumers as jobs: equal to plain SQL on the same journal, whatever comes late or dies midway."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import psycopg
import pytest
from pyspark.sql.types import TimestampType

from tarry.core.analytics.history import PartKind
from tarry.core.analytics.metrics import MetricMinute
from tarry.core.analytics.port import AnalyticsQuery
from tarry.edges.spark import sizing
from tarry.edges.spark.jobs import archive, compact, consumers, facts, metrics
from tarry.edges.spark.lake import history as trace
from tarry.edges.spark.lake.lake import FILE, Lake
from tarry.storage.postgres.analytics.history.store import PostgresHistory
from tarry.storage.postgres.analytics.store import PipelineAnalytics
from tests.edges.spark import workload
from tests.edges.spark.journal_frames import journal
from tests.edges.spark.workload import EVENING, Traffic, compared, queried

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def traffic(database: str) -> Iterator[Traffic]:
    traffic = Traffic(database, seed=7)
    yield traffic
    traffic.close()


def archived(spark: SparkSession, traffic: Traffic, lake: str) -> None:
    archive.run(spark, traffic.app, archive.ArchiveArgs(lake=lake))


def worked_out(spark: SparkSession, traffic: Traffic, lake: str) -> None:
    metrics.run(spark, traffic.app, metrics.MetricsArgs(lake=lake))
    consumers.run(spark, traffic.app, consumers.ConsumersArgs(lake=lake))
    facts.run(spark, traffic.app, facts.FactsArgs(lake=lake))


def archive_read_by_duckdb(traffic: Traffic, lake: str) -> list[tuple[Any, ...]]:
    """The files that the manifest lists, read by neither Spark nor our code."""
    batches = traffic.app.pipeline.manifest.batches(lake)
    files = [f"{lake}/{file.path}" for batch in batches for file in batch.files]
    columns = ", ".join(
        f'epoch_us("{field.name}")' if isinstance(field.dataType, TimestampType) else field.name for field in FILE
    )
    with duckdb.connect() as db:
        text = f"select {columns} from read_parquet(?, hive_partitioning = false) order by id"
        return db.execute(text, [files]).fetchall()


def micros(value: Any) -> Any:
    """An instant as microseconds since 1970, as DuckDB returns it."""
    return (
        (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        if isinstance(value, datetime)
        else value
    )


def check(spark: SparkSession, traffic: Traffic, lake: str, database: str) -> None:
    assert archive_read_by_duckdb(traffic, lake) == [tuple(map(micros, row)) for row in journal(database)]
    compared(queried(database, workload.SERVED_METRICS), queried(database, workload.METRICS))
    compared(queried(database, workload.SERVED_CONSUMERS), queried(database, workload.CONSUMERS))
    rows = facts.read_facts(spark, traffic.app, lake).select(*workload.FACT_COLUMNS).toArrow().to_pylist()
    actual = sorted(tuple(map(workload.plain, row.values())) for row in rows)
    expected = queried(database, workload.FACTS)
    compared([row[:5] for row in actual], [row[:5] for row in expected])
    compared([row[5:] for row in actual], [row[5:] for row in expected])


def minutes_of(traffic: Traffic, queue: str, *, days: int) -> list[MetricMinute]:
    """Newest first."""
    query = AnalyticsQuery(queue=queue, since=EVENING, until=EVENING + timedelta(days=days), limit=10_000)
    return traffic.app.pipeline.analytics.minutes(query).rows


def test_batch_after_batch_everything_equals_plain_sql(
    spark: SparkSession, traffic: Traffic, lake: str, database: str
) -> None:
    for steps in (250, 250):
        traffic.steps(steps)
        archived(spark, traffic, lake)
        worked_out(spark, traffic, lake)
    check(spark, traffic, lake, database)
    for name, (live, dead) in workload.depth_now(traffic.app).items():
        last = minutes_of(traffic, name, days=2)[0]
        assert (last.depth, last.dead) == (live, dead)
    served = traffic.app.pipeline.analytics.facts(
        AnalyticsQuery(queue="orders", since=EVENING, until=EVENING + timedelta(days=2), limit=10_000)
    )
    expected = [row for row in queried(database, workload.FACTS) if row[0] == 1 and row[4] != "live"]
    assert sorted((fact.version, fact.outcome) for fact in served) == [(row[1], row[4]) for row in expected]
    assert {fact.outcome for fact in served} >= {"done", "superseded", "dropped"}

    again = metrics.run(spark, traffic.app, metrics.MetricsArgs(lake=lake))
    assert (again.days, again.minutes, again.changed, again.line()) == ((), 0, 0, "metrics: nothing new")
    assert asdict(again)["lake"] == lake

    trace.advance(spark, traffic.app, Lake.at(lake), rebuild=True)
    rebuilt = metrics.run(spark, traffic.app, metrics.MetricsArgs(lake=lake))
    assert (rebuilt.minutes > 0, rebuilt.changed) == (True, 0)


def test_events_that_commit_late_are_counted_in_their_own_minute(
    spark: SparkSession, traffic: Traffic, lake: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traced as if there were very many rows: what is open and has no news is then carried on unread."""
    monkeypatch.setattr(trace, "sized_for", lambda spark, rows: sizing.sized_for(spark, None))
    with psycopg.connect(database) as slow:
        traffic.app.queue("orders").offer("late", 1, conn=slow)
        traffic.steps(40)
        traffic.clock.set(EVENING + timedelta(hours=1))  # the next day
        traffic.steps(40)
        archived(spark, traffic, lake)
        worked_out(spark, traffic, lake)
        before = minutes_of(traffic, "orders", days=1)
        slow.commit()
    archived(spark, traffic, lake)
    worked_out(spark, traffic, lake)
    check(spark, traffic, lake, database)
    after = minutes_of(traffic, "orders", days=1)
    # One more from its minute on, across midnight.
    grown = {row.minute: row.depth for row in after}
    assert [grown[row.minute] - row.depth for row in before] == [1] * len(before)


class Killed(BaseException):
    """What no code of ours catches."""


def killed(*_: Any, **__: Any) -> Any:
    raise Killed


KILLED_AT = [
    (PostgresHistory, "advance"),  # the trace is written, and the head does not know
    (PipelineAnalytics, "put"),  # the lake is written, and PostgreSQL is not
    (PipelineAnalytics, "put_levels"),  # rows are served, the level of the day is not kept
    (PostgresHistory, "mark_processed"),  # everything is written, and the position of the reader is not
]


@pytest.mark.chaos
def test_runs_that_were_killed_are_made_good_by_the_next(
    spark: SparkSession, traffic: Traffic, lake: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    traffic.steps(40)
    archived(spark, traffic, lake)
    metrics.run(spark, traffic.app, metrics.MetricsArgs(lake=lake))
    for victim, method in KILLED_AT:
        traffic.steps(40)
        archived(spark, traffic, lake)
        with monkeypatch.context() as patch:
            patch.setattr(victim, method, killed)
            with pytest.raises(Killed):
                metrics.run(spark, traffic.app, metrics.MetricsArgs(lake=lake))
    metrics.run(spark, traffic.app, metrics.MetricsArgs(lake=lake))
    compared(queried(database, workload.SERVED_METRICS), queried(database, workload.METRICS))
    # What the first victim left is gone: nothing lies in the trace that does not count.
    pipeline = traffic.app.pipeline
    head = pipeline.history.head(lake)
    assert head is not None
    counted = {f"{part.kind}/run={part.run_id:08d}" for kind in PartKind for part in pipeline.history.parts(lake, kind)}
    lying = {
        f"{path.parent.name}/{path.name}" for path in Path(lake, "trace").glob("*/run=*/") if any(path.glob("date=*"))
    }
    assert lying == counted
    assert [path.name for path in Path(lake, "trace", "open").iterdir()] == [f"run={head.run_id:08d}"]


@pytest.mark.chaos
def test_a_day_of_many_runs_is_merged_and_stays_the_same(
    spark: SparkSession, traffic: Traffic, lake: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace, "MOST_PARTS", 1)
    for turn in range(3):
        traffic.steps(40)
        archived(spark, traffic, lake)
        if turn == 1:
            # What was traced and what was not are in one batch now.
            assert compact.run(spark, traffic.app, compact.CompactArgs(lake=lake, at_least=2)).batches_after == 1
        trace.advance(spark, traffic.app, Lake.at(lake))
    parts = traffic.app.pipeline.history.parts(lake, PartKind.EVENTS)
    assert len({part.day for part in parts}) == len(parts)
    worked_out(spark, traffic, lake)
    check(spark, traffic, lake, database)
    assert len(list(Path(lake).glob("trace/events/run=*/date=*"))) == len(parts)


def test_old_facts_stay_in_the_lake_alone(spark: SparkSession, traffic: Traffic, lake: str) -> None:
    traffic.steps(60)
    archived(spark, traffic, lake)
    traffic.clock.advance(timedelta(days=9))
    summary = facts.run(spark, traffic.app, facts.FactsArgs(lake=lake))
    assert (summary.ended > 0, summary.served) == (True, 0)
    assert facts.read_facts(spark, traffic.app, lake).where("outcome <> 'live'").count() == summary.ended
