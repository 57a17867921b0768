# pyright: basic
"""Rules about single messages: offers, leases and settles.

Usual values come from the queue's profile of the previous four weeks. A queue that is normally slow or large (its own
quantile exceeds the absolute limit) is judged only by its profile; otherwise it would be reported all day.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from tarry.edges.spark.transforms import tracing
from tarry.edges.spark.transforms.anomalies.found import (
    duration,
    history_of_key,
    limited,
    number,
    somebody,
)
from tarry.edges.spark.transforms.anomalies.registry import detector
from tarry.edges.spark.transforms.anomalies.seen import Seen
from tarry.edges.spark.transforms.instants import dated, micros_between

ENOUGH = 200
"""Minimum number of messages before the profile of a queue counts."""


@dataclass(frozen=True)
class FlashMessage:
    under_ms: float = 500
    most_per_hour: int = 3


@dataclass(frozen=True)
class LargePayload:
    over_bytes: int = 5_000
    times_usual: float = 4
    most_per_hour: int = 20


@dataclass(frozen=True)
class LongProcessing:
    over_s: float = 10
    times_usual: float = 4
    most_per_hour: int = 20


@dataclass(frozen=True)
class LockStolen:
    most_per_hour: int = 50


@dataclass(frozen=True)
class NearDlq:
    attempts_left: int = 1
    most_per_hour: int = 20


@dataclass(frozen=True)
class DlqMovement:
    most_per_hour: int = 50


@dataclass(frozen=True)
class ZombieMessage:
    times_lease: float = 2
    at_most_s: float = 8 * 3600
    """Upper bound of the wait, for long leases. With the longest lease of 12 h it stays within the day that events
    reach back.
    """
    most_per_hour: int = 50


def judged(seen: Seen, *kinds: str) -> DataFrame:
    """Events of these kinds, with `date`, and as windows of zero length."""
    at = F.col("at")
    found = seen.events_of(*kinds).where(seen.within(at, at))
    return found.withColumns({"window_from": at, "window_to": at, "date": dated(at)})


def with_habit(frame: DataFrame, seen: Seen, measure: str) -> DataFrame:
    """Join `p01`, `p99` and `p999` of the queue to each row; null with too little history."""
    known = seen.profile(measure).where(F.col("n") >= ENOUGH).drop("n")
    return frame.join(known, ["date", "queue_id"], "left")


def limit(absolute: float, usual: Column, times: float) -> Column:
    """The lower of the absolute and the relative limit; the relative one if the usual value is above the absolute."""
    return (
        F.when(usual.isNull(), F.lit(float(absolute)))
        .when(usual > absolute, usual * times)
        .otherwise(F.least(F.lit(float(absolute)), usual * times))
    )


@detector(name="flash_message", severity="info", settings=FlashMessage())
def flash_message(seen: Seen, settings: FlashMessage) -> DataFrame:
    """Leased sooner after becoming eligible than 99 % of its queue: a consumer may be spinning, or a delay may be
    wrong. Compared in microseconds; a queue without a profile is not judged.
    """
    lag_ms = micros_between(tracing.eligible_at(), F.col("at")) / 1000
    leased = seen.sequence.where("kind = 'leased'").withColumn("observed", lag_ms)
    at = F.col("at")
    leased = leased.where(seen.within(at, at)).withColumns({"window_from": at, "window_to": at, "date": dated(at)})
    fast = with_habit(leased, seen, "lag_us").where(
        (F.col("observed") < settings.under_ms) & (F.col("observed") * 1000 < F.col("p01"))
    )
    said = F.concat(
        F.lit("Message "), "key", F.lit(" of queue "), "queue", F.lit(" was taken "), duration(F.col("observed") / 1000),
        F.lit(" after it could be taken, by "), somebody(), F.lit("; 99 of 100 wait longer than "),
        duration(F.col("p01") / 1e6), F.lit("."),
    )  # fmt: skip
    return limited(
        fast.select(
            "id", "queue_id", "queue", "key", "consumer", "window_from", "window_to", "observed",
            (F.col("p01") / 1000).alias("expected_low"),
            said.alias("sentence"),
            history_of_key().alias("evidence"),
            F.col("id").cast("string").alias("identity"),
        ),
        settings.most_per_hour,
    )  # fmt: skip


@detector(name="large_payload", severity="info", settings=LargePayload())
def large_payload(seen: Seen, settings: LargePayload) -> DataFrame:
    """Single and bulk offers, and updates; the size is that of the stored bytes."""
    offers = with_habit(judged(seen, "offered", "updated"), seen, "size")
    most = limit(settings.over_bytes, F.col("p999"), settings.times_usual)
    large = offers.withColumn("expected_high", most).where(F.col("size") > F.col("expected_high"))
    said = F.concat(
        F.lit("Message "), "key", F.lit(" of queue "), "queue", F.lit(" has "), number(F.col("size")),
        F.lit(" bytes of payload; more than "), number(F.col("expected_high")), F.lit(" is unusual here."),
    )  # fmt: skip
    return limited(_about(large, F.col("size"), said), settings.most_per_hour)


@detector(name="long_processing", severity="warning", settings=LongProcessing())
def long_processing(seen: Seen, settings: LongProcessing) -> DataFrame:
    """From the lease to the ack or nack: a slow failure counts too."""
    settled = with_habit(judged(seen, "acked", "nacked"), seen, "processing_us")
    worked = micros_between(F.col("leased_at"), F.col("at")) / 1e6
    most = limit(settings.over_s, F.col("p99") / 1e6, settings.times_usual)
    long = (
        settled.withColumns({"observed": worked, "expected_high": most})
        .where(F.col("observed") > F.col("expected_high"))
        .withColumn("window_from", F.col("leased_at"))
    )
    said = F.concat(
        F.lit("Message "), "key", F.lit(" of queue "), "queue", F.lit(" was held for "), duration(F.col("observed")),
        F.lit(" by "), somebody(), F.lit(" until it was "), "kind", F.lit("; up to "),
        duration(F.col("expected_high")), F.lit(" is usual."),
    )  # fmt: skip
    return limited(_about(long, F.col("observed"), said), settings.most_per_hour)


@detector(name="lock_stolen", severity="critical", settings=LockStolen())
def lock_stolen(seen: Seen, settings: LockStolen) -> DataFrame:
    """A settle, single or in bulk, with a token that is not the current one: it changed nothing, but work was done
    twice.
    """
    verb = F.coalesce(F.get_json_object("detail", "$.verb"), F.lit("settle"))
    said = F.concat(
        F.lit("Somebody tried to "), verb, F.lit(" message "), "key", F.lit(" of queue "), "queue",
        F.lit(" with a lease that was lost. Nothing was changed, but the work may have been done twice: the lease is"
              " shorter than the work, or a consumer hung."),
    )  # fmt: skip
    return limited(_about(judged(seen, "refused"), F.lit(None), said), settings.most_per_hour)


@detector(name="near_dlq", severity="warning", settings=NearDlq())
def near_dlq(seen: Seen, settings: NearDlq) -> DataFrame:
    """After a nack, single or in bulk. The nack contains the message's max_attempts; older nacks without it are judged
    by the limit of the queue.
    """
    limits = F.broadcast(seen.queues.select("queue_id", "max_attempts"))
    own = F.get_json_object("detail", "$.max_attempts").cast("int")
    left = F.col("max_attempts") - F.col("attempt")
    near = (
        judged(seen, "nacked")
        .join(limits, "queue_id")
        .withColumn("max_attempts", F.coalesce(own, F.col("max_attempts")))
        .withColumn("observed", left)
        .where((left > 0) & (left <= settings.attempts_left))
    )
    said = F.concat(
        F.lit("Message "), "key", F.lit(" of queue "), "queue",
        F.format_string(" failed at attempt %d of %d", "attempt", "max_attempts"), _because(),
        F.format_string(": %d more and it is a dead letter.", left),
    )  # fmt: skip
    return limited(_about(near, F.col("observed"), said), settings.most_per_hour)


@detector(name="dlq_movement", severity="warning", settings=DlqMovement())
def dlq_movement(seen: Seen, settings: DlqMovement) -> DataFrame:
    """By its last nack, by a lease that expired at its last attempt, or buried by a consumer."""
    reason = F.get_json_object("detail", "$.reason")
    why = (
        F.when(reason == "exhausted", F.format_string("after %d attempts", "attempt"))
        .when(reason == "undecodable", F.lit("because its payload could not be read"))
        .otherwise(F.lit("because its consumer gave up on it"))
    )
    said = F.concat(
        F.lit("Message "), "key", F.lit(" of queue "), "queue", F.lit(" became a dead letter "), why, _because(), F.lit(".")
    )  # fmt: skip
    return limited(_about(judged(seen, "buried"), F.col("attempt"), said), settings.most_per_hour)


@detector(name="zombie_message", severity="critical", settings=ZombieMessage())
def zombie_message(seen: Seen, settings: ZombieMessage) -> DataFrame:
    """An expired lease whose message was not leased again for twice the lease's length, or 8 h: consumers may be down.

    Found while the message waits, and also afterwards, when it was leased late.
    """
    from pyspark.sql import Window

    of_key = Window.partitionBy("queue_id", "key").orderBy("id")
    # An expiry is recorded by the consumer that leases the message next, or earlier by a sweeper, which leases nothing.
    life = seen.events.where(F.col("key").isNotNull() & ~F.col("kind").isin("refused", "purged", "expired"))
    following = F.lead(F.struct("at", "kind")).over(of_key)
    held = life.withColumn("following", following).where(F.col("kind").isin("leased", "touched"))
    length_us = micros_between(F.col("at"), F.col("lease_until"))
    taken_at = F.coalesce(F.col("following.at"), F.lit(seen.known_until))
    over_us = micros_between(F.col("lease_until"), taken_at)
    # A touch, an ack or any other event of the holder precedes the end of the lease; only these events follow it.
    most_us = F.least(length_us * F.lit(settings.times_lease), F.lit(settings.at_most_s * 1e6))
    late = held.withColumns({"length_us": length_us, "over_us": over_us, "most_us": most_us}).where("over_us > most_us")
    zombies = late.withColumns({"window_from": F.col("lease_until"), "window_to": taken_at})
    zombies = zombies.where(seen.within(F.col("window_from"), F.col("window_to")))
    ended = F.when(F.col("following.at").isNull(), F.lit("and nobody has taken it since")).otherwise(
        F.lit("before anybody came")
    )
    said = F.concat(
        F.lit("The lease of message "), "key", F.lit(" of queue "), "queue", F.lit(" ("), duration(F.col("length_us") / 1e6),
        F.lit(", of "), somebody(), F.lit(") ran out, "), ended, F.lit(": "), duration(F.col("over_us") / 1e6),
        F.lit(" so far. Is any consumer running?"),
    )  # fmt: skip
    most = F.col("most_us") / 1e6
    # Identity is key, consumer and end of the lease: an anomaly longer than the frames must stay the same.
    found = limited(_about(zombies, F.col("over_us") / 1e6, said, most), settings.most_per_hour).drop("identity", "id")
    return found if seen.told is None else found.unionByName(_still_there(seen, seen.told, life, found))


def _still_there(seen: Seen, told: DataFrame, life: DataFrame, found: DataFrame) -> DataFrame:
    """Published zombies whose lease is older than the frames: they end with the next event of their message."""
    of_message = ["queue_id", "key"]
    old = told.drop("detector", "expected_low", "window_to", "observed").join(
        found, [*of_message, "window_from"], "left_anti"
    )
    old_keys = F.broadcast(old.select(*of_message, "window_from"))
    came = life.join(old_keys, of_message).where(F.col("at") > F.col("window_from"))
    ends = came.groupBy(*of_message, "window_from").agg(F.min("at").alias("came_at"))
    lain = old.join(ends, [*of_message, "window_from"], "left").withColumn(
        "window_to", F.coalesce("came_at", F.lit(seen.known_until))
    )
    lain = lain.where(seen.within(F.col("window_from"), F.col("window_to")))
    over_s = micros_between(F.col("window_from"), F.col("window_to")) / 1e6
    end = F.when(F.col("came_at").isNull(), F.lit(" so far. Is any consumer running?")).otherwise(F.lit("."))
    said = F.concat(
        F.lit("The lease of message "), "key", F.lit(" of queue "), "queue", F.lit(" (of "), somebody(),
        F.lit(") ran out, and nobody took it for "), duration(over_s), end,
    )  # fmt: skip
    score = over_s / F.nullif(F.col("expected_high"), F.lit(0))
    told_again = {"observed": over_s, "score": score, "sentence": said, "evidence": history_of_key()}
    return lain.withColumns(told_again).select(*found.columns)


def _because() -> Column:
    return F.coalesce(F.concat(F.lit(" ("), F.substring("error", 1, 200), F.lit(")")), F.lit(""))


def _about(frame: DataFrame, observed: Column, said: Column, high: Column | None = None) -> DataFrame:
    if high is None:
        high = F.col("expected_high") if "expected_high" in frame.columns else F.lit(None)
    return frame.select(
        "id", "queue_id", "queue", "key", "consumer", "window_from", "window_to",
        observed.alias("observed"),
        high.alias("expected_high"),
        (observed / F.nullif(high, F.lit(0))).alias("score"),
        said.alias("sentence"),
        history_of_key().alias("evidence"),
        F.col("id").cast("string").alias("identity"),
    )  # fmt: skip


MESSAGE_RULES = (
    flash_message, large_payload, long_processing, lock_stolen, near_dlq, dlq_movement, zombie_message,
)  # fmt: skip
