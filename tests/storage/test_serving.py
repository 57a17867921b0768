"""What the pipeline works out is written once, replaced by what is newer, and read under the name a queue has now."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
import pytest

import tarry
from tarry.core.errors import InvalidInput, Refused, UnknownQueue
from tarry.core.serving import FactOutcome, Level, Planned, Quantiles, Standing, Table
from tarry.core.tracing import PartKind, TraceHead, TracePart
from tarry.storage.postgres.pipeline.reach import Reach
from tarry.storage.postgres.pipeline.serving import PostgresServing
from tarry.storage.postgres.pipeline.tracing import PostgresTracing
from tarry.testing import MutableClock

START = datetime(2024, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
COUNTS = ("offered", "updated", "redriven", "leased", "acked", "nacked", "released", "expired", "buried", "dropped",
          "purged", "refused", "bytes_offered", "depth", "dead")  # fmt: skip


@pytest.fixture
def app(database: str) -> Iterator[tarry.App]:
    with tarry.connect(database, clock=MutableClock(START)) as app:
        app.queues.create("orders")
        yield app


@pytest.fixture
def serving(app: tarry.App, database: str) -> PostgresServing:
    return PostgresServing(Reach(database))


@pytest.fixture
def tracing(app: tarry.App, database: str) -> PostgresTracing:
    return PostgresTracing(Reach(database))


def minute(n: int, run_id: int = 1, **said: Any) -> str:
    row = {
        "queue_id": 1, "queue": "orders", "minute": (START + n * MINUTE).isoformat(), **dict.fromkeys(COUNTS, 0),
        "exact": True, "run_id": run_id, "fresh_at": START.isoformat(), **said,
    }  # fmt: skip
    return json.dumps(row)


def fact(version: int, last_id: int = 1, **said: Any) -> str:
    row = {
        "queue_id": 1, "queue": "orders", "version": version, "key": "k", "settled_at": START.isoformat(),
        "last_id": last_id, "processing_s": 0.5, "attempts": 1, "redeliveries": 0, "releases": 0, "outcome": "done",
        "run_id": 1, "fresh_at": START.isoformat(), **said,
    }  # fmt: skip
    return json.dumps(row)


def test_metrics_come_back_in_the_order_of_time_and_no_more_than_asked_for(serving: PostgresServing) -> None:
    serving.put(Table.METRICS, [minute(n, offered=n) for n in range(5)])
    found = serving.metrics("orders", START + MINUTE, START + 4 * MINUTE)
    assert [(one.queue, one.minute, one.offered) for one in found] == [
        ("orders", START + n * MINUTE, n) for n in (1, 2, 3)
    ]
    assert [one.offered for one in serving.metrics(None, START, START + 9 * MINUTE, limit=2)] == [3, 4]
    assert serving.metrics("orders", START, START + 9 * MINUTE, limit=0) == []


def test_percentiles_are_there_or_not_as_a_whole(serving: PostgresServing) -> None:
    serving.put(Table.METRICS, [minute(0, lag_p50_s=0.1, lag_p95_s=0.2, lag_p99_s=0.3)])
    (found,) = serving.metrics("orders", START, START + MINUTE)
    assert (found.lag, found.wait, found.processing) == (Quantiles(0.1, 0.2, 0.3), None, None)


def test_writing_the_same_again_changes_nothing_and_keeps_its_age(serving: PostgresServing) -> None:
    assert serving.put(Table.METRICS, [minute(0, offered=1), minute(1, offered=2)]) == 2
    assert serving.put(Table.METRICS, [minute(0, 2, offered=1), minute(1, 2, offered=3)]) == 1
    assert [one.run_id for one in serving.metrics("orders", START, START + 9 * MINUTE)] == [1, 2]


def test_history_follows_a_queue_to_its_new_name_and_outlives_it(app: tarry.App, serving: PostgresServing) -> None:
    serving.put(Table.METRICS, [minute(0)])
    app.queues.rename("orders", "sales")
    assert [one.queue for one in serving.metrics("sales", START, START + MINUTE)] == ["sales"]
    with pytest.raises(UnknownQueue):
        serving.metrics("orders", START, START + MINUTE)
    app.queues.delete("sales")
    assert len(serving.metrics("sales", START, START + MINUTE)) == 1


@pytest.mark.parametrize("limit", [-1, 100_001])
def test_a_limit_that_cannot_be_kept_is_refused(serving: PostgresServing, limit: int) -> None:
    with pytest.raises(InvalidInput, match="limit must be within 0 and 100,000"):
        serving.metrics(None, START, START, limit=limit)


def test_minutes_are_added_up_in_stretches_or_as_a_whole(serving: PostgresServing) -> None:
    counts = {"offered": 1, "leased": 2, "acked": 3, "nacked": 4, "expired": 5, "buried": 6}
    serving.put(Table.METRICS, [minute(n, depth=n, dead=10 * n, **counts) for n in (1, 4, 5, 14)])
    serving.put(Table.METRICS, [minute(3, queue_id=2, queue="gone", offered=7)])
    spans = serving.metric_spans(None, START, START + 14 * MINUTE, 5 * MINUTE)
    assert [(one.queue, one.minute, one.offered, one.depth, one.dead) for one in spans] == [
        ("gone", START + 3 * MINUTE, 7, 0, 0),
        ("orders", START + MINUTE, 2, 4, 40),
        ("orders", START + 5 * MINUTE, 1, 5, 50),
    ]
    (whole,) = serving.metric_spans("orders", START, START + 15 * MINUTE, None)
    assert {name: getattr(whole, name) for name in counts} == {name: 4 * n for name, n in counts.items()}
    assert (whole.minute, whole.depth, whole.lag, whole.processing) == (START + MINUTE, 14, None, None)


def test_of_several_minutes_the_typical_p50_and_the_worst_tail_are_told(serving: PostgresServing) -> None:
    def seconds(of: str, *p: float) -> dict[str, Any]:
        return {f"{of}_p{rank}_s": value for rank, value in zip((50, 95, 99), p, strict=True)}

    calm, rough = seconds("lag", 0.01, 9.0, 9.5), seconds("lag", 1.0, 2.0, 3.0)
    slow, fast = seconds("processing", 5.0, 6.0, 7.0), seconds("processing", 0.5, 0.6, 0.7)
    serving.put(Table.METRICS, [
        minute(0, leased=10, acked=1, nacked=1, **rough, **slow),
        minute(1, leased=100, acked=2, **calm, **fast),
        minute(2, leased=20, nacked=3, **rough, **slow),
        minute(3, leased=1_000),
    ])  # fmt: skip
    (found,) = serving.metric_spans("orders", START, START + 9 * MINUTE, None)
    assert (found.lag, found.processing) == (Quantiles(0.01, 9.0, 9.5), Quantiles(5.0, 6.0, 7.0))


def test_what_is_to_come_is_added_up_too(serving: PostgresServing) -> None:
    def coming(n: int, planned: int, backlog: float) -> str:
        return json.dumps({
            "queue_id": 1, "queue": "orders", "minute": (START + n * MINUTE).isoformat(), "planned": planned, "retries": 1,
            "backlog": backlog, "lag_s": None, "saturated": None, "run_id": 1, "fresh_at": START.isoformat(),
        })  # fmt: skip

    serving.put(Table.FORECAST_MINUTES, [coming(1, 5, 0), coming(3, 6, 9.5), coming(7, 0, 2), coming(9, 0, 0)])
    assert [
        (one.minute, one.last_minute, one.planned, one.retries, one.backlog)
        for one in serving.forecast_spans("orders", 5 * MINUTE)
    ] == [(START + MINUTE, START + 3 * MINUTE, 11, 2, 9.5), (START + 7 * MINUTE, START + 7 * MINUTE, 0, 1, 2.0)]
    (whole,) = serving.forecast_spans(None, None)
    assert (whole.minute, whole.last_minute, whole.planned) == (START + MINUTE, START + 7 * MINUTE, 11)


def test_more_rows_than_one_statement_takes_are_all_written(serving: PostgresServing) -> None:
    assert serving.put(Table.FACTS, (fact(n) for n in range(12_345))) == 12_345
    assert len(serving.facts("orders", START, START + MINUTE, limit=20_000)) == 12_345


def test_a_fact_is_replaced_by_what_is_known_later_and_never_by_what_was_known_before(serving: PostgresServing) -> None:
    serving.put(Table.FACTS, [fact(1, 10, outcome="dead", reason="exhausted")])
    serving.put(Table.FACTS, [fact(1, 20, outcome="redriven", reason="exhausted")])
    assert serving.put(Table.FACTS, [fact(1, 10, outcome="dead")]) == 0
    (found,) = serving.facts("orders", START, START + MINUTE)
    assert (found.outcome, found.reason) == (FactOutcome.REDRIVEN, "exhausted")
    assert serving.facts("orders", START, START + MINUTE, outcome=FactOutcome.DEAD) == []


def test_old_facts_are_forgotten(serving: PostgresServing) -> None:
    serving.put(Table.FACTS, [fact(1), fact(2, settled_at=(START + MINUTE).isoformat())])
    assert serving.forget_facts(START + MINUTE) == 1
    assert [one.version for one in serving.facts(None, START, START + 2 * MINUTE)] == [2]


def test_a_level_is_the_sum_of_the_days_before_and_a_day_is_replaced_as_a_whole(serving: PostgresServing) -> None:
    one, two, three = date(2024, 1, 1), date(2024, 1, 2), date(2024, 1, 3)
    serving.put_levels("lake", {one: [Level(1, 10, 1), Level(2, 5, 0)], two: [Level(1, -3, 2)]})
    assert serving.levels_before("lake", one) == []
    assert serving.levels_before("lake", three) == [Level(1, 7, 3), Level(2, 5, 0)]
    serving.put_levels("lake", {one: [Level(1, 20, 1)]})
    assert serving.levels_before("lake", three) == [Level(1, 17, 3)]
    assert serving.levels_before("another", three) == []


def test_the_outlook_tells_what_comes_from_what_is_there(app: tarry.App, serving: PostgresServing) -> None:
    orders = app.queue("orders")
    app.queues.create("idle", tarry.QueueSettings(target_lag_for=timedelta(seconds=5)))
    app.queues.pause("idle")
    for n, after in enumerate((0, 0, 0, 30, 59, 60, 86_400 * 8)):
        orders.offer(f"k{n}", n, after=timedelta(seconds=after))
    orders.try_poll_many(1)
    for delivery in orders.try_poll_many(1):
        delivery.nack(delay=timedelta(seconds=61))
    found = serving.outlook(START, START + timedelta(days=7))
    assert found.standings == (
        Standing(queue_id=1, queue="orders", ready=1, leased=1, target_lag_s=60.0, paused=False),
        Standing(queue_id=2, queue="idle", ready=0, leased=0, target_lag_s=5.0, paused=True),
    )
    assert found.planned == (Planned(1, START, 2, 0), Planned(1, START + MINUTE, 2, 1))


def test_of_two_forecasts_the_last_one_counts(serving: PostgresServing) -> None:
    def forecast(queue_id: int, run_id: int) -> str:
        row = {"queue_id": queue_id, "queue": "orders", "planned": 1, "retries": 0, "peak_backlog": 0.0,
               "sentence": "all is well", "run_id": run_id, "fresh_at": START.isoformat()}  # fmt: skip
        return json.dumps(row)

    def coming(n: int, run_id: int) -> str:
        row = {"queue_id": 1, "queue": "orders", "minute": (START + n * MINUTE).isoformat(), "planned": 1,
               "retries": 0, "backlog": 0.0, "run_id": run_id, "fresh_at": START.isoformat()}  # fmt: skip
        return json.dumps(row)

    serving.put(Table.FORECASTS, [forecast(1, 1), forecast(2, 1)])
    serving.put(Table.FORECAST_MINUTES, [coming(0, 1), coming(1, 1)])
    serving.put(Table.FORECASTS, [forecast(1, 2)])
    serving.put(Table.FORECAST_MINUTES, [coming(1, 2)])
    assert serving.keep_forecast(2) == 1
    assert [(one.queue, one.run_id) for one in serving.forecasts()] == [("orders", 2)]
    assert [(one.minute, one.run_id) for one in serving.forecast_minutes("orders")] == [(START + MINUTE, 2)]


def head(run_id: int, lake: str = "lake") -> TraceHead:
    return TraceHead(lake=lake, place=run_id, snapshot="5:5:", system_id="7", run_id=run_id)


def test_only_one_of_two_runs_moves_the_head(tracing: PostgresTracing) -> None:
    assert tracing.head("lake") is None
    tracing.advance(None, head(1), [], [])
    with pytest.raises(Refused):
        tracing.advance(None, head(2), [], [])
    tracing.advance(head(1), head(3), [], [])
    with pytest.raises(Refused):
        tracing.advance(head(1), head(4), [TracePart(PartKind.EVENTS, date(2024, 1, 1), 4, 1)], [])
    assert tracing.head("lake") == head(3)
    assert tracing.parts("lake", PartKind.EVENTS) == []


def test_merged_parts_give_way_to_the_one_that_holds_them(tracing: PostgresTracing) -> None:
    day = date(2024, 1, 1)
    first, second = TracePart(PartKind.EVENTS, day, 1, 10), TracePart(PartKind.FACTS, day, 1, 4)
    tracing.advance(None, head(1), [first, second], [])
    merged = TracePart(PartKind.EVENTS, day, 2, 15)
    tracing.advance(head(1), head(2), [merged], [first])
    assert tracing.parts("lake", PartKind.EVENTS) == [merged]
    assert tracing.parts("lake", PartKind.FACTS) == [second]


def test_a_reader_never_goes_back(tracing: PostgresTracing) -> None:
    assert tracing.seen("lake", "metrics") == 0
    tracing.see("lake", "metrics", 5)
    tracing.see("lake", "metrics", 3)
    assert (tracing.seen("lake", "metrics"), tracing.seen("lake", "facts")) == (5, 0)


def test_the_views_show_what_the_tables_have(app: tarry.App, database: str, serving: PostgresServing) -> None:
    serving.put(Table.METRICS, [minute(0)])
    app.queues.rename("orders", "sales")
    with psycopg.connect(database) as conn:
        assert conn.execute("select queue_name, queue from tarry.metrics").fetchall() == [("sales", "orders")]
        for view in ("consumers", "facts", "forecasts"):
            assert conn.execute(f"select * from tarry.{view}").fetchall() == []
