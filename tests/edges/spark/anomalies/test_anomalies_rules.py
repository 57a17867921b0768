"""Each rule fires when it should, and not just beside."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from tarry.edges.spark.schemas import EVENTS
from tarry.edges.spark.sizing import local_frame
from tarry.edges.spark.transforms import facts
from tarry.edges.spark.transforms import history as tracing
from tarry.edges.spark.transforms.anomalies.builtin import BUILT_IN, RULES
from tarry.edges.spark.transforms.anomalies.context import RAISED
from tarry.edges.spark.transforms.anomalies.rules import BurstDequeue, FlashMessage, LargePayload
from tests.edges.spark.anomalies.anomaly_kit import NOON, Detections, Journal, Scene, detected_by, habit, seen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def detections(spark: SparkSession) -> Detections:
    """Every scene of this module."""
    return Detections(spark, [scene for scene in globals().values() if isinstance(scene, Scene)])


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


FLASHES = Scene(flashes(), [habit("lag_us", p01=10_000)])
FLASHES_OF_A_SLOW_QUEUE = Scene(flashes(), [habit("lag_us", p01=5_000_000)])
FLASHES_WITHOUT_HABITS = Scene(flashes())
FLASHES_OF_A_NEW_QUEUE = Scene(flashes(), [habit("lag_us", p01=10_000, n=199)])


def test_a_message_taken_faster_than_all_but_one_in_a_hundred_is_a_flash(detections: Detections) -> None:
    assert detections.keys(FLASHES, "flash_message") == ["flash", "delayed-flash"]
    (first, _) = detections.rows(FLASHES, "flash_message")
    assert first.sentence.startswith(
        "Message flash of queue orders was taken 2 ms after it could be taken, by consumer c"
    )
    assert first.expected_low == 10.0


def test_a_flash_must_be_under_half_a_second_whatever_is_usual(detections: Detections) -> None:
    assert "late" not in detections.keys(FLASHES_OF_A_SLOW_QUEUE, "flash_message")


def test_a_queue_without_habits_has_no_flashes(detections: Detections) -> None:
    assert detections.keys(FLASHES_WITHOUT_HABITS, "flash_message") == []
    assert detections.keys(FLASHES_OF_A_NEW_QUEUE, "flash_message") == []


def test_flashes_are_limited_per_hour_and_the_last_has_the_number_of_the_others(detections: Detections) -> None:
    few = BUILT_IN.with_settings("flash_message", FlashMessage(most_per_hour=1))
    (only,) = detections.rows(FLASHES, "flash_message", few)
    assert only.key == "flash"
    assert only.sentence.endswith("There were 1 more in this hour.")


SIZES = Scene(
    Journal()
    .add("offered", key="large", size=5_001)
    .add("offered", key="not", size=5_000)
    .add("updated", key="grown", size=9_000)
)
SIZES_OF_SMALL = Scene(
    Journal().add("offered", key="large", size=401).add("offered", key="not", size=400), [habit("size", p999=100)]
)
SIZES_OF_LARGE = Scene(
    Journal().add("offered", key="large", size=24_001).add("offered", key="usual", size=6_000),
    [habit("size", p999=6_000)],
)


def test_a_payload_over_five_thousand_bytes_is_large(detections: Detections) -> None:
    assert detections.keys(SIZES, "large_payload") == ["grown", "large"]


def test_a_payload_over_four_times_the_usual_is_large(detections: Detections) -> None:
    assert detections.keys(SIZES_OF_SMALL, "large_payload") == ["large"]


def test_a_queue_that_is_large_by_nature_is_judged_by_its_own_habits(detections: Detections) -> None:
    assert detections.keys(SIZES_OF_LARGE, "large_payload") == ["large"]


LONG = Scene(
    Journal()
    .add("acked", 10.001, key="long", leased_at=0)
    .add("acked", 10, key="not", leased_at=0)
    .add("nacked", 11, key="failed", leased_at=0)
    .add("acked", 11, key="late", leased_at=5)
)
LONG_FOR_THE_QUEUE = Scene(
    Journal().add("acked", 2.001, key="long", leased_at=0).add("acked", 2, key="not", leased_at=0),
    [habit("processing_us", p99=500_000)],
)


def test_processing_over_ten_seconds_is_long(detections: Detections) -> None:
    rows = detections.rows(LONG, "long_processing")
    assert [row.key for row in rows] == ["failed", "long"]
    assert (rows[1].observed, rows[1].expected_high) == (10.001, 10.0)


def test_processing_over_four_times_the_usual_is_long(detections: Detections) -> None:
    assert detections.keys(LONG_FOR_THE_QUEUE, "long_processing") == ["long"]


STOLEN = Scene(Journal().add("refused", 1, detail={"verb": "ack"}).add("acked", 2, leased_at=0))


def test_every_refused_settle_is_a_stolen_lock(detections: Detections) -> None:
    (row,) = detections.rows(STOLEN, "lock_stolen")
    assert row.severity == "critical"
    assert row.sentence.startswith("A consumer tried to ack message k of queue orders with a lease that was lost.")


FAILING = (
    Journal()
    .add("nacked", key="near", attempt=4, error="boom")
    .add("nacked", key="early", attempt=3)
    .add("nacked", key="last", attempt=5)
    .add("expired", key="expired", attempt=4)
)
FAILING_OF_FIVE, FAILING_FOR_EVER = Scene(FAILING, max_attempts=5), Scene(FAILING, max_attempts=None)
OWN_LIMITS = (
    Journal()
    .add("nacked", key="few", attempt=1, detail={"max_attempts": 2})
    .add("nacked", key="many", attempt=4, detail={"max_attempts": 50})
)
OWN_LIMITS_OF_FIVE, OWN_LIMITS_FOR_EVER = Scene(OWN_LIMITS, max_attempts=5), Scene(OWN_LIMITS, max_attempts=None)


def test_one_attempt_left_after_a_nack_is_near_the_dead_letters(detections: Detections) -> None:
    rows = detections.rows(FAILING_OF_FIVE, "near_dlq")
    assert [row.key for row in rows] == ["near"]
    assert "failed at attempt 4 of 5 (boom): 1 more and it is a dead letter." in rows[0].sentence
    assert detections.keys(FAILING_FOR_EVER, "near_dlq") == []


def test_a_message_with_a_limit_of_its_own_is_judged_by_that(detections: Detections) -> None:
    rows = detections.rows(OWN_LIMITS_OF_FIVE, "near_dlq")
    assert [row.key for row in rows] == ["few"]
    assert "failed at attempt 1 of 2" in rows[0].sentence
    assert detections.keys(OWN_LIMITS_FOR_EVER, "near_dlq") == ["few"]


TRACE = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    raise OSError("full")\nOSError: full\n'
BURIALS = Scene(
    Journal()
    .add("buried", key="a", attempt=5, detail={"reason": "exhausted"}, error="boom")
    .add("buried", key="b", detail={"reason": "undecodable"})
    .add("nacked", key="c")
)
TRACES = Scene(
    Journal()
    .add("buried", key="a", attempt=2, detail={"reason": "exhausted"}, error=TRACE)
    .add("buried", key="b", attempt=2, detail={"reason": "exhausted"}, error=f"\nOSError: full\n\n{TRACE}")
)


def test_a_burial_has_its_reason(detections: Detections) -> None:
    assert [row.sentence for row in detections.rows(BURIALS, "dlq_movement")] == [
        "Message a of queue orders became a dead letter after 5 attempts (boom).",
        "Message b of queue orders became a dead letter because its payload could not be read.",
    ]


def test_a_sentence_has_one_line_of_the_error(detections: Detections) -> None:
    sentences = [row.sentence for row in detections.rows(TRACES, "dlq_movement")]
    assert [sentence.split(" after ")[1] for sentence in sentences] == ["2 attempts (OSError: full)."] * 2


def test_the_limit_of_an_hour_counts_what_earlier_runs_have_raised(spark: SparkSession) -> None:
    journal = Journal()
    for n in range(5):
        journal.add("offered", n, key=f"k{n}", size=10**6)
    hour = int(NOON.timestamp()) // 3600
    raised = local_frame(spark, [("large_payload", 1, hour, 18), ("flash_message", 1, hour, 20)], RAISED)
    first, second = detected_by(replace(seen(spark, Scene(journal)), raised=raised), "large_payload")
    assert (first.key, second.key) == ("k0", "k1")
    assert second.sentence.endswith("There were 3 more in this hour.")


def held(key: str = "k", *, since: float = 0, until: float = 30) -> Journal:
    return Journal().add("leased", since, key=key, leased_at=since, lease_until=until, consumer="c")


def taken_after(seconds: float) -> Scene:
    return Scene(held().add("expired", seconds).add("leased", seconds, leased_at=seconds, lease_until=1e6))


TAKEN_AFTER_90_S, TAKEN_LATER = taken_after(90), taken_after(90.001)
SWEPT, HELD, HELD_LATER = Scene(held().add("expired", 31)), Scene(held()), Scene(held(since=1, until=31))
HALF_A_DAY = 12 * 3600
HELD_LONG, HELD_LONG_LATER = (Scene(held(since=n, until=HALF_A_DAY + n)) for n in (0, 1))
SETTLED = Scene(held().add("acked", 20, leased_at=0))
TOUCHED = Scene(held().add("touched", 20, leased_at=0, lease_until=1e6))


def test_a_message_that_is_not_polled_for_twice_its_lease_is_a_zombie(detections: Detections) -> None:
    """The lease is 30 s; 60 s after its end it is one, whether a consumer polls then or not."""
    assert detections.rows(TAKEN_AFTER_90_S, "zombie_message") == []
    assert len(detections.rows(TAKEN_LATER, "zombie_message")) == 1


def test_an_expiry_recorded_by_a_sweeper_does_not_change_a_zombie(detections: Detections) -> None:
    (row,) = detections.rows(SWEPT, "zombie_message")
    assert "and no consumer has leased it since" in row.sentence


def test_a_zombie_is_reported_while_it_is_live(detections: Detections) -> None:
    (row,) = detections.rows(HELD, "zombie_message")
    assert "and no consumer has leased it since" in row.sentence
    assert row.consumer == "c"


def test_silence_behind_the_end_of_the_archive_makes_no_zombie(detections: Detections) -> None:
    """The archive ends 61 s after one lease and 60 s after the other."""
    known = NOON + timedelta(seconds=91)
    assert len(detections.rows(HELD, "zombie_message", complete_until=known)) == 1
    assert detections.rows(HELD_LATER, "zombie_message", complete_until=known) == []


def test_a_zombie_with_a_long_lease_is_reported_before_twice_its_length(detections: Detections) -> None:
    """Eight hours after the lease ended; twice as long after it the events of its beginning are out of sight."""
    until = NOON + timedelta(hours=30)
    known = NOON + timedelta(seconds=HALF_A_DAY + 8 * 3600 + 1)
    assert len(detections.rows(HELD_LONG, "zombie_message", until=until, complete_until=known)) == 1
    assert detections.rows(HELD_LONG_LATER, "zombie_message", until=until, complete_until=known) == []


def test_a_settled_or_touched_message_is_no_zombie(detections: Detections) -> None:
    assert detections.rows(SETTLED, "zombie_message") == []
    assert detections.rows(TOUCHED, "zombie_message") == []


def leases(n: int, *, within: float, consumer: str = "c", start: float = 0) -> Journal:
    journal = Journal()
    for i in range(n):
        journal.add("leased", start + within * i / (n - 1), key=f"{consumer}{i}", consumer=consumer)
    return journal


BURST, TOO_FEW, TOO_SLOW = (Scene(leases(n, within=within)) for n, within in ((50, 4.9), (49, 4.9), (50, 5.2)))
OF_TWO_CONSUMERS = Scene(Journal(leases(30, within=4).rows + leases(30, within=4, consumer="d").rows))
LONG_BURST = Scene(leases(600, within=15))
SMALL_BURSTS = Scene(Journal())
for n in range(5):
    SMALL_BURSTS.journal.add("leased", 60 + n * 10, consumer="c").add("leased", 60.5 + n * 10, consumer="c")
USUAL_BURST, UNUSUAL_BURST, BURST_USUAL_FOR_OTHERS = (
    Scene(leases(60, within=4), [taken])
    for taken in (
        habit("taken", p99=60, consumer="c"),
        habit("taken", p99=59, consumer="c"),
        habit("taken", p99=60),
    )
)


def test_fifty_leases_in_five_seconds_are_one_burst(detections: Detections) -> None:
    (row,) = detections.rows(BURST, "burst_dequeue")
    assert row.sentence.endswith(" took 50 messages within 5 s. Others may be left without work."), (
        "nothing is usual yet"
    )
    assert (row.consumer, row.observed) == ("c", 50)


def test_what_is_spread_over_more_time_or_over_consumers_is_no_burst(detections: Detections) -> None:
    for scene in (TOO_FEW, TOO_SLOW, OF_TWO_CONSUMERS):
        assert detections.rows(scene, "burst_dequeue") == []


def test_a_burst_that_goes_on_is_one_anomaly_and_has_no_largest_size(detections: Detections) -> None:
    (row,) = detections.rows(LONG_BURST, "burst_dequeue")
    assert row.observed == 200
    high = BUILT_IN.with_settings("burst_dequeue", BurstDequeue(at_least=250))
    assert detections.rows(LONG_BURST, "burst_dequeue", high) == []


def test_bursts_are_limited_per_hour_like_everything_else(detections: Detections) -> None:
    few = BUILT_IN.with_settings("burst_dequeue", BurstDequeue(at_least=2, within_s=1, most_per_hour=2))
    rows = detections.rows(SMALL_BURSTS, "burst_dequeue", few)
    assert [row.window_to.second for row in rows] == [0, 10]
    assert rows[-1].sentence.endswith("There were 3 more in this hour.")


def test_a_consumer_that_always_takes_much_bursts_only_above_that(detections: Detections) -> None:
    assert detections.rows(USUAL_BURST, "burst_dequeue") == []
    assert len(detections.rows(UNUSUAL_BURST, "burst_dequeue")) == 1
    assert detections.rows(BURST_USUAL_FOR_OTHERS, "burst_dequeue") == [], (
        "a new consumer is judged by what others take"
    )


def operations(kind: str) -> Scene:
    journal = Journal()
    for i in range(9):
        journal.add(kind, key=f"nine-{i}", xid=9)
    for i in range(10):
        journal.add(kind, key=f"ten-{i}", xid=10)
    for i in range(10):
        journal.add(kind, key=f"each-{i}")
    return Scene(journal)


OFFERED, DROPPED, DISCARDED, REDRIVEN = map(operations, ("offered", "dropped", "discarded", "redriven"))


@pytest.mark.parametrize(
    ("name", "scene"),
    [("bulk_enqueue", OFFERED), ("bulk_delete", DROPPED), ("bulk_delete", DISCARDED), ("bulk_move", REDRIVEN)],
    ids=["offered", "dropped", "discarded", "redriven"],
)
def test_ten_in_one_operation_are_a_bulk(detections: Detections, name: str, scene: Scene) -> None:
    (row,) = detections.rows(scene, name)
    assert row.observed == 10
    assert "xid::text::bigint = 10 " in row.evidence


GATHERED = Journal()
for i in range(30):
    GATHERED.add("offered", key=f"k{i}", xid=10)
USUALLY_GATHERED, MORE_GATHERED = (Scene(GATHERED, [habit("operation", p99=p99)]) for p99 in (40, 20))


def test_offers_that_are_usually_gathered_are_no_bulk(detections: Detections) -> None:
    assert detections.rows(USUALLY_GATHERED, "bulk_enqueue") == []
    assert len(detections.rows(MORE_GATHERED, "bulk_enqueue")) == 1


CLEARED = Scene(Journal())
for i in range(12):
    CLEARED.journal.add("dropped", key=f"k{i}", xid=10)
CLEARED.journal.add("queue_purged", key=None, xid=10, detail={"count": 12})
CLEARED.journal.add("queue_purged", 5, key=None, detail={"count": 0})


def test_a_cleared_queue_is_reported_once(detections: Detections) -> None:
    (row,) = detections.rows(CLEARED, "queue_cleared")
    assert row.sentence == "Queue orders was cleared: 12 live messages are gone."
    assert detections.rows(CLEARED, "bulk_delete") == []


REFUSED_TWICE = Scene(Journal().add("refused", 1).add("refused", 3))


def test_an_incident_outside_of_the_judged_range_is_not_reported(detections: Detections) -> None:
    between = NOON.replace(second=2)
    assert len(detections.rows(REFUSED_TWICE, "lock_stolen")) == 2
    assert len(detections.rows(REFUSED_TWICE, "lock_stolen", since=between)) == 1
    assert len(detections.rows(REFUSED_TWICE, "lock_stolen", until=between)) == 1


ELEVEN_BYTES = Scene(Journal().add("offered", size=11))


def test_thresholds_are_settings(detections: Detections) -> None:
    small = BUILT_IN.with_settings("large_payload", LargePayload(over_bytes=10))
    assert detections.keys(ELEVEN_BYTES, "large_payload") == []
    assert detections.keys(ELEVEN_BYTES, "large_payload", small) == ["k"]


def test_no_rule_walks_the_same_events_again_for_every_event(detections: Detections, spark: SparkSession) -> None:
    """A frame that slides by time is added up anew for every row: nothing of this size would ever end."""
    sequence = tracing.sequenced(local_frame(spark, leases(3, within=1).rows, EVENTS))
    idle = facts.idle(facts.still_open(facts.fold(sequence)))
    for name, frame in {
        "history": sequence,
        "idle": idle,
        **{rule: detections.frame(rule) for rule in RULES.names},
    }.items():
        plan = frame._jdf.queryExecution().optimizedPlan().toString()  # pyright: ignore[reportOptionalCall]
        assert "specifiedwindowframe(RangeFrame, -" not in plan, name
