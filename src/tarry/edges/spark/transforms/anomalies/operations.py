# pyright: basic
"""Rules about many messages at once: bulk operations, a purged queue, a consumer with a burst of leases."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from tarry.edges.spark.transforms.anomalies.found import instant, journal_of, limited, number, quoted, somebody
from tarry.edges.spark.transforms.anomalies.messages import ENOUGH, judged, with_habit
from tarry.edges.spark.transforms.anomalies.registry import detector
from tarry.edges.spark.transforms.anomalies.seen import Seen
from tarry.edges.spark.transforms.instants import dated


@dataclass(frozen=True)
class BulkEnqueue:
    at_least: int = 10
    most_per_hour: int = 20


@dataclass(frozen=True)
class BulkDelete:
    at_least: int = 10
    most_per_hour: int = 20


@dataclass(frozen=True)
class BulkMove:
    at_least: int = 10
    most_per_hour: int = 20


@dataclass(frozen=True)
class QueueCleared:
    at_least: int = 1
    most_per_hour: int = 20


@dataclass(frozen=True)
class BurstDequeue:
    at_least: int = 50
    within_s: float = 5
    most_per_hour: int = 20


def operations(events: DataFrame) -> DataFrame:
    """One row per queue and transaction: the number of messages it touched, and its bounds."""
    return events.groupBy("queue_id", "xid").agg(
        F.max_by("queue", "id").alias("queue"),
        F.min("id").alias("id"),
        F.count_distinct("id").alias("count"),
        F.min("at").alias("window_from"),
        F.max("at").alias("window_to"),
    )


@detector(name="bulk_enqueue", severity="info", settings=BulkEnqueue())
def bulk_enqueue(seen: Seen, settings: BulkEnqueue) -> DataFrame:
    """Offers in one transaction. Concurrent tasks share one by group commit, up to a thousand offers: where such
    operations are usual, only larger ones are reported.
    """
    counted = operations(judged(seen, "offered", "updated")).withColumn("date", dated(F.col("window_from")))
    bulk = with_habit(counted, seen, "operation").where(
        (F.col("count") >= settings.at_least) & (F.col("count") > F.coalesce("p99", F.lit(0.0)))
    )
    return limited(_bulk(bulk, "were offered to queue", F.col("p99")), settings.most_per_hour)


@detector(name="bulk_delete", severity="info", settings=BulkDelete())
def bulk_delete(seen: Seen, settings: BulkDelete) -> DataFrame:
    """Live messages or dead letters. A purge of the queue is reported by `queue_cleared` instead."""
    cleared = judged(seen, "queue_purged").select("queue_id", "xid")
    counted = operations(judged(seen, "dropped", "purged")).join(cleared, ["queue_id", "xid"], "left_anti")
    bulk = counted.where(F.col("count") >= settings.at_least)
    return limited(_bulk(bulk, "were removed from queue"), settings.most_per_hour)


@detector(name="bulk_move", severity="info", settings=BulkMove())
def bulk_move(seen: Seen, settings: BulkMove) -> DataFrame:
    """From the dead letters back to a queue, or to another queue."""
    bulk = operations(judged(seen, "redriven", "moved")).where(F.col("count") >= settings.at_least)
    return limited(_bulk(bulk, "were moved into queue"), settings.most_per_hour)


@detector(name="queue_cleared", severity="warning", settings=QueueCleared())
def queue_cleared(seen: Seen, settings: QueueCleared) -> DataFrame:
    """Also for a queue without a journal: this event is always written."""
    count = F.get_json_object("detail", "$.count").cast("long")
    cleared = judged(seen, "queue_purged").withColumn("observed", count).where(F.col("observed") >= settings.at_least)
    said = F.concat(
        F.lit("Queue "), "queue", F.lit(" was cleared: "), number(F.col("observed")), F.lit(" live messages are gone.")
    )  # fmt: skip
    told = cleared.select(
        "id", "queue_id", "queue", "window_from", "window_to", "observed",
        said.alias("sentence"),
        journal_of(None, "kind in ('queue_purged', 'dropped')").alias("evidence"),
        F.col("id").cast("string").alias("identity"),
    )  # fmt: skip
    return limited(told, settings.most_per_hour)


@detector(name="burst_dequeue", severity="warning", settings=BurstDequeue())
def burst_dequeue(seen: Seen, settings: BurstDequeue) -> DataFrame:
    """Counts leases in every span of `within_s` seconds; a continuing burst is one anomaly.

    The usual value is that of the consumer's own busy spans before, or of all consumers of the queue while this one is
    new.
    """
    span_us = int(settings.within_s * 1_000_000)
    # A lease adds one at its instant and subtracts one a span later: a running sum, which Spark computes in one pass. A
    # sliding frame is summed again for every row, which takes hours for a million leases of one consumer.
    at_once = (
        seen.events.where("kind = 'leased'")
        .groupBy("queue_id", "consumer", F.unix_micros("at").alias("us"))
        .agg(F.count(F.lit(1)).alias("n"), F.min("id").alias("id"), F.max_by("queue", "id").alias("queue"))
    )
    comes = F.struct(F.col("us").alias("moment"), F.col("n").alias("step"))
    goes = F.struct((F.col("us") + span_us).alias("moment"), (-F.col("n")).alias("step"))
    of_consumer = Window.partitionBy("queue_id", "consumer").orderBy("moment")
    steps = at_once.select("queue_id", "consumer", "queue", "id", F.inline(F.array(comes, goes)))
    busy = steps.withColumn("count", F.sum("step").over(of_consumer)).where(
        (F.col("step") > 0) & (F.col("count") >= settings.at_least)
    )
    begins = F.coalesce(F.col("moment") - F.lag("moment").over(of_consumer) > span_us, F.lit(True))
    marked = busy.withColumn("begins", begins.cast("int"))
    numbered = marked.withColumn("burst", F.sum("begins").over(of_consumer))
    bursts = numbered.groupBy("queue_id", "consumer", "burst").agg(
        F.max_by("queue", "id").alias("queue"),
        F.min("id").alias("id"),
        F.max("count").alias("observed"),
        F.timestamp_micros(F.min("moment") - span_us).alias("window_from"),
        F.timestamp_micros(F.max("moment")).alias("window_to"),
    )
    bursts = bursts.where(seen.within(F.col("window_from"), F.col("window_to")))
    bursts = bursts.withColumn("date", dated(F.col("window_to")))
    usual = F.broadcast(
        seen.profiles.where((F.col("measure") == "taken") & F.col("consumer").isNotNull() & (F.col("n") >= ENOUGH))
        .select("date", "queue_id", "consumer", F.col("p99").alias("own"))
    )  # fmt: skip
    judged_bursts = with_habit(bursts.join(usual, ["date", "queue_id", "consumer"], "left"), seen, "taken")
    high = F.coalesce("own", "p99")
    unusual = judged_bursts.withColumn("expected_high", high).where(F.col("observed") > F.coalesce(high, F.lit(0.0)))
    said = F.concat(
        F.lit("In queue "), "queue", F.lit(", "), somebody(), F.lit(" took "),
        number(F.col("observed")), F.lit(f" messages within {settings.within_s:g} s"),
        F.coalesce(F.concat(F.lit("; up to "), number(F.col("expected_high")), F.lit(" is usual")), F.lit("")),
        F.lit(". Others may be left without work."),
    )  # fmt: skip
    who = F.coalesce(F.concat(F.lit("consumer = "), quoted(F.col("consumer"))), F.lit("consumer is null"))
    evidence = F.concat(
        F.lit("select consumer, date_trunc('second', at) as second, count(*) from tarry.journal where queue = "),
        quoted(F.col("queue")), F.lit(" and kind = 'leased' and "), who, F.lit(" and at >= "),
        instant(F.col("window_from")), F.lit(" and at <= "), instant(F.col("window_to")), F.lit(" group by 1, 2 order by 2"),
    )  # fmt: skip
    told = unusual.select(
        "id", "queue_id", "queue", "consumer", "window_from", "window_to", "observed", "expected_high",
        (F.col("observed") / F.coalesce("expected_high", F.lit(float(settings.at_least)))).alias("score"),
        said.alias("sentence"),
        evidence.alias("evidence"),
    )  # fmt: skip
    return limited(told, settings.most_per_hour)


def _bulk(frame: DataFrame, happened: str, high=None) -> DataFrame:
    said = F.concat(number(F.col("count")), F.lit(f" messages {happened} "), "queue", F.lit(" in one operation."))
    evidence = F.concat(
        F.lit("select * from tarry.journal where xid::text::bigint = "), F.col("xid").cast("string"),
        F.lit(" and queue = "), quoted(F.col("queue")), F.lit(" order by id"),
    )  # fmt: skip
    return frame.select(
        "id", "queue_id", "queue", "window_from", "window_to",
        F.col("count").alias("observed"),
        (F.lit(None) if high is None else high).alias("expected_high"),
        said.alias("sentence"),
        evidence.alias("evidence"),
        F.col("id").cast("string").alias("identity"),
    )  # fmt: skip


OPERATION_RULES = (burst_dequeue, bulk_enqueue, bulk_delete, bulk_move, queue_cleared)
