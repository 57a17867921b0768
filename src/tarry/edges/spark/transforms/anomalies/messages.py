# pyright: basic
"""Rules about single messages: offers, leases and settles.

Usual values come from the queue's profile of the previous four weeks. A queue that is normally slow or large (its own
quantile exceeds the absolute limit) is judged only by its profile; otherwise it would be reported all day.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from tarry.edges.spark.transforms import history as tracing
from tarry.edges.spark.transforms.anomalies.context import DetectorContext
from tarry.edges.spark.transforms.anomalies.findings import filled, history_of_key, limited, or_nothing
from tarry.edges.spark.transforms.anomalies.registry import detector
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
class EveryEvent:
    """Settings of lock_stolen and dlq_movement."""

    most_per_hour: int = 50


@dataclass(frozen=True)
class NearDlq:
    attempts_left: int = 1
    most_per_hour: int = 20


@dataclass(frozen=True)
class ZombieMessage:
    times_lease: float = 2
    at_most_s: float = 8 * 3600
    """Upper bound for long leases. With the longest lease of 12 h it stays within the day of the frames."""
    most_per_hour: int = 50


def judged(context: DetectorContext, *kinds: str) -> DataFrame:
    """Events of these kinds, with `date`, and as windows of zero length."""
    return as_windows(context.events_of(*kinds), context)


def as_windows(events: DataFrame, context: DetectorContext) -> DataFrame:
    at = F.col("at")
    return events.where(context.within(at, at)).withColumns({"window_from": at, "window_to": at, "date": dated(at)})


def with_habit(frame: DataFrame, context: DetectorContext, measure: str) -> DataFrame:
    """Join `p01`, `p99` and `p999` of the queue to each row; null with too little history."""
    known = context.profile(measure).where(F.col("n") >= ENOUGH).drop("n")
    return frame.join(known, ["date", "queue_id"], "left")


def limit(absolute: float, usual: Column, times: float) -> Column:
    """The lower of the absolute and the relative limit; the relative one if the usual value is above the absolute."""
    return (
        F.when(usual.isNull(), F.lit(float(absolute)))
        .when(usual > absolute, usual * times)
        .otherwise(F.least(F.lit(float(absolute)), usual * times))
    )


@detector(name="flash_message", severity="info", settings=FlashMessage())
def flash_message(context: DetectorContext, settings: FlashMessage) -> DataFrame:
    """Leased sooner than 99 % of its queue: a consumer may be spinning, or a delay may be wrong."""
    lag_ms = micros_between(tracing.eligible_at(), F.col("at")) / 1000
    leased = as_windows(context.sequence.where("kind = 'leased'").withColumn("observed", lag_ms), context)
    fast = with_habit(leased, context, "lag_us").where(
        (F.col("observed") < settings.under_ms) & (F.col("observed") * 1000 < F.col("p01"))
    )
    sentence = filled(
        "Message {key} of queue {queue} was taken {observed:ms} after it could be taken, by {consumer:named}; 99 of 100 wait "
        "longer than {p01:us}."
    )
    return _about(fast.withColumn("expected_low", F.col("p01") / 1000), F.col("observed"), sentence)


@detector(name="large_payload", severity="info", settings=LargePayload())
def large_payload(context: DetectorContext, settings: LargePayload) -> DataFrame:
    """Single and bulk offers, and updates; the size is that of the stored bytes."""
    offers = with_habit(judged(context, "offered", "updated"), context, "size")
    most = limit(settings.over_bytes, F.col("p999"), settings.times_usual)
    large = offers.withColumn("expected_high", most).where(F.col("size") > F.col("expected_high"))
    sentence = filled(
        "Message {key} of queue {queue} has {size:number} bytes of payload; more than {expected_high:number} is unusual here."
    )
    return _about(large, F.col("size"), sentence)


@detector(name="long_processing", severity="warning", settings=LongProcessing())
def long_processing(context: DetectorContext, settings: LongProcessing) -> DataFrame:
    """From the lease to the ack or nack: a slow failure counts too."""
    settled = with_habit(judged(context, "acked", "nacked"), context, "processing_us")
    worked = micros_between(F.col("leased_at"), F.col("at")) / 1e6
    most = limit(settings.over_s, F.col("p99") / 1e6, settings.times_usual)
    long = (
        settled.withColumns({"observed": worked, "expected_high": most})
        .where(F.col("observed") > F.col("expected_high"))
        .withColumn("window_from", F.col("leased_at"))
    )
    sentence = filled(
        "Message {key} of queue {queue} was held for {observed:s} by {consumer:named} until it was {kind}; up to "
        "{expected_high:s} is usual."
    )
    return _about(long, F.col("observed"), sentence)


@detector(name="lock_stolen", severity="critical", settings=EveryEvent())
def lock_stolen(context: DetectorContext, settings: EveryEvent) -> DataFrame:
    """A settle with a token that is not the current one: it changed nothing, but work was done twice."""
    verb = F.coalesce(F.get_json_object("detail", "$.verb"), F.lit("settle"))
    sentence = filled(
        "A consumer tried to {verb} message {key} of queue {queue} with a lease that was lost. Nothing was changed, but the "
        "work may have been done twice: the lease is shorter than the work, or a consumer hung.",
        verb=verb,
    )
    return _about(judged(context, "refused"), F.lit(None), sentence)


@detector(name="near_dlq", severity="warning", settings=NearDlq())
def near_dlq(context: DetectorContext, settings: NearDlq) -> DataFrame:
    """After a nack, by the message's max_attempts; older nacks without it are judged by the queue's limit."""
    limits = F.broadcast(context.queues.select("queue_id", "max_attempts"))
    own = F.get_json_object("detail", "$.max_attempts").cast("int")
    left = F.col("max_attempts") - F.col("attempt")
    near = (
        judged(context, "nacked")
        .join(limits, "queue_id")
        .withColumn("max_attempts", F.coalesce(own, F.col("max_attempts")))
        .withColumn("observed", left)
        .where((left > 0) & (left <= settings.attempts_left))
    )
    sentence = filled(
        "Message {key} of queue {queue} failed at attempt {attempt} of {max_attempts}{because}: {observed} more and it is a "
        "dead letter.",
        because=_because(),
    )
    return _about(near, F.col("observed"), sentence)


@detector(name="dlq_movement", severity="warning", settings=EveryEvent())
def dlq_movement(context: DetectorContext, settings: EveryEvent) -> DataFrame:
    """By its last nack, by a lease that expired at its last attempt, or buried by a consumer."""
    reason = F.get_json_object("detail", "$.reason")
    why = (
        F.when(reason == "exhausted", filled("after {attempt} attempts"))
        .when(reason == "undecodable", F.lit("because its payload could not be read"))
        .otherwise(F.lit("because its consumer gave up on it"))
    )
    sentence = filled(
        "Message {key} of queue {queue} became a dead letter {why}{because}.", why=why, because=_because()
    )
    return _about(judged(context, "buried"), F.col("attempt"), sentence)


@detector(name="zombie_message", severity="critical", settings=ZombieMessage())
def zombie_message(context: DetectorContext, settings: ZombieMessage) -> DataFrame:
    """An expired lease whose message was not leased again for twice the lease's length, or 8 h: consumers may be down.

    Found while the message waits, and also afterwards, when it was leased late.
    """
    of_key = Window.partitionBy("queue_id", "key").orderBy("id")
    # An expiry is recorded by the consumer that leases the message next, or earlier by a sweeper, which leases nothing.
    life = context.events.where(F.col("key").isNotNull() & ~F.col("kind").isin("refused", "discarded", "expired"))
    next_event = F.lead(F.struct("at", "kind")).over(of_key)
    held = life.withColumn("next_event", next_event).where(F.col("kind").isin("leased", "touched"))
    length_us = micros_between(F.col("at"), F.col("lease_until"))
    taken_at = F.coalesce(F.col("next_event.at"), F.lit(context.known_until))
    over_us = micros_between(F.col("lease_until"), taken_at)
    # A touch, an ack or any other event of the holder precedes the end of the lease; only these events follow it.
    most_us = F.least(length_us * F.lit(settings.times_lease), F.lit(settings.at_most_s * 1e6))
    late = held.withColumns({"length_us": length_us, "over_us": over_us, "most_us": most_us}).where("over_us > most_us")
    zombies = late.withColumns({"window_from": F.col("lease_until"), "window_to": taken_at})
    zombies = zombies.where(context.within(F.col("window_from"), F.col("window_to")))
    ended = F.when(F.col("next_event.at").isNull(), F.lit("and no consumer has leased it since")).otherwise(
        F.lit("before a consumer leased it")
    )
    sentence = filled(
        "The lease of message {key} of queue {queue} ({length_us:us}, of {consumer:named}) ran out, {ended}: {over_us:us} so "
        "far. Is any consumer running?",
        ended=ended,
    )
    most = F.col("most_us") / 1e6
    # Identity is key, consumer and end of the lease: an anomaly longer than the frames must stay the same.
    rows = _about(zombies.withColumn("expected_high", most), F.col("over_us") / 1e6, sentence)
    findings = limited(rows, settings.most_per_hour).select(*_ZOMBIE)
    if context.continuable is None:
        return findings
    return findings.unionByName(_still_there(context, context.continuable, life, findings))


_ZOMBIE = (
    "queue_id", "queue", "key", "consumer", "window_from", "window_to", "observed", "expected_high", "score", "sentence",
    "evidence",
)  # fmt: skip


def _still_there(context: DetectorContext, published: DataFrame, life: DataFrame, findings: DataFrame) -> DataFrame:
    """Published zombies whose lease is older than the frames: they end with the next event of their message."""
    of_message = ["queue_id", "key"]
    old = published.drop("detector", "expected_low", "window_to", "observed").join(
        findings, [*of_message, "window_from"], "left_anti"
    )
    old_keys = F.broadcast(old.select(*of_message, "window_from"))
    came = life.join(old_keys, of_message).where(F.col("at") > F.col("window_from"))
    ends = came.groupBy(*of_message, "window_from").agg(F.min("at").alias("came_at"))
    lain = old.join(ends, [*of_message, "window_from"], "left").withColumn(
        "window_to", F.coalesce("came_at", F.lit(context.known_until))
    )
    lain = lain.where(context.within(F.col("window_from"), F.col("window_to")))
    over_s = micros_between(F.col("window_from"), F.col("window_to")) / 1e6
    end = F.when(F.col("came_at").isNull(), F.lit(" so far. Is any consumer running?")).otherwise(F.lit("."))
    sentence = filled(
        "The lease of message {key} of queue {queue} (of {consumer:named}) ran out, and no consumer leased it for "
        "{over:s}{end}",
        over=over_s,
        end=end,
    )
    score = over_s / F.nullif(F.col("expected_high"), F.lit(0))
    columns = {"observed": over_s, "score": score, "sentence": sentence, "evidence": history_of_key()}
    return lain.withColumns(columns).select(*_ZOMBIE)


def _because() -> Column:
    """The line that names the error: the first, but the last of a traceback. The evidence has the whole text."""
    lines = F.split(F.regexp_replace("error", r"^\s+|\s+$", ""), r"\s*\n\s*")
    line = F.element_at(lines, F.when(F.col("error").startswith("Traceback "), -1).otherwise(1))
    return or_nothing(filled(" ({error})", error=F.substring(line, 1, 200)))


def _about(frame: DataFrame, observed: Column, sentence: Column) -> DataFrame:
    """Findings about one event each, which identifies them."""
    high = F.col("expected_high") if "expected_high" in frame.columns else F.lit(None)
    return frame.withColumns(
        {
            "observed": observed,
            "score": observed / F.nullif(high, F.lit(0)),
            "sentence": sentence,
            "evidence": history_of_key(),
            "identity": F.col("id").cast("string"),
        }
    )


MESSAGE_RULES = (
    flash_message, large_payload, long_processing, lock_stolen, near_dlq, dlq_movement, zombie_message,
)  # fmt: skip
