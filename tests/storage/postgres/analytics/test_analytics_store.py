"""What the pipeline works out is written once, replaced by what is newer, and read under the name a queue has now."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

import tarry
from tarry.core.analytics.metrics import (
    CurrentQueue,
    MetricMinute,
    Planned,
    Quantiles,
    Table,
)
from tarry.core.analytics.port import AnalyticsQuery
from tarry.core.analytics.rounds import QueueLevel, Round
from tarry.core.errors import InvalidInput, InvalidState, UnknownQueue
from tarry.storage.postgres.analytics.database import Database
from tarry.storage.postgres.analytics.store import PipelineAnalytics, PostgresRounds
from tarry.testing import MutableClock

START = datetime(2024, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
COUNTS = ("offered", "updated", "redriven", "leased", "acked", "nacked", "released", "expired", "buried", "dropped",
          "discarded", "refused", "bytes_offered", "depth", "dead")  # fmt: skip


@pytest.fixture
def app(database: str) -> Iterator[tarry.App]:
    with tarry.connect(database, clock=MutableClock(START)) as app:
        app.queues.create("orders")
        yield app


@pytest.fixture
def analytics(app: tarry.App, database: str) -> PipelineAnalytics:
    return PipelineAnalytics(Database(database))


@pytest.fixture
def rounds(app: tarry.App, database: str) -> PostgresRounds:
    return PostgresRounds(Database(database))


def metrics(
    app: tarry.App, queue: str | None, since: datetime, until: datetime, limit: int = 100
) -> list[MetricMinute]:
    """In the order of time."""
    query = AnalyticsQuery(queue=queue, since=since, until=until, limit=limit)
    return app.store.run(app.store.analytics.minutes(query)).rows[::-1]


def minute(n: int, run_id: int = 1, **fields: Any) -> str:
    row = {
        "queue_id": 1, "queue": "orders", "minute": (START + n * MINUTE).isoformat(), **dict.fromkeys(COUNTS, 0),
        "exact": True, "run_id": run_id, "fresh_at": START.isoformat(), **fields,
    }  # fmt: skip
    return json.dumps(row)


def test_metrics_are_in_the_order_of_time_and_no_more_than_the_limit(
    app: tarry.App, analytics: PipelineAnalytics
) -> None:
    analytics.put(Table.METRICS, [minute(n, offered=n) for n in range(5)])
    minutes = metrics(app, "orders", START + MINUTE, START + 4 * MINUTE)
    assert [(row.queue, row.minute, row.offered) for row in minutes] == [
        ("orders", START + n * MINUTE, n) for n in (1, 2, 3)
    ]
    assert [row.offered for row in metrics(app, None, START, START + 9 * MINUTE, limit=2)] == [3, 4]
    assert metrics(app, "orders", START, START + 9 * MINUTE, limit=0) == []


def test_percentiles_are_there_or_not_as_a_whole(app: tarry.App, analytics: PipelineAnalytics) -> None:
    analytics.put(Table.METRICS, [minute(0, lag_p50_s=0.1, lag_p95_s=0.2, lag_p99_s=0.3)])
    (metric,) = metrics(app, "orders", START, START + MINUTE)
    assert (metric.lag, metric.wait, metric.processing) == (Quantiles(0.1, 0.2, 0.3), None, None)


def test_writing_the_same_again_changes_nothing_and_keeps_its_age(app: tarry.App, analytics: PipelineAnalytics) -> None:
    assert analytics.put(Table.METRICS, [minute(0, offered=1), minute(1, offered=2)]) == (2, 2)
    assert analytics.put(Table.METRICS, [minute(0, 2, offered=1), minute(1, 2, offered=3)]) == (2, 1)
    assert [metric.run_id for metric in metrics(app, "orders", START, START + 9 * MINUTE)] == [1, 2]


def test_history_follows_a_queue_to_its_new_name_and_outlives_it(app: tarry.App, analytics: PipelineAnalytics) -> None:
    analytics.put(Table.METRICS, [minute(0)])
    app.queues.rename("orders", "sales")
    for name in ("sales", "orders"):  # the name of before as well, while no other queue has it
        assert [metric.queue for metric in metrics(app, name, START, START + MINUTE)] == ["sales"]
    app.queues.create("orders")
    assert metrics(app, "orders", START, START + MINUTE) == []
    with pytest.raises(UnknownQueue):
        metrics(app, "never", START, START + MINUTE)
    app.queues.delete("sales")
    assert len(metrics(app, "sales", START, START + MINUTE)) == 1


@pytest.mark.parametrize("limit", [-1, 100_001])
def test_a_limit_that_cannot_be_kept_is_refused(app: tarry.App, analytics: PipelineAnalytics, limit: int) -> None:
    with pytest.raises(InvalidInput, match="limit must be from 0 to 100,000"):
        metrics(app, None, START, START, limit=limit)


def test_minutes_are_added_up_in_stretches_or_as_a_whole(analytics: PipelineAnalytics) -> None:
    counts = {"offered": 1, "leased": 2, "acked": 3, "nacked": 4, "expired": 5, "buried": 6}
    analytics.put(Table.METRICS, [minute(n, depth=n, dead=10 * n, **counts) for n in (1, 4, 5, 14)])
    analytics.put(Table.METRICS, [minute(3, queue_id=2, queue="gone", offered=7)])
    spans = analytics.metric_spans(None, START, START + 14 * MINUTE, 5 * MINUTE)
    assert [(span.queue, span.minute, span.offered, span.depth, span.dead) for span in spans] == [
        ("gone", START + 3 * MINUTE, 7, 0, 0),
        ("orders", START + MINUTE, 2, 4, 40),
        ("orders", START + 5 * MINUTE, 1, 5, 50),
    ]
    (whole,) = analytics.metric_spans("orders", START, START + 15 * MINUTE, None)
    assert {name: getattr(whole, name) for name in counts} == {name: 4 * n for name, n in counts.items()}
    assert (whole.minute, whole.depth, whole.lag, whole.processing) == (START + MINUTE, 14, None, None)


def test_several_minutes_have_the_median_p50_and_the_worst_tail(analytics: PipelineAnalytics) -> None:
    def seconds(of: str, *p: float) -> dict[str, Any]:
        return {f"{of}_p{rank}_s": value for rank, value in zip((50, 95, 99), p, strict=True)}

    calm, rough = seconds("lag", 0.01, 9.0, 9.5), seconds("lag", 1.0, 2.0, 3.0)
    slow, fast = seconds("processing", 5.0, 6.0, 7.0), seconds("processing", 0.5, 0.6, 0.7)
    analytics.put(Table.METRICS, [
        minute(0, leased=10, acked=1, nacked=1, **rough, **slow),
        minute(1, leased=100, acked=2, **calm, **fast),
        minute(2, leased=20, nacked=3, **rough, **slow),
        minute(3, leased=1_000),
    ])  # fmt: skip
    (span,) = analytics.metric_spans("orders", START, START + 9 * MINUTE, None)
    assert (span.lag, span.processing) == (Quantiles(0.01, 9.0, 9.5), Quantiles(5.0, 6.0, 7.0))


def test_what_is_to_come_is_added_up_too(analytics: PipelineAnalytics) -> None:
    def coming(n: int, planned: int, backlog: float) -> str:
        return json.dumps({
            "queue_id": 1, "queue": "orders", "minute": (START + n * MINUTE).isoformat(), "planned": planned, "retries": 1,
            "backlog": backlog, "lag_s": None, "saturated": None, "run_id": 1, "fresh_at": START.isoformat(),
        })  # fmt: skip

    analytics.put(Table.FORECAST_MINUTES, [coming(1, 5, 0), coming(3, 6, 9.5), coming(7, 0, 2), coming(9, 0, 0)])
    assert [
        (span.minute, span.last_minute, span.planned, span.retries, span.backlog)
        for span in analytics.forecast_spans("orders", 5 * MINUTE)
    ] == [(START + MINUTE, START + 3 * MINUTE, 11, 2, 9.5), (START + 7 * MINUTE, START + 7 * MINUTE, 0, 1, 2.0)]
    (whole,) = analytics.forecast_spans(None, None)
    assert (whole.minute, whole.last_minute, whole.planned) == (START + MINUTE, START + 7 * MINUTE, 11)


def test_more_rows_than_one_statement_takes_are_all_written(app: tarry.App, analytics: PipelineAnalytics) -> None:
    assert analytics.put(Table.METRICS, (minute(n) for n in range(12_345))) == (12_345, 12_345)
    assert len(metrics(app, "orders", START, START + 20_000 * MINUTE, limit=20_000)) == 12_345


def test_the_outlook_is_derived_from_the_live_messages(app: tarry.App, analytics: PipelineAnalytics) -> None:
    orders = app.queue("orders")
    app.queues.create("idle", tarry.QueueSettings(target_lag_for=timedelta(seconds=5)))
    app.queues.pause("idle")
    for n, after in enumerate((0, 0, 0, 30, 59, 60, 86_400 * 8)):
        orders.offer(f"k{n}", n, after=timedelta(seconds=after))
    orders.try_poll_many(1)
    for delivery in orders.try_poll_many(1):
        delivery.nack(after=timedelta(seconds=61))
    outlook = analytics.outlook(START, START + timedelta(days=7))
    assert outlook.standings == (
        CurrentQueue(queue_id=1, queue="orders", ready=1, leased=1, target_lag_s=60.0, paused=False),
        CurrentQueue(queue_id=2, queue="idle", ready=0, leased=0, target_lag_s=5.0, paused=True),
    )
    assert outlook.planned == (Planned(1, START, 2, 0), Planned(1, START + MINUTE, 2, 1))


def test_of_two_forecasts_the_last_one_counts(app: tarry.App, analytics: PipelineAnalytics) -> None:
    def forecast(queue_id: int, run_id: int) -> str:
        row = {"queue_id": queue_id, "queue": "orders", "planned": 1, "retries": 0, "peak_backlog": 0.0,
               "sentence": "all is well", "run_id": run_id, "fresh_at": START.isoformat()}  # fmt: skip
        return json.dumps(row)

    def coming(n: int, run_id: int) -> str:
        row = {"queue_id": 1, "queue": "orders", "minute": (START + n * MINUTE).isoformat(), "planned": 1,
               "retries": 0, "backlog": 0.0, "run_id": run_id, "fresh_at": START.isoformat()}  # fmt: skip
        return json.dumps(row)

    analytics.put(Table.FORECASTS, [forecast(1, 1), forecast(2, 1)])
    analytics.put(Table.FORECAST_MINUTES, [coming(0, 1), coming(1, 1)])
    analytics.put(Table.FORECASTS, [forecast(1, 2)])
    analytics.put(Table.FORECAST_MINUTES, [coming(1, 2)])
    assert analytics.keep_forecast(2) == 1
    forecasts = app.store.run(app.store.analytics.forecasts(AnalyticsQuery())).rows
    assert [(forecast.queue, forecast.run_id) for forecast in forecasts] == [("orders", 2)]
    assert [(forecast.minute, forecast.run_id) for forecast in analytics.forecast_minutes("orders")] == [
        (START + MINUTE, 2)
    ]


def a_round(number: int, lake: str = "lake") -> Round:
    return Round(lake=lake, number=number, position=number, snapshot="5:5:", system_id="7")


def test_a_round_is_planned_once_and_completed_once_with_its_levels(rounds: PostgresRounds) -> None:
    assert (rounds.head("lake"), rounds.planned("lake"), rounds.levels("lake")) == (None, None, [])
    rounds.plan(a_round(1))
    with pytest.raises(psycopg.errors.UniqueViolation):
        rounds.plan(a_round(2))
    assert (rounds.head("lake"), rounds.planned("lake")) == (None, a_round(1))
    rounds.finish(a_round(1), [QueueLevel(1, 10, 1), QueueLevel(2, 5, 0)])
    assert (rounds.head("lake"), rounds.planned("lake")) == (a_round(1), None)
    rounds.plan(a_round(4))
    rounds.finish(a_round(4), [QueueLevel(1, 7, 3)])
    with pytest.raises(InvalidState):
        rounds.finish(a_round(4), [QueueLevel(1, 0, 0)])
    assert (rounds.head("lake"), rounds.levels("lake")) == (a_round(4), [QueueLevel(1, 7, 3), QueueLevel(2, 5, 0)])
    rounds.plan(a_round(5, "another"))
    rounds.forget("lake")
    assert (rounds.head("lake"), rounds.levels("lake")) == (None, [])
    assert rounds.planned("another") == a_round(5, "another")


def test_the_views_show_what_the_tables_have(app: tarry.App, database: str, analytics: PipelineAnalytics) -> None:
    analytics.put(Table.METRICS, [minute(0)])
    app.queues.rename("orders", "sales")
    with psycopg.connect(database) as conn:
        assert conn.execute("select queue_name, queue from tarry.metrics").fetchall() == [("sales", "orders")]
        for view in ("consumers", "forecasts"):
            assert conn.execute(f"select * from tarry.{view}").fetchall() == []
