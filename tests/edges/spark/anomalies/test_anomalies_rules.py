"""Each rule fires when it should, and not just beside."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from tarry.edges.spark.sizing import local_frame
from tarry.edges.spark.transforms.anomalies.builtin import BUILT_IN, RULES
from tarry.edges.spark.transforms.anomalies.context import RAISED
from tarry.edges.spark.transforms.anomalies.rules import BurstDequeue, FlashMessage, LargePayload
from tests.edges.spark.anomalies.anomaly_kit import NOON, Journal, detected_by, habit, keys, seen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_there_are_twelve_rules() -> None:
    assert set(RULES.names) == {
        "flash_message", "large_payload", "long_processing", "lock_stolen", "near_dlq", "dlq_movement", "zombie_message",
        "burst_dequeue", "bulk_enqueue", "bulk_delete", "bulk_move", "queue_cleared",
    }  # fmt: skip


def flashes() -> Journal:
    journal = Journal()
    for key, offered, due, leased in (
        ("flash", 0, 0, 0.002),
        ("usual", 0, 0, 0.02),
        ("delayed-flash", -60, 1, 1.002),  # counted from when it was due, to the microsecond
        ("late", 0, 0, 0.6),
    ):
        journal.add("offered", offered, key=key, due_at=due)
        journal.add("leased", leased, key=key, due_at=due, leased_at=leased, lease_until=leased + 30, consumer="c")
    return journal


def test_a_message_taken_faster_than_all_but_one_in_a_hundred_is_a_flash(spark: SparkSession) -> None:
    what = seen(spark, flashes(), [habit("lag_us", p01=10_000)])
    assert keys(what, "flash_message") == ["flash", "delayed-flash"]
    (first, _) = detected_by(what, "flash_message")
    assert first.sentence.startswith(
        "Message flash of queue orders was taken 2 ms after it could be taken, by consumer c"
    )
    assert first.expected_low == 10.0


def test_a_flash_must_be_under_half_a_second_whatever_is_usual(spark: SparkSession) -> None:
    assert "late" not in keys(seen(spark, flashes(), [habit("lag_us", p01=5_000_000)]), "flash_message")


def test_a_queue_without_habits_has_no_flashes(spark: SparkSession) -> None:
    assert keys(seen(spark, flashes()), "flash_message") == []
    assert keys(seen(spark, flashes(), [habit("lag_us", p01=10_000, n=199)]), "flash_message") == []


def test_flashes_are_limited_per_hour_and_the_last_has_the_number_of_the_others(spark: SparkSession) -> None:
    few = BUILT_IN.with_settings("flash_message", FlashMessage(most_per_hour=1))
    (only,) = detected_by(seen(spark, flashes(), [habit("lag_us", p01=10_000)]), "flash_message", few)
    assert only.key == "flash"
    assert only.sentence.endswith("There were 1 more in this hour.")


def test_a_payload_over_five_thousand_bytes_is_large(spark: SparkSession) -> None:
    journal = Journal().add("offered", key="large", size=5_001).add("offered", key="not", size=5_000)
    journal.add("updated", key="grown", size=9_000)
    assert keys(seen(spark, journal), "large_payload") == ["grown", "large"]


def test_a_payload_over_four_times_the_usual_is_large(spark: SparkSession) -> None:
    journal = Journal().add("offered", key="large", size=401).add("offered", key="not", size=400)
    assert keys(seen(spark, journal, [habit("size", p999=100)]), "large_payload") == ["large"]


def test_a_queue_that_is_large_by_nature_is_judged_by_its_own_habits(spark: SparkSession) -> None:
    journal = Journal().add("offered", key="large", size=24_001).add("offered", key="usual", size=6_000)
    assert keys(seen(spark, journal, [habit("size", p999=6_000)]), "large_payload") == ["large"]


def test_processing_over_ten_seconds_is_long(spark: SparkSession) -> None:
    journal = Journal().add("acked", 10.001, key="long", leased_at=0).add("acked", 10, key="not", leased_at=0)
    journal.add("nacked", 11, key="failed", leased_at=0).add("acked", 11, key="late", leased_at=5)
    rows = detected_by(seen(spark, journal), "long_processing")
    assert [row.key for row in rows] == ["failed", "long"]
    assert (rows[1].observed, rows[1].expected_high) == (10.001, 10.0)


def test_processing_over_four_times_the_usual_is_long(spark: SparkSession) -> None:
    journal = Journal().add("acked", 2.001, key="long", leased_at=0).add("acked", 2, key="not", leased_at=0)
    assert keys(seen(spark, journal, [habit("processing_us", p99=500_000)]), "long_processing") == ["long"]


def test_every_refused_settle_is_a_stolen_lock(spark: SparkSession) -> None:
    journal = Journal().add("refused", 1, detail={"verb": "ack"}).add("acked", 2, leased_at=0)
    (row,) = detected_by(seen(spark, journal), "lock_stolen")
    assert row.severity == "critical"
    assert row.sentence.startswith("A consumer tried to ack message k of queue orders with a lease that was lost.")


def test_one_attempt_left_after_a_nack_is_near_the_dead_letters(spark: SparkSession) -> None:
    journal = Journal().add("nacked", key="near", attempt=4, error="boom").add("nacked", key="early", attempt=3)
    journal.add("nacked", key="last", attempt=5).add("expired", key="expired", attempt=4)
    rows = detected_by(seen(spark, journal, max_attempts=5), "near_dlq")
    assert [row.key for row in rows] == ["near"]
    assert "failed at attempt 4 of 5 (boom): 1 more and it is a dead letter." in rows[0].sentence
    assert keys(seen(spark, journal, max_attempts=None), "near_dlq") == []


def test_a_message_with_a_limit_of_its_own_is_judged_by_that(spark: SparkSession) -> None:
    journal = Journal().add("nacked", key="few", attempt=1, detail={"max_attempts": 2})
    journal.add("nacked", key="many", attempt=4, detail={"max_attempts": 50})
    rows = detected_by(seen(spark, journal, max_attempts=5), "near_dlq")
    assert [row.key for row in rows] == ["few"]
    assert "failed at attempt 1 of 2" in rows[0].sentence
    assert keys(seen(spark, journal, max_attempts=None), "near_dlq") == ["few"]


def test_a_burial_has_its_reason(spark: SparkSession) -> None:
    journal = Journal().add("buried", key="a", attempt=5, detail={"reason": "exhausted"}, error="boom")
    journal.add("buried", key="b", detail={"reason": "undecodable"}).add("nacked", key="c")
    sentences = [row.sentence for row in detected_by(seen(spark, journal), "dlq_movement")]
    assert sentences == [
        "Message a of queue orders became a dead letter after 5 attempts (boom).",
        "Message b of queue orders became a dead letter because its payload could not be read.",
    ]


def test_a_sentence_has_one_line_of_the_error(spark: SparkSession) -> None:
    trace = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    raise OSError("full")\nOSError: full\n'
    )
    detail = {"reason": "exhausted"}
    journal = Journal().add("buried", key="a", attempt=2, detail=detail, error=trace)
    journal.add("buried", key="b", attempt=2, detail=detail, error=f"\nOSError: full\n\n{trace}")
    sentences = [row.sentence for row in detected_by(seen(spark, journal), "dlq_movement")]
    assert [sentence.split(" after ")[1] for sentence in sentences] == ["2 attempts (OSError: full)."] * 2


def held(key: str, *, until: float = 30) -> Journal:
    return Journal().add("leased", 0, key=key, leased_at=0, lease_until=until, consumer="c")


def test_the_limit_of_an_hour_counts_what_earlier_runs_have_raised(spark: SparkSession) -> None:
    journal = Journal()
    for n in range(5):
        journal.add("offered", n, key=f"k{n}", size=10**6)
    hour = int(NOON.timestamp()) // 3600
    raised = local_frame(spark, [("large_payload", 1, hour, 18), ("flash_message", 1, hour, 20)], RAISED)
    first, second = detected_by(replace(seen(spark, journal), raised=raised), "large_payload")
    assert (first.key, second.key) == ("k0", "k1")
    assert second.sentence.endswith("There were 3 more in this hour.")


@pytest.mark.parametrize(("seconds", "fires"), [(90, False), (90.001, True)])
def test_a_message_that_is_not_polled_for_twice_its_lease_is_a_zombie(
    spark: SparkSession, seconds: float, fires: bool
) -> None:
    """The lease is 30 s; 60 s after its end it is one, whether a consumer polls then or not."""
    taken = held("k").add("expired", seconds).add("leased", seconds, leased_at=seconds, lease_until=1e6)
    assert bool(detected_by(seen(spark, taken), "zombie_message")) is fires


def test_an_expiry_recorded_by_a_sweeper_does_not_change_a_zombie(spark: SparkSession) -> None:
    journal = held("k").add("expired", 31)
    (row,) = detected_by(seen(spark, journal), "zombie_message")
    assert "and no consumer has leased it since" in row.sentence


def test_a_zombie_is_reported_while_it_is_live(spark: SparkSession) -> None:
    (row,) = detected_by(seen(spark, held("k")), "zombie_message")
    assert "and no consumer has leased it since" in row.sentence
    assert row.consumer == "c"


def test_silence_behind_the_end_of_the_archive_makes_no_zombie(spark: SparkSession) -> None:
    what = seen(spark, held("k"))
    assert detected_by(replace(what, complete_until=NOON + timedelta(seconds=90)), "zombie_message") == []
    assert len(detected_by(replace(what, complete_until=NOON + timedelta(seconds=91)), "zombie_message")) == 1


def test_a_zombie_with_a_long_lease_is_reported_before_twice_its_length(spark: SparkSession) -> None:
    """Twelve hours; twice as long after it the events of its beginning are out of sight."""
    lease = 12 * 3600
    what = seen(spark, held("k", until=lease), until=NOON + timedelta(hours=30))
    for after_s, n in ((8 * 3600, 0), (8 * 3600 + 1, 1)):
        known = replace(what, complete_until=NOON + timedelta(seconds=lease + after_s))
        assert len(detected_by(known, "zombie_message")) == n


def test_a_settled_or_touched_message_is_no_zombie(spark: SparkSession) -> None:
    assert detected_by(seen(spark, held("k").add("acked", 20, leased_at=0)), "zombie_message") == []
    touched = held("k").add("touched", 20, leased_at=0, lease_until=1e6)
    assert detected_by(seen(spark, touched), "zombie_message") == []


def leases(n: int, *, within: float, consumer: str = "c", start: float = 0) -> Journal:
    journal = Journal()
    for i in range(n):
        journal.add("leased", start + within * i / (n - 1), key=f"{consumer}{i}", consumer=consumer)
    return journal


def test_fifty_leases_in_five_seconds_are_one_burst(spark: SparkSession) -> None:
    (row,) = detected_by(seen(spark, leases(50, within=4.9)), "burst_dequeue")
    assert row.sentence.endswith(" took 50 messages within 5 s. Others may be left without work."), (
        "nothing is usual yet"
    )
    assert (row.consumer, row.observed) == ("c", 50)


def test_what_is_spread_over_more_time_or_over_consumers_is_no_burst(spark: SparkSession) -> None:
    assert detected_by(seen(spark, leases(49, within=4.9)), "burst_dequeue") == []
    assert detected_by(seen(spark, leases(50, within=5.2)), "burst_dequeue") == []
    two = Journal(leases(30, within=4).rows + leases(30, within=4, consumer="d").rows)
    assert detected_by(seen(spark, two), "burst_dequeue") == []


def test_a_burst_that_goes_on_is_one_anomaly_and_has_no_largest_size(spark: SparkSession) -> None:
    (row,) = detected_by(seen(spark, leases(600, within=15)), "burst_dequeue")
    assert row.observed == 200
    high = BUILT_IN.with_settings("burst_dequeue", BurstDequeue(at_least=250))
    assert detected_by(seen(spark, leases(600, within=15)), "burst_dequeue", high) == []


def test_bursts_are_limited_per_hour_like_everything_else(spark: SparkSession) -> None:
    few = BUILT_IN.with_settings("burst_dequeue", BurstDequeue(at_least=2, within_s=1, most_per_hour=2))
    journal = Journal()
    for n in range(5):
        journal.add("leased", 60 + n * 10, consumer="c").add("leased", 60.5 + n * 10, consumer="c")
    rows = detected_by(seen(spark, journal), "burst_dequeue", few)
    assert [row.window_to.second for row in rows] == [0, 10]
    assert rows[-1].sentence.endswith("There were 3 more in this hour.")


def test_a_consumer_that_always_takes_much_bursts_only_above_that(spark: SparkSession) -> None:
    journal = leases(60, within=4)
    assert detected_by(seen(spark, journal, [habit("taken", p99=60, consumer="c")]), "burst_dequeue") == []
    assert len(detected_by(seen(spark, journal, [habit("taken", p99=59, consumer="c")]), "burst_dequeue")) == 1
    assert (
        detected_by(seen(spark, journal, [habit("taken", p99=60)]), "burst_dequeue") == []
    )  # a new one, as the others are


@pytest.mark.parametrize(
    ("name", "kind"),
    [("bulk_enqueue", "offered"), ("bulk_delete", "dropped"), ("bulk_delete", "discarded"), ("bulk_move", "redriven")],
)
def test_ten_in_one_operation_are_a_bulk(spark: SparkSession, name: str, kind: str) -> None:
    journal = Journal()
    for i in range(9):
        journal.add(kind, key=f"nine-{i}", xid=9)
    for i in range(10):
        journal.add(kind, key=f"ten-{i}", xid=10)
    for i in range(10):
        journal.add(kind, key=f"each-{i}")
    (row,) = detected_by(seen(spark, journal), name)
    assert row.observed == 10
    assert "xid::text::bigint = 10 " in row.evidence


def test_offers_that_are_usually_gathered_are_no_bulk(spark: SparkSession) -> None:
    journal = Journal()
    for i in range(30):
        journal.add("offered", key=f"k{i}", xid=10)
    assert detected_by(seen(spark, journal, [habit("operation", p99=40)]), "bulk_enqueue") == []
    assert len(detected_by(seen(spark, journal, [habit("operation", p99=20)]), "bulk_enqueue")) == 1


def test_a_cleared_queue_is_reported_once(spark: SparkSession) -> None:
    journal = Journal()
    for i in range(12):
        journal.add("dropped", key=f"k{i}", xid=10)
    journal.add("queue_purged", key=None, xid=10, detail={"count": 12})
    journal.add("queue_purged", 5, key=None, detail={"count": 0})
    (row,) = detected_by(seen(spark, journal), "queue_cleared")
    assert row.sentence == "Queue orders was cleared: 12 live messages are gone."
    assert detected_by(seen(spark, journal), "bulk_delete") == []


def test_an_incident_outside_of_the_judged_range_is_not_reported(spark: SparkSession) -> None:
    journal = Journal().add("refused", 1).add("refused", 3)
    what = seen(spark, journal)
    later = replace(what, since=NOON.replace(second=2))
    earlier = replace(what, until=NOON.replace(second=2))
    assert len(detected_by(what, "lock_stolen")) == 2
    assert len(detected_by(later, "lock_stolen")) == len(detected_by(earlier, "lock_stolen")) == 1


def test_thresholds_are_settings(spark: SparkSession) -> None:
    small = BUILT_IN.with_settings("large_payload", LargePayload(over_bytes=10))
    assert keys(seen(spark, Journal().add("offered", size=11)), "large_payload", small) == ["k"]


def test_no_rule_walks_the_same_events_again_for_every_event(spark: SparkSession) -> None:
    """A frame that slides by time is added up anew for every row: nothing of this size would ever end."""
    at_work = seen(spark, leases(3, within=1))
    for rule in RULES:
        plan = rule.find(at_work)._jdf.queryExecution().optimizedPlan().toString()  # pyright: ignore[reportOptionalCall]
        assert "specifiedwindowframe(RangeFrame, -" not in plan, rule.name
