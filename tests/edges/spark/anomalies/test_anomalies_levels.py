"""The statistical detectors on small series: what is usual, what is not, and what one incident is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tarry.edges.spark.sizing import local_frame
from tarry.edges.spark.transforms import consumers, metrics
from tarry.edges.spark.transforms import history as tracing
from tarry.edges.spark.transforms.anomalies import baselines, profiles
from tarry.edges.spark.transforms.anomalies.context import BANDS, QUEUES
from tarry.edges.spark.transforms.anomalies.statistical import LevelSettings, incidents, scored, unusual
from tests.edges.spark.anomalies.anomaly_kit import NOON, SINCE, TODAY, UNTIL, Journal, day, detected_by, seen

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

METRICS = (
    "queue_id int, minute timestamp, offered long, updated long, acked long, nacked long, expired long, "
    "processing_p95_s double, lag_p95_s double"
)


def minutes_of(spark: SparkSession, offered: dict[int, int]) -> DataFrame:
    rows = [(1, NOON + timedelta(minutes=m), n, 0, n, 0, 0, 0.5, 0.1) for m, n in offered.items()]
    return local_frame(spark, rows, METRICS)


def orders(
    spark: SparkSession, *, created_at: datetime = SINCE, deleted_at: datetime | None = None, level: str = "events"
):
    return local_frame(spark, [(1, "orders", 5, created_at, deleted_at, level)], QUEUES)


def usual(spark: SparkSession, metric: str, median: float, sigma: float, *, scale: int = 1) -> DataFrame:
    rows = [(TODAY, 1, metric, scale, hour, 240, median, sigma, median - sigma, median + sigma) for hour in range(24)]
    return local_frame(spark, rows, BANDS)


def test_minutes_in_which_nothing_happened_are_zeros(spark: SparkSession) -> None:
    series = baselines.series(minutes_of(spark, {0: 9, 3: 4}), orders(spark), NOON, NOON + timedelta(minutes=5))
    offered = series.where("metric = 'offered' and scale = 1").orderBy("minute").collect()
    assert [(row.value, row.x) for row in offered] == [(9, 3), (0, 0), (0, 0), (4, 2), (0, 0)]
    assert series.where("metric = 'processing'").count() == 2


def test_a_queue_is_judged_from_its_first_whole_minute_until_it_is_deleted(spark: SparkSession) -> None:
    queue = orders(spark, created_at=NOON + timedelta(seconds=61), deleted_at=NOON + timedelta(minutes=4, seconds=30))
    series = baselines.series(minutes_of(spark, {2: 1}), queue, NOON, NOON + timedelta(minutes=9))
    lived = series.where("metric = 'acked' and scale = 1").orderBy("minute").collect()
    assert [row.value for row in lived] == [1, 0]  # minutes 2 and 3


def test_a_queue_without_a_journal_is_not_judged(spark: SparkSession) -> None:
    series = baselines.series(minutes_of(spark, {}), orders(spark, level="off"), NOON, UNTIL)
    assert series.count() == 0


def test_ten_minutes_are_summed_once_there_are_ten(spark: SparkSession) -> None:
    counts = dict.fromkeys(range(12), 2)
    series = baselines.series(
        minutes_of(spark, counts), orders(spark, created_at=NOON), NOON, NOON + timedelta(minutes=12)
    )
    assert [row.value for row in series.where("metric = 'offered' and scale = 10").collect()] == [20, 20, 20]


def tallies(spark: SparkSession, rows: list[tuple[int, float, int]], metric: str = "offered") -> DataFrame:
    """Days before today, value, minutes; all at noon."""
    return local_frame(
        spark, [(day(-ago), 1, None, metric, 1, 12, value, n) for ago, value, n in rows], profiles.TALLIES
    )


def test_the_band_is_median_and_mad_of_the_same_hour_of_the_week(spark: SparkSession) -> None:
    weeks = [(7, 10.0, 30), (7, 12.0, 30), (14, 10.0, 30), (14, 14.0, 30), (14, 99.0, 3)]
    other_days = [(1, 50.0, 60), (2, 50.0, 60), (3, 50.0, 60)]
    (band,) = baselines.bands(tallies(spark, weeks + other_days), [TODAY]).collect()
    assert (band.n, band.median) == (123, 12.0)
    assert band.sigma == pytest.approx(2 * 1.4826)  # half of them lie within 2 of 12


def test_until_two_weeks_are_known_the_hour_of_like_days_counts(spark: SparkSession) -> None:
    """Today is a Monday: the days before it are a weekend, and then come Friday, Thursday and Wednesday."""
    like = [(3, 6.0, 60), (4, 6.0, 60), (5, 6.0, 60)]
    weekend = [(1, 1.0, 60), (2, 1.0, 60)]
    (band,) = baselines.bands(tallies(spark, like + weekend), [TODAY]).collect()
    assert (band.n, band.median) == (180, 6.0)
    assert baselines.bands(tallies(spark, like[:2] + weekend), [TODAY]).count() == 0


def test_a_spread_below_that_of_a_poisson_count_is_not_believed(spark: SparkSession) -> None:
    (band,) = baselines.bands(tallies(spark, [(7, 3.0, 60), (14, 3.0, 60)]), [TODAY]).collect()
    assert band.sigma == 0.5


def test_a_spread_below_a_tenth_of_the_level_is_not_believed(spark: SparkSession) -> None:
    (band,) = baselines.bands(tallies(spark, [(7, 40.0, 60), (14, 40.0, 60)]), [TODAY]).collect()
    assert band.sigma == 2.0


def test_neither_today_nor_what_is_older_than_four_weeks_is_the_past(spark: SparkSession) -> None:
    assert baselines.bands(tallies(spark, [(0, 3.0, 600), (35, 3.0, 600)]), [TODAY]).count() == 0


def anomalies_in(spark: SparkSession, values: dict[int, float], metric: str, **band: Any) -> list[Any]:
    rows = [
        (1, "orders", metric, 1, NOON + timedelta(minutes=m), TODAY, 12, x * x, x) for m, x in values.items()
    ]  # fmt: skip
    from tests.edges.spark.anomalies.anomaly_kit import SERIES

    what = seen(spark, Journal(), series=local_frame(spark, rows, SERIES), bands=usual(spark, metric, **band))
    name = {"offered": "unusual_offers", "acked": "unusual_acks", "failed": "unusual_failures"}[metric]
    return detected_by(what, name)


def test_consecutive_minutes_are_one_incident(spark: SparkSession) -> None:
    values = dict.fromkeys(range(20), 10.0) | {5: 12.0, 6: 12.0, 9: 12.5, 10: 12.0, 11: 12.0}
    (row,) = anomalies_in(spark, values, "offered", median=10.0, sigma=0.5)
    assert (row.window_to - row.window_from).total_seconds() == 7 * 60
    assert (row.observed, row.score) == (156.25, 5.0)
    assert (row.expected_low, row.expected_high) == (8.25**2, 11.75**2)
    assert row.sentence == (
        "Queue orders: 156 messages were offered in the minute 12:09 UTC, where 68 to 138 is usual at this hour of the "
        "week. It lasted 7 min."
    )


def test_a_stall_is_an_incident_though_nothing_happens_in_it(spark: SparkSession) -> None:
    values = dict.fromkeys(range(20), 4.0) | dict.fromkeys(range(8, 12), 0.0)
    (row,) = anomalies_in(spark, values, "acked", median=4.0, sigma=0.5)
    assert row.sentence.startswith("Queue orders: no messages were acked in the minute 12:")
    assert row.score == -8.0


def test_a_few_minutes_just_outside_are_noise_and_one_far_outside_is_not(spark: SparkSession) -> None:
    quiet = dict.fromkeys(range(20), 10.0)
    assert anomalies_in(spark, quiet | dict.fromkeys(range(5, 9), 12.0), "offered", median=10.0, sigma=0.5) == []
    assert len(anomalies_in(spark, quiet | {5: 13.5}, "offered", median=10.0, sigma=0.5)) == 1


def test_just_below_the_threshold_nothing_fires(spark: SparkSession) -> None:
    assert anomalies_in(spark, dict.fromkeys(range(20), 11.75), "offered", median=10.0, sigma=0.5) == []
    assert len(anomalies_in(spark, dict.fromkeys(range(20), 11.76), "offered", median=10.0, sigma=0.5)) == 1


def test_fewer_failures_than_usual_are_no_anomaly(spark: SparkSession) -> None:
    assert anomalies_in(spark, dict.fromkeys(range(20), 0.0), "failed", median=5.0, sigma=0.5) == []
    assert len(anomalies_in(spark, dict.fromkeys(range(20), 8.0), "failed", median=5.0, sigma=0.5)) == 1


def test_what_happens_once_an_hour_is_usual_though_its_median_is_zero(spark: SparkSession) -> None:
    past = tallies(spark, [(7, 0.0, 59), (7, 4.0, 1), (14, 0.0, 59), (14, 4.0, 1)])
    rows = [
        (1, "orders", "offered", 1, NOON, TODAY, 12, 16.0, 4.0),
        (1, "orders", "offered", 1, NOON, TODAY, 12, 64.0, 8.0),
    ]
    from tests.edges.spark.anomalies.anomaly_kit import SERIES

    scores = scored(local_frame(spark, rows, SERIES), baselines.bands(past, [TODAY]))
    (out,) = unusual(scores, LevelSettings("offered")).collect()
    assert out.worst_value.value == 64.0


def test_the_same_incident_has_the_same_fingerprint_while_it_grows(spark: SparkSession) -> None:
    short = dict.fromkeys(range(5), 20.0)
    (before,) = anomalies_in(spark, short, "offered", median=10.0, sigma=0.5)
    (after,) = anomalies_in(spark, short | dict.fromkeys(range(5, 9), 22.0), "offered", median=10.0, sigma=0.5)
    assert before.fingerprint == after.fingerprint
    assert before.window_to < after.window_to


def test_incidents_of_two_sides_are_two(spark: SparkSession) -> None:
    rows = [(1, NOON + timedelta(minutes=m), side, "orders", 3.0, "") for m, side in ((0, 1), (1, -1))]
    minutes = local_frame(
        spark, rows, "queue_id int, minute timestamp, side int, queue string, weight double, worst_value string"
    )
    assert incidents(minutes, LevelSettings("offered")).count() == 2


def test_habits_are_quantiles_of_the_days_before(spark: SparkSession) -> None:
    journal = Journal()
    for i in range(200):
        journal.add("offered", -86_400, key=f"k{i}", size=100 if i else 10_000)
    journal.add("offered", 0, key="today", size=10**6)
    from tarry.edges.spark.schemas import EVENTS

    events = local_frame(spark, journal.rows, EVENTS)
    traced = tracing.traced(tracing.sequenced(events))
    counted = profiles.tallied(metrics.measured(traced), consumers.consumer_hours(traced))
    (size,) = profiles.profiles(counted.where("measure = 'size'"), [TODAY]).collect()
    assert size.n == 200
    assert 91 <= size.p01 <= 100 <= size.p99 <= 120
    assert 7_000 <= size.p999 <= 11_000


def test_the_sentence_is_in_utc_whatever_zone_the_session_has(spark: SparkSession) -> None:
    from tarry.edges.spark.transforms.query import filled

    zone = spark.conf.get("spark.sql.session.timeZone")
    at = datetime(2026, 7, 1, 12, 30, 15, 250_000, tzinfo=UTC)
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
        rows = local_frame(spark, [(at,)], "at timestamp")
        (row,) = rows.selectExpr(f"{filled('{at:time}')} as a", f"{filled('{at:instant}')} as b").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    assert (row.a, row.b) == ("12:30", "'2026-07-01 12:30:15.250000+00'")
