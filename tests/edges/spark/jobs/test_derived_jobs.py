"""Facts, metrics and consumers as jobs: equal to plain SQL on the same journal, whatever comes late or dies midway."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import psycopg
import pytest
from deltalake import DeltaTable
from pyspark.sql.types import TimestampType

from tarry.core.analytics.metrics import MetricMinute
from tarry.core.analytics.port import AnalyticsQuery
from tarry.core.journal.events import KINDS
from tarry.edges.spark import sizing
from tarry.edges.spark.jobs import archive, compact, consumers, facts, metrics
from tarry.edges.spark.lake import rounds, tables
from tarry.edges.spark.lake.lake import FILE, Lake
from tarry.edges.spark.lake.tables import LakeTable
from tarry.storage.postgres.analytics.archive.manifest import PostgresManifest
from tarry.storage.postgres.analytics.store import PipelineAnalytics, PostgresRounds
from tests.edges.spark import recount as recounting
from tests.edges.spark import workload
from tests.edges.spark.journal_frames import journal
from tests.edges.spark.recount import Recount, compared
from tests.edges.spark.workload import EVENING, Traffic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[4]

_POINTS = "array[round(1e6 * {0}_p50_s), round(1e6 * {0}_p95_s), round(1e6 * {0}_p99_s)]"
SERVED_MINUTES = f"""
select queue_id, minute, offered, updated, redriven, leased, acked, nacked, released, expired, buried, dropped, discarded,
    refused, bytes_offered, {_POINTS.format("lag")}, {_POINTS.format("wait")}, {_POINTS.format("processing")}, depth, dead
from tarry.metric_minute order by 1, 2
"""
SERVED_HOURS = f"""
select queue_id, hour, consumer, leased, acked, failed, expired, released, success_rate, share, {_POINTS.format("processing")}
from tarry.consumer_hour order by 1, 2, 3
"""


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


def served(dsn: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, options="-c timezone=UTC") as conn:
        return conn.execute(query.encode()).fetchall()


def micros(value: Any) -> Any:
    """An instant as microseconds since 1970, as DuckDB returns it."""
    return (
        (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        if isinstance(value, datetime)
        else value
    )


def check(spark: SparkSession, traffic: Traffic, lake: str, database: str) -> Recount:
    """Archive, lake and PostgreSQL have what an independent count of the journal gives."""
    assert archive_read_by_duckdb(traffic, lake) == [tuple(map(micros, row)) for row in journal(database)]
    with Recount(database) as recount:
        recount.check(lake)
        compared(served(database, SERVED_MINUTES), recount.expected(recounting.MINUTES))
        compared(served(database, SERVED_HOURS), recount.expected(recounting.HOURS))
        versions = [(row.queue_id, row.version, row.outcome) for row in facts.read_facts(spark, lake).collect()]
        assert sorted(versions) == [(row[0], row[1], row[4]) for row in recount.expected(recounting.FACTS)]
    return recount


def minutes_of(traffic: Traffic, queue: str, *, days: int) -> list[MetricMinute]:
    """Newest first."""
    query = AnalyticsQuery(queue=queue, since=EVENING, until=EVENING + timedelta(days=days), limit=10_000)
    return traffic.app.store.run(traffic.app.store.analytics.minutes(query)).rows


def check_service_levels(lake: str) -> None:
    """The model of the example for dbt, on the table that its plugin reads."""
    model = ROOT.joinpath("examples", "dbt", "models", "service_levels.sql").read_text()
    table = DeltaTable(f"{lake}/facts").to_pyarrow_table()
    with duckdb.connect() as db:
        db.register("facts", table)
        levels = db.execute(model.replace("{{ source('lake', 'facts') }}", "facts")).fetchall()
    expected = Counter(
        (row["date"], row["queue_id"]) for row in table.to_pylist() if row["first_leased_at"] is not None
    )
    assert {(date, queue_id): messages for date, queue_id, _, messages, *_ in levels} == expected


def test_round_after_round_everything_equals_an_independent_count(
    spark: SparkSession, traffic: Traffic, lake: str, database: str
) -> None:
    for steps in (250, 250):
        traffic.steps(steps)
        traffic.the_rest()
        archived(spark, traffic, lake)
        worked_out(spark, traffic, lake)
    assert check(spark, traffic, lake, database).kinds == KINDS
    check_service_levels(lake)
    for name, (live, dead) in workload.depth_now(traffic.app).items():
        last = minutes_of(traffic, name, days=2)[0]
        assert (last.depth, last.dead) == (live, dead)

    again = metrics.run(spark, traffic.app, metrics.MetricsArgs(lake=lake))
    assert (again.days, again.minutes, again.changed, again.line()) == ((), 0, 0, "metrics: nothing new")
    assert asdict(again)["lake"] == lake

    with psycopg.connect(database) as conn:
        lost = conn.execute("delete from tarry.metric_minute where minute < '2024-01-02'").rowcount
    days = (EVENING.date(), EVENING.date())
    restored = metrics.run(spark, traffic.app, metrics.MetricsArgs(lake=lake, days=days))
    assert (restored.days, restored.minutes, restored.changed) == (days[:1], lost, lost)

    traffic.app.pipeline.rounds.forget(lake)
    rebuilt = metrics.run(spark, traffic.app, metrics.MetricsArgs(lake=lake))
    assert (rebuilt.minutes > 0, rebuilt.changed) == (True, 0)
    check(spark, traffic, lake, database)


def test_events_that_commit_late_are_counted_in_their_own_minute(
    spark: SparkSession, traffic: Traffic, lake: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Derived as if there were very many rows."""
    monkeypatch.setattr(rounds, "sized_for", lambda spark, rows: sizing.sized_for(spark, None))
    with psycopg.connect(database) as slow:
        traffic.app.queue("orders").offer("late", 1, conn=slow)
        traffic.steps(40)
        traffic.clock.set(EVENING + timedelta(hours=1))  # the next day
        traffic.steps(40)
        archived(spark, traffic, lake)
        metrics.run(spark, traffic.app, metrics.MetricsArgs(lake=lake))
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


