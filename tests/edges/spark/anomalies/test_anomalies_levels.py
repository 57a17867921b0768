"""The statistical detectors on small series: what is usual, what is not, and what one incident is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from tarry.core.analytics.calendar import Calendar
from tarry.edges.spark.sizing import local_frame
from tarry.edges.spark.transforms import consumers, metrics
from tarry.edges.spark.transforms import history as tracing
from tarry.edges.spark.transforms.anomalies import baselines, profiles
from tarry.edges.spark.transforms.anomalies.builtin import BUILT_IN
from tarry.edges.spark.transforms.anomalies.context import QUEUES
from tarry.edges.spark.transforms.anomalies.statistical import UNUSUAL_DEPTH, LevelSettings, incidents
from tests.edges.spark.anomalies.anomaly_kit import (
    NOON,
    SINCE,
    TODAY,
    UNTIL,
    Detections,
    Journal,
    Scene,
    day,
    detected_by,
    levels,
    seen,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

METRICS = (
    "queue_id int, minute timestamp, offered long, updated long, acked long, nacked long, expired long, "
    "processing_p95_s double, lag_p95_s double, depth long"
)


def minutes_of(spark: SparkSession, offered: dict[int, int]) -> DataFrame:
    rows = [(1, NOON + timedelta(minutes=m), n, 0, n, 0, 0, 0.5, 0.1, n) for m, n in offered.items()]
    return local_frame(spark, rows, METRICS)


def orders(
    spark: SparkSession, *, created_at: datetime = SINCE, deleted_at: datetime | None = None, level: str = "events"
):
    return local_frame(spark, [(1, "orders", 5, created_at, deleted_at, level)], QUEUES)


def test_minutes_in_which_nothing_happened_are_zeros(spark: SparkSession) -> None:
    counts = {4: 9, 7: 7}
    series = baselines.series(minutes_of(spark, counts), orders(spark), NOON, NOON + timedelta(minutes=9))
    offered = series.where("metric = 'offered' and scale = 5").orderBy("minute").collect()
    assert [(row.value, row.x) for row in offered] == [(9, 3), (9, 3), (9, 3), (16, 4), (16, 4)]
    assert series.where("metric = 'processing' and scale = 5").count() == 5


def test_a_queue_is_judged_from_its_first_whole_minutes_until_it_is_deleted(spark: SparkSession) -> None:
    queue = orders(spark, created_at=NOON + timedelta(seconds=61), deleted_at=NOON + timedelta(minutes=8, seconds=30))
    series = baselines.series(minutes_of(spark, {2: 1}), queue, NOON, NOON + timedelta(minutes=19))
    lived = series.where("metric = 'acked'").orderBy("minute").collect()
    assert [(row.value, row.minute.astimezone(UTC).minute) for row in lived] == [(1, 6), (0, 7)]


def test_hours_are_those_of_local_clocks_and_a_holiday_is_a_sunday(spark: SparkSession) -> None:
    calendar = Calendar("Asia/Kolkata", frozenset({TODAY}))
    counts = dict.fromkeys(range(800), 1)
    series = baselines.series(minutes_of(spark, counts), orders(spark), NOON, NOON + timedelta(hours=13), calendar)
    rows = series.where("metric = 'offered' and scale = 5").selectExpr("unix_seconds(minute) as at", "hour", "phase")
    by_clock = {
        datetime.fromtimestamp(row.at, UTC): (row.hour, row.phase) for row in rows.collect() if row.at % 900 == 0
    }
    assert by_clock == {
        at: (calendar.hour_of_week(at), ((at.minute + 30) % 60 - 29.5) / 60) for at in by_clock
    }  # fmt: skip
    assert {hour // 24 for hour, _ in by_clock.values()} == {6, 1}  # the holiday, and the Tuesday after it


def test_a_queue_without_a_journal_is_not_judged(spark: SparkSession) -> None:
    series = baselines.series(minutes_of(spark, {}), orders(spark, level="off"), NOON, UNTIL)
    assert series.count() == 0


def tallies(spark: SparkSession, rows: list[tuple[int, float, int]], metric: str = "offered") -> DataFrame:
    """Days before today, value, minutes; all at noon."""
    return local_frame(
        spark,
        [(day(-ago), 1, None, metric, 5, day(-ago).weekday() * 24 + 12, value, n) for ago, value, n in rows],
        profiles.TALLIES,
    )


def few(days: int) -> float:
    return (28 / days) ** 0.25


def test_the_band_is_median_and_mad_of_the_same_hour_of_the_week(spark: SparkSession) -> None:
    weeks = [(7, 10.0, 30), (7, 12.0, 30), (14, 10.0, 30), (14, 14.0, 30), (14, 99.0, 3)]
    (band,) = baselines.bands(tallies(spark, weeks), [TODAY]).collect()
    assert (band.hour, band.n, band.median) == (12, 123, 12.0)
    assert band.sigma == pytest.approx(2 * 1.4826 * few(2), rel=0.02)  # half of them lie within 2 of 12


def test_until_two_weeks_are_known_the_hour_of_like_days_counts(spark: SparkSession) -> None:
    """Today is a Monday: the days before it are a weekend, and then come Friday, Thursday and Wednesday."""
    like = [(3, 6.0, 60), (4, 6.0, 60), (5, 6.0, 60)]
    weekend = [(1, 1.0, 60), (2, 1.0, 60)]
    (band,) = baselines.bands(tallies(spark, like + weekend), [TODAY]).collect()
    assert (band.n, band.median) == (180, 6.0)


def test_until_three_like_days_are_known_the_hour_of_any_two_days_counts(spark: SparkSession) -> None:
    (band,) = baselines.bands(tallies(spark, [(1, 1.0, 60), (3, 6.0, 120)]), [TODAY]).collect()
    assert (band.n, band.median) == (180, 6.0)
    assert baselines.bands(tallies(spark, [(1, 1.0, 60), (3, 6.0, 59)]), [TODAY]).count() == 0


def test_longer_sums_are_evaluated_every_five_minutes(spark: SparkSession) -> None:
    series = baselines.series(minutes_of(spark, {3: 9}), orders(spark), NOON, NOON + timedelta(minutes=40))
    rows = series.where("scale > 5 and metric in ('offered', 'processing')").collect()
    values = {(row.metric, row.scale, row.minute.minute): row.value for row in rows}
    assert values == {
        **{("offered", 15, minute): 9 if minute < 18 else 0 for minute in range(14, 40, 5)},
        **{("offered", 30, minute): 9 if minute < 33 else 0 for minute in range(29, 40, 5)},
        **{("processing", 15, minute): 0.5 for minute in range(4, 18, 5)},
    }


def test_a_minute_without_events_has_the_depth_of_the_one_before(spark: SparkSession) -> None:
    series = baselines.series(minutes_of(spark, {2: 9, 8: 4}), orders(spark), NOON, NOON + timedelta(minutes=12))
    depths = series.where("metric = 'depth'").orderBy("minute").collect()
    assert [(row.minute.minute, row.value) for row in depths] == [
        (minute, 9 if minute < 10 else 4) for minute in range(2, 12)
    ]


def test_a_spread_below_that_of_a_poisson_count_and_some_percent_is_not_believed(spark: SparkSession) -> None:
    (band,) = baselines.bands(tallies(spark, [(7, 40.0, 60), (14, 40.0, 60)]), [TODAY]).collect()
    assert band.sigma == pytest.approx((0.25 + (0.03 * 40) ** 2) ** 0.5 * few(2))


def test_the_past_is_raised_by_its_growth_and_bursts_at_any_hour_are_usual(spark: SparkSession) -> None:
    """Four weeks in which the root of the count grew by 5 % a week, with a burst every day, each time at another hour."""
    rows = [
        (day(-ago), 1, None, "offered", 5, day(-ago).weekday() * 24 + hour, 20 * 1.05 ** (-ago / 7) * burst, n)
        for ago in range(1, 29)
        for hour in range(9, 16)
        for burst, n in ((1.0, 55), (2.0, 5 if hour == 11 + ago % 3 else 0))
        if n
    ]
    bands = {row.hour: row for row in baselines.bands(local_frame(spark, rows, profiles.TALLIES), [TODAY]).collect()}
    assert [band.median for band in bands.values()] == pytest.approx([20.0] * 7)
    assert bands[12].sigma == pytest.approx((0.25 + 0.6**2) ** 0.5)
    assert [bands[hour].peak for hour in (9, 12, 15)] == pytest.approx([20.0] * 3, rel=0.02)
    assert bands[12].trough == 0


def test_where_the_peaks_of_days_differ_much_a_higher_one_is_usual(spark: SparkSession) -> None:
    """Eleven days: the median of their peaks is 6 above the usual 20, and one day in ten has more than 10."""
    rows = [row for ago in range(1, 12) for row in ((ago, 20.0, 55), (ago, 20.0 + ago, 5))]
    (band,) = baselines.bands(tallies(spark, rows), [TODAY]).collect()
    assert (band.median, band.peak) == (20.0, pytest.approx(10 + 4 / 2, rel=0.01))


def test_neither_today_nor_what_is_older_than_four_weeks_is_the_past(spark: SparkSession) -> None:
    assert baselines.bands(tallies(spark, [(0, 3.0, 600), (35, 3.0, 600)]), [TODAY]).count() == 0


QUIET = dict.fromkeys(range(20), 10.0)
STALL = levels("acked", dict.fromkeys(range(20), 4.0) | dict.fromkeys(range(8, 12), 0.0), median=4.0, sigma=0.5)
FEWER_FAILURES, MORE_FAILURES = (
    levels("failed", dict.fromkeys(range(20), x), median=5.0, sigma=0.5) for x in (0.0, 8.0)
)
JUST_OUTSIDE, FAR_OUTSIDE, CONSECUTIVE, AN_HOUR_APART, FURTHER_APART, OTHER_LEVEL, CHANGED_LEVEL = (
    levels("offered", values, median=10.0, sigma=0.5)
    for values in (
        QUIET | dict.fromkeys(range(5, 9), 12.5),
        QUIET | {5: 13.5},
        QUIET | {5: 12.5, 6: 12.5, 9: 13.0, 10: 12.5, 11: 12.5},
        dict.fromkeys(range(90), 10.0) | {5: 13.5, 66: 13.5},
        dict.fromkeys(range(90), 10.0) | {5: 13.5, 67: 13.5},
        dict.fromkeys(range(60), 14.0),
        dict.fromkeys(range(120), 10.0) | dict.fromkeys(range(120, 300), 14.0),
    )
)
BELOW_HALF, HALF_MORE, BELOW_EIGHT = (
    levels("offered", dict.fromkeys(range(9), x), median=median, sigma=0.1)
    for x, median in ((12.24, 10.0), (12.25, 10.0), (2.99, 1.0))
)
FULL, EMPTY, AS_USUAL = (levels("depth", dict.fromkeys(range(10), x), median=10.0, sigma=1.0) for x in (14, 6, 12))
LEAP = Scene(
    series=[("offered", 5, NOON + timedelta(minutes=m), TODAY, 12, m / 60 - 0.5, 100.0, 10.0) for m in range(40, 60)],
    bands=[("offered", 5, 12, 240, 10.0, 10.0, 20.0, 0.5, 0.5, 0.5)],
)
"""The end of an hour after which twice the root is usual."""
SCENES = [scene for scene in globals().values() if isinstance(scene, Scene)]


@pytest.fixture(scope="module")
def detections(spark: SparkSession) -> Detections:
    return Detections(spark, SCENES)


def test_consecutive_minutes_are_one_incident(detections: Detections) -> None:
    (row,) = detections.rows(CONSECUTIVE, "unusual_offers")
    assert (row.window_to - row.window_from).total_seconds() == 7 * 60
    assert (row.observed, row.score) == (169, 6.0)
    assert (row.expected_low, row.expected_high) == (pytest.approx(8.5**2), pytest.approx(11.5**2))
    assert row.sentence == (
        "Queue orders: 169 messages were offered in the 5 minutes up to 12:09 UTC, where 72 to 132 is usual at this time of "
        "the week. It lasted 7 min."
    )


def test_with_an_hour_between_them_they_are_one_incident_and_with_more_two(detections: Detections) -> None:
    assert len(detections.rows(AN_HOUR_APART, "unusual_offers")) == 1
    assert len(detections.rows(FURTHER_APART, "unusual_offers")) == 2


def test_a_stall_is_an_incident_though_nothing_happens_in_it(detections: Detections) -> None:
    (row,) = detections.rows(STALL, "unusual_acks")
    assert row.sentence.startswith("Queue orders: no messages were acked in the 5 minutes up to 12:")
    assert row.score == -8.0


def test_a_few_minutes_just_outside_are_noise_and_one_far_outside_is_not(detections: Detections) -> None:
    assert detections.rows(JUST_OUTSIDE, "unusual_offers") == []
    assert len(detections.rows(FAR_OUTSIDE, "unusual_offers")) == 1


def test_below_the_minimum_effect_nothing_fires_however_small_the_spread(detections: Detections) -> None:
    """Half more than expected, and eight messages."""
    assert detections.rows(BELOW_HALF, "unusual_offers") == []
    assert len(detections.rows(HALF_MORE, "unusual_offers")) == 1
    assert detections.rows(BELOW_EIGHT, "unusual_offers") == []


def test_another_level_is_unusual_only_at_first(detections: Detections) -> None:
    """For the ten minutes until its level is known here; for an hour when two hours of the old one precede it."""
    for scene, minutes in ((OTHER_LEVEL, 10), (CHANGED_LEVEL, 60)):
        (row,) = detections.rows(scene, "unusual_offers")
        assert (row.window_to - row.window_from).total_seconds() == minutes * 60


def test_before_a_leap_on_the_hour_the_value_of_the_hour_is_usual(detections: Detections) -> None:
    assert detections.rows(LEAP, "unusual_offers") == []


def test_a_depth_is_unusual_on_both_sides(detections: Detections) -> None:
    registry = BUILT_IN.with_detector(UNUSUAL_DEPTH)
    (high,), (low,) = (detections.rows(scene, "unusual_depth", registry) for scene in (FULL, EMPTY))
    assert (high.observed, high.score, low.observed, low.score) == (196, 4.0, 36, -4.0)
    assert high.sentence.startswith("Queue orders: 196 messages were live in the 5 minutes up to 12:0")
    assert detections.rows(AS_USUAL, "unusual_depth", registry) == []


def test_fewer_failures_than_usual_are_no_anomaly(detections: Detections) -> None:
    assert detections.rows(FEWER_FAILURES, "unusual_failures") == []
    assert len(detections.rows(MORE_FAILURES, "unusual_failures")) == 1


def test_the_same_incident_has_the_same_fingerprint_while_it_grows(spark: SparkSession) -> None:
    short = dict.fromkeys(range(5), 20.0)
    (before,), (after,) = (
        detected_by(seen(spark, levels("offered", values, median=10.0, sigma=0.5)), "unusual_offers")
        for values in (short, short | dict.fromkeys(range(5, 9), 22.0))
    )
    assert before.fingerprint == after.fingerprint
    assert before.window_to < after.window_to


def test_incidents_of_two_sides_are_two(spark: SparkSession) -> None:
    rows = [(1, NOON + timedelta(minutes=m), side, "orders", 3.0, 1, "") for m, side in ((0, 1), (1, -1))]
    minutes = local_frame(
        spark,
        rows,
        "queue_id int, minute timestamp, side int, queue string, weight double, minutes int, worst_value string",
    )
    assert incidents(minutes, LevelSettings("offered")).count() == 2


def test_habits_are_quantiles_of_the_days_before(spark: SparkSession) -> None:
    journal = Journal()
    for i in range(200):
        journal.add("offered", -86_400, key=f"k{i}", size=100 if i else 10_000)
    journal.add("offered", 0, key="today", size=10**6)
    from tarry.edges.spark.schemas import EVENTS

    events = local_frame(spark, journal.rows, EVENTS)
    traced = tracing.traced(tracing.sequenced(events)).localCheckpoint()
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
