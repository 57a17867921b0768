"""The forecast against computations by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import tarry
from tarry.core.analytics.forecast import ForecastVerdict, sentence
from tarry.core.analytics.port import AnalyticsQuery
from tarry.edges.spark.jobs import archive, metrics
from tarry.edges.spark.jobs import forecast as job
from tarry.edges.spark.sizing import local_frame
from tarry.edges.spark.transforms.forecast import capacities, forecast, recent, verdicts, with_load
from tarry.testing import MutableClock
from tests.edges.spark.journal_frames import START, second, table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUEUES = "queue_id int, queue string, ready long, target_lag_s double, paused boolean"
PLANNED = "queue_id int, minute timestamp, planned long, retries long"
CAPACITY = "queue_id int, capacity double"
MINUTES = ("queue_id", "minute", "planned", "backlog", "lag_s", "saturated")


@pytest.fixture(scope="module")
def ahead(spark: SparkSession) -> DataFrame:
    """Five minutes from half past the first: one queue that falls behind, one that is paused, one without consumers,
    and one that waits for a schedule."""
    queues = [
        (1, "orders", 5, 60.0, False),
        (2, "mails", 0, 60.0, True),
        (3, "new", 2, 60.0, False),
        (4, "cron", 0, 60.0, False),
    ]
    planned = [(1, second(0), 4, 0), (1, second(60), 30, 3), (1, second(180), 1, 0), (2, second(120), 7, 7)]
    return forecast(
        local_frame(spark, queues, QUEUES),
        local_frame(spark, planned, PLANNED),
        local_frame(spark, [(1, 10.0), (2, 10.0), (4, 2.0)], CAPACITY),
        now=second(30),
        minutes=5,
        schedules=local_frame(spark, [(4, second(60), 3)], "queue_id int, minute timestamp, planned long"),
    ).localCheckpoint()


def test_the_backlog_is_carried_over_and_half_a_minute_works_off_half(ahead: DataFrame) -> None:
    assert table(ahead.where("queue_id = 1"), *MINUTES) == [
        (1, 0.0, 4, 4.0, 24.0, False),  # 5 + 4 - 10 / 2
        (1, 120.0, 0, 14.0, 84.0, True),
        (1, 180.0, 1, 5.0, 30.0, False),
        (1, 240.0, 0, 0.0, 0.0, False),  # unused capacity is not saved up
        (1, 60.0, 30, 24.0, 144.0, True),  # 4 + 30 - 10
    ]


def test_a_paused_queue_works_nothing_off(ahead: DataFrame) -> None:
    rows = table(ahead.where("queue_id = 2"), "minute", "backlog", "saturated")
    assert rows == [(0.0, 0.0, False), (120.0, 7.0, True), (180.0, 7.0, True), (240.0, 7.0, True), (60.0, 0.0, False)]


def test_without_a_known_capacity_there_is_no_saturation(ahead: DataFrame) -> None:
    assert table(ahead.where("queue_id = 3"), "backlog", "lag_s", "saturated") == [(2.0, None, None)] * 5


def test_schedules_add_to_what_is_planned(ahead: DataFrame) -> None:
    assert table(ahead.where("queue_id = 4"), "minute", "planned", "backlog")[-1] == (60.0, 3, 1.0)


def test_a_verdict_names_the_first_saturation_the_recovery_and_the_peak(ahead: DataFrame) -> None:
    columns = ("queue", "planned", "retries", "saturated_at", "recovered_at", "peak_backlog", "peak_at")
    assert table(verdicts(ahead), *columns) == [
        ("cron", 3, 0, None, None, 1.0, 60.0),
        ("mails", 7, 7, 120.0, None, 7.0, 120.0),
        ("new", 0, 0, None, None, 2.0, 0.0),
        ("orders", 35, 3, 60.0, 180.0, 24.0, 60.0),
    ]


def test_minutes_in_which_nothing_comes_and_nothing_waits_are_left_out(ahead: DataFrame) -> None:
    assert table(with_load(ahead).where("queue_id in (2, 4)"), "queue_id", "minute") == [
        (2, 120.0),
        (2, 180.0),
        (2, 240.0),
        (4, 60.0),
    ]


def test_capacity_is_what_busy_minutes_did_without_the_one_that_is_not_over(spark: SparkSession) -> None:
    minutes = [(1, second(60 * n), n) for n in range(21)]  # 0 … 20 acks a minute
    metrics = local_frame(spark, [*minutes, (2, second(0), 0)], "queue_id int, minute timestamp, acked long")
    capacity_rows = capacities(metrics, since=second(0), until=second(20 * 60))
    # Of 1 … 19 the 95th percentile is 18.1: the idle minute does not count, nor does the last.
    assert [(queue, round(capacity, 6)) for queue, capacity in table(capacity_rows, "queue_id", "capacity")] == [
        (1, 18.1)
    ]


def test_workers_are_counted_in_as_few_minutes_as_have_enough_messages(spark: SparkSession) -> None:
    metrics = [(1, second(0), 9), (1, second(60), 4), (1, second(120), 3), (1, second(180), 0), (2, second(0), 1)]
    facts = [(queue, key, second(at)) for queue, key, at in ((1, "a", 59), (1, "b", 60), (1, "c", 130), (2, "d", 1))]
    recent_facts = recent(
        local_frame(spark, facts, "queue_id int, key string, settled_at timestamp"),
        local_frame(spark, metrics, "queue_id int, minute timestamp, acked long"),
        since=second(0),
        enough=5,
    )
    # Three of the last minute are too few, seven of two are enough. The other queue has no more than one.
    assert table(recent_facts, "queue_id", "key") == [(1, "b"), (1, "c"), (2, "d")]


AT = datetime(2024, 1, 2, 9, 0, tzinfo=UTC)
QUIET: dict[str, Any] = {
    "queue": "orders", "ready": 0, "planned": 1200, "capacity": 400.0, "paused": False, "saturated_at": None,
    "recovered_at": None, "peak_backlog": 35.0, "peak_at": AT,
}  # fmt: skip


def sentence_of(**change: Any) -> str:
    return sentence(
        ForecastVerdict(**{**QUIET, **change}), ahead_for=timedelta(days=7), capacity_for=timedelta(hours=24)
    )


def test_a_forecast_has_a_sentence() -> None:
    assert sentence_of(planned=0) == "orders: nothing is ready, and nothing comes due in the next 7 days."
    assert sentence_of() == (
        "orders keeps up: 1,200 messages come due in the next 7 days, 400 a minute are worked off, "
        "35 wait at the worst, at 2024-01-02 09:00 UTC."
    )
    assert sentence_of(planned=1, ready=3, peak_backlog=0.0, peak_at=None) == (
        "orders keeps up: 1 message comes due in the next 7 days and 3 are ready now, 400 a minute are worked off, "
        "3 wait at the worst, now."
    )
    assert "10 an hour are worked off" in sentence_of(capacity=0.17)
    assert "1.4 a day are worked off" in sentence_of(capacity=0.001)
    assert sentence_of(capacity=None) == (
        "orders: 1,200 messages come due in the next 7 days; nothing was acked in the last day, so its capacity is "
        "not known."
    )
    assert (
        sentence_of(paused=True)
        == "orders is paused: 1,200 messages come due in the next 7 days, and wait until it is resumed."
    )


def test_a_queue_that_falls_behind_has_a_begin_and_an_end() -> None:
    assert sentence_of(saturated_at=AT, peak_backlog=12_000.0, recovered_at=AT + timedelta(minutes=33)) == (
        "orders falls behind at 2024-01-02 09:00 UTC: 1,200 messages come due in the next 7 days, 400 a minute are "
        "worked off, 12,000 wait at the worst, at 2024-01-02 09:00 UTC; it has caught up by 2024-01-02 09:33 UTC."
    )
    assert sentence_of(saturated_at=AT, peak_backlog=12_000.0).endswith("; it has not caught up 7 days from now.")


def test_the_job_publishes_what_follows_from_the_live_table_and_the_metrics(
    spark: SparkSession, database: str, lake: str
) -> None:
    clock = MutableClock(START)
    with tarry.connect(database, clock=clock) as app:
        orders = app.queue("orders")
        for n in range(4):
            orders.offer(f"past{n}", n)
        deliveries = orders.try_poll_many(4)
        clock.advance(timedelta(seconds=50))
        for delivery in deliveries:
            delivery.ack()
        archive.run(spark, app, archive.ArchiveArgs(lake=lake))
        metrics.run(spark, app, metrics.MetricsArgs(lake=lake))
        clock.advance(timedelta(minutes=10) - timedelta(seconds=50))
        orders.offer_many([tarry.Message(payload=n, key=f"soon{n}", after=timedelta(minutes=2)) for n in range(10)])
        args = job.ForecastArgs(lake=lake, ahead_for=timedelta(hours=1))
        summary = job.run(spark, app, args)
        analytics, forecasts = app.pipeline.analytics, app.store.analytics.forecasts
        coming = [
            (minute.minute, minute.planned, minute.backlog, minute.saturated)
            for minute in analytics.forecast_minutes("orders")
        ]
        assert coming == [
            # Four a minute were seen; four at the same time, for 50 s each, can do 4.8.
            (second(720), 10, pytest.approx(5.2), True),
            (second(780), 0, pytest.approx(0.4), False),
        ]
        (forecast,) = app.store.run(forecasts(AnalyticsQuery())).rows
        assert forecast.capacity == pytest.approx(4.8)
        assert (forecast.saturated_at, forecast.recovered_at) == (second(720), second(780))
        assert summary.sentences == (forecast.sentence,)
        assert forecast.sentence.startswith("orders falls behind at 2024-01-01 00:12 UTC: 10 messages come due")
        for n in range(10):
            orders.drop(f"soon{n}")
        assert job.run(spark, app, args).saturated == 0
        assert (
            analytics.forecast_minutes("orders"),
            app.store.run(forecasts(AnalyticsQuery())).rows[0].saturated_at,
        ) == ([], None)
        # The next tick is a message already, those after it are still to be planned; each counts once.
        app.cron().install_periodic("every 20 minutes", timedelta(minutes=20), queue="orders", payload=1)
        job.run(spark, app, args)
        coming = [(minute.minute, minute.planned) for minute in analytics.forecast_minutes("orders")]
        assert coming == [(second(n * 1200), 1) for n in (1, 2, 3)]