def last_table_killed(name: str) -> Callable[..., None]:
    """A commit that does not happen to this table, after those of the tables before it."""
    commit = LakeTable.commit

    def patched(table: LakeTable, *args: Any) -> None:
        killed() if table.name == name else commit(table, *args)

    return patched


KILLED_AT: list[tuple[type, str, Callable[..., Any]]] = [
    (LakeTable, "commit", last_table_killed("metrics")),  # planned, and nothing is written
    (LakeTable, "commit", last_table_killed("facts")),  # some tables have the round
    (LakeTable, "commit", last_table_killed("open")),
    (PostgresRounds, "finish", killed),  # all tables have it, and the plan is not completed
    (PipelineAnalytics, "put", killed),  # the lake is up to date, and PostgreSQL is not
    (PostgresManifest, "_end", killed),  # everything is written, and the run is not recorded
]


def test_rounds_that_were_killed_are_completed_by_the_next(
    spark: SparkSession, traffic: Traffic, lake: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kill is followed by new events, so that the next run has a round to repeat and one of its own."""
    for victim, method, replacement in KILLED_AT:
        traffic.steps(30)
        archived(spark, traffic, lake)
        with monkeypatch.context() as patch:
            patch.setattr(victim, method, replacement)
            with pytest.raises(Killed):
                metrics.run(spark, traffic.app, metrics.MetricsArgs(lake=lake))
    worked_out(spark, traffic, lake)
    check(spark, traffic, lake, database)
    before = {name: DeltaTable(f"{lake}/{name}").version() for name in ("metrics", "consumers", "facts", "open")}
    worked_out(spark, traffic, lake)
    assert {name: DeltaTable(f"{lake}/{name}").version() for name in before} == before


@pytest.mark.chaos
def test_tables_of_many_rounds_have_few_files_and_the_same_rows(
    spark: SparkSession, traffic: Traffic, lake: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "MANY", 2)
    monkeypatch.setattr(rounds, "ENDED", 0)
    for turn in range(3):
        traffic.steps(40)
        archived(spark, traffic, lake)
        if turn == 1:  # what a round has read and what it has not are in one batch now
            assert compact.run(spark, traffic.app, compact.CompactArgs(lake=lake, at_least=2)).batches_after == 1
        rounds.advance(spark, traffic.app, Lake.at(lake))
    assert len(DeltaTable(f"{lake}/open").file_uris()) <= 2
    worked_out(spark, traffic, lake)
    check(spark, traffic, lake, database)
